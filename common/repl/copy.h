/* SPDX-License-Identifier: Apache-2.0
 *
 * copy.h: sends a database to another replica as files: file_copy_send.c is the sending end,
 * file_copy_receive.c the receiving one. README.md, "A copy", describes both and says why.
 *
 * Thread: the loop's.
 */
#ifndef COMMON_REPL_COPY_H
#define COMMON_REPL_COPY_H

#include "common/repl/copy_files.h"
#include "common/repl/repl_node.h"

/* Of a node. The folder is opts.copy_dir. */
void repl_copy_open(struct repl_node *n);
void repl_copy_tick(struct repl_node *n);
/* The node is being closed: ends all waiting requests with an error. */
void repl_copy_stop(struct repl_node *n);
void repl_copy_free(struct repl_node *n);
/* Serves RPC_REPL_COPY; cookie: the hub. */
void repl_copy_serve(void *cookie, struct rpc_call *call, struct str payload);

/* `to` needs a database: offers this one, as files. False: that cannot be done here, send rows. The
 * offer may still end in rows (repl_snapshot_rows). */
bool repl_copy_offer(struct repl_node *n, const char *to);
bool repl_copy_giving(const struct repl_node *n); /* offers are open, and there is room */
/* The rows here were found to be wrong: stops serving copies of them. */
void repl_copy_drop(struct repl_node *n);

#endif
