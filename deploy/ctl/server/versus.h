/* SPDX-License-Identifier: Apache-2.0
 *
 * versus.h: an answer of GET /api/v1/diff, read and shown.
 */
#ifndef DEPLOY_CTL_SERVER_VERSUS_H
#define DEPLOY_CTL_SERVER_VERSUS_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/cli/cli.h"

enum { SIDE_BASE, SIDE_NEW, SIDES };

struct versus_row {
    struct str name;                  /* into the doc */
    double self[SIDES], total[SIDES]; /* as stored */
    double value[SIDES], delta;       /* what is compared, in the mode */
    double growth;                    /* delta in percent of the base's whole */
};
struct versus {
    struct json_doc *doc;        /* owned */
    VEC(struct versus_row) rows; /* largest delta first, either way */
    double all[SIDES];           /* as stored */
    double whole[SIDES];         /* in the mode */
    int64_t from_ms[SIDES];      /* what the answer really covers */
    int64_t until_ms[SIDES];
    size_t functions; /* how many there are beside those in rows */
    bool share;       /* values are percentages */
    bool gauge;
    struct str mode;
};

NODISCARD int versus_read(const struct cli *c, struct str json, bool by_total, struct versus *ret,
                          struct err *e);
void versus_deinit(struct versus *d);
/* Percent of `whole` that `part` is; infinite where there is no whole. */
double versus_percent(double part, double whole);
/* The function that grew most, or NULL; the caller compares the growth of the whole. */
const struct versus_row *versus_worst(const struct versus *d);
void versus_text(const struct term *t, const struct versus *d, struct str unit, uint64_t rows,
                 struct buf *out);

#endif
