/* SPDX-License-Identifier: Apache-2.0
 *
 * flame_request.h: what one flame graph of the render routes is asked for: a query in either
 * language, a range, and the profile types that answer it. Pool thread.
 *
 *   side_read ─> side_begin ──(old name)─> [types] ─> side_types ─> side_ask
 */
#ifndef QUERIER_SELECT_FLAME_REQUEST_H
#define QUERIER_SELECT_FLAME_REQUEST_H

#include "querier/query/query.h"
#include "querier/select/exemplars.h"
#include "querier/select/query_spec.h"

#define SIDE_TYPES_MAX 8

struct flame_request {
    struct query_spec spec;
    struct str query; /* the text of the request */
    struct exm_ids ids;
    int64_t from_ms, until_ms;
    struct plan_range range; /* all zero: any time */
    struct str types[SIDE_TYPES_MAX];
    size_t types_len;
};

/* `query`, `from` and `until` with a prefix: "left" reads leftQuery, leftFrom, leftUntil; without
 * one `name` will do for `query` on old routes. Both times default to now and may not be 0. Where
 * an id is asked for and no time is given the range is any. */
NODISCARD int side_read(struct query *q, const char *prefix, bool old, struct flame_request *ret,
                        struct err *e);
/* A query that has its text already: parses it. */
NODISCARD int side_parse(struct query *q, bool old, struct flame_request *s, struct err *e);
/* Sets the range from from_ms and until_ms; from = until is the leaf it lies in. ERR_INPUT: 0, or
 * out of order. */
NODISCARD int side_range(struct flame_request *s, struct err *e);
/* An old name asks which types the service has, as question `ask`; sets *ret_asked. */
NODISCARD int side_begin(struct query *q, size_t ask, struct flame_request *s, bool *ret_asked,
                         struct err *e);
/* Takes all types of the best rank from the replies; their units are the same, so they add up. */
NODISCARD int side_types(struct query *q, size_t ask, struct flame_request *s, struct err *e);
/* Asks for the tree in every tenant and type, as question `ask`. */
NODISCARD int side_ask(struct query *q, size_t ask, const struct flame_request *s, struct err *e);
/* The question about one tenant and one type. */
struct wire_query side_wire(const struct flame_request *s, struct str tenant, struct str type);
/* The first type, or for an old name that nothing answers what folded text would have. */
struct ptype side_type(const struct flame_request *s);
struct str side_type_id(const struct flame_request *s);

#endif
