/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_scratch.h: tables that requests leave for the next ones of their shard, so that most
 * allocate nothing: how much memory that is, and when it is given back.
 *
 * They may hold what store_share says (store.h): behind a request that left more all of it goes,
 * and where stage_order would need more it is not made. It goes as well when no request came for a
 * turn.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_WRITE_STAGE_SCRATCH_H
#define COMMON_STORE_WRITE_STAGE_SCRATCH_H

#include "common/store/write/stage_fold.h"
#include "common/store/write/stage_sort.h"

struct store;
struct stage_scratch {
    bool used;   /* a request came since the last turn */
    size_t high; /* that one of them wanted, at most */
};
struct stage { /* of a store */
    struct stage_fold fold;
    struct stage_sort order;
    struct stage_scratch room;
};
struct stage *stage_new(void);
void stage_free(struct stage *x); /* NULL is fine */

size_t stage_scratch_bytes(const struct store *s);
/* What they may hold. SIZE_MAX: nothing was said. */
size_t stage_scratch_max(const struct store *s);
void stage_scratch_end(struct store *s);  /* behind each request */
void stage_scratch_trim(struct store *s); /* now and then */

#endif
