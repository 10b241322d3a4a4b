/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.h: the series a query reads: those the selector means that have the profile type and had
 * data in the range, in the order of keys, each with the group it belongs to.
 */
#ifndef COMMON_STORE_TARGETS_H
#define COMMON_STORE_TARGETS_H

#include "common/base/map.h"
#include "common/store/match.h"
#include "common/store/scan.h"

struct target {
    uint32_t scope, group;
    uint64_t id;
};
struct targets {
    struct match match;
    struct match_type type; /* number valid if `found` */
    bool found;
    VEC(struct target) at;     /* by scope, id */
    VEC(struct labels) groups; /* in the arena; one without labels if nothing groups */
    struct map_str *group_ids; /* canonical bytes -> index + 1 */
    const struct str *group_by;
    size_t group_by_len;
    uint32_t first_day, last_day;
    struct arena *arena;
    VEC(uint64_t) ids; /* of one scope */
};
/* ERR_INPUT without a valid profile type. targets_close in any case. */
NODISCARD int targets_open(struct targets *t, struct store_view *v, const struct store_query *q,
                           int64_t start_ms, int64_t end_ms, const struct str *group_by,
                           size_t group_by_len, struct arena *a, struct err *e);
void targets_close(struct targets *t);
/* The run of one scope from *at on, as a scan without slots and functions; moves *at behind it.
 * scan.series[i] is target *at + i. False at the end. */
bool targets_next(struct targets *t, const struct store_query *q, size_t *at, struct scan *ret);

#endif
