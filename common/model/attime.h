/* SPDX-License-Identifier: Apache-2.0
 *
 * attime.h: the time grammar of from= and until= (proto/WIRE.md, "Time grammar").
 *
 *   time     := digits | [ "now" ] [ ("+" | "-") offset ]      blanks, '_' and ',' are ignored
 *   digits   := YYYYMMDD (8, a real date after 1900) | ms (13) | us (16) | ns (19) | s (any other)
 *   offset   := ( number unit )+        s sec | m min | h hour | d day | w week | M mon | y year
 *
 * A month has 30 days and a year 365, as everywhere on this wire. Unlike the peers, which read
 * everything else as "now", text that is no time at all is an error.
 */
#ifndef COMMON_MODEL_ATTIME_H
#define COMMON_MODEL_ATTIME_H

#include "common/base/err.h"
#include "common/base/str.h"

/* Milliseconds since 1970; nanoseconds and microseconds are cut, not rounded. */
NODISCARD int attime_parse(struct str s, int64_t now_ms, int64_t *ret_ms, struct err *e);

#endif
