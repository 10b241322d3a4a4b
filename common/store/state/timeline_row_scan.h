/* SPDX-License-Identifier: Apache-2.0
 *
 * timeline_row_scan.h: walks rows of CF tl (timelines, presence) of some series or groups of one
 * service and type, by one iterator that seeks over what it does not want.
 */
#ifndef COMMON_STORE_STATE_TIMELINE_ROW_SCAN_H
#define COMMON_STORE_STATE_TIMELINE_ROW_SCAN_H

#include <stdatomic.h>

#include "common/store/codec/keys.h"
#include "common/store/store.h"

/* `i` is an index into ids; chunk the first slot the row covers. */
typedef int (*tl_scan_fn)(void *cookie, size_t i, uint32_t chunk, struct str value, struct err *e);

struct timeline_row_scan {
    struct store_view *v;
    uint32_t tenant, scope;
    uint16_t ptype;
    uint32_t flags, level; /* KEY_TL_GROUP, KEY_TL_PRESENCE */
    const uint64_t *ids;   /* of series or groups; ascending */
    size_t len;            /* >= 1 */
    uint32_t from, to;     /* slots; rows whose chunk meets them */
    tl_scan_fn fn;
    void *cookie;
    const atomic_bool *cancel; /* polled for each row; may be NULL */
};
/* What a row of these flags and level covers, in slots. */
uint32_t tl_chunk(uint32_t flags, uint32_t level);
NODISCARD int timeline_row_scan(const struct timeline_row_scan *c, struct err *e);

#endif
