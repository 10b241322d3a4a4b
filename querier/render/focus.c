/* SPDX-License-Identifier: Apache-2.0
 *
 * focus.c: one pass forward marks which nodes lie below the function; the rest follows from that.
 *
 * Callees are those nodes, their outermost call moved to one place. Callers are the chains above
 * the outermost calls, merged from the function upward. Such a tree can be much larger than its
 * source (a shared chain of callers is copied for every different way down), so it is not made
 * whole: a node of it is a set of cursors, (node of the source, value that came from there), and
 * the node with the largest total is opened next: each cursor goes to its parent, cursors that meet
 * become one, and those of one name are a child. A child has at most the total of its parent, so
 * nodes are opened in order of their totals, and stopping after max_nodes has found exactly the
 * largest. Opening happens in place: the cursors of the children fill the room of the parent's, so
 * memory is one cursor per outermost call, however large the tree would be.
 */
#include "querier/render/focus.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

#define WORK_MAX     (UINT64_C(1) << 29) /* cursors moved: some seconds */
#define CANCEL_EVERY 65536
#define OUTSIDE      UINT32_MAX

void focus_keep(struct calltree *t, uint32_t name)
{
    CLEANUP(xfreep) bool *in = XNEW_ARRAY(bool, t->parent.len);

    t->self.ptr[0] = 0;
    for (size_t i = 1; i < t->parent.len; i++) {
        in[i] = in[t->parent.ptr[i]] || t->name.ptr[i] == name;
        if (!in[i])
            t->self.ptr[i] = 0;
    }
}

void focus_below(struct calltree *t, uint32_t node)
{
    CLEANUP(xfreep) bool *in = XNEW_ARRAY(bool, t->parent.len);

    for (size_t i = 0; i < t->parent.len; i++) {
        in[i] = i == node || (i && in[t->parent.ptr[i]]);
        if (!in[i])
            t->self.ptr[i] = 0;
    }
}

/* ---- callees ----------------------------------------------------------------------------------*/

/* Names here by name there, looked up once each. */
static uint32_t name_here(struct calltree *to, const struct calltree *from, uint32_t *names,
                          uint32_t name)
{
    if (!names[name])
        names[name] = calltree_name(to, from->names.ptr[name]) + 1;
    return names[name] - 1;
}

static void make_callees(struct sandwich *s, const struct calltree *t, uint32_t name)
{
    CLEANUP(xfreep) uint32_t *names = XNEW_ARRAY(uint32_t, t->names.len);
    CLEANUP(xfreep) uint32_t *map = XNEW_ARRAY(uint32_t, t->parent.len);
    uint32_t top = calltree_child(&s->callees, 0, name_here(&s->callees, t, names, name));

    map[0] = OUTSIDE;
    for (size_t i = 1; i < t->parent.len; i++) {
        uint32_t up = map[t->parent.ptr[i]];
        map[i] = OUTSIDE;
        if (up != OUTSIDE)
            map[i] =
                calltree_child(&s->callees, up, name_here(&s->callees, t, names, t->name.ptr[i]));
        else if (t->name.ptr[i] == name)
            map[i] = top;
        if (map[i] == OUTSIDE)
            continue;
        calltree_put(&s->callees, map[i], t->self.ptr[i]);
        if (t->name.ptr[i] == name)
            s->self = MIN(u64_add_sat(s->self, t->self.ptr[i]), (uint64_t)INT64_MAX);
    }
    s->total = calltree_total(&s->callees);
}

/* ---- callers ----------------------------------------------------------------------------------*/

struct cursor {
    uint32_t node; /* of the source */
    uint32_t rank; /* of the parent's name, while a node is opened */
    uint64_t value;
};
/* A node of the result that is not made yet. */
struct pending {
    uint64_t total;
    uint32_t depth, number; /* decide between equal totals */
    uint32_t above;         /* node of the result */
    uint32_t name;          /* of the source */
    size_t at, len;         /* its cursors */
};
struct inversion {
    const struct calltree *t;
    struct calltree *out;
    uint32_t *rank;  /* by name: its place by text, of names that can be callers */
    uint32_t *names; /* name_here */
    struct cursor *cursors;
    VEC(struct pending) heap;
    uint32_t numbers;
    uint64_t work;
    const atomic_bool *cancel;
    struct err *e;
};

