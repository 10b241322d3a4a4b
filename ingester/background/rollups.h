/* SPDX-License-Identifier: Apache-2.0
 *
 * rollups.h: the section "rollups": which labels roll-ups of a tenant drop.
 */
#ifndef INGESTER_BACKGROUND_ROLLUPS_H
#define INGESTER_BACKGROUND_ROLLUPS_H

#include "common/base/err.h"
#include "common/store/store.h"
#include "ingester/base/options.h"

struct rollups;
/* ERR_CONFIG: an invalid entry. `c` must stay. */
NODISCARD int rollups_new(const struct rollup_conf *c, struct rollups **ret, struct err *e);
void rollups_free(struct rollups *r); /* NULL is fine */
/* A group_drop_fn; the cookie is the struct rollups. Any thread. */
struct group_drop rollups_drop(void *cookie, struct str tenant);

#endif
