/* SPDX-License-Identifier: Apache-2.0
 *
 * flame.c: breadth first, one queue, no recursion.
 *
 * The queue holds kept nodes in the order of their bars; the left edges of a level follow from the
 * level above. A bar made by the cut is an entry without a node. A real function named "other"
 * under a parent with cut children would stand twice side by side: it goes into the bar of the cut.
 */
#include "common/render/flame.h"

#include "common/base/size.h"
#include "common/sys/pool.h"

#define BAR      4
#define CUT_MARK UINT32_MAX /* queue entry: a bar "other" */

struct entry {
    uint32_t node; /* of the layout, or CUT_MARK */
    uint64_t x, total;
};

struct walk {
    struct flame *f;
    const struct layout *l;
    const struct calltree *t;
    uint32_t *name_at; /* owned; number in f->names by tree name, + 1 */
    VEC(struct entry) queue;
    uint64_t edge; /* right edge of the last bar of the level being written */
};

static size_t bars_len(const struct layout *l)
{
    size_t n = l->len;

    for (size_t i = 0; i < l->len; i++)
        n += l->other[i] > 0;
    return n;
}

size_t flame_cost(const struct layout *l)
{
    /* A node of the layout: 44 bytes, as much again while it is made. A bar: 32 bytes and 24 in the
     * queue; one for each node and one for what was cut below it. A name for each node at most. */
    return l->len * (88 + 32) + bars_len(l) * 56 + 64 * KIB;
}

static uint64_t name_number(struct walk *w, uint32_t name)
{
    if (!w->name_at[name]) {
        vec_push(&w->f->names, w->t->names.ptr[name]);
        w->name_at[name] = (uint32_t)w->f->names.len;
    }
    return w->name_at[name] - 1;
}

static void put_bar(struct walk *w, const struct entry *en)
{
    struct flame *f = w->f;
    bool cut = en->node == CUT_MARK;
    uint64_t self = cut ? en->total : w->l->self[en->node];

    vec_push(&f->bars, en->x - w->edge);
    vec_push(&f->bars, en->total);
    vec_push(&f->bars, self);
    vec_push(&f->bars, name_number(w, cut ? CALLTREE_OTHER : w->l->name[en->node]));
    w->edge = u64_add_sat(en->x, en->total);
    f->max_self = MAX(f->max_self, self);
}

static void put_children(struct walk *w, const struct entry *en)
{
    const struct layout *l = w->l;

    if (en->node == CUT_MARK)
        return;
    uint64_t other = l->other[en->node], x = u64_add_sat(en->x, l->self[en->node]);
    for (uint32_t i = l->child_at[en->node]; i < l->child_at[en->node + 1]; i++) {
        uint32_t child = l->child[i];
        if (other && l->name[child] == CALLTREE_OTHER) {
            other = u64_add_sat(other, l->total[child]);
            continue;
        }
        vec_push(&w->queue, ((struct entry){ child, x, l->total[child] }));
        x = u64_add_sat(x, l->total[child]);
    }
    if (other)
        vec_push(&w->queue, ((struct entry){ CUT_MARK, x, other }));
}

void flame_init(struct flame *f, const struct layout *l, const struct calltree *t)
{
    struct walk w = { .f = f, .l = l, .t = t };

    *f = (struct flame){ .total = l->total[0] };
    w.name_at = XNEW_ARRAY(uint32_t, t->names.len);
    vec_reserve(&f->bars, bars_len(l) * BAR);
    vec_reserve(&w.queue, bars_len(l));
    (void)name_number(&w, CALLTREE_TOTAL);
    vec_push(&w.queue, ((struct entry){ 0, 0, l->total[0] }));
    for (size_t begin = 0, end = 1; begin < end; begin = end, end = w.queue.len) {
        w.edge = 0;
        for (size_t i = begin; i < end; i++) {
            pool_slice_step(i);
            struct entry en = w.queue.ptr[i]; /* by value: the queue moves as it grows */
            put_bar(&w, &en);
            put_children(&w, &en);
        }
        vec_push(&f->level_end, end);
    }
    vec_free(&w.queue);
    xfree(w.name_at);
}

void flame_deinit(struct flame *f)
{
    vec_free(&f->names);
    vec_free(&f->bars);
    vec_free(&f->level_end);
}

struct bars flame_bars(const struct flame *f)
{
    bool empty = f->total == 0;

    return (struct bars){ .names = f->names.ptr,
                          .names_len = empty ? 0 : f->names.len,
                          .values = f->bars.ptr,
                          .level_end = f->level_end.ptr,
                          .levels = empty ? 0 : f->level_end.len,
                          .width = BAR };
}

void flame_json_end(const struct flame *f, struct json *j)
{
    json_put_u64(j, "numTicks", f->total);
    json_put_u64(j, "maxSelf", f->max_self);
    json_obj_end(j);
}

void flame_json(const struct flame *f, struct json *j)
{
    struct bars_json w = { .b = flame_bars(f) };

    json_obj(j);
    if (!bars_json_next(&w, SIZE_MAX, j))
        flame_json_end(f, j);
}
