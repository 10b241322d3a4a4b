/* SPDX-License-Identifier: Apache-2.0
 *
 * what.h: which profiles a question is about: a service, matchers, a profile type by its short name
 * and a range of time, made into one query text.
 */
#ifndef DEPLOY_CTL_ASK_WHAT_H
#define DEPLOY_CTL_ASK_WHAT_H

#include "deploy/ctl/cli/cli.h"

struct what_in {
    const char *service;      /* or NULL: all of them */
    const char *query;        /* "{a=\"b\"}", "a=\"b\"", "type{...}", or NULL */
    const char *type;         /* a short name, an id, or NULL: cpu */
    const char *from, *until; /* NULL: the last hour, now */
};
struct what {
    int64_t from_ms, until_ms;
    char type[256];      /* id; "" before what_find_type */
    char selector[2048]; /* {service_name="x",...} */
    char query[2400];    /* type and selector */
    const char *wanted;  /* the short name asked for */
    const char *service;
};
/* What the options and the argument at `service_at` say. ERR_CONFIG says which option is wrong. */
struct what_in what_of_cli(const struct cli *c, size_t service_at);
NODISCARD int what_range(const struct cli *c, const char *from, const char *until,
                         int64_t *ret_from, int64_t *ret_until, struct err *e);
NODISCARD int what_parse(const struct cli *c, const struct what_in *in, struct what *ret,
                         struct err *e);
/* Asks which types exist, and takes the type that the short name means. ERR_NOT_FOUND: the text
 * lists the types that exist. */
NODISCARD int what_find_type(struct cli *c, struct what *w, struct err *e);
/* The same from a list of ids; pure. An index, or -1: none, -2: several, equally good. */
ptrdiff_t what_best_type(struct str wanted, const struct str *ids, size_t len);
/* Both of the above, from options and the first argument. */
NODISCARD int what_ready(struct cli *c, struct what *ret, struct err *e);
/* "cpu of shop, 2026-11-21 20:00:00 to 21:00:00 UTC (1 h)". */
void what_title(const struct cli *c, const struct what *w, struct buf *out);
/* "nanoseconds": the sample unit of a type id. */
struct str what_unit(const char *type);

#endif