static bool before(const struct pending *a, const struct pending *b)
{
    if (a->total != b->total)
        return a->total > b->total;
    return a->depth != b->depth ? a->depth < b->depth : a->number < b->number;
}

static void heap_push(struct inversion *x, struct pending p)
{
    size_t i = x->heap.len;

    vec_push(&x->heap, p);
    for (; i > 0 && before(&p, &x->heap.ptr[(i - 1) / 2]); i = (i - 1) / 2)
        x->heap.ptr[i] = x->heap.ptr[(i - 1) / 2];
    x->heap.ptr[i] = p;
}

static struct pending heap_pop(struct inversion *x)
{
    struct pending *h = x->heap.ptr, first = h[0], last = h[--x->heap.len];
    size_t n = x->heap.len, i = 0;

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && before(&h[child + 1], &h[child]);
        if (!before(&h[child], &last))
            break;
        h[i] = h[child];
    }
    if (n)
        h[i] = last;
    return first;
}

static int by_rank(const void *a, const void *b)
{
    const struct cursor *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

/* Every cursor of p to its parent; those at the end of their stack give their value to `node`.
 * Sorted by name, equal ones united. Returns how many are left. */
static size_t climb(struct inversion *x, const struct pending *p, uint32_t node)
{
    struct cursor *c = x->cursors + p->at;
    size_t n = 0, kept = 0;

    for (size_t i = 0; i < p->len; i++) {
        uint32_t up = x->t->parent.ptr[c[i].node];
        if (up)
            c[n++] = (struct cursor){ up, x->rank[x->t->name.ptr[up]], c[i].value };
        else
            calltree_put(x->out, node, c[i].value);
    }
    if (n > 1)
        qsort(c, n, sizeof(*c), by_rank);
    for (size_t i = 0; i < n; i++)
        if (kept && c[kept - 1].node == c[i].node)
            c[kept - 1].value = u64_add_sat(c[kept - 1].value, c[i].value);
        else
            c[kept++] = c[i];
    return kept;
}

static void open_node(struct inversion *x, const struct pending *p)
{
    uint32_t node = calltree_child(x->out, p->above, name_here(x->out, x->t, x->names, p->name));
    size_t n = climb(x, p, node);

    for (size_t i = p->at, end = p->at + n; i < end;) {
        struct pending child = { .depth = p->depth + 1,
                                 .number = x->numbers++,
                                 .above = node,
                                 .name = x->t->name.ptr[x->cursors[i].node],
                                 .at = i };
        for (; i < end && x->t->name.ptr[x->cursors[i].node] == child.name; i++)
            child.total = u64_add_sat(child.total, x->cursors[i].value);
        child.len = i - child.at;
        heap_push(x, child);
    }
}

/* True when it is to end, with the error set. */
static bool stop(struct inversion *x, size_t work)
{
    uint64_t was = x->work / CANCEL_EVERY;

    x->work += work;
    if (x->work / CANCEL_EVERY != was)
        pool_slice();
    if (x->work > WORK_MAX)
        (void)err_set(x->e, ERR_LIMIT,
                      "the callers of this function make a tree of over %" PRIu64
                      " steps: narrow the query, or ask for fewer nodes",
                      (uint64_t)WORK_MAX);
    else if (x->cancel && x->work / CANCEL_EVERY != was &&
             atomic_load_explicit(x->cancel, memory_order_relaxed))
        (void)err_set(x->e, ERR_CANCELED, "the client went away");
    else
        return false;
    return true;
}

static int turn_round(struct inversion *x, size_t max_nodes, bool *ret_cut)
{
    size_t made = 0;

    while (x->heap.len && (!max_nodes || made < max_nodes)) {
        struct pending p = heap_pop(x);
        if (stop(x, p.len))
            return x->e->code;
        open_node(x, &p);
        made++;
    }
    *ret_cut = x->heap.len > 0;
    vec_for (i, &x->heap) {
        const struct pending *p = &x->heap.ptr[i];
        calltree_put(x->out, calltree_child(x->out, p->above, CALLTREE_OTHER), p->total);
    }
    return 0;
}

struct by_text {
    const struct str *names;
};

static int by_text(const void *a, const void *b, void *cookie)
{
    const struct by_text *o = cookie;

    return str_cmp(o->names[*(const uint32_t *)a], o->names[*(const uint32_t *)b]);
}

/* above[i]: an outermost call is node i or below it. */
static void rank_callers(struct inversion *x, const bool *above)
{
    const struct calltree *t = x->t;
    CLEANUP(xfreep) bool *seen = XNEW_ARRAY(bool, t->names.len);
    CLEANUP(xfreep) uint32_t *used = XNEW_ARRAY(uint32_t, t->names.len);
    struct by_text o = { t->names.ptr };
    size_t n = 0;

    for (size_t i = 1; i < t->parent.len; i++)
        if (above[i] && !seen[t->name.ptr[i]]) {
            seen[t->name.ptr[i]] = true;
            used[n++] = t->name.ptr[i];
        }
    if (n > 1)
        qsort_r(used, n, sizeof(*used), by_text, &o);
    for (size_t i = 0; i < n; i++)
        x->rank[used[i]] = (uint32_t)i;
}

/* The outermost calls with their totals as cursors; how many. *ret_depths, if wanted, gets the sum
 * of their depths: the most nodes that callers can have. */
static size_t outermost(const struct calltree *t, uint32_t name, const uint64_t *total,
                        struct cursor *ret, uint64_t *ret_depths)
{
    CLEANUP(xfreep) uint32_t *depth = XNEW_ARRAY(uint32_t, t->parent.len);
    size_t n = 0;

    if (ret_depths)
        *ret_depths = 0;
    for (size_t i = 1; i < t->parent.len; i++) {
        uint32_t up = depth[t->parent.ptr[i]];
        depth[i] = up == OUTSIDE ? OUTSIDE : up + 1;
        if (depth[i] == OUTSIDE || t->name.ptr[i] != name)
            continue;
        if (ret_depths)
            *ret_depths += depth[i];
        depth[i] = OUTSIDE; /* what is below is not outermost */
        if (total && total[i])
            ret[n++] = (struct cursor){ (uint32_t)i, 0, total[i] };
    }
    return n;
}

static int make_callers(struct sandwich *s, struct inversion *x, uint32_t name, size_t max_nodes)
{
    const struct calltree *t = x->t;
    CLEANUP(xfreep) uint64_t *total = calltree_totals(t);
    CLEANUP(xfreep) bool *above = XNEW_ARRAY(bool, t->parent.len);
    struct pending first = { .total = s->total, .name = name };

    first.len = outermost(t, name, total, x->cursors, NULL);
    for (size_t i = 0; i < first.len; i++)
        above[x->cursors[i].node] = true;
    for (size_t i = t->parent.len - 1; i > 0; i--)
        above[t->parent.ptr[i]] |= above[i];
    rank_callers(x, above);
    if (first.len)
        heap_push(x, first);
    return turn_round(x, max_nodes, &s->cut);
}

/* ---- both -------------------------------------------------------------------------------------*/

size_t sandwich_cost(const struct calltree *t, uint32_t name, size_t max_nodes)
{
    uint64_t depths;

    (void)outermost(t, name, NULL, NULL, &depths);
    uint64_t callers = MIN(depths, max_nodes ? (uint64_t)max_nodes : WORK_MAX);
    /* Callees: as the tree, 144 a node with its layout; cursors and heap 80. Callers: each may have
     * a child "other". */
    return t->parent.len * (144 + 80 + 16) + t->names.len * 2 * 24 + (size_t)callers * 2 * 144 +
           64 * KIB;
}

NODISCARD int sandwich_init(struct sandwich *s, const struct calltree *t, uint32_t name,
                            size_t max_nodes, const atomic_bool *cancel, struct err *e)
{
    struct inversion x = { .t = t, .out = &s->callers, .cancel = cancel, .e = e };

    *s = (struct sandwich){ 0 };
    calltree_init(&s->callees, t->seed);
    calltree_init(&s->callers, t->seed);
    make_callees(s, t, name);
    x.rank = XNEW_ARRAY(uint32_t, t->names.len);
    x.names = XNEW_ARRAY(uint32_t, t->names.len);
    x.cursors = XNEW_ARRAY(struct cursor, t->parent.len);
    int code = make_callers(s, &x, name, max_nodes);
    vec_free(&x.heap);
    xfree(x.rank);
    xfree(x.names);
    xfree(x.cursors);
    return code;
}

void sandwich_deinit(struct sandwich *s)
{
    calltree_deinit(&s->callees);
    calltree_deinit(&s->callers);
}
