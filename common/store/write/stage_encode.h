/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_encode.h: appends vectors of the request being staged to rows. Shard thread.
 */
#ifndef COMMON_STORE_WRITE_STAGE_ENCODE_H
#define COMMON_STORE_WRITE_STAGE_ENCODE_H

#include "common/store/store.h"

struct buf;
struct dict;

/* One vector, of nodes of the request, in ids of the dictionary. */
void stage_encode(struct store *s, const struct dict *d, const uint32_t *nodes,
                  const uint64_t *values, size_t len, struct buf *out);
/* The sum of n vectors of a request with so many nodes (stage_fold.h). */
void stage_encode_run(struct store *s, const struct dict *d, const struct store_vector *v, size_t n,
                      size_t nodes, struct buf *out);

#endif
