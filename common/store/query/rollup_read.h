/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_read.h: reads rows of groups. What they hold: rollup_row.h; which exist: TREE.md. Any
 * thread.
 */
#ifndef COMMON_STORE_QUERY_ROLLUP_READ_H
#define COMMON_STORE_QUERY_ROLLUP_READ_H

#include <stdatomic.h>

#include "common/store/state/hot.h"
#include "common/store/store.h"

/* `group` is an index into gids; t the first slot of the vector's node: of level, or of a member's
 * leaf where a part of a minute is read. */
typedef int (*rollup_fn)(void *cookie, size_t group, uint32_t t, struct str vector, struct err *e);
struct rollup_read {
    struct store_view *v;
    uint32_t tenant, scope;
    uint16_t ptype;
    const uint64_t *gids; /* ascending, of one dimension */
    size_t len;
    rollup_fn fn;
    hot_fn hot;                /* of rollup_raw: takes sums of unsealed rows instead; may be NULL */
    void *cookie;              /* of both */
    const atomic_bool *cancel; /* polled; may be NULL */
};
/* The sealed vectors of the groups in a run of nodes of one level (cover.h), whatever rows hold
 * them. Level 0: leaves, by rows of level 0 or of members. */
NODISCARD int rollup_read(const struct rollup_read *r, uint32_t level, uint32_t from, uint32_t to,
                          struct err *e);
/* Their unsealed rows in a range of slots, which are whole leaves; `low` by scan_raw_low. all:
 * every series of the service belongs to one of them, and the caller does not ask which: fn gets
 * group 0. */
NODISCARD int rollup_raw(const struct rollup_read *r, bool all, uint32_t low, uint32_t from,
                         uint32_t to, struct err *e);

#endif
