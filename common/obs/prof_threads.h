/* SPDX-License-Identifier: Apache-2.0
 *
 * prof_threads.h: the threads of this process, each with a timer on its CPU time that sends it
 * SIGPROF. Threads of libraries too: they are found in /proc/self/task. Thread: one at a time.
 */
#ifndef COMMON_OBS_PROF_THREADS_H
#define COMMON_OBS_PROF_THREADS_H

#include <sys/types.h>

#include "common/base/base.h"

enum { PROF_THREADS_MAX = 1024, PROF_NAME_MAX = 16 };

struct prof_threads;

struct prof_threads *prof_threads_new(uint64_t hz);
void prof_threads_free(struct prof_threads *t); /* disarms; NULL is fine */
/* Deletes the timers, keeps the names. A signal already on its way may still arrive. */
void prof_threads_disarm(struct prof_threads *t);
/* Arms threads that are new, forgets those that ended a while ago. `names`: read all names again
 * (threads rename themselves after they start). */
void prof_threads_scan(struct prof_threads *t, bool names);
/* Name of a thread, also if it ended since the last scan; "" if unknown. */
const char *prof_threads_name(const struct prof_threads *t, pid_t tid);
size_t prof_threads_armed(const struct prof_threads *t);

#endif
