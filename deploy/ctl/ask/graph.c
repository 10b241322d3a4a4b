/* SPDX-License-Identifier: Apache-2.0
 *
 * graph: bars to tree to text.
 *
 * A level lists its bars from left to right, each by its distance from the one before; the bar of
 * the level above that spans it is its parent. All numbers come from a server that may be
 * anything, so each is checked: no sum overflows, every bar lies within one parent. Walks use a
 * stack of their own.
 */
#include "deploy/ctl/ask/graph.h"

#include <stdio.h>
#include <stdlib.h>

#include "deploy/ctl/ask/ask.h"

#define NUMBERS    4 /* of a bar */
#define LEVELS_MAX 100000
#define INDENTS    24 /* what is deeper stands below a mark */

/* ---- reading ---- */

static int read_names(const struct json_val *names, struct graph *g, struct err *e)
{
    for (size_t i = 0; i < json_len(names); i++) {
        struct str s = STR("");
        if (json_take_str(json_at(names, i), "a name", &s, e))
            return e->code;
        vec_push(&g->names, s);
    }
    return 0;
}

static int read_bar(const struct json_val *level, size_t at, const struct graph *g, uint64_t *x,
                    struct graph_node *ret, struct err *e)
{
    int64_t v[NUMBERS] = { 0 };

    for (size_t k = 0; k < NUMBERS; k++) {
        if (json_take_i64(json_at(level, at + k), "a number", &v[k], e))
            return e->code;
        if (v[k] < 0)
            return err_set(e, ERR_IO, "a bar below zero");
    }
    /* Each is below 2^63, and x stays so: no sum of two overflows. */
    *x += (uint64_t)v[0];
    if (*x > INT64_MAX || *x + (uint64_t)v[1] > INT64_MAX || v[2] > v[1] ||
        (uint64_t)v[3] >= g->names.len)
        return err_set(e, ERR_IO, "a bar that cannot be");
    *ret = (struct graph_node){ .name = (uint32_t)v[3],
                                .first = GRAPH_NONE,
                                .next = GRAPH_NONE,
                                .x = *x,
                                .self = (uint64_t)v[2],
                                .total = (uint64_t)v[1] };
    *x += (uint64_t)v[1];
    return 0;
}

static bool spans(const struct graph_node *p, const struct graph_node *n)
{
    return n->x >= p->x && n->x + n->total <= p->x + p->total;
}

/* Nodes [above, level) are the level above; *parent only moves right. */
static int adopt(struct graph *g, uint32_t *parent, uint32_t level, struct graph_node *n,
                 uint32_t *last_child, struct err *e)
{
    uint32_t id = (uint32_t)g->at.len;

    while (*parent < level &&
           !(spans(&g->at.ptr[*parent], n) &&
             (n->total || n->x < g->at.ptr[*parent].x + MAX(g->at.ptr[*parent].total, 1)))) {
        ++*parent;
        *last_child = GRAPH_NONE;
    }
    if (*parent == level)
        return err_set(e, ERR_IO, "a bar that nothing carries");
    n->depth = g->at.ptr[*parent].depth + 1;
    if (*last_child == GRAPH_NONE)
        g->at.ptr[*parent].first = id;
    else
        g->at.ptr[*last_child].next = id;
    *last_child = id;
    return 0;
}

static int read_level(const struct json_val *level, struct graph *g, uint32_t above, struct err *e)
{
    uint32_t begin = (uint32_t)g->at.len, parent = above, last_child = GRAPH_NONE;
    size_t n = json_len(level);
    struct graph_node node;
    uint64_t x = 0;

    if (n % NUMBERS)
        return err_set(e, ERR_IO, "a level of %zu numbers", n);
    for (size_t i = 0; i < n; i += NUMBERS) {
        if (read_bar(level, i, g, &x, &node, e))
            return e->code;
        if (begin ? adopt(g, &parent, begin, &node, &last_child, e) : i > 0)
            return begin ? e->code : err_set(e, ERR_IO, "several roots");
        vec_push(&g->at, node);
    }
    return 0;
}

static int read_tree(const struct json_val *flame, struct graph *g, struct err *e)
{
    const struct json_val *levels = json_get(flame, "levels", NULL);
    size_t above = 0, n = json_len(levels);

    if (!json_is_arr(levels) || n > LEVELS_MAX)
        return err_set(e, ERR_IO, "no flame graph");
    if (read_names(json_get(flame, "names", NULL), g, e))
        return e->code;
    for (size_t i = 0; i < n; i++) {
        size_t begin = g->at.len;
        if (read_level(json_at(levels, i), g, (uint32_t)above, e))
            return e->code;
        if (g->at.len == begin)
            return i + 1 == n ? 0 : err_set(e, ERR_IO, "an empty level");
        above = begin;
    }
    return 0;
}

