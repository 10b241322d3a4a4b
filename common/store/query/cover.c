/* SPDX-License-Identifier: Apache-2.0
 *
 * cover: greedy from the left. At each position the coarsest usable node is the right choice, for
 * nodes nest: any cover of that node's range has at least one node. The bound for a year of groups
 * that is wholly built is (5 + 9 + 5 + 5 + 3 + 7) nodes on either side of at most 6 of 64 d: below
 * 85. Members, without level 1, have up to 59 leaves on either side.
 */
#include "common/store/query/cover.h"

struct walk {
    const struct cover_in *in;
    struct cover *ret;
    size_t gap; /* the first that ends behind the position */
};

/* The first gap that ends behind t. */
static const struct cover_gap *gap_at(struct walk *w, uint32_t t)
{
    while (w->gap < w->in->gaps_len && w->in->gaps[w->gap].to <= t)
        w->gap++;
    return w->gap < w->in->gaps_len ? &w->in->gaps[w->gap] : NULL;
}

static bool clear_of_gaps(struct walk *w, uint32_t t, uint32_t end)
{
    const struct cover_gap *g = gap_at(w, t);

    return !g || g->from >= end;
}

/* t is the first slot of a base node. The coarsest usable level there. */
static uint32_t best_level(struct walk *w, uint32_t base, uint32_t t)
{
    const struct cover_in *in = w->in;
    uint32_t best = base;

    for (uint32_t l = level_above(in->group, base); l < KEY_LEVELS; l++) {
        uint32_t node = LEVELS[l].node;
        if (t % node || node > w->ret->to - t || !clear_of_gaps(w, t, t + node))
            break;
        if (l < DIRTY_FIRST || !dirty_has(in->dirty, l, t))
            best = l;
    }
    return best;
}

static void add_run(struct cover *c, uint32_t level, uint32_t from, uint32_t to)
{
    struct cover_run *last = c->runs.len ? &c->runs.ptr[c->runs.len - 1] : NULL;

    if (last && last->level == level && last->to == from)
        last->to = to;
    else
        vec_push(&c->runs, ((struct cover_run){ level, from, to }));
}

/* Base nodes from t up to where another level could begin. */
static uint32_t base_end(struct walk *w, uint32_t base, uint32_t t)
{
    uint32_t above = level_above(w->in->group, base), end = w->ret->to;
    const struct cover_gap *g = gap_at(w, t);

    if (above < KEY_LEVELS)
        end = MIN(end, node_of(above, t) + LEVELS[above].node);
    if (base > 0) /* where a finer level becomes the base */
        end = MIN(end, w->in->floors->at[level_below(w->in->group, base)]);
    if (g && g->from < end)
        end = node_of(base, g->from);
    return end;
}

/* The base node behind the gap, or that it ends in; t is that of a base node the gap touches. */
static uint32_t behind_gap(struct walk *w, uint32_t t, uint32_t node)
{
    const struct cover_gap *g = gap_at(w, t);
    uint32_t end = g ? MAX(t + node, g->to) : t + node;

    return end >= w->ret->to ? end : node_of(floors_base(w->in->floors, w->in->group, end), end);
}

/* Outward to base nodes; nothing below the lowest floor or, for groups, before `since`. */
void cover_bounds(const struct cover_in *in, uint32_t *ret_from, uint32_t *ret_to)
{
    uint32_t from = MAX(in->from, floors_lowest(in->floors)), to = in->to;

    *ret_from = *ret_to = in->from;
    if (in->group)
        from = MAX(from, cover_split(in->floors, in->since));
    if (from >= to)
        return;
    uint32_t base = floors_base(in->floors, in->group, from);
    uint32_t last = floors_base(in->floors, in->group, to - 1);
    *ret_from = node_of(base, from);
    *ret_to = node_of(last, to - 1) + LEVELS[last].node;
}

void cover_make(const struct cover_in *in, struct cover *ret)
{
    struct walk w = { .in = in, .ret = ret };

    ret->runs.len = 0;
    cover_bounds(in, &ret->from, &ret->to);
    for (uint32_t t = ret->from; t < ret->to;) {
        uint32_t base = floors_base(in->floors, in->group, t), node = LEVELS[base].node;
        if (!clear_of_gaps(&w, t, t + node)) {
            t = behind_gap(&w, t, node);
            continue;
        }
        uint32_t level = best_level(&w, base, t);
        uint32_t end = level == base ? base_end(&w, base, t) : t + LEVELS[level].node;
        add_run(ret, level, t, end);
        t = end;
    }
}

void cover_deinit(struct cover *c)
{
    vec_free(&c->runs);
}

uint32_t cover_split(const struct floors *f, uint32_t since)
{
    uint32_t base = floors_base(f, false, since);

    if (base == FLOORS_GONE)
        return f->at[KEY_LEVELS - 1];
    uint32_t node = LEVELS[base].node, over = since % node;
    return over ? since - over + node : since;
}
