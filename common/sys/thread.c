/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sys/thread.h"

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

void thread_name_self(const char *name)
{
    (void)prctl(PR_SET_NAME, name, 0, 0, 0);
}
