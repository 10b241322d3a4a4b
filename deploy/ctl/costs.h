/* SPDX-License-Identifier: Apache-2.0
 *
 * costs.h: exact costs of functions from GET /api/v1/functions, and two such lists side by
 * side.
 */
#ifndef DEPLOY_CTL_COSTS_H
#define DEPLOY_CTL_COSTS_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/cli.h"

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
struct costs_ask {
    const char *query;
    int64_t from_ms, until_ms;
    enum cost_sort sort;
    uint64_t top;
    const struct str *names; /* these instead of the top ones */
    size_t names_len;
};
NODISCARD int costs_ask(struct cli *c, const struct costs_ask *a, struct costs *ret, struct err *e);

/* ---- base and new ---- */

enum cost_mode {
    COST_ABSOLUTE,   /* as it is */
    COST_PER_SECOND, /* sums divided by the length of their range; gauges as they are */
    COST_SHARE,      /* percent of the whole of its side */
};
struct cost_row {
    struct str name;
    double self[2], total[2]; /* base, new; as they are */
    double value[2];          /* what is compared, in the mode */
    double delta;             /* of the values */
    double change;            /* percent of the base; infinite where the base is 0 */
    double growth;            /* delta in percent of the base's whole */
};
struct cost_diff {
    VEC(struct cost_row) rows; /* largest delta first, either way */
    double whole[2];           /* in the mode; 100 in COST_SHARE */
    double whole_growth;       /* percent */
    double worst;              /* largest growth of a function or the whole */
    struct str worst_name;     /* empty: the whole */
};
/* Pure. Functions that only one side names are 0 on the other. `seconds`: lengths of the ranges. */
void cost_diff(const struct costs *base, const struct costs *new, const double seconds[2],
               enum cost_mode mode, enum cost_sort by, struct cost_diff *ret);
void cost_diff_deinit(struct cost_diff *t);

#endif