int graph_read(const struct cli *c, struct str json, const char *key, struct graph *ret,
               struct err *e)
{
    const struct json_val *root;
    int rc;

    *ret = (struct graph){ .doc = NULL };
    if (json_parse(json, &ret->doc, e))
        return ask_strange(c, "no JSON", e);
    root = json_root(ret->doc);
    rc = read_tree(json_get(root, key, NULL), ret, e);
    if (rc) {
        graph_deinit(ret);
        return ask_strange(c, e->text, e);
    }
    return 0;
}

void graph_deinit(struct graph *g)
{
    vec_free(&g->names);
    vec_free(&g->at);
    json_doc_free(g->doc);
    g->doc = NULL;
}

/* ---- order ---- */

static int by_total(const struct graph *g, uint32_t a, uint32_t b)
{
    uint64_t x = g->at.ptr[a].total, y = g->at.ptr[b].total;

    if (x != y)
        return x > y ? -1 : 1;
    return str_cmp(g->names.ptr[g->at.ptr[a].name], g->names.ptr[g->at.ptr[b].name]);
}

struct kids {
    VEC(uint32_t) at; /* shown children, largest first */
    size_t hidden;
    uint64_t hidden_total;
};

static int compare_kids(const void *a, const void *b, void *cookie)
{
    return by_total(cookie, *(const uint32_t *)a, *(const uint32_t *)b);
}

/* Which children of a node are shown. */
static void kids_of(const struct graph *g, const struct graph_show *s, uint32_t node,
                    struct kids *ret)
{
    double least = s->min_percent / 100 * (double)g->at.ptr[0].total;

    ret->at.len = 0;
    ret->hidden = 0;
    ret->hidden_total = 0;
    for (uint32_t k = g->at.ptr[node].first; k != GRAPH_NONE; k = g->at.ptr[k].next) {
        const struct graph_node *n = &g->at.ptr[k];
        if (n->depth <= s->depth && (double)n->total >= least) {
            vec_push(&ret->at, k);
        } else {
            ret->hidden++;
            ret->hidden_total += n->total;
        }
    }
    if (ret->at.len)
        qsort_r(ret->at.ptr, ret->at.len, sizeof(*ret->at.ptr), compare_kids, (void *)(uintptr_t)g);
}

/* ---- walking ---- */

enum place { PLACE_MIDDLE, PLACE_LAST, PLACE_ONLY };
struct todo {
    uint32_t node;   /* GRAPH_NONE: what its parent hides */
    uint32_t hidden; /* number of them */
    uint64_t total;  /* of the hidden ones */
    uint32_t indent;
    enum place place;
};
struct walk {
    const struct graph *g;
    const struct term *t;
    const struct graph_show *s;
    VEC(struct todo) todo;
    VEC(bool) open; /* by indent: more siblings follow below */
    struct kids kids;
    size_t lines;
};

/* The node's children, so that they come next and in order. */
static void push_kids(struct walk *w, uint32_t node, uint32_t indent)
{
    kids_of(w->g, w->s, node, &w->kids);
    bool only = w->kids.at.len == 1 && !w->kids.hidden;
    size_t n = w->kids.at.len + (w->kids.hidden > 0);

    if (w->kids.hidden)
        vec_push(&w->todo,
                 ((struct todo){ GRAPH_NONE, (uint32_t)w->kids.hidden, w->kids.hidden_total, indent,
                                 n == 1 ? PLACE_ONLY : PLACE_LAST }));
    for (size_t i = w->kids.at.len; i-- > 0;)
        vec_push(&w->todo, ((struct todo){ w->kids.at.ptr[i], 0, 0, indent,
                                           only         ? PLACE_ONLY
                                           : i + 1 == n ? PLACE_LAST
                                                        : PLACE_MIDDLE }));
}

static void put_lead(struct walk *w, const struct todo *d, struct buf *out)
{
    bool u = w->t->utf8;
    uint32_t skipped = d->indent > INDENTS ? d->indent - INDENTS : 0;

    if (skipped)
        (void)buf_addf(out, "%s%" PRIu32 " ", u ? "…" : "+", skipped);
    for (uint32_t i = skipped; i < d->indent; i++)
        (void)buf_add_str(out, !w->open.ptr[i] ? STR("  ") : u ? STR("│ ") : STR("| "));
    if (d->place == PLACE_ONLY)
        (void)buf_add_str(out, u ? STR("╵ ") : STR("' "));
    else if (d->place == PLACE_LAST)
        (void)buf_add_str(out, u ? STR("└ ") : STR("` "));
    else
        (void)buf_add_str(out, u ? STR("├ ") : STR("|-"));
}

