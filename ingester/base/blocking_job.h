/* SPDX-License-Identifier: Apache-2.0
 *
 * blocking_job.h: work that may wait, for a disk or for other nodes, on a thread of its own:
 * opening and closing databases. The pool's threads must not wait for other nodes, since what is
 * sent there needs them.
 */
#ifndef INGESTER_BASE_BLOCKING_JOB_H
#define INGESTER_BASE_BLOCKING_JOB_H

#include "common/sys/loop.h"

/* Runs work, then done on the loop. Simulated: both on the loop, later. Loop thread. */
void blocking_job_run(struct loop *loop, bool simulated, void (*work)(void *cookie),
                      void (*done)(void *cookie), void *cookie);

#endif
