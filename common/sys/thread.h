/* SPDX-License-Identifier: Apache-2.0
 *
 * thread.h: named threads, and the only place for locks beside common/obs.
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
void thread_name_self(const char *name);

/* Locks of struct mutex that this thread holds: who does must not wait for a turn (pool_slice). */
extern _Thread_local unsigned thread_locks;

/* For short, bounded sections in the layers that may lock (sys, obs, store). */
struct mutex {
    pthread_mutex_t m;
};
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

#endif
