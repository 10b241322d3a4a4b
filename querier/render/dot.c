/* SPDX-License-Identifier: Apache-2.0
 *
 * dot: two walks over the whole tree.
 *
 *   1  a function's own cost, and its cost with callees: a node counts if its function does not
 *      stand above it already, so that recursion counts once
 *   2  arrows between the functions that are drawn: a node's nearest drawn caller calls it; an
 *      arrow counts once per stack by the same rule
 *
 * "Stands above it" is a counter per function and per arrow that goes up on the way down and down
 * on the way up. Both walks keep their own stack: nothing recurses.
 */
#include "querier/render/dot.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/render/escape.h"
#include "querier/render/amount.h"

#define NONE UINT32_MAX

struct function {
    uint64_t flat, cum;
    uint32_t above; /* times it stands on the path being walked */
    uint32_t shown; /* number in the drawing, from 1; 0: not drawn */
};
struct arrow {
    uint32_t from, to; /* names */
    uint32_t above;
    bool skips; /* over functions that are not drawn */
    uint64_t cost;
};
struct visit {
    uint32_t node;
    uint32_t next;   /* index into layout.child */
    uint32_t caller; /* name of the nearest drawn function, this one included; NONE */
    uint32_t arrow;  /* counted up for this node; NONE */
    bool skipped;    /* between the caller and here something is not drawn */
};
struct graph {
    const struct calltree *t;
    const struct dot_opts *o;
    struct buf *out;
    struct layout l;
    struct function *functions; /* owned; by name */
    VEC(uint32_t) shown;        /* names, most costly first */
    VEC(struct arrow) arrows;
    struct map_u64 arrow_ids; /* (from << 32 | to) ^ seed -> arrow */
    VEC(struct visit) path;
    uint64_t max_flat;
};

size_t dot_cost(const struct calltree *t)
{
    /* A node: a visit 24, perhaps an arrow 32 and its slot 32, growth. A name: a function, twice in
     * the order. */
    return t->parent.len * 160 + t->names.len * 40 + 64 * KIB;
}

/* ---- walks ----------------------------------------------------------------------------------- */

static void enter_cost(struct graph *g, struct visit *v)
{
    struct function *f = &g->functions[g->l.name[v->node]];

    f->flat = u64_add_sat(f->flat, g->l.self[v->node]);
    if (f->above++ == 0)
        f->cum = u64_add_sat(f->cum, g->l.total[v->node]);
}

static void leave_cost(struct graph *g, const struct visit *v)
{
    g->functions[g->l.name[v->node]].above--;
}

static uint32_t arrow_of(struct graph *g, uint32_t from, uint32_t to)
{
    uint32_t next = (uint32_t)g->arrows.len;
    uint32_t id = map_u64_put(&g->arrow_ids, ((uint64_t)from << 32 | to) ^ g->t->seed, next);

    if (id != MAP_U64_EMPTY)
        return id;
    vec_push(&g->arrows, ((struct arrow){ .from = from, .to = to }));
    return next;
}

static void enter_arrow(struct graph *g, struct visit *v)
{
    uint32_t name = g->l.name[v->node], caller = v->caller;

    if (!g->functions[name].shown) {
        v->skipped = true;
        return;
    }
    if (caller != NONE && caller != name) {
        v->arrow = arrow_of(g, caller, name);
        struct arrow *a = &g->arrows.ptr[v->arrow];
        a->skips |= v->skipped;
        if (a->above++ == 0)
            a->cost = u64_add_sat(a->cost, g->l.total[v->node]);
    }
    v->caller = name;
    v->skipped = false;
}

static void leave_arrow(struct graph *g, const struct visit *v)
{
    if (v->arrow != NONE)
        g->arrows.ptr[v->arrow].above--;
}

/* Every node but the root, callers before callees. */
static void walk(struct graph *g, void (*enter)(struct graph *, struct visit *),
                 void (*leave)(struct graph *, const struct visit *))
{
    g->path.len = 0;
    vec_push(&g->path, ((struct visit){ .next = g->l.child_at[0], .caller = NONE, .arrow = NONE }));
    while (g->path.len) {
        struct visit *top = &g->path.ptr[g->path.len - 1];
        if (top->next == g->l.child_at[top->node + 1]) {
            if (top->node)
                leave(g, top);
            g->path.len--;
            continue;
        }
        struct visit down = { .node = g->l.child[top->next++],
                              .caller = top->caller,
                              .skipped = top->skipped,
                              .arrow = NONE };
        down.next = g->l.child_at[down.node];
        enter(g, &down);
        vec_push(&g->path, down);
    }
}

/* ---- what is drawn --------------------------------------------------------------------------- */

static int by_cost(const void *a, const void *b, void *graph)
{
    const struct graph *g = graph;
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    const struct function *f = &g->functions[x], *h = &g->functions[y];

    if (f->cum != h->cum)
        return f->cum < h->cum ? 1 : -1;
    if (f->flat != h->flat)
        return f->flat < h->flat ? 1 : -1;
    return str_cmp(g->t->names.ptr[x], g->t->names.ptr[y]);
}

static int by_arrow_cost(const void *a, const void *b, void *graph)
{
    const struct graph *g = graph;
    const struct arrow *x = a, *y = b;
    uint32_t from = g->functions[x->from].shown, other = g->functions[y->from].shown;

    if (x->cost != y->cost)
        return x->cost < y->cost ? 1 : -1;
    if (from != other)
        return from < other ? -1 : 1;
    from = g->functions[x->to].shown;
    other = g->functions[y->to].shown;
    return from < other ? -1 : from > other;
}

