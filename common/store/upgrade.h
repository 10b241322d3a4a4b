/* SPDX-License-Identifier: Apache-2.0
 *
 * upgrade.h: databases of older formats become ones of this format when they are opened to be
 * written. Nothing they hold is written again; what is missing is added.
 */
#ifndef COMMON_STORE_UPGRADE_H
#define COMMON_STORE_UPGRADE_H

#include "common/base/err.h"

struct store;

/* From `written` on to FORMAT_WRITTEN, its row included, in batches that may be lost and come
 * again: the row of the format is in the last. Before anything else reads or writes. */
NODISCARD int store_upgrade(struct store *s, unsigned written, struct err *e);

#endif
