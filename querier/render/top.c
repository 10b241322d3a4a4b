/* SPDX-License-Identifier: Apache-2.0
 *
 * top.c: one walk from the root down and up again.
 *
 * A node counts for the total of its function unless the function stands above it already: on the
 * way down each name counts how often it is on the path, on the way up it is taken off. Walking
 * needs the children of a node; two arrays of links give them without sorting, in an order that
 * does not matter to sums. No recursion: the way back is the parent's index.
 */
#include "querier/render/top.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"

size_t top_cost(const struct calltree *t)
{
    return t->parent.len * (sizeof(uint64_t) + 2 * sizeof(uint32_t)) +
           t->names.len * (sizeof(struct top_row) + 2 * sizeof(uint32_t));
}

/* Children of node i: first[i], then next[] of each, 0 at the end (the root is no child). */
struct links {
    uint32_t *first, *next; /* owned */
};

static void links_init(struct links *l, const struct calltree *t)
{
    l->first = XNEW_ARRAY(uint32_t, t->parent.len);
    l->next = XNEW_ARRAY(uint32_t, t->parent.len);
    for (size_t i = t->parent.len - 1; i > 0; i--) {
        l->next[i] = l->first[t->parent.ptr[i]];
        l->first[t->parent.ptr[i]] = (uint32_t)i;
    }
}

struct walk {
    const struct calltree *t;
    struct top *top;
    uint64_t *total; /* by node */
    uint32_t *on;    /* by name: how often it is on the path */
    uint32_t *row;   /* by name: its row + 1 */
};

static void enter(struct walk *w, uint32_t node)
{
    uint32_t name = w->t->name.ptr[node];

    if (w->on[name]++ && !w->t->self.ptr[node])
        return;
    if (!w->total[node])
        return; /* a stack that was left out of the question */
    if (!w->row[name]) {
        w->top->rows[w->top->len] = (struct top_row){ .name = name };
        w->row[name] = (uint32_t)++w->top->len;
    }
    struct top_row *r = &w->top->rows[w->row[name] - 1];
    r->self = MIN(u64_add_sat(r->self, w->t->self.ptr[node]), (uint64_t)INT64_MAX);
    if (w->on[name] == 1)
        r->total = MIN(u64_add_sat(r->total, w->total[node]), (uint64_t)INT64_MAX);
}

static void walk(struct walk *w, const struct links *l)
{
    uint32_t at = l->first[0];

    while (at) {
        enter(w, at);
        if (l->first[at]) {
            at = l->first[at];
            continue;
        }
        for (;;) { /* up, until there is a sibling */
            w->on[w->t->name.ptr[at]]--;
            if (l->next[at]) {
                at = l->next[at];
                break;
            }
            at = w->t->parent.ptr[at];
            if (!at)
                break;
        }
    }
}

void top_init(struct top *top, const struct calltree *t)
{
    struct links links;
    struct walk w = { .t = t, .top = top };

    *top = (struct top){ .rows = XNEW_ARRAY(struct top_row, t->names.len) };
    w.total = calltree_totals(t);
    w.on = XNEW_ARRAY(uint32_t, t->names.len);
    w.row = XNEW_ARRAY(uint32_t, t->names.len);
    links_init(&links, t);
    walk(&w, &links);
    top->total = w.total[0];
    top->functions = top->len;
    xfree(links.first);
    xfree(links.next);
    xfree(w.total);
    xfree(w.on);
    xfree(w.row);
}

void top_deinit(struct top *top)
{
    xfree(top->rows);
    *top = (struct top){ 0 };
}

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

bool top_text_has(struct str s, struct str text)
{
    for (size_t i = 0; i + text.len <= s.len; i++) {
        size_t k = 0;
        while (k < text.len && lower(s.ptr[i + k]) == lower(text.ptr[k]))
            k++;
        if (k == text.len)
            return true;
    }
    return false;
}

void top_search(struct top *top, const struct calltree *t, struct str text)
{
    size_t kept = 0;

    for (size_t i = 0; i < top->len; i++)
        if (top_text_has(t->names.ptr[top->rows[i].name], text))
            top->rows[kept++] = top->rows[i];
    top->len = kept;
}

/* ---- order ------------------------------------------------------------------------------------*/

struct order {
    const struct str *names;
    enum top_sort by;
    bool reversed;
};

static int descending(uint64_t a, uint64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int compare(const void *a, const void *b, void *cookie)
{
    const struct top_row *x = a, *y = b;
    const struct order *o = cookie;
    int self = descending(x->self, y->self), total = descending(x->total, y->total);
    int name = str_cmp(o->names[x->name], o->names[y->name]);
    int first = o->by == TOP_SELF ? self : o->by == TOP_TOTAL ? total : name;

    if (first)
        return o->reversed ? -first : first;
    return o->by == TOP_SELF && total ? total : self ? self : name;
}

void top_order(struct top *top, const struct calltree *t, enum top_sort by, bool reversed)
{
    struct order o = { t->names.ptr, by, reversed };

    if (top->len)
        qsort_r(top->rows, top->len, sizeof(*top->rows), compare, &o);
}

const struct top_row *top_find(const struct top *top, uint32_t name)
{
    for (size_t i = 0; i < top->len; i++)
        if (top->rows[i].name == name)
            return &top->rows[i];
    return NULL;
}
