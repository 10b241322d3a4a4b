/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_repl.h: a kv (store/kv/kv.h) whose writes go through a shard's replication log: kv_write
 * returns when the batch is committed on a majority and applied here, and everything before it,
 * too. Reads, snapshots and iterators are those of the database below, as of the end of this
 * leadership once it has ended: what the next leader writes is not seen by a store that knows
 * nothing of it. For a store that serves while its replica leads.
 *
 * A batch may also be pipelined (kv_begin): only reads of its rows without a snapshot wait for it.
 * README.md, "Pipelined batches", argues why that is safe.
 *
 * Writes fail with ERR_UNAVAILABLE when the replica leads no more, or when nothing was applied for
 * WRITE_WAIT_MS although writes wait (repl_node_impl.h): whether the batch was committed is then
 * unknown (it is asked again under the same write ids); a store above goes read-only and is to be
 * closed. The handle never writes again, also when the same replica leads once more: take a new
 * one, once repl_node_drained.
 *
 * Thread: as kv.h; but never the loop's own thread, which would wait for itself. In simulation a
 * writer runs in a fiber (sys/fiber.h), which yields until it is done.
 */
#ifndef COMMON_REPL_KV_REPL_H
#define COMMON_REPL_KV_REPL_H

#include "common/store/kv/kv.h"

struct repl_node;
/* While it leads (repl_node.h); bound to this leadership; one at a time. kv_close frees the handle,
 * not the database below. The node must outlive it. */
struct kv *kv_repl_new(struct repl_node *n);

#endif
