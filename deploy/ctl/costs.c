/* SPDX-License-Identifier: Apache-2.0
 *
 * costs: costs come from the server's function index, computed before anything is cut, so a
 * comparison of two ranges is exact even where a flame graph would show "other".
 */
#include "deploy/ctl/costs.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "deploy/ctl/ask.h"

#define ROUTE "/api/v1/functions"

/* ---- one answer ---- */

static int read_one(const struct json_val *v, struct cost *ret, struct err *e)
{
    *ret = (struct cost){ .name = STR("") };
    return json_take_str(json_get(v, "name", NULL), "name", &ret->name, e) ||
                   json_take_double(json_get(v, "self", NULL), "self", &ret->self, e) ||
                   json_take_double(json_get(v, "total", NULL), "total", &ret->total, e)
               ? e->code
               : 0;
}

int costs_read(const struct cli *c, struct str json, struct costs *ret, struct err *e)
{
    const struct json_val *root, *all;
    struct cost one;

    *ret = (struct costs){ .doc = NULL };
    if (json_parse(json, &ret->doc, e))
        return ask_strange(c, "no JSON", e);
    root = json_root(ret->doc);
    all = json_get(root, "functions", NULL);
    if (!json_is_arr(all) || json_take_double(json_get(root, "all", NULL), "all", &ret->all, e) ||
        json_take_bool(json_get(root, "gauge", NULL), "gauge", &ret->gauge, e)) {
        costs_deinit(ret);
        return ask_strange(c, "no list of functions", e);
    }
    for (size_t i = 0; i < json_len(all); i++) {
        if (read_one(json_at(all, i), &one, e)) {
            costs_deinit(ret);
            return ask_strange(c, "a function without name or value", e);
        }
        vec_push(&ret->at, one);
    }
    return 0;
}

void costs_deinit(struct costs *f)
{
    vec_free(&f->at);
    json_doc_free(f->doc);
    f->doc = NULL;
}

int costs_ask(struct cli *c, const struct costs_ask *a, struct costs *ret, struct err *e)
{
    struct buf target, body;
    int rc;

    buf_init(&target, ASK_TARGET_MAX);
    buf_init(&body, ASK_JSON_MAX);
    (void)buf_add_str(&target, STR(ROUTE));
    ask_param(&target, "query", str_c(a->query));
    ask_param_u64(&target, "from", (uint64_t)a->from_ms * 1000000);
    ask_param_u64(&target, "until", (uint64_t)a->until_ms * 1000000);
    if (a->names_len == 0) {
        ask_param_u64(&target, "top", MIN(MAX(a->top, 1), COSTS_MAX));
        ask_param(&target, "sort", a->sort == BY_TOTAL ? STR("total") : STR("self"));
    }
    for (size_t i = 0; i < a->names_len; i++)
        ask_param(&target, "name", a->names[i]);
    struct ask ask = { .target = buf_str(&target) };
    rc = buf_ok(&target) ? ask_do(c, &ask, &body, e)
                         : err_set(e, ERR_LIMIT, "the question is too long");
    if (!rc)
        rc = costs_read(c, buf_str(&body), ret, e);
    buf_deinit(&target);
    buf_deinit(&body);
    return rc;
}

/* ---- two of them ---- */

static double in_mode(double v, double whole, double seconds, bool gauge, enum cost_mode mode)
{
    switch (mode) {
    case COST_PER_SECOND:
        return gauge ? v : v / seconds;
    case COST_SHARE:
        return whole != 0 ? 100 * v / whole : 0;
    case COST_ABSOLUTE:
        break;
    }
    return v;
}

static double percent_of(double part, double whole)
{
    if (part == 0)
        return 0;
    return whole != 0 ? 100 * part / whole : part > 0 ? HUGE_VAL : -HUGE_VAL;
}

static int by_delta(const void *a, const void *b)
{
    const struct cost_row *x = a, *y = b;
    double dx = fabs(x->delta), dy = fabs(y->delta);

    return dx > dy ? -1 : dx < dy ? 1 : str_cmp(x->name, y->name);
}

/* Puts one side's functions into rows; `index` finds those of the other. */
static void put_side(struct cost_diff *t, struct map_str *index, const struct costs *f, size_t side)
{
    vec_for (i, &f->at) {
        const struct cost *one = &f->at.ptr[i];
        uintptr_t at = (uintptr_t)map_str_get(index, one->name);
        if (!at) {
            vec_push(&t->rows, ((struct cost_row){ .name = one->name }));
            at = t->rows.len;
            (void)map_str_put(index, one->name, (void *)at);
        }
        t->rows.ptr[at - 1].self[side] = one->self;
        t->rows.ptr[at - 1].total[side] = one->total;
    }
}

void cost_diff(const struct costs *base, const struct costs *new, const double seconds[2],
               enum cost_mode mode, enum cost_sort by, struct cost_diff *ret)
{
    const struct costs *sides[2] = { base, new };
    struct map_str *index = map_str_new();

    *ret = (struct cost_diff){ .worst_name = STR("") };
    for (size_t s = 0; s < 2; s++) {
        put_side(ret, index, sides[s], s);
        ret->whole[s] = in_mode(sides[s]->all, sides[s]->all, seconds[s], sides[s]->gauge, mode);
    }
    ret->whole_growth = percent_of(ret->whole[1] - ret->whole[0], ret->whole[0]);
    ret->worst = ret->whole_growth;
    vec_for (i, &ret->rows) {
        struct cost_row *r = &ret->rows.ptr[i];
        for (size_t s = 0; s < 2; s++)
            r->value[s] = in_mode(by == BY_TOTAL ? r->total[s] : r->self[s], sides[s]->all,
                                  seconds[s], sides[s]->gauge, mode);
        r->delta = r->value[1] - r->value[0];
        r->change = percent_of(r->delta, r->value[0]);
        r->growth = percent_of(r->delta, ret->whole[0]);
        if (r->growth > ret->worst) {
            ret->worst = r->growth;
            ret->worst_name = r->name;
        }
    }
    if (ret->rows.len)
        qsort(ret->rows.ptr, ret->rows.len, sizeof(*ret->rows.ptr), by_delta);
    map_str_free(index);
}

void cost_diff_deinit(struct cost_diff *t)
{
    vec_free(&t->rows);
}
