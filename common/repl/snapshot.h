/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot.h: sends the database of a leader to a replica that is too far behind for the log, or
 * new, or has lost its own, while the leader continues to serve.
 *
 * Thread: the loop's, but where repl_disk.c says so.
 */
#ifndef COMMON_REPL_SNAPSHOT_H
#define COMMON_REPL_SNAPSHOT_H

#include "common/repl/repl_node.h"

/* Of replica_io.snapshot: begins later; the replica is informed of the end. */
void repl_snapshot_start(struct repl_node *n, const char *to);
/* Sends rows, even where files would be possible. */
void repl_snapshot_rows(struct repl_node *n, const char *to);
void repl_snapshot_tick(struct repl_node *n);
/* Serves RPC_REPL_SNAPSHOT; cookie: the hub. */
void repl_snapshot_serve(void *cookie, struct rpc_call *call, struct str payload);
/* The database is about to be closed, the apply thread has ended: lets go of it. That thread's
 * successor in closing. */
void repl_snapshot_release(struct repl_node *n);
/* The node goes away. */
void repl_snapshot_free(struct repl_node *n);

#endif
