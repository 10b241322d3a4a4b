/* SPDX-License-Identifier: Apache-2.0
 *
 * api_time.h: times in parameters of plain HTTP (proto/WIRE.md, "Render"). Pool thread.
 */
#ifndef QUERIER_SELECT_API_TIME_H
#define QUERIER_SELECT_API_TIME_H

#include "querier/query/query.h"

/* Reads a parameter such as from= or until=. An absent one gives `absent`. ERR_INPUT: the time is
 * not in the years 1970 to 9999. */
NODISCARD int api_time(const struct query *q, const char *name, int64_t absent, int64_t *ret,
                       struct err *e);
/* The same for a text; errors call it `what`. */
NODISCARD int api_time_of(const struct query *q, struct str text, const char *what, int64_t absent,
                          int64_t *ret, struct err *e);

#endif
