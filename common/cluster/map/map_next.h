/* SPDX-License-Identifier: Apache-2.0
 *
 * map_next.h: how a step gets into a map (README.md, "A step in three moves"): it is wanted, then
 * announced with its time, and valid when those who could still take something for the old place
 * have confirmed that they will not. Each function makes the next version of a map; pure.
 *
 *   ──want──> wanted ──announce──> announced ──commit──> a step
 *                ^                     │
 *                └───────retreat───────┘        want of what is valid: nothing is wanted any more
 *
 * Who announced it, and nobody else, makes it valid: so he may promise that he will not, and then
 * it is as if it had never been announced, for whoever has the promise (controller_give_up).
 */
#ifndef COMMON_CLUSTER_MAP_MAP_NEXT_H
#define COMMON_CLUSTER_MAP_MAP_NEXT_H

#include "common/cluster/map/map.h"

/* Whose places. tenant.len 0: of all tenants that are not named; service.len 0: how many shards the
 * tenant has; else over how many the service is spread. */
struct map_whose {
    struct str tenant, service;
};
/* Of a tenant that is not named, what holds for all such; NULL: a service that is not named. */
const struct map_steps *map_whose_steps(const struct map *m, const struct map_whose *w);
/* What counts where there is no step. */
static inline uint32_t map_whose_none(const struct map_whose *w)
{
    return w->service.len ? 1 : 0;
}
/* What the last step says, or will say once it is valid. */
uint32_t map_whose_last(const struct map *m, const struct map_whose *w);
/* The one that is announced; false: none is. */
bool map_next_announced(const struct map *m, struct map_whose *ret);
/* All with something to come, start with *pos = 0; false at the end. */
bool map_next_each(const struct map *m, size_t *pos, struct map_whose *ret);

/* Has the later map all steps of the earlier one? They are only ever added, so one that lacks some
 * did not come from it, whatever its version. *ret: whose steps it lacks. */
bool map_keeps_steps(const struct map *later, const struct map *m, struct map_whose *ret);

/* ERR_CONFLICT: it is so, or wanted already; ERR_LIMIT: it has changed as often as it can. */
NODISCARD int map_next_want(const struct map *m, const struct map_whose *w, uint32_t n,
                            const struct map **ret, struct err *e);
/* For profiles of from_ms on, or of a leaf after the last step if that is later. Of something
 * announced: another time, or another `by`, who makes it valid (empty: anybody). ERR_NOT_FOUND:
 * nothing is wanted; so below. */
NODISCARD int map_next_announce(const struct map *m, const struct map_whose *w, int64_t from_ms,
                                struct str by, const struct map **ret, struct err *e);
NODISCARD int map_next_retreat(const struct map *m, const struct map_whose *w,
                               const struct map **ret, struct err *e);
NODISCARD int map_next_commit(const struct map *m, const struct map_whose *w,
                              const struct map **ret, struct err *e);
/* The same map, of the same version, without what is announced: not to be written anywhere. */
NODISCARD int map_next_ignore(const struct map *m, const struct map_whose *w,
                              const struct map **ret, struct err *e);

#endif
