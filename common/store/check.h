/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: does a database keep its own rules? Reads everything a view sees, once, and stops at the
 * first thing that is wrong. For tests; slow, and with the memory of the largest dictionary.
 */
#ifndef COMMON_STORE_CHECK_H
#define COMMON_STORE_CHECK_H

#include "common/store/store.h"

struct check_report {
    uint64_t tenants, scopes, types, series, pairs;
    uint64_t epochs, nodes;
    uint64_t raw_rows, leaves, timelines, wids;
};
/* ERR_CORRUPT says what is wrong and where. */
NODISCARD int store_check(struct store_view *v, struct check_report *ret, struct err *e);

#endif
