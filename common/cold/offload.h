/* SPDX-License-Identifier: Apache-2.0
 *
 * offload.h: old rows to the object store: which, how, and the batch that makes the parts count.
 * Everything here blocks on the object store; a thread of its own, but for the batch.
 */
#ifndef COMMON_COLD_OFFLOAD_H
#define COMMON_COLD_OFFLOAD_H

#include "common/cold/kv_cold.h"
#include "common/store/codec/keys.h"

/* Rows of one family, level and bucket: what leaves together. */
struct cold_unit {
    enum kv_cf cf;
    struct key from, to;
};
/* The first unit behind *unit (cf KV_RAW: the first of all) that has rows here and ends at or
 * before slot `before`. *ret_found false: no such unit. */
NODISCARD int cold_unit_next(struct kv *k, uint32_t before, struct cold_unit *unit, bool *ret_found,
                             struct err *e);

/* Where new parts go. */
struct cold_target {
    struct object_store *o; /* borrowed */
    uint64_t generation;    /* that the caller holds; each part carries it */
};
struct cold_moved {
    uint64_t rows, parts, bytes; /* stored in parts */
};
/* One thread offloads, backs up and sweeps, in a generation (generation.h) that it has taken.
 *
 * Rows [from, to) of the unit, those here and those in parts, as new parts: uploaded, and read
 * back. *ret becomes the batch that puts them in the place of the rows; nothing has changed until
 * it is written (kv_cold_watch before, kv_cold_unchanged right before the write). A unit without
 * rows gives a batch that deletes nothing. ERR_LIMIT: a row is too large for a part. */
NODISCARD int cold_offload(struct kv *k, const struct cold_unit *unit, const struct cold_target *to,
                           struct kv_batch **ret, struct cold_moved *ret_moved, struct err *e);

/* One part to its name, read back and compared. The same part twice is fine. */
NODISCARD int cold_upload(struct object_store *o, uint32_t shard, enum kv_cf cf,
                          const struct part_info *info, struct str object, struct err *e);

#endif
