/* SPDX-License-Identifier: Apache-2.0
 *
 * attime.h: the time grammar of from= and until= (wire facts, section "attime"): digits in s, ms,
 * us, ns or YYYYMMDD; now-1h30m. Unlike the peers, text that is no time at all is an error.
 */
#ifndef COMMON_MODEL_ATTIME_H
#define COMMON_MODEL_ATTIME_H

#include "common/base/err.h"
#include "common/base/str.h"

/* Milliseconds since 1970. */
NODISCARD int attime_parse(struct str s, int64_t now_ms, int64_t *ret_ms, struct err *e);

#endif
