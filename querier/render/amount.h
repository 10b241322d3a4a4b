/* SPDX-License-Identifier: Apache-2.0
 *
 * amount.h: numbers as people read them.
 */
#ifndef QUERIER_RENDER_AMOUNT_H
#define QUERIER_RENDER_AMOUNT_H

#include "common/base/buf.h"

/* "1.25s", "310ms", "4.5min" for units of time; "1.50MiB" for bytes; else the bare number. */
void amount_put(uint64_t v, struct str unit, struct buf *out);
/* "12.34%" of all, "0%" of nothing. */
void amount_percent(uint64_t v, uint64_t all, struct buf *out);

#endif
