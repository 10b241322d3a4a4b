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

#endif
