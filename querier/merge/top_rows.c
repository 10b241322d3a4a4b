/* SPDX-License-Identifier: Apache-2.0
 *
 * top_rows.c: a heap of the best `max` rows whose worst row is at the top.
 *
 * A row that is offered is compared with the worst one; its texts are copied only if it stays. So
 * any number of rows takes memory for `max`. Rows of equal weight are ordered by name and service:
 * the result does not depend on the order of offers. top_rows_sort makes the heap a sorted list.
 */
#include "querier/merge/top_rows.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/mem.h"

void top_rows_free(struct top_rows *g)
{
    vec_for (i, &g->at)
        xfree(g->at.ptr[i].text);
    vec_free(&g->at);
}

/* True if a is a worse row than b: it comes later. */
static bool worse(const struct grew_row *a, const struct grew_row *b)
{
    if (a->weight < b->weight || a->weight > b->weight)
        return a->weight < b->weight;
    int c = str_cmp(a->name, b->name);
    return c ? c > 0 : str_cmp(a->service, b->service) > 0;
}

static void sift_down(struct grew_row *h, size_t n, struct grew_row r)
{
    size_t i = 0;

    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && worse(&h[child + 1], &h[child]);
        if (!worse(&h[child], &r))
            break;
        h[i] = h[child];
    }
    h[i] = r;
}

static int own_text(struct query *q, struct grew_row *r, struct err *e)
{
    if (query_take(q, r->name.len + r->service.len + sizeof(*r) * 2, e))
        return e->code;
    r->text = xmalloc(r->name.len + r->service.len + 1);
    memcpy(r->text, r->name.ptr, r->name.len);
    if (r->service.len)
        memcpy(r->text + r->name.len, r->service.ptr, r->service.len);
    r->name.ptr = r->text;
    r->service.ptr = r->text + r->name.len;
    return 0;
}

int top_rows_offer(struct top_rows *g, struct query *q, struct grew_row r, struct err *e)
{
    struct grew_row *h = g->at.ptr;

    if (g->at.len == g->max && (!g->max || !worse(&h[0], &r)))
        return 0;
    if (own_text(q, &r, e))
        return e->code;
    if (g->at.len == g->max) {
        query_give(q, h[0].name.len + h[0].service.len + sizeof(r) * 2);
        xfree(h[0].text);
        sift_down(h, g->max, r);
        return 0;
    }
    vec_push(&g->at, r);
    h = g->at.ptr;
    size_t i = g->at.len - 1;
    for (; i > 0 && worse(&r, &h[(i - 1) / 2]); i = (i - 1) / 2)
        h[i] = h[(i - 1) / 2];
    h[i] = r;
    return 0;
}

static int by_rank(const void *a, const void *b)
{
    return worse(a, b) ? 1 : worse(b, a) ? -1 : 0;
}

void top_rows_sort(struct top_rows *g)
{
    if (g->at.len)
        qsort(g->at.ptr, g->at.len, sizeof(*g->at.ptr), by_rank);
}

static void put_values(const struct grew_row *r, const char *key, const uint64_t v[DIFF_SIDES],
                       struct json *j)
{
    struct compare c = { .factor = { r->factor[DIFF_LEFT], r->factor[DIFF_RIGHT] } };
    double before = compare_value(&c, DIFF_LEFT, v[DIFF_LEFT]), delta = compare_delta(&c, v);

    json_key(j, key);
    json_obj(j);
    json_put_u64(j, "before", v[DIFF_LEFT]);
    json_put_u64(j, "after", v[DIFF_RIGHT]);
    json_key(j, "shown");
    json_arr(j);
    json_double(j, before);
    json_double(j, compare_value(&c, DIFF_RIGHT, v[DIFF_RIGHT]));
    json_arr_end(j);
    json_put_double(j, "delta", delta);
    json_key(j, "change"); /* null: new */
    json_double(j, before > 0 ? delta / before : (double)NAN);
    json_obj_end(j);
}

void top_rows_json(const struct top_rows *g, size_t offset, bool service, struct json *j)
{
    for (size_t i = offset; i < g->at.len; i++) {
        const struct grew_row *r = &g->at.ptr[i];
        json_obj(j);
        json_put_str(j, "name", r->name);
        if (service)
            json_put_str(j, "service", r->service);
        put_values(r, "self", r->self, j);
        put_values(r, "total", r->total, j);
        json_obj_end(j);
    }
}
