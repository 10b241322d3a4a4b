/* SPDX-License-Identifier: Apache-2.0
 *
 * map_pending.h: how a step gets into a map (README.md, "A step in three moves").
 * Each function makes the next version of a map; pure.
 *
 * 1. map_pending_request: the step is wanted. It has no effect.
 * 2. map_pending_announce: the step has a time. Processes that know the announcement refuse writes
 *    that it may move.
 * 3. map_pending_commit: the step is valid. All processes that could still accept a write for the
 *    old place have confirmed that they do not.
 *
 *   ──want──> wanted ──announce──> announced ──commit──> a step
 *                ^                     │
 *                └───────retreat───────┘        want of what is valid: nothing is wanted any more
 *
 * Only the controller that announced a step may commit it. So it can abort the step: it promises
 * not to commit, and a process that has the promise acts as if the step had never been announced
 * (controller_step_abort).
 */
#ifndef COMMON_CLUSTER_MAP_MAP_PENDING_H
#define COMMON_CLUSTER_MAP_MAP_PENDING_H

#include "common/cluster/map/map.h"

/* For a tenant that is not named, the steps of all such tenants; NULL: a service not named. */
const struct map_steps *map_whose_steps(const struct map *m, const struct map_whose *w);
/* The number that counts without any step. */
static inline uint32_t map_whose_none(const struct map_whose *w)
{
    return w->service.len ? 1 : 0;
}
/* The number of the last step, whether it is valid yet or not. */
uint32_t map_whose_last(const struct map *m, const struct map_whose *w);
/* Finds the change that is announced; false: no change is announced. */
bool map_pending_announced(const struct map *m, struct map_whose *ret);
/* All with something to come, start with *pos = 0; false at the end. */
bool map_pending_each(const struct map *m, size_t *pos, struct map_whose *ret);

/* True if the later map has all steps of the earlier one. Steps are only ever added, so a map that
 * lacks some did not come from the earlier one, whatever its version. *ret: whose steps it
 * lacks. */
bool map_keeps_steps(const struct map *later, const struct map *m, struct map_whose *ret);

/* ERR_CONFLICT: it is so, or wanted already; ERR_LIMIT: it has changed as often as it can. */
NODISCARD int map_pending_request(const struct map *m, const struct map_whose *w, uint32_t n,
                                  const struct map **ret, struct err *e);
/* For profiles of from_ms on, or of a leaf after the last step if that is later. For a change that
 * is announced already: sets another time, or another `by`, the controller that may commit it
 * (empty: any). ERR_NOT_FOUND: no change is wanted; the same for the functions below. */
NODISCARD int map_pending_announce(const struct map *m, const struct map_whose *w, int64_t from_ms,
                                   struct str by, const struct map **ret, struct err *e);
NODISCARD int map_pending_retreat(const struct map *m, const struct map_whose *w,
                                  const struct map **ret, struct err *e);
NODISCARD int map_pending_commit(const struct map *m, const struct map_whose *w,
                                 const struct map **ret, struct err *e);
/* The same map, of the same version, without what is announced: not to be written anywhere. */
NODISCARD int map_pending_ignore(const struct map *m, const struct map_whose *w,
                                 const struct map **ret, struct err *e);

#endif
