/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_job.h: work on files, for all replicas of a process on one thread, so that copies of
 * databases slow down neither the loop nor the logs, and take one processor at most.
 *
 * Thread: the loop's. In simulation the work runs there, too, after the time a disk takes.
 */
#ifndef COMMON_REPL_REPL_JOB_H
#define COMMON_REPL_REPL_JOB_H

#include "common/repl/repl_node.h"

/* Runs `run` there, behind what was asked for before, then `done` on the loop: always, also when
 * the node is being closed (n->stopping), which waits for it. */
void repl_job(struct repl_node *n, void (*run)(void *cookie), void (*done)(void *cookie),
              void *cookie);
void repl_job_free(struct repl_hub *h); /* its nodes are gone */

#endif
