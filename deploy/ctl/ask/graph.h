/* SPDX-License-Identifier: Apache-2.0
 *
 * graph.h: a flame graph as the server sends it (levels of bars) as a tree that can be walked.
 */
#ifndef DEPLOY_CTL_ASK_GRAPH_H
#define DEPLOY_CTL_ASK_GRAPH_H

#include "common/base/vec.h"
#include "common/net/json_in.h"
#include "deploy/ctl/cli/cli.h"

#define GRAPH_NONE UINT32_MAX

struct graph_node {
    uint32_t name, depth;
    uint32_t first, next; /* first child, next sibling; GRAPH_NONE: no more */
    uint64_t x, self, total;
};
struct graph {
    struct json_doc *doc;      /* owned */
    VEC(struct str) names;     /* into the doc */
    VEC(struct graph_node) at; /* level by level; 0 is the root. Empty: no data */
};
/* {KEY:{"names":..,"levels":..},..}, KEY mostly "flamebearer". What is no tree is ERR_IO. */
NODISCARD int graph_read(const struct cli *c, struct str json, const char *key, struct graph *ret,
                         struct err *e);
void graph_deinit(struct graph *g);

struct graph_show {
    struct str unit;    /* sample unit of the values */
    double min_percent; /* of the whole; smaller ones become one line of their parent */
    uint64_t depth;     /* root's children are at 1; deeper ones are left out */
    uint64_t lines;     /* at most, roughly */
};
struct what;
struct graph_show graph_show_of(const struct cli *c, const struct what *w); /* as the options say */
/* The call tree as text: largest first, a chain of only children without ever deeper indents. */
void graph_text(const struct graph *g, const struct term *t, const struct graph_show *s,
                struct buf *out);
/* The same nodes as an array of {"name","depth","self","total"}, each behind its parent. */
void graph_json(const struct graph *g, const struct graph_show *s, struct json *j);

#endif
