/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_pipe.h: the pipelined batches of one handle (kv_repl.h): proposed, and not waited for. The
 * pipe knows which rows each of them writes until it is applied on this node.
 *
 * Batches end in the order in which they were begun. A batch that fails breaks the pipe: all later
 * batches fail, too, and the handle writes nothing any more.
 *
 * Thread: any, except that pipe_ended and pipe_break run on the loop. References keep a pipe alive
 * after its handle is closed, until its last batch has ended.
 */
#ifndef COMMON_REPL_REPL_PIPE_H
#define COMMON_REPL_REPL_PIPE_H

#include "common/repl/log/entry.h"
#include "common/store/kv/kv.h"

struct loop;
struct repl_pipe;

#define PIPE_BATCHES ((size_t)32)      /* in flight at once, */
#define PIPE_BYTES   ((size_t)8 * MIB) /* and their bytes; a single batch may be larger */

/* `simulated`: callers that wait are fibers. */
struct repl_pipe *pipe_new(struct loop *loop, bool simulated);
struct repl_pipe *pipe_ref(struct repl_pipe *p);
void pipe_unref(struct repl_pipe *p); /* NULL is fine */

/* Adds a batch, and returns its number: 1 for the first. References the entry. One thread. */
uint64_t pipe_begin(struct repl_pipe *p, struct repl_entry *batch);
/* Returns the number of the last batch applied: each snapshot made from now on shows it. */
uint64_t pipe_done(struct repl_pipe *p);
uint64_t pipe_begun(struct repl_pipe *p); /* the number of the last one */
/* Returns the highest number of a batch in flight that writes a row of [from, to), or the row
 * `from` if `alone`; 0: no batch does. An empty `to` means no end. */
uint64_t pipe_touches(struct repl_pipe *p, enum kv_cf cf, struct str from, struct str to,
                      bool alone);
/* Waits until batch `number` is applied, at most wait_ms; UINT64_MAX: without a limit, as each
 * batch ends by itself (WRITE_WAIT_MS). In simulation any other time is taken as 0.
 * ERR_TIMEOUT: the batch is in flight; any other error says why the pipe is broken. */
NODISCARD int pipe_wait(struct repl_pipe *p, uint64_t number, uint64_t wait_ms, struct err *e);
/* Waits until there is room for another batch. The error says why the pipe is broken. */
NODISCARD int pipe_wait_room(struct repl_pipe *p, struct err *e);

/* The oldest batch was applied. */
void pipe_ended(struct repl_pipe *p);
/* A write of the handle has failed. A second call changes nothing. */
void pipe_break(struct repl_pipe *p, const struct err *why);
bool pipe_broken(struct repl_pipe *p, struct err *ret_why);

#endif
