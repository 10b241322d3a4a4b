/* SPDX-License-Identifier: Apache-2.0
 *
 * reports.h: the last report of each node on its replicas (progress.h), by name, and what the
 * reports together say of a shard.
 *
 * Thread: one at a time.
 */
#ifndef COMMON_CLUSTER_PLACE_REPORTS_H
#define COMMON_CLUSTER_PLACE_REPORTS_H

#include "common/cluster/map/progress.h"
#include "common/cluster/place/place.h"
#include "common/cluster/view/view.h"

struct reports;

struct reports *reports_new(void);
void reports_free(struct reports *r); /* NULL is fine */
/* Replaces the node's last report, which is dropped in any case. ERR_INPUT, ERR_LIMIT. */
NODISCARD int reports_take(struct reports *r, const char *node, struct str text, struct err *e);
void reports_forget(struct reports *r, const char *node);
void reports_clear(struct reports *r);
/* In no particular order; start with *pos = 0; NULL at the end. */
const struct progress *reports_next(const struct reports *r, size_t *pos);
const struct progress *reports_of(const struct reports *r, const char *node); /* NULL: nothing */
/* NULL: the node said nothing about the shard. */
const struct progress_shard *reports_shard(const struct reports *r, const char *node,
                                           uint32_t shard);
/* Has it what the leader committed, or nearly? NULL: no. */
bool reports_keeps_up(const struct progress_shard *p, uint64_t commit);
/* The shard as placement wants to know it; `now` is the view's. Bytes and rate are the median of
 * what its members say: one of them may have started a moment ago, or be catching up. */
void reports_place(const struct reports *r, const struct view *v, uint32_t shard,
                   struct place_shard *ret);

#endif
