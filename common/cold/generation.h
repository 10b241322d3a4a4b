/* SPDX-License-Identifier: Apache-2.0
 *
 * generation.h: the fencing token for objects of a shard, stored in the shard's own database. Each
 * leader that begins to write or delete objects takes the next generation by a write to the shard
 * (the write fails unless it leads). All objects it makes have the generation in their bytes, and
 * so their names are those of no other generation.
 *
 *   meta 7a        version u8 = 1 | generation varint | n varint | n earlier ones varint
 *
 * The earlier ones, newest first, are a hint: a backup may find parts of them in the previous head.
 */
#ifndef COMMON_COLD_GENERATION_H
#define COMMON_COLD_GENERATION_H

#include "common/store/kv/kv.h"

#define GENERATION_FIRST   1024 /* below: heads that earlier versions numbered by milliseconds */
#define GENERATION_EARLIER 15

struct cold_generation {
    uint64_t now; /* 0: none yet */
    size_t earlier_len;
    uint64_t earlier[GENERATION_EARLIER];
};
/* ERR_CORRUPT. */
NODISCARD int cold_generation_read(struct kv *kv, struct cold_generation *ret, struct err *e);
/* The one after *g, above `over`, too. */
void cold_generation_next(struct cold_generation *g, uint64_t over);
/* The row, appended. */
void cold_generation_put(const struct cold_generation *g, struct kv_batch *b);

/* The number of a head is its generation, and a count within that. */
static inline uint64_t cold_generation_of_head(uint64_t number)
{
    return number >> 32;
}
/* The next number after `last`; ERR_CONFLICT: a later generation has written heads. */
NODISCARD int cold_generation_head(const struct cold_generation *g, uint64_t last, uint64_t *ret,
                                   struct err *e);

#endif
