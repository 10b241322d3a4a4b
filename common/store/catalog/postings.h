/* SPDX-License-Identifier: Apache-2.0
 *
 * postings.h: which series ordinals have a label pair: meta table 33 (keys.h).
 */
#ifndef COMMON_STORE_CATALOG_POSTINGS_H
#define COMMON_STORE_CATALOG_POSTINGS_H

#include <roaring/roaring.h>

#include "common/base/err.h"
#include "common/store/kv/kv.h"

/* Shard thread, in the order of batches. Cannot fail: joining rows is put off if reading does. */
void postings_add(struct kv *kv, uint32_t tenant, uint32_t pair, uint32_t ordinal,
                  struct kv_batch *b);
/* Adds the ordinals of the pair to *to. Any thread. */
NODISCARD int postings_read(struct kv *kv, const struct kv_snap *snap, uint32_t tenant,
                            uint32_t pair, roaring_bitmap_t *to, struct err *e);

#endif
