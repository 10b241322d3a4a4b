/* SPDX-License-Identifier: Apache-2.0
 *
 * diff: the union of both trees decides which nodes are kept and in which order; the values of each
 * side are carried along.
 *
 * Breadth first with one queue, as flame.c: an entry has a left edge per side. What was cut below a
 * node is one bar "other", last; a real function of that name beside it goes into it.
 */
#include "common/render/diff.h"

#include "common/base/mem.h"
#include "common/base/size.h"

#define BAR      7
#define CUT_MARK UINT32_MAX

struct entry {
    uint32_t node; /* of the layout, or CUT_MARK */
    uint64_t x[DIFF_SIDES], total[DIFF_SIDES];
};
/* Values of one side by node of the union. */
struct side {
    uint64_t *self, *total; /* owned */
};
struct walk {
    struct diff *d;
    struct calltree both;
    struct layout layout;
    struct side sides[DIFF_SIDES];
    uint32_t *name_at; /* owned; number in d->names by name of the union, + 1 */
    VEC(struct entry) queue;
    uint64_t edge[DIFF_SIDES];
};

size_t diff_cost(const struct calltree *left, const struct calltree *right)
{
    /* Union, layout, two sides, bars of 56 bytes that double, JSON of about 100. */
    return (left->parent.len + right->parent.len) * 420 +
           (left->names.len + right->names.len) * 96 + 64 * KIB;
}

static uint64_t bounded(uint64_t a, uint64_t b)
{
    return MIN(u64_add_sat(a, b), (uint64_t)INT64_MAX);
}

/* ---- the union ------------------------------------------------------------------------------- */

static void unite(struct walk *w, const struct calltree *const trees[DIFF_SIDES])
{
    uint32_t *map[DIFF_SIDES];

    calltree_init(&w->both, trees[DIFF_LEFT]->seed);
    for (int s = 0; s < DIFF_SIDES; s++) {
        map[s] = XNEW_ARRAY(uint32_t, trees[s]->parent.len);
        calltree_graft(&w->both, trees[s], map[s]);
    }
    for (int s = 0; s < DIFF_SIDES; s++) {
        struct side *side = &w->sides[s];
        side->self = xcalloc(w->both.parent.len, sizeof(uint64_t));
        vec_for (i, &trees[s]->self) {
            side->self[map[s][i]] = trees[s]->self.ptr[i];
            w->both.self.ptr[map[s][i]] =
                bounded(w->both.self.ptr[map[s][i]], trees[s]->self.ptr[i]);
        }
        xfree(map[s]);
        side->total = xmemdup(side->self, w->both.parent.len * sizeof(uint64_t));
        for (size_t i = w->both.parent.len - 1; i > 0; i--)
            side->total[w->both.parent.ptr[i]] =
                bounded(side->total[w->both.parent.ptr[i]], side->total[i]);
    }
}

/* ---- bars ------------------------------------------------------------------------------------ */

static uint64_t name_number(struct walk *w, uint32_t name)
{
    if (!w->name_at[name]) {
        vec_push(&w->d->names, w->both.names.ptr[name]);
        w->name_at[name] = (uint32_t)w->d->names.len;
    }
    return w->name_at[name] - 1;
}

static void put_bar(struct walk *w, const struct entry *en)
{
    const bool cut = en->node == CUT_MARK;

    for (int s = 0; s < DIFF_SIDES; s++) {
        uint64_t self = cut ? en->total[s] : w->sides[s].self[w->layout.node[en->node]];
        vec_push(&w->d->bars, en->x[s] - w->edge[s]);
        vec_push(&w->d->bars, en->total[s]);
        vec_push(&w->d->bars, self);
        w->edge[s] = u64_add_sat(en->x[s], en->total[s]);
        w->d->max_self = MAX(w->d->max_self, self);
    }
    vec_push(&w->d->bars, name_number(w, cut ? CALLTREE_OTHER : w->layout.name[en->node]));
}

