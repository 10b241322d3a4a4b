/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h: named threads, locks and conditions. Only common/sys uses pthread's own.
 */
#ifndef COMMON_SYS_THREAD_H
#define COMMON_SYS_THREAD_H

#include <pthread.h>

#include "common/base/base.h"

struct thread {
    pthread_t id;
    bool started;
};
/* Name: at most 15 bytes, shown by ps, gdb and the self-profiler. All signals but SIGPROF are
 * blocked in it, so that the loop thread gets SIGTERM. */
void thread_start(struct thread *t, const char *name, void (*fn)(void *), void *cookie);
void thread_join(struct thread *t); /* twice is fine */
/* The thread ends by itself and frees its memory. It must not be joined. */
void thread_detach(struct thread *t);
void thread_name_self(const char *name);

/* Number of struct mutex that this thread holds. Unless it is 0 the thread must not wait for a turn
 * (pool_slice). */
extern _Thread_local unsigned thread_locks;

/* For short, bounded sections (STYLE.md, A9). */
struct mutex {
    pthread_mutex_t m;
};
#define MUTEX_INIT                \
    {                             \
        PTHREAD_MUTEX_INITIALIZER \
    } /* of a lock that is never freed */
static inline void mutex_init(struct mutex *m)
{
    CHECK(pthread_mutex_init(&m->m, NULL) == 0);
}
static inline void mutex_deinit(struct mutex *m)
{
    CHECK(pthread_mutex_destroy(&m->m) == 0);
}
static inline void mutex_lock(struct mutex *m)
{
    CHECK(pthread_mutex_lock(&m->m) == 0);
    thread_locks++;
}
static inline void mutex_unlock(struct mutex *m)
{
    thread_locks--;
    CHECK(pthread_mutex_unlock(&m->m) == 0);
}

/* Wakes threads that wait for something that a mutex guards. All of these with the mutex held. */
struct cond {
    pthread_cond_t c;
};
void cond_init(struct cond *c);
void cond_deinit(struct cond *c);
/* Each may return without reason: call it in a loop that looks. */
void cond_wait(struct cond *c, struct mutex *m);
/* False: the time has come (clock_mono_ms of the real clock). UINT64_MAX: no limit. */
NODISCARD bool cond_wait_until(struct cond *c, struct mutex *m, uint64_t mono_ms);
void cond_wake_one(struct cond *c);
void cond_wake_all(struct cond *c);

#endif
