/* SPDX-License-Identifier: Apache-2.0
 *
 * compare.h: the functions of two call trees side by side, and what makes two sides comparable.
 *
 * Values are kept as stored; a mode says by which factor each side is multiplied when shown:
 *
 *   absolute   1                          relative   100 / total of the side: percent of it
 *   second     1 / seconds of the range   instance   1 / instances       second-instance   both
 *
 * Gauges are means over time already, so seconds do not divide them.
 */
#ifndef QUERIER_RENDER_COMPARE_H
#define QUERIER_RENDER_COMPARE_H

#include "common/render/diff.h"
#include "querier/render/top.h"

enum compare_mode {
    COMPARE_ABSOLUTE,
    COMPARE_RELATIVE,
    COMPARE_SECOND,
    COMPARE_INSTANCE,
    COMPARE_SECOND_INSTANCE,
};
/* False: no such mode. */
bool compare_mode_parse(struct str text, enum compare_mode *ret);
const char *compare_mode_name(enum compare_mode m);

/* What a side is, besides its tree. */
struct compare_side {
    uint64_t total, range_ms, instances;
    bool gauge;
};
/* Values of the side are multiplied by this; 0 where there is nothing to divide by. */
double compare_factor(const struct compare_side *s, enum compare_mode m);

struct compare_row {
    struct str name; /* borrowed from the trees */
    uint64_t self[DIFF_SIDES], total[DIFF_SIDES];
};
struct compare {
    struct compare_row *rows; /* owned */
    size_t len;
    size_t functions; /* before compare_search */
    double factor[DIFF_SIDES];
};
enum compare_sort { COMPARE_SELF, COMPARE_TOTAL, COMPARE_NAME };
/* Which rows come first; without ALL, only those stay. */
enum compare_dir { COMPARE_ALL, COMPARE_GREW, COMPARE_SHRANK };

/* Memory it takes at most beside the trees. */
size_t compare_cost(const struct calltree *left, const struct calltree *right);
void compare_init(struct compare *c, const struct calltree *left, const struct calltree *right,
                  const double factor[DIFF_SIDES]);
void compare_deinit(struct compare *c);
void compare_search(struct compare *c, struct str text);
/* By the difference right - left of what is shown: largest amount first; COMPARE_GREW: largest
 * growth first and only what grew. By name: A to Z. Equal ones by name. */
void compare_order(struct compare *c, enum compare_sort by, enum compare_dir dir);
/* Shown value, and right - left of them. */
double compare_value(const struct compare *c, enum diff_side side, uint64_t v);
double compare_delta(const struct compare *c, const uint64_t v[DIFF_SIDES]);

/* Every self value of the tree times `factor`, rounded so that the sum is the rounded sum. What
 * passes INT64_MAX stays there and the tree says so. */
void compare_scale(struct calltree *t, double factor);

#endif
