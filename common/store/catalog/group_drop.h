/* SPDX-License-Identifier: Apache-2.0
 *
 * group_drop.h: which labels roll-ups drop, as the configuration says.
 */
#ifndef COMMON_STORE_CATALOG_GROUP_DROP_H
#define COMMON_STORE_CATALOG_GROUP_DROP_H

#include "common/base/str.h"

/* Names of labels that roll-ups of a tenant drop; they must stay as long as the store, and another
 * array when they change. Shard thread. */
struct group_drop {
    const struct str *names;
    size_t len;
};
typedef struct group_drop (*group_drop_fn)(void *cookie, struct str tenant);

#endif
