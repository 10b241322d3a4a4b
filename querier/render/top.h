/* SPDX-License-Identifier: Apache-2.0
 *
 * top.h: the functions of a call tree as a table: what each cost itself, and with all it called.
 *
 * A function's total is the sum of the stacks that contain it, each counted once, however often the
 * function is in it; its self value the sum of the stacks that end in it. Thread: one at a time.
 */
#ifndef QUERIER_RENDER_TOP_H
#define QUERIER_RENDER_TOP_H

#include "common/render/calltree.h"

struct top_row {
    uint32_t name; /* of the tree */
    uint64_t self, total;
};
struct top {
    struct top_row *rows; /* owned */
    size_t len;
    size_t functions; /* before top_search */
    uint64_t total;   /* of the tree */
};
enum top_sort { TOP_SELF, TOP_TOTAL, TOP_NAME };

/* Memory it takes at most, beside the tree. */
size_t top_cost(const struct calltree *t);
/* Every function that a stack with a value contains, in no order. The root does not count as a
 * function. */
void top_init(struct top *top, const struct calltree *t);
void top_deinit(struct top *top);
/* Keeps the rows whose name contains the text; ASCII letters know no case. */
void top_search(struct top *top, const struct calltree *t, struct str text);
/* Largest first, names A to Z, or `reversed`. Equal ones by the other value, then by name. */
void top_order(struct top *top, const struct calltree *t, enum top_sort by, bool reversed);
/* The row of a name, NULL if it has none. Slow: looks at all. */
const struct top_row *top_find(const struct top *top, uint32_t name);

/* Whether `text` stands in `s`, ASCII letters of any case. */
bool top_text_has(struct str s, struct str text);

#endif
