/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.h: walks the rows of some series of one service and profile type in a range of slots, by one
 * iterator that seeks over what it does not want.
 */
#ifndef COMMON_STORE_QUERY_SCAN_H
#define COMMON_STORE_QUERY_SCAN_H

#include <stdatomic.h>

#include "common/store/codec/keys.h"
#include "common/store/store.h"

/* `series` is an index into scan.series; t the first slot of the row. */
typedef int (*scan_fn)(void *cookie, size_t series, uint32_t t, struct str value, struct err *e);

struct scan {
    struct store_view *v;
    uint32_t tenant, scope;
    uint16_t ptype;
    const uint64_t *series; /* ascending */
    size_t len;             /* >= 1 */
    uint32_t from, to;      /* slots; not empty */
    scan_fn fn;
    void *cookie;
    const atomic_bool *cancel; /* polled for each row; may be NULL */
};
/* Rows of one level of fine, coarse or tl whose first slot is in the range. */
NODISCARD int scan_level(const struct scan *c, enum kv_cf cf, uint32_t level, struct err *e);
/* Unsealed rows; `value` is the vector. No row stands in a bucket below `low`. */
NODISCARD int scan_raw(const struct scan *c, uint32_t low, struct err *e);
/* `low` for scan_raw, from the view's snapshot. */
NODISCARD int scan_raw_low(struct store_view *v, uint32_t *ret, struct err *e);

#endif
