/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.h: whose the bytes of a part are, so that a report of space needs no object store.
 *
 *   meta 7b cf u8 | first key      of the part with that row in 78: version u8 = 1 | its hash high
 *                                  u64, low u64 | owners varint | each: tenant varint | scope
 *                                  varint | bytes varint
 */
#ifndef COMMON_COLD_USAGE_H
#define COMMON_COLD_USAGE_H

#include "common/cold/manifest.h"

#define COLD_USAGE_MAX     4096 /* of a part; bytes of further owners have no owner */
#define COLD_USAGE_ROW_MAX (COLD_USAGE_MAX * 20 + KIB)

/* Zero is empty; deinit it. */
struct cold_usage {
    VEC(struct kv_far_owner) of;
    uint64_t plain; /* bytes of all rows, also of those over the limit */
};
void cold_usage_deinit(struct cold_usage *o);
void cold_usage_clear(struct cold_usage *o); /* before the rows of the next part */
/* A row of the part, of a family manifest_may; in order. */
void cold_usage_add(struct cold_usage *o, struct str key, struct str value);
/* Its row: the bytes of the part, divided by the bytes of the owners' rows; *key and *value are
 * replaced. */
void cold_usage_row(const struct cold_usage *o, enum kv_cf cf, const struct part_info *i,
                    struct buf *key, struct buf *value);
/* The key of the row, replaced. */
void cold_usage_key(enum kv_cf cf, struct str first, struct buf *key);
/* The row read: *ret is replaced. Empty if it is of another part than that with `hash` or of a
 * version not known. ERR_CORRUPT: it cannot be read, or gives out more than `size` bytes. */
NODISCARD int cold_usage_read(struct str value, struct hash128 hash, uint64_t size,
                              struct cold_usage *ret, struct err *e);

/* kv_far of a kv_cold: the parts of `m`, their owners from the rows of `inner`. */
NODISCARD int cold_usage_each(const struct manifest *m, struct kv *inner,
                              const struct kv_snap *snap, kv_far_fn each, void *cookie,
                              struct err *e);

#endif
