/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_cover: greedy from the left, as cover.c, and right for the same reason.
 *
 * A point of level l at t is exact
 *   l = 0, or l is the base      always: the seal itself adds to it
 *   l = 1, of groups             always: written at the seal
 *   l = 1, of members            if the node of level 2 it lies in is not dirty: the build of that
 *                                writes it
 *   l >= 2                       if the node is not dirty
 *
 * Where level 1 is the finest kept level, the base of timelines is finer than that of members'
 * vectors. A gap (deleted data) still takes whole base nodes of the vectors, so that a timeline and
 * a flame graph leave out the same data.
 */
#include "common/store/query/tl_cover.h"

/* ---- the grid ---- */

static int64_t floor_slot(int64_t ms)
{
    int64_t d = ms - SLOT_EPOCH_MS;
    return d >= 0 ? d / SLOT_MS : -((-d + SLOT_MS - 1) / SLOT_MS);
}

static uint32_t clamp_slot(int64_t slot)
{
    return slot < 0 ? 0 : (uint32_t)MIN(slot, (int64_t)KEY_SLOT_MAX);
}

void tl_grid_init(struct tl_grid *g, int64_t origin_ms, int64_t step_ms, uint32_t points)
{
    *g = (struct tl_grid){ .origin_ms = origin_ms, .step_ms = step_ms, .points = points };
    g->floors.at[KEY_LEVELS - 1] = g->floors.end = UINT32_MAX; /* until a service is known */
}

void tl_grid_asked(const struct tl_grid *g, uint32_t *ret_from, uint32_t *ret_to)
{
    *ret_from = clamp_slot(floor_slot(g->origin_ms - g->step_ms) + 1);
    *ret_to = clamp_slot(floor_slot(g->origin_ms + (g->points - 1) * g->step_ms) + 1);
}

void tl_grid_floors(struct tl_grid *g, const struct floors *f)
{
    uint32_t last = KEY_LEVELS - 1;

    for (uint32_t l = 0; l < last; l++)
        g->floors.at[l] = MAX(g->floors.at[l], f->at[l]);
    g->floors.at[last] = MIN(g->floors.at[last], f->at[last]);
    g->floors.end = MIN(g->floors.end, floors_lowest(f));
}

/* What edges at t are multiples of. */
static uint32_t grain(const struct tl_grid *g, uint32_t t)
{
    uint32_t base = floors_base(&g->floors, !g->members, t);

    if (!base && !g->vectors)
        return 1;
    return LEVELS[MIN(base, KEY_LEVELS - 1)].node;
}

void tl_grid_bounds(struct tl_grid *g)
{
    uint32_t from, to, lowest = floors_lowest(&g->floors);

    tl_grid_asked(g, &from, &to);
    g->from = g->to = from;
    from = MAX(from, lowest);
    if (from >= to)
        return;
    uint32_t last = grain(g, to - 1);
    g->from = from - from % grain(g, from);
    g->to = to - 1 - (to - 1) % last + last;
}

uint32_t tl_grid_point(const struct tl_grid *g, uint32_t t)
{
    int64_t behind = slot_to_ms(t - t % grain(g, t)) - g->origin_ms;
    int64_t k = behind <= 0 ? 0 : (behind + g->step_ms - 1) / g->step_ms;

    return (uint32_t)MIN(k, (int64_t)g->points - 1);
}

uint32_t tl_grid_edge(const struct tl_grid *g, uint32_t t)
{
    uint32_t k = tl_grid_point(g, t);

    if (k + 1 >= g->points)
        return g->to;
    uint32_t edge = clamp_slot(floor_slot(g->origin_ms + k * g->step_ms) + 1);
    if (edge >= g->to)
        return g->to;
    uint32_t over = edge % grain(g, edge);
    return MIN(over ? edge - over + grain(g, edge) : edge, g->to);
}

/* ---- the cover ---- */

struct walk {
    const struct tl_cover_in *in;
    struct tl_cover *ret;
    size_t gap; /* the first that ends behind the position */
};

static bool clear_of_gaps(struct walk *w, uint32_t t, uint32_t end)
{
    while (w->gap < w->in->gaps_len && w->in->gaps[w->gap].to <= t)
        w->gap++;
    return w->gap == w->in->gaps_len || w->in->gaps[w->gap].from >= end;
}

/* What one point of a level covers, in slots. */
static uint32_t width(uint32_t level)
{
    return LEVELS[level].tl_point;
}

static bool usable(const struct tl_cover_in *in, uint32_t level, uint32_t t)
{
    if (level == 1)
        return in->group || t < in->floors->at[0] || !dirty_has(in->dirty, 2, node_of(2, t));
    return !dirty_has(in->dirty, level, t);
}

/* The coarsest exact level at t, which ends at `limit` or before. */
static uint32_t best_level(struct walk *w, uint32_t base, uint32_t t, uint32_t limit)
{
    uint32_t best = base;

    for (uint32_t l = base + 1; l < KEY_LEVELS; l++) {
        if (t % width(l) || limit - t < width(l) || !clear_of_gaps(w, t, t + width(l)))
            break;
        if (usable(w->in, l, t))
            best = l;
    }
    return best;
}

static void add_run(struct tl_cover *c, uint32_t level, uint32_t from, uint32_t to)
{
    struct cover_run *last = c->at[level].len ? &c->at[level].ptr[c->at[level].len - 1] : NULL;

    if (last && last->to == from)
        last->to = to;
    else
        vec_push(&c->at[level], ((struct cover_run){ level, from, to }));
}

/* Base points from t up to where another level may begin, or a finer one becomes the base. */
static uint32_t base_end(const struct walk *w, uint32_t base, uint32_t t)
{
    uint32_t end = w->in->to;

    if (base + 1 < KEY_LEVELS)
        end = MIN(end, t - t % width(base + 1) + width(base + 1));
    if (base > 0)
        end = MIN(end, w->in->floors->at[base - 1]);
    return end;
}

/* If a gap touches the base node of the vectors at t: its end. Else t. */
static uint32_t behind_gap(struct walk *w, uint32_t t)
{
    uint32_t base = floors_base(w->in->floors, w->in->group, t);
    uint32_t node = node_of(base, t), end = node + LEVELS[base].node;

    /* The walk may stand inside the node: look at all of it, once more. */
    for (size_t i = w->gap ? w->gap - 1 : 0; i < w->in->gaps_len; i++)
        if (w->in->gaps[i].to > node)
            return w->in->gaps[i].from < end ? end : t;
    return t;
}

void tl_cover_make(const struct tl_cover_in *in, struct tl_cover *ret)
{
    struct walk w = { .in = in, .ret = ret };
    uint32_t t = MAX(in->from, floors_lowest(in->floors));

    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        ret->at[l].len = 0;
    while (t < in->to) {
        uint32_t base = floors_base(in->floors, true, t), next = behind_gap(&w, t);
        if (next != t) {
            t = next;
            continue;
        }
        uint32_t limit = MIN(tl_grid_edge(in->grid, t), in->to);
        uint32_t level = best_level(&w, base, t, limit);
        uint32_t end = level == base ? base_end(&w, base, t) : t + width(level);
        if (level == base && !clear_of_gaps(&w, t, end)) {
            const struct cover_gap *g = &in->gaps[w.gap];
            uint32_t vectors = floors_base(in->floors, in->group, t);
            end = MIN(end, MAX(node_of(vectors, g->from), t + width(base)));
        }
        add_run(ret, level, t, end);
        t = end;
    }
}

void tl_cover_deinit(struct tl_cover *c)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        vec_free(&c->at[l]);
}
