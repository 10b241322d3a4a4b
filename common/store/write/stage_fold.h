/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_fold.h: several vectors of a series in one request that become one raw row. Where finer
 * levels are gone, all data of a base node are one sum anyway: it is made before anything is
 * written, so importing a year costs what it keeps.
 */
#ifndef COMMON_STORE_WRITE_STAGE_FOLD_H
#define COMMON_STORE_WRITE_STAGE_FOLD_H

#include "common/base/vec.h"
#include "common/store/state/floors.h"
#include "common/store/store.h"

struct group_scope;
struct sum;

/* How many of the n >= 1 vectors from v on make the next row. Its slot is that of the first. */
size_t stage_run(const struct floors *f, const struct group_scope *g, const struct store_vector *v,
                 size_t n);
/* Rows that the vectors of a series become. */
size_t stage_runs(const struct floors *f, const struct group_scope *g,
                  const struct store_series *in);

struct stage_fold {
    VEC(uint64_t) sums; /* by node of the request; all 0 between calls */
    VEC(uint32_t) used;
};
void stage_fold_deinit(struct stage_fold *x);
/* Frees what a large request has left. */
void stage_fold_trim(struct stage_fold *x);
/* Adds the n vectors of a request of so many nodes to *to, each node once, as map[node]. */
void stage_fold(struct stage_fold *x, const struct store_vector *v, size_t n, size_t nodes,
                const uint32_t *map, struct sum *to);

#endif
