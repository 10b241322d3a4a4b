/* SPDX-License-Identifier: Apache-2.0
 *
 * costs.h: exact costs of functions, from GET /api/v1/functions.
 */
#ifndef DEPLOY_CTL_ASK_COSTS_H
#define DEPLOY_CTL_ASK_COSTS_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/cli/cli.h"

#define COSTS_MAX 1000 /* the server gives so many at once */

struct cost {
    struct str name; /* into the doc */
    double self, total;
};
struct costs {
    struct json_doc *doc; /* owned */
    VEC(struct cost) at;
    double all; /* what all stacks cost */
    bool gauge;
};
enum cost_sort { BY_SELF, BY_TOTAL };

NODISCARD int costs_read(const struct cli *c, struct str json, struct costs *ret, struct err *e);
void costs_deinit(struct costs *f);
/* The list "functions" of an object that is open. */
void costs_put_json(const struct costs *f, struct json *j);
struct costs_ask {
    const char *query;
    int64_t from_ms, until_ms;
    enum cost_sort sort;
    uint64_t top;
};
NODISCARD int costs_ask(struct cli *c, const struct costs_ask *a, struct costs *ret, struct err *e);

#endif
