/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: threads with a name and without signals.
 *
 * A new thread inherits a mask that blocks all signals but SIGPROF (the profiler's), so SIGTERM
 * always reaches the main thread. Conditions wait by the monotonic clock: a change of the wall
 * clock neither ends a wait nor makes it longer. A failure of pthread is a broken invariant, hence
 * CHECK.
 */
#include "common/sys/thread.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>

#include "common/base/mem.h"

_Thread_local unsigned thread_locks;

enum { NAME_BYTES = 16 }; /* with the NUL; the kernel's limit */

struct start {
    void (*fn)(void *);
    void *cookie;
    char name[NAME_BYTES];
};

static void *thread_main(void *arg)
{
    struct start s = *(struct start *)arg;

    xfree(arg);
    thread_name_self(s.name);
    s.fn(s.cookie);
    return NULL;
}

void thread_start(struct thread *t, const char *name, void (*fn)(void *), void *cookie)
{
    struct start *s = XNEW(struct start);
    sigset_t block, before;

    CHECK(!t->started);
    CHECK(strlen(name) < NAME_BYTES);
    memcpy(s->name, name, strlen(name) + 1);
    s->fn = fn;
    s->cookie = cookie;
    /* Inherited by the new thread, so that there is no moment in which it could get a signal. */
    sigfillset(&block);
    sigdelset(&block, SIGPROF);
    CHECK(pthread_sigmask(SIG_SETMASK, &block, &before) == 0);
    CHECK(pthread_create(&t->id, NULL, thread_main, s) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    t->started = true;
}

void thread_join(struct thread *t)
{
    if (!t->started)
        return;
    CHECK(pthread_join(t->id, NULL) == 0);
    t->started = false;
}

void thread_detach(struct thread *t)
{
    CHECK(t->started);
    CHECK(pthread_detach(t->id) == 0);
    t->started = false;
}

void thread_name_self(const char *name)
{
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
}

/* ---- conditions ---- */

void cond_init(struct cond *c)
{
    pthread_condattr_t a;

    CHECK(pthread_condattr_init(&a) == 0);
    CHECK(pthread_condattr_setclock(&a, CLOCK_MONOTONIC) == 0);
    CHECK(pthread_cond_init(&c->c, &a) == 0);
    CHECK(pthread_condattr_destroy(&a) == 0);
}

void cond_deinit(struct cond *c)
{
    CHECK(pthread_cond_destroy(&c->c) == 0);
}

void cond_wait(struct cond *c, struct mutex *m)
{
    CHECK(pthread_cond_wait(&c->c, &m->m) == 0);
}

bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t mono_ms)
{
    struct timespec until = { .tv_sec = (time_t)(mono_ms / 1000),
                              .tv_nsec = (long)(mono_ms % 1000 * 1000000) };

    if (mono_ms == UINT64_MAX) {
        cond_wait(c, m);
        return true;
    }
    int rc = pthread_cond_timedwait(&c->c, &m->m, &until);
    CHECK(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void cond_wake_one(struct cond *c)
{
    CHECK(pthread_cond_signal(&c->c) == 0);
}

void cond_wake_all(struct cond *c)
{
    CHECK(pthread_cond_broadcast(&c->c) == 0);
}
