/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_ahead.h: the stacks of a heavy request go into the dictionary in parts, before the request.
 *
 * Interning hundreds of thousands of new stack nodes takes the shard's thread a tenth of a second
 * and more, in which no other write is staged. Parts of some AHEAD_NODES can be staged between
 * writes of others, each in whatever batch is open then; store_stage of the request itself then
 * finds its nodes known. What store_stage stores is the same with and without them.
 *
 * A part is only a beginning of the request's nodes, in the request's order: parents come before
 * their children, so each beginning is a tree of its own. Nothing refers to nodes that were staged
 * ahead of a request that fails in the end; they are known when it is sent again.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_WRITE_STAGE_AHEAD_H
#define COMMON_STORE_WRITE_STAGE_AHEAD_H

#include "common/store/store.h"

#define AHEAD_NODES     32768u
#define AHEAD_PARTS_MAX 16 /* each walks what the parts before it staged as well */

/* In how many parts; 0: the request is small, or has its stacks by number. Any thread. */
unsigned store_ahead_parts(const struct store_write *w);
/* Part i of n, from 1 on. False: nothing was done, and further parts would do nothing: the request
 * is known, or wrong, or its dictionary is about to close or near its cap. store_stage decides. */
bool store_stage_ahead(struct store *s, struct store_batch *b, const struct store_write *w,
                       unsigned i, unsigned n);

#endif
