/* SPDX-License-Identifier: Apache-2.0
 *
 * names_max.h: how many tenants a shard may come to have.
 *
 * Tenants come into being by being named in a push. A sender that invents names must not fill the
 * tables of all: a write of a tenant that has nothing in the shard is refused with ERR_RATE once
 * the shard has had `max`. Deleted ones count, since numbers are not given twice.
 */
#ifndef COMMON_STORE_CATALOG_NAMES_MAX_H
#define COMMON_STORE_CATALOG_NAMES_MAX_H

#include "common/base/base.h"

struct names;
struct store;

void names_tenants_max(struct names *n, uint32_t max); /* 0: only what the format allows */
/* Before the first write; again after store_reopen. The shard's thread. */
void store_tenants_max(struct store *s, uint32_t max);

#endif
