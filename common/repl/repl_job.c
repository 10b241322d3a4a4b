/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_job: a queue of jobs and the one thread that runs them.
 *
 * A job ends on the loop, where its node counts it: a node is closed only when its last job has
 * ended, so a job may use the node's memory. In simulation the loop runs one job after the other,
 * each after the time that a disk would take, and a crash may come in between.
 */
#include "common/repl/repl_job.h"

#include "common/base/mem.h"
#include "common/repl/repl_node_impl.h"

#define JOBS_MAX 4096

struct job {
    struct list link; /* simulated: waiting */
    struct repl_node *n;
    void (*run)(void *cookie);
    void (*done)(void *cookie);
    void *cookie;
};

static void on_end(void *cookie)
{
    struct job *j = cookie;
    struct repl_node *n = j->n;

    j->done(j->cookie);
    xfree(j);
    n->jobs--;
    node_jobs_end(n);
}

static void jobs_thread(void *cookie)
{
    struct repl_hub *h = cookie;
    void *jobs[8];
    size_t len;

    while ((len = chan_wait(h->jobs_in, jobs, ARRAY_LEN(jobs), UINT64_MAX)) > 0)
        for (size_t i = 0; i < len; i++) {
            struct job *j = jobs[i];
            j->run(j->cookie);
            loop_post(h->o.loop, on_end, j);
        }
}

/* ---- simulated: one after the other; a crash may come within ---- */

static void simulated_again(struct repl_hub *h);

static void simulated_run(void *cookie)
{
    struct repl_hub *h = cookie;
    struct job *j = container_of(h->jobs_waiting.next, struct job, link);

    list_del(&j->link);
    h->job_runs = false;
    j->run(j->cookie);
    loop_post(h->o.loop, on_end, j);
    simulated_again(h);
}

static void simulated_again(struct repl_hub *h)
{
    const struct repl_node *n;

    if (h->job_runs || list_empty(&h->jobs_waiting))
        return;
    h->job_runs = true;
    n = container_of(h->jobs_waiting.next, struct job, link)->n;
    if (!h->jobs_timer)
        h->jobs_timer = loop_timer_new(h->o.loop, simulated_run, h);
    loop_timer_start(h->jobs_timer, 1 + (n->o.fs && n->o.fs->lag_ms ? n->o.fs->lag_ms(n->o.fs) : 0),
                     0);
}

/* ---- both ---- */

void repl_job(struct repl_node *n, void (*run)(void *cookie), void (*done)(void *cookie),
              void *cookie)
{
    struct repl_hub *h = n->o.hub;
    struct job *j = XNEW(struct job);

    *j = (struct job){ .n = n, .run = run, .done = done, .cookie = cookie };
    n->jobs++;
    if (n->o.simulated) {
        list_add_tail(&h->jobs_waiting, &j->link);
        simulated_again(h);
        return;
    }
    if (!h->jobs_in) {
        h->jobs_in = chan_new(JOBS_MAX, NULL, NULL);
        thread_start(&h->jobs_thread, "repl-files", jobs_thread, h);
    }
    CHECK(chan_send(h->jobs_in, j)); /* what asks for jobs is bounded far below */
}

void repl_job_free(struct repl_hub *h)
{
    loop_timer_free(h->jobs_timer);
    if (!h->jobs_in)
        return;
    chan_close(h->jobs_in);
    thread_join(&h->jobs_thread);
    chan_free(h->jobs_in);
}
