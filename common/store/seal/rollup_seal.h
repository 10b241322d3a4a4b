/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_seal.h: rows of groups, as the seal writes them. What they hold: rollup_row.h; which
 * exist: TREE.md. Shard thread.
 */
#ifndef COMMON_STORE_SEAL_ROLLUP_SEAL_H
#define COMMON_STORE_SEAL_ROLLUP_SEAL_H

#include "common/store/codec/raw.h"
#include "common/store/kv/kv.h"

struct dict_cache;
struct floors;
struct store;

/* Memory of the shard thread. */
struct rollup;
struct rollup *rollup_new(struct dict_cache *dicts);
void rollup_free(struct rollup *x); /* NULL is fine */

/* Puts the roll-ups and timeline points of groups that the rows of one (tenant, scope, ptype) lead
 * to; `rows` are in order of series, then t. Reads what is stored now: the leaves of this entry
 * must not be written yet. */
NODISCARD int rollup_seal(struct store *s, uint64_t entry, const struct seal_row *rows, size_t n,
                          const struct floors *f, struct kv_batch *b, struct err *e);

#endif
