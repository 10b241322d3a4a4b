/* SPDX-License-Identifier: Apache-2.0
 *
 * manifest.h: which rows of a shard lie in parts (part.h), as the shard's own database says; one
 * version of it, that never changes once it is shared.
 *
 *   meta 78 cf u8 | first key      a part: version u8 = 1 | last key bytes varint | last key |
 *                                  size varint | rows varint | hash high u64, low u64
 *   meta 79 cf u8 | from           rows [from, to) of parts are deleted: to
 *
 * Parts of a column family do not overlap, neither do deleted ranges.
 */
#ifndef COMMON_COLD_MANIFEST_H
#define COMMON_COLD_MANIFEST_H

#include <stdatomic.h>

#include "common/base/vec.h"
#include "common/cold/part.h"
#include "common/object/object.h"
#include "common/store/kv/kv.h"

struct cold_part {
    _Atomic uint32_t refs;
    enum kv_cf cf;
    struct str first, last; /* owned */
    uint64_t size, rows;
    struct hash128 hash;
    char name[OBJECT_NAME_MAX + 1];
    /* kv_cold's, under its lock: the index while it is in memory. */
    struct part_index *index;
    uint32_t index_users;
    uint64_t index_used; /* a clock of uses */
};
struct cold_hide {
    struct str from, to; /* owned */
};
struct cold_family {
    VEC(struct cold_part *) parts;
    VEC(struct cold_hide) hides;
};
struct manifest {
    _Atomic uint32_t refs;
    uint32_t shard;
    struct cold_family of[KV_CFS];
};

void cold_part_unref(struct cold_part *p);
struct manifest *manifest_new(uint32_t shard);
struct manifest *manifest_clone(const struct manifest *m); /* its own, to be changed */
struct manifest *manifest_ref(struct manifest *m);
void manifest_unref(struct manifest *m); /* NULL is fine */
/* All rows of tables 78 and 79. ERR_CORRUPT: rows that cannot be, or overlap. */
NODISCARD int manifest_load(struct kv *kv, const struct kv_snap *snap, uint32_t shard,
                            struct manifest **ret, struct err *e);

/* Families whose rows may be in parts. */
bool manifest_may(enum kv_cf cf);
bool manifest_is_row(enum kv_cf cf, struct str key); /* is it of tables 78, 79? */
/* A row of the tables written, or (value.ptr NULL) deleted. ERR_CORRUPT. */
NODISCARD int manifest_row(struct manifest *m, struct str key, struct str value, struct err *e);
/* The row of a part, as manifest_row takes it; *key and *value are replaced. */
void manifest_part_row(enum kv_cf cf, const struct part_info *i, struct buf *key,
                       struct buf *value);
/* shard-00000007/fine/<hash>: where its object stands; room for OBJECT_NAME_MAX + 1. */
void manifest_part_name(uint32_t shard, enum kv_cf cf, struct hash128 hash, char *ret);

/* The first part whose last key is >= key; parts.len if no part has such a key. */
size_t manifest_part_at(const struct cold_family *f, struct str key);
bool manifest_intersects(const struct cold_family *f, struct str from, struct str to);
/* The deleted range that key lies in, or NULL. */
const struct cold_hide *manifest_hidden(const struct cold_family *f, struct str key);
/* Rows [from, to) of parts are deleted: parts that lie inside go, of others the range is kept. What
 * that changes in the tables is appended to `rows`. True if anything changed. */
bool manifest_delete(struct manifest *m, enum kv_cf cf, struct str from, struct str to,
                     struct kv_batch *rows);

#endif