static void choose(struct graph *g)
{
    size_t most = g->o->nodes ? g->o->nodes : DOT_NODES;

    for (size_t i = 0; i < g->t->names.len; i++)
        if (g->functions[i].cum)
            vec_push(&g->shown, (uint32_t)i);
    if (g->shown.len)
        qsort_r(g->shown.ptr, g->shown.len, sizeof(uint32_t), by_cost, g);
    g->shown.len = MIN(g->shown.len, most);
    vec_for (i, &g->shown) {
        struct function *f = &g->functions[g->shown.ptr[i]];
        f->shown = (uint32_t)(i + 1);
        g->max_flat = MAX(g->max_flat, f->flat);
    }
}

/* ---- text ------------------------------------------------------------------------------------ */

static void put_amount(struct graph *g, uint64_t v)
{
    amount_put(v, g->o->unit, g->out);
    buf_add_str(g->out, STR(" ("));
    amount_percent(v, g->l.total[0], g->out);
    buf_add_c(g->out, ')');
}

/* Grey for what costs nothing, red for what costs all. */
static void put_colour(struct graph *g, uint64_t v, bool pale)
{
    double part = g->l.total[0] ? sqrt((double)v / (double)g->l.total[0]) : 0;
    double top = pale ? 237 : 178, low = pale ? 213 : 20;
    unsigned red = (unsigned)(top - (1 - part) * (pale ? 0 : 60));
    unsigned rest = (unsigned)(low + (1 - part) * (pale ? 24 : 90));

    buf_addf(g->out, "\"#%02x%02x%02x\"", red, rest, rest);
}

static void put_function(struct graph *g, uint32_t name)
{
    const struct function *f = &g->functions[name];
    double size = 8 + (g->max_flat ? 16 * sqrt((double)f->flat / (double)g->max_flat) : 0);

    buf_addf(g->out, "N%u [label=\"", f->shown);
    escape_dot(g->t->names.ptr[name], g->out);
    buf_add_str(g->out, STR("\\n"));
    put_amount(g, f->flat);
    if (f->cum != f->flat) {
        buf_add_str(g->out, STR("\\nof "));
        put_amount(g, f->cum);
    }
    buf_addf(g->out, "\" id=\"node%u\" fontsize=%.0f shape=box tooltip=\"", f->shown, size);
    escape_dot(g->t->names.ptr[name], g->out);
    buf_add_str(g->out, STR(" "));
    put_amount(g, f->cum);
    buf_add_str(g->out, STR("\" color="));
    put_colour(g, f->cum, false);
    buf_add_str(g->out, STR(" fillcolor="));
    put_colour(g, f->cum, true);
    buf_add_str(g->out, STR("]\n"));
}

static void put_arrow(struct graph *g, const struct arrow *a)
{
    double part = g->l.total[0] ? (double)a->cost / (double)g->l.total[0] : 0;

    buf_addf(g->out, "N%u -> N%u [label=\" ", g->functions[a->from].shown,
             g->functions[a->to].shown);
    amount_put(a->cost, g->o->unit, g->out);
    buf_addf(g->out, "\" weight=%.0f penwidth=%.0f color=", 1 + 100 * part, 1 + 5 * part);
    put_colour(g, a->cost, false);
    buf_add_str(g->out, STR(" tooltip=\""));
    escape_dot(g->t->names.ptr[a->from], g->out);
    buf_add_str(g->out, STR(" -> "));
    escape_dot(g->t->names.ptr[a->to], g->out);
    buf_add_str(g->out, STR(" "));
    put_amount(g, a->cost);
    buf_add_c(g->out, '"');
    if (a->skips)
        buf_add_str(g->out, STR(" style=\"dashed\""));
    buf_add_str(g->out, STR("]\n"));
}

static void put_graph(struct graph *g)
{
    buf_add_str(g->out, STR("digraph \""));
    escape_dot(g->o->title.len ? g->o->title : STR("profile"), g->out);
    buf_add_str(g->out, STR("\" {\nnode [style=filled fillcolor=\"#f8f8f8\"]\nsubgraph cluster_L { "
                            "\"legend\" [shape=box fontsize=16 label=\""));
    if (g->o->title.len) {
        escape_dot(g->o->title, g->out);
        buf_add_str(g->out, STR("\\l"));
    }
    buf_add_str(g->out, STR("total "));
    amount_put(g->l.total[0], g->o->unit, g->out);
    buf_addf(g->out, "\\l%zu functions drawn\\l\"] }\n", g->shown.len);
    for (size_t i = 0; i < g->shown.len && buf_ok(g->out); i++)
        put_function(g, g->shown.ptr[i]);
    for (size_t i = 0; i < g->arrows.len && buf_ok(g->out); i++)
        put_arrow(g, &g->arrows.ptr[i]);
    buf_add_str(g->out, STR("}\n"));
}

void dot_write(const struct calltree *t, const struct dot_opts *o, struct buf *out)
{
    struct graph g = { .t = t, .o = o, .out = out };

    layout_init(&g.l, t, 0);
    if (g.l.total[0]) {
        g.functions = XNEW_ARRAY(struct function, t->names.len);
        map_u64_init(&g.arrow_ids);
        walk(&g, enter_cost, leave_cost);
        choose(&g);
        walk(&g, enter_arrow, leave_arrow);
        if (g.arrows.len)
            qsort_r(g.arrows.ptr, g.arrows.len, sizeof(struct arrow), by_arrow_cost, &g);
        put_graph(&g);
        xfree(g.functions);
        map_u64_deinit(&g.arrow_ids);
        vec_free(&g.shown);
        vec_free(&g.arrows);
        vec_free(&g.path);
    }
    layout_deinit(&g.l);
}
