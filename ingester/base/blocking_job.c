/* SPDX-License-Identifier: Apache-2.0
 *
 * aside: a thread per job; there are a few in a fail-over and none otherwise.
 */
#include "ingester/base/blocking_job.h"

#include "common/base/mem.h"
#include "common/sys/fiber.h"
#include "common/sys/thread.h"

struct job {
    struct loop *loop;
    struct thread thread;
    void (*work)(void *cookie);
    void (*done)(void *cookie);
    void *cookie;
};

static void on_end(void *cookie)
{
    struct job *j = cookie;
    void (*done)(void *c) = j->done;
    void *c = j->cookie;

    thread_join(&j->thread);
    xfree(j);
    done(c);
}

static void run(void *cookie)
{
    struct job *j = cookie;

    j->work(j->cookie);
    loop_post(j->loop, on_end, j);
}

static void run_simulated(void *cookie)
{
    fiber_run(run, cookie);
}

void blocking_job_run(struct loop *loop, bool simulated, void (*work)(void *cookie),
                      void (*done)(void *cookie), void *cookie)
{
    struct job *j = XNEW(struct job);

    *j = (struct job){ .loop = loop, .work = work, .done = done, .cookie = cookie };
    if (simulated)
        loop_post(loop, run_simulated, j);
    else
        thread_start(&j->thread, "aside", run, j);
}
