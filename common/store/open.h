/* SPDX-License-Identifier: Apache-2.0
 *
 * open.h: opens and closes a store in place, for store_open, store_close and reopen.c alone.
 */
#ifndef COMMON_STORE_OPEN_H
#define COMMON_STORE_OPEN_H

#include "common/store/store.h"

struct store_gate;

void store_init(struct store *s, const struct store_opts *o, struct store_gate *gate);
NODISCARD int store_load(struct store *s, struct err *e);
void store_deinit(struct store *s); /* all but the gate; also after a store_load that failed */

#endif
