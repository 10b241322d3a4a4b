/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_seal.h: rows of groups, as the seal writes them. What they hold: rollup_row.h; which
 * exist: TREE.md. Shard thread.
 */
#ifndef COMMON_STORE_SEAL_ROLLUP_SEAL_H
#define COMMON_STORE_SEAL_ROLLUP_SEAL_H

#include "common/store/codec/raw.h"
#include "common/store/kv/kv.h"

struct apply; /* seal_steps.h */
struct dict_cache;
struct floors;

/* Memory of the shard thread. */
struct rollup;
struct rollup *rollup_new(struct dict_cache *dicts);
void rollup_free(struct rollup *x); /* NULL is fine */

/* Puts into the batch of *a the roll-ups and timeline points of the groups that rows of one
 * (tenant, scope, ptype) belong to; `rows` are in order of series, then t. It reads stored leaves,
 * so the leaves of this entry must not be written yet. */
NODISCARD int rollup_seal(const struct apply *a, const struct seal_row *rows, size_t n,
                          const struct floors *f, struct err *e);

#endif
