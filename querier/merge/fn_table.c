/* SPDX-License-Identifier: Apache-2.0
 *
 * fn_table.c: a dense table of (function, point) cells that replies are added to.
 *
 * Names are those of the question, so the table has its size before the first reply, and a name is
 * found by binary search over `by_text`. Sums stay at the largest number. For gauges a point is
 * divided by its leaves with data, each counted once over all ingesters that say which they have.
 */
#include "querier/merge/fn_table.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/sys/pool.h"

static int by_text(const void *a, const void *b, void *names)
{
    const struct str *n = names;

    return str_cmp(n[*(const uint32_t *)a], n[*(const uint32_t *)b]);
}

NODISCARD int fn_table_init(struct fn_table *t, struct query *q, const struct str *names,
                            size_t names_len, uint32_t points, struct err *e)
{
    size_t bytes =
        (names_len * sizeof(*t->cells) + sizeof(*t->all) + 2 * sizeof(*t->leaves)) * points +
        names_len * sizeof(*t->by_text) + KIB;

    *t = (struct fn_table){ .names = names, .names_len = names_len, .points = points };
    if (query_take(q, bytes, e))
        return e->code;
    (void)query_data(q);
    t->by_text = ARENA_ARRAY(q->data, uint32_t, names_len + 1);
    t->cells = ARENA_ARRAY(q->data, struct fn_cell, names_len * points + 1);
    t->all = ARENA_ARRAY(q->data, uint64_t, points);
    t->leaves = ARENA_ARRAY(q->data, uint32_t, points);
    if (!t->by_text || !t->cells || !t->all || !t->leaves)
        return err_set(e, ERR_LIMIT, "%zu functions of %u points do not fit: ask for fewer",
                       names_len, points);
    for (size_t i = 0; i < names_len; i++)
        t->by_text[i] = (uint32_t)i;
    if (names_len)
        qsort_r(t->by_text, names_len, sizeof(*t->by_text), by_text, (void *)(uintptr_t)names);
    return 0;
}

/* The row of a name, NULL if it was not asked for. */
static struct fn_cell *row_of(const struct fn_table *t, struct str name)
{
    size_t low = 0, high = t->names_len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int c = str_cmp(t->names[t->by_text[mid]], name);
        if (c == 0)
            return t->cells + (size_t)t->by_text[mid] * t->points;
        if (c < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return NULL;
}

void fn_bounds(struct query *q, const struct wire_function_list *w)
{
    if (w->end_ms <= w->start_ms)
        return;
    q->bounds_start_ms = q->bounds_end_ms ? MIN(q->bounds_start_ms, w->start_ms) : w->start_ms;
    q->bounds_end_ms = MAX(q->bounds_end_ms, w->end_ms);
}

static void add(struct fn_table *t, const struct wire_function_list *w)
{
    t->gauge |= w->gauge;
    for (uint32_t k = 0; k < t->points; k++) {
        t->all[k] = u64_add_sat(t->all[k], w->all[k]);
        if (w->leaves)
            t->leaves[k] = MAX(t->leaves[k], w->leaves[k]);
    }
    for (size_t i = 0; i < w->len; i++) {
        pool_slice();
        struct fn_cell *row = row_of(t, w->at[i].name);
        for (size_t n = 0; row && n < w->at[i].len; n++) {
            struct fn_cell *c = &row[w->at[i].point[n]];
            c->self = u64_add_sat(c->self, w->at[i].self[n]);
            c->total = u64_add_sat(c->total, w->at[i].total[n]);
        }
    }
}

void fn_leaves(const struct leaf_part *parts, size_t parts_len, uint32_t *leaves, uint32_t points)
{
    if (parts_len < 2)
        return;
    uint32_t *count = XNEW_ARRAY(uint32_t, points);

    leaf_unite(parts, parts_len, NULL, points, count, NULL);
    for (uint32_t k = 0; k < points; k++)
        leaves[k] = MAX(leaves[k], count[k]);
    xfree(count);
}

NODISCARD int fn_table_read(struct fn_table *t, struct query *q, size_t ask, struct err *e)
{
    struct wire_function_list w;
    VEC(struct leaf_part) parts = { 0 };
    size_t pos = 0;
    int n;

    while ((n = query_next_functions(q, ask, &pos, t->points, &w, e)) > 0) {
        add(t, &w);
        fn_bounds(q, &w);
        q->saturated += w.saturated;
        if (w.items.items_len)
            vec_push(&parts, w.items);
    }
    if (n == 0)
        fn_leaves(parts.ptr, parts.len, t->leaves, t->points);
    vec_free(&parts);
    return n < 0 ? e->code : 0;
}

/* ---- JSON -------------------------------------------------------------------------------------*/

uint64_t fn_shown(bool gauge, uint64_t sum, uint64_t leaves)
{
    if (gauge && leaves)
        sum = (uint64_t)llround((double)sum / (double)leaves);
    return MIN(sum, (uint64_t)INT64_MAX);
}

enum column { COLUMN_SELF, COLUMN_TOTAL, COLUMN_ALL };

static uint64_t value_at(const struct fn_table *t, const struct fn_cell *row, enum column column,
                         uint32_t k)
{
    return column == COLUMN_ALL ? t->all[k] : column == COLUMN_SELF ? row[k].self : row[k].total;
}

/* "key": the sum over all points, "keyAt": each point. */
static void put_column(const struct fn_table *t, const struct fn_cell *row, enum column column,
                       struct json *j)
{
    static const char *const keys[][2] = { [COLUMN_SELF] = { "self", "selfAt" },
                                           [COLUMN_TOTAL] = { "total", "totalAt" },
                                           [COLUMN_ALL] = { "all", "allAt" } };
    uint64_t sum = 0, leaves = 0;

    for (uint32_t k = 0; k < t->points; k++) {
        sum = u64_add_sat(sum, value_at(t, row, column, k));
        leaves += t->leaves[k];
    }
    json_put_u64(j, keys[column][0], fn_shown(t->gauge, sum, leaves));
    json_key(j, keys[column][1]);
    json_arr(j);
    for (uint32_t k = 0; k < t->points; k++)
        json_u64(j, fn_shown(t->gauge, value_at(t, row, column, k), t->leaves[k]));
    json_arr_end(j);
}

void fn_table_json(const struct fn_table *t, struct json *j)
{
    put_column(t, NULL, COLUMN_ALL, j);
    json_key(j, "functions");
    json_arr(j);
    for (size_t i = 0; i < t->names_len; i++) {
        json_obj(j);
        json_put_str(j, "name", t->names[i]);
        put_column(t, t->cells + i * t->points, COLUMN_SELF, j);
        put_column(t, t->cells + i * t->points, COLUMN_TOTAL, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}
