/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_scratch.h: tables that a request leaves for the next requests of its shard, so that most
 * requests allocate nothing: how much memory they hold, and when it is freed.
 *
 * store_share (store.h) sets their limit. After a request that left more, all of it is freed, and
 * a request whose sort (stage_sort.h) would need more is not sorted. It is also freed if no request
 * came between two calls of stage_scratch_trim.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_WRITE_STAGE_SCRATCH_H
#define COMMON_STORE_WRITE_STAGE_SCRATCH_H

#include "common/store/write/stage_fold.h"
#include "common/store/write/stage_sort.h"

struct store;
struct stage_scratch {
    bool used;   /* a request came since the last stage_scratch_trim */
    size_t high; /* bytes that the largest of these requests wanted */
};
struct stage { /* of a store */
    struct stage_fold fold;
    struct stage_sort order;
    struct stage_scratch room;
};
struct stage *stage_new(void);
void stage_free(struct stage *x); /* NULL is fine */

size_t stage_scratch_bytes(const struct store *s);
/* Their limit in bytes. SIZE_MAX: no limit was set. */
size_t stage_scratch_max(const struct store *s);
/* Call after each request. */
void stage_scratch_end(struct store *s);
/* Frees the tables if no request came since the last call. */
void stage_scratch_trim(struct store *s);

#endif
