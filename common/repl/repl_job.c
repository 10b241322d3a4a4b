/* SPDX-License-Identifier: Apache-2.0 */
#include "common/repl/repl_job.h"

#include "common/base/mem.h"
#include "common/repl/repl_node_impl.h"

#define JOBS_MAX 4096

struct job {
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

void repl_job(struct repl_node *n, void (*run)(void *cookie), void (*done)(void *cookie),
              void *cookie)
{
    struct repl_hub *h = n->o.hub;
    struct job *j = XNEW(struct job);

    CHECK(!n->o.simulated);
    if (!h->jobs_in) {
        h->jobs_in = chan_new(JOBS_MAX, NULL, NULL);
        thread_start(&h->jobs_thread, "repl-files", jobs_thread, h);
    }
    *j = (struct job){ n, run, done, cookie };
    n->jobs++;
    CHECK(chan_send(h->jobs_in, j)); /* what asks for jobs is bounded far below */
}

void repl_job_free(struct repl_hub *h)
{
    if (!h->jobs_in)
        return;
    chan_close(h->jobs_in);
    thread_join(&h->jobs_thread);
    chan_free(h->jobs_in);
}
