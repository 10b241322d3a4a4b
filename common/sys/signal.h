/* SPDX-License-Identifier: Apache-2.0
 *
 * signal.h: SIGTERM, SIGINT and SIGHUP as a call on the loop. SIGPIPE is ignored from the first
 * call on, for the whole process. Thread: the loop's.
 */
#ifndef COMMON_SYS_SIGNAL_H
#define COMMON_SYS_SIGNAL_H

#include "common/sys/loop.h"

struct signals;

/* on_signal(cookie, number) runs on the loop for each arrival (several close ones may be one). */
struct signals *signals_new(struct loop *l, void (*on_signal)(void *cookie, int number),
                            void *cookie);
void signals_free(struct signals *s); /* before loop_free; NULL is fine */

#endif