static void put_children(struct walk *w, const struct entry *en)
{
    const struct layout *l = &w->layout;
    struct entry other = { .node = CUT_MARK };
    bool folded = false;

    if (en->node == CUT_MARK)
        return;
    const bool cut = l->other[en->node] > 0;
    uint64_t x[DIFF_SIDES], rest[DIFF_SIDES];
    for (int s = 0; s < DIFF_SIDES; s++) {
        uint64_t self = w->sides[s].self[l->node[en->node]];
        x[s] = u64_add_sat(en->x[s], self);
        rest[s] = en->total[s] - MIN(self, en->total[s]);
    }
    for (uint32_t i = l->child_at[en->node]; i < l->child_at[en->node + 1]; i++) {
        struct entry child = { .node = l->child[i] };
        if (cut && l->name[child.node] == CALLTREE_OTHER) {
            folded = true; /* stays in the rest */
            continue;
        }
        for (int s = 0; s < DIFF_SIDES; s++) {
            child.x[s] = x[s];
            child.total[s] = w->sides[s].total[l->node[child.node]];
            x[s] = u64_add_sat(x[s], child.total[s]);
            rest[s] -= MIN(rest[s], child.total[s]);
        }
        vec_push(&w->queue, child);
    }
    if (!cut && !folded)
        return;
    for (int s = 0; s < DIFF_SIDES; s++) {
        other.x[s] = x[s];
        other.total[s] = rest[s];
    }
    vec_push(&w->queue, other);
}

static void put_bars(struct walk *w)
{
    struct entry root = { .node = 0 };

    for (int s = 0; s < DIFF_SIDES; s++)
        root.total[s] = w->d->ticks[s] = w->sides[s].total[0];
    (void)name_number(w, CALLTREE_TOTAL);
    vec_push(&w->queue, root);
    for (size_t begin = 0, end = 1; begin < end; begin = end, end = w->queue.len) {
        w->edge[DIFF_LEFT] = w->edge[DIFF_RIGHT] = 0;
        for (size_t i = begin; i < end; i++) {
            struct entry en = w->queue.ptr[i]; /* by value: the queue moves as it grows */
            put_bar(w, &en);
            put_children(w, &en);
        }
        vec_push(&w->d->level_end, end);
    }
}

void diff_init(struct diff *d, const struct calltree *left, const struct calltree *right,
               size_t max_nodes)
{
    const struct calltree *const trees[DIFF_SIDES] = { left, right };
    struct walk w = { .d = d };

    *d = (struct diff){ 0 };
    unite(&w, trees);
    layout_init(&w.layout, &w.both, max_nodes);
    w.name_at = XNEW_ARRAY(uint32_t, w.both.names.len);
    put_bars(&w);
    for (int s = 0; s < DIFF_SIDES; s++) {
        xfree(w.sides[s].self);
        xfree(w.sides[s].total);
    }
    vec_free(&w.queue);
    xfree(w.name_at);
    layout_deinit(&w.layout);
    calltree_deinit(&w.both);
}

void diff_deinit(struct diff *d)
{
    vec_free(&d->names);
    vec_free(&d->bars);
    vec_free(&d->level_end);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static uint64_t all_ticks(const struct diff *d)
{
    return bounded(d->ticks[DIFF_LEFT], d->ticks[DIFF_RIGHT]);
}

struct bars diff_bars(const struct diff *d)
{
    const bool empty = all_ticks(d) == 0;

    return (struct bars){ .names = d->names.ptr,
                          .names_len = empty ? 0 : d->names.len,
                          .values = d->bars.ptr,
                          .level_end = d->level_end.ptr,
                          .levels = empty ? 0 : d->level_end.len,
                          .width = BAR };
}

void diff_json_end(const struct diff *d, struct json *j)
{
    json_put_u64(j, "numTicks", all_ticks(d));
    json_put_u64(j, "maxSelf", d->max_self);
    json_obj_end(j);
}

void diff_json(const struct diff *d, struct json *j)
{
    struct bars_json w = { .b = diff_bars(d) };

    json_obj(j);
    if (!bars_json_next(&w, SIZE_MAX, j))
        diff_json_end(d, j);
}
