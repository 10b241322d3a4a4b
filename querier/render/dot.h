/* SPDX-License-Identifier: Apache-2.0
 *
 * dot.h: a call tree as a graph of functions in Graphviz' language.
 *
 * Nodes are functions with what they cost themselves and with their callees, arrows are calls with
 * what they cost. A stack counts once for a function and once for an arrow, however often they
 * stand in it. The most costly functions are drawn; a dashed arrow stands for calls over functions
 * that are not. Costs are computed before anything is left out.
 */
#ifndef QUERIER_RENDER_DOT_H
#define QUERIER_RENDER_DOT_H

#include "common/render/calltree.h"

#define DOT_NODES 100 /* functions drawn unless the caller says otherwise */

struct dot_opts {
    struct str title; /* may be empty */
    struct str unit;  /* "nanoseconds", "bytes", "count", ...: how numbers are written */
    size_t nodes;     /* functions drawn at most; 0: DOT_NODES */
};
/* Memory it takes at most, roughly, beside the tree and the text. */
size_t dot_cost(const struct calltree *t);
/* Nothing is written for an empty tree. Stops early once *out is full (buf_ok tells). */
void dot_write(const struct calltree *t, const struct dot_opts *o, struct buf *out);

#endif
