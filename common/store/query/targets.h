/* SPDX-License-Identifier: Apache-2.0
 *
 * targets.h: what a query reads: the series the selector means that have the profile type and had
 * data in the range, or groups of series whose roll-ups answer the same (TREE.md, section 4); each
 * with the group of the answer it belongs to.
 *
 *   targets_open   series alone                 targets_next   service by service
 *   targets_plan   groups where that is exact   targets_part   by service and kind of rows
 */
#ifndef COMMON_STORE_QUERY_TARGETS_H
#define COMMON_STORE_QUERY_TARGETS_H

#include "common/base/map.h"
#include "common/store/query/match.h"
#include "common/store/query/rollup_read.h"
#include "common/store/query/scan.h"

struct target {
    uint32_t scope, group;
    uint64_t id; /* of the series, or of the group of series */
};
struct target_span { /* targets that are read alike */
    uint32_t scope;
    uint32_t since, until; /* see targets_part */
    bool group, all;
    size_t first, len;
};
struct target_service { /* that needs its series, too */
    uint32_t scope, until;
    struct str name; /* in the arena */
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
    VEC(uint64_t) ids;                   /* of one scope */
    VEC(struct target_span) spans;       /* planned: by scope, since */
    VEC(struct target_service) services; /* planned */
    const struct selector *selector;
};
struct targets_query {
    const struct store_query *q; /* times are not used */
    int64_t start_ms, end_ms;
    const struct str *group_by;
    size_t group_by_len;
    struct arena *arena;
};
/* ERR_INPUT without a valid profile type. targets_close in any case. */
NODISCARD int targets_open(struct targets *t, struct store_view *v, const struct targets_query *q,
                           struct err *e);
NODISCARD int targets_plan(struct targets *t, struct store_view *v, const struct targets_query *q,
                           struct err *e);
void targets_close(struct targets *t);
/* The run of one scope from *at on, as a scan without slots and functions; moves *at behind it.
 * scan.series[i] is target *at + i. False at the end. */
bool targets_next(struct targets *t, const struct store_query *q, size_t *at, struct scan *ret);

/* Part number i of what was planned, false behind the last: targets base.. of one service, to be
 * read where it has data in slots [cover_split(since), cover_split(until)). */
struct targets_part {
    struct scan scan; /* without slots and functions; `series` are ids of groups if `group` */
    size_t base;
    bool group;
    bool all; /* every series belongs to one of them: no unsealed row has to be looked at twice */
    uint32_t since, until;
};
bool targets_part(struct targets *t, const struct store_query *q, size_t i,
                  struct targets_part *ret);

/* How the groups that a scan names are read; `fn` and `hot` (may be NULL) get the cookie. */
struct rollup_read targets_groups(const struct scan *c, rollup_fn fn, hot_fn hot, void *cookie);

/* For targets_plan.c. */
NODISCARD int targets_group(struct targets *t, struct str labels, uint32_t *ret, struct err *e);
NODISCARD int targets_begin(struct targets *t, struct store_view *v, const struct targets_query *q,
                            bool *ret_any, struct err *e);
NODISCARD int targets_series(struct targets *t, const struct store_query *q, struct err *e);

#endif