static size_t lead_columns(const struct todo *d)
{
    return 2 * (size_t)MIN(d->indent, INDENTS) + 2 + (d->indent > INDENTS ? 6 : 0);
}

static enum term_style heat(double percent)
{
    return percent >= 20 ? TERM_RED : percent >= 5 ? TERM_YELLOW : TERM_PLAIN;
}

static void put_numbers(const struct walk *w, uint64_t total, enum term_style style,
                        struct buf *out)
{
    double all = (double)w->g->at.ptr[0].total, percent = all > 0 ? 100 * (double)total / all : 0;

    term_style(w->t, style == TERM_PLAIN ? heat(percent) : style, out);
    (void)buf_addf(out, "%5.1f %%", percent);
    term_value_right((double)total, w->s->unit, false, 11, out);
    if (style != TERM_DIM)
        term_style(w->t, TERM_PLAIN, out);
    (void)buf_add_str(out, STR("  "));
}

static void put_node(struct walk *w, const struct todo *d, struct buf *out)
{
    size_t room = w->t->width - MIN(w->t->width, 20 + lead_columns(d));
    const struct graph_node *n;
    char text[64];

    put_numbers(w, d->node == GRAPH_NONE ? d->total : w->g->at.ptr[d->node].total,
                d->node == GRAPH_NONE ? TERM_DIM : TERM_PLAIN, out);
    put_lead(w, d, out);
    room = MAX(room, 8);
    if (d->node == GRAPH_NONE) {
        (void)snprintf(text, sizeof(text), "(%" PRIu32 " more)", d->hidden);
        (void)term_name(w->t, str_c(text), room, out);
        term_style(w->t, TERM_PLAIN, out);
    } else {
        n = &w->g->at.ptr[d->node];
        (void)term_name(w->t, w->g->names.ptr[n->name], room, out);
    }
    (void)buf_add_c(out, '\n');
}

static void step(struct walk *w, struct buf *out)
{
    struct todo d = w->todo.ptr[--w->todo.len];

    vec_reserve(&w->open, (size_t)d.indent + 1);
    w->open.len = (size_t)d.indent + 1;
    w->open.ptr[d.indent] = d.place == PLACE_MIDDLE;
    put_node(w, &d, out);
    w->lines++;
    /* An only child stands below its parent, not beside it: chains stay in one column. */
    if (d.node != GRAPH_NONE)
        push_kids(w, d.node, d.place == PLACE_ONLY ? d.indent : d.indent + 1);
}

void graph_text(const struct graph *g, const struct term *t, const struct graph_show *s,
                struct buf *out)
{
    struct walk w = { .g = g, .t = t, .s = s };

    if (!g->at.len)
        return;
    put_numbers(&w, g->at.ptr[0].total, TERM_PLAIN, out);
    (void)term_name(t, g->names.ptr[g->at.ptr[0].name], 40, out);
    (void)buf_add_c(out, '\n');
    push_kids(&w, 0, 0);
    while (w.todo.len && w.lines < s->lines)
        step(&w, out);
    if (w.todo.len)
        (void)buf_addf(out, "(cut at %" PRIu64 " lines: --limit, --min-percent, --depth)\n",
                       s->lines);
    vec_free(&w.todo);
    vec_free(&w.open);
    vec_free(&w.kids.at);
}

void graph_json(const struct graph *g, const struct graph_show *s, struct json *j)
{
    struct walk w = { .g = g, .s = s };

    json_arr(j);
    if (g->at.len)
        vec_push(&w.todo, ((struct todo){ .node = 0 }));
    for (; w.todo.len && w.lines < s->lines; w.lines++) {
        struct todo d = w.todo.ptr[--w.todo.len];
        const struct graph_node *n = &g->at.ptr[d.node];
        json_obj(j);
        json_put_str(j, "name", g->names.ptr[n->name]);
        json_put_u64(j, "depth", n->depth);
        json_put_u64(j, "self", n->self);
        json_put_u64(j, "total", n->total);
        json_obj_end(j);
        kids_of(g, s, d.node, &w.kids);
        for (size_t i = w.kids.at.len; i-- > 0;)
            vec_push(&w.todo, ((struct todo){ .node = w.kids.at.ptr[i] }));
    }
    json_arr_end(j);
    vec_free(&w.todo);
    vec_free(&w.kids.at);
}
