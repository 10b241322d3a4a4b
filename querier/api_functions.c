/* SPDX-License-Identifier: Apache-2.0
 *
 * api_functions.c: values of functions over time.
 *
 *   (names given) ────────────────────────────> ask series of them ──> reply
 *   (top n) ask sums of all ──> choose the n ───────^
 *
 * The n most costly of a range are known only when the sums of all shards are there, so they are
 * asked for first, at one point; that is exact, where the n best of each shard would not be.
 */
#include "querier/api_functions.h"

#include <math.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/ptype.h"
#include "querier/api_render.h"
#include "querier/spec.h"

#define TOP_DEFAULT 10
#define TOP_MAX     1000
#define NAMES_MAX   1000
#define CELLS_MAX   1000000 /* functions x points of an answer */

enum ask { ASK_SUMS, ASK_SERIES };

struct functions {
    struct spec spec;
    struct plan_grid grid; /* points [from + k step, from + (k + 1) step) */
    int64_t from_ms;
    struct str *names; /* in the arena */
    size_t names_len;
    uint64_t top;
    bool by_total;
};

/* ---- parameters -------------------------------------------------------------------------------*/

static int read_names(struct query *q, struct functions *f, struct err *e)
{
    struct str name;

    f->names = ARENA_ARRAY(q->arena, struct str, NAMES_MAX);
    CHECK(f->names);
    for (size_t i = 0; http_param_at(q->http, "name", i, &name); i++) {
        if (f->names_len == NAMES_MAX)
            return err_set(e, ERR_LIMIT, "over %d names in one request", NAMES_MAX);
        if (!name.len)
            return err_set(e, ERR_INPUT, "name is empty: which function?");
        bool known = false;
        for (size_t k = 0; k < f->names_len && !known; k++)
            known = str_eq(f->names[k], name);
        if (!known)
            f->names[f->names_len++] = name;
    }
    return 0;
}

static int read_top(struct query *q, struct functions *f, struct err *e)
{
    struct str text;

    f->top = TOP_DEFAULT;
    if (http_param(q->http, "top", &text) && (!str_u64(str_trim(text), &f->top) || !f->top))
        return err_set(e, ERR_INPUT, "top is \"%.*s\": want a number from 1 to %d",
                       (int)MIN(text.len, 40), text.ptr, TOP_MAX);
    if (f->top > TOP_MAX)
        return err_set(e, ERR_INPUT, "top is %" PRIu64 ", the limit is %d", f->top, TOP_MAX);
    if (http_param(q->http, "sort", &text) && text.len && !str_eqc(text, "self") &&
        !str_eqc(text, "total"))
        return err_set(e, ERR_INPUT, "sort is \"%.*s\": want self or total", (int)MIN(text.len, 40),
                       text.ptr);
    f->by_total = http_param(q->http, "sort", &text) && str_eqc(text, "total");
    return 0;
}

/* Without a step the range is one point. */
static int read_grid(struct query *q, struct functions *f, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), until_ms;
    struct str text = STR_NULL;
    uint64_t step_s = 0, width = f->names_len ? f->names_len : f->top;

    if (api_time(q, "from", MAX(now - 3600000, 1), &f->from_ms, e) ||
        api_time(q, "until", now, &until_ms, e))
        return e->code;
    if (f->from_ms >= until_ms)
        return err_set(e, ERR_INPUT,
                       "from is not before until: %" PRId64 " >= %" PRId64 " (milliseconds)",
                       f->from_ms, until_ms);
    if (http_param(q->http, "step", &text) && str_trim(text).len &&
        (!str_u64(str_trim(text), &step_s) || !step_s || step_s > INT32_MAX))
        return err_set(e, ERR_INPUT, "step is \"%.*s\": want whole seconds, at least 1",
                       (int)MIN(text.len, 40), text.ptr);
    int64_t range = until_ms - f->from_ms, step = step_s ? (int64_t)step_s * 1000 : range;
    uint64_t points = ((uint64_t)range + (uint64_t)step - 1) / (uint64_t)step;
    uint64_t max = MIN(q->qr->conf->points_max, CELLS_MAX / width);
    if (points > max)
        return err_set(e, ERR_LIMIT,
                       "%" PRIu64 " points of %" PRIu64 " functions, the limit is %" PRIu64
                       " points: use a step of at least %" PRIu64 " s",
                       points, width, max, (uint64_t)range / max / 1000 + 1);
    f->grid = (struct plan_grid){ f->from_ms + step - 1, step, (uint32_t)points };
    return 0;
}

/* ---- questions --------------------------------------------------------------------------------*/

static int ask(struct query *q, enum ask number, struct plan_grid grid, struct err *e)
{
    const struct functions *f = q->state;
    struct wire_query wq = { .profile_type = f->spec.profile_type,
                             .selectors = f->spec.selectors,
                             .selectors_len = f->spec.len };
    struct wire_functions wf = { .grid = grid };

    if (number == ASK_SERIES) {
        wf.names = f->names;
        wf.names_len = f->names_len;
    }
    for (size_t i = 0; i < q->tenants_len; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_functions(q, number, &wq, wf, e))
            return e->code;
    }
    return 0;
}

static int reply(struct query *q, struct err *e);

/* ---- the most costly --------------------------------------------------------------------------*/

struct sum {
    struct str name;
    uint64_t self, total;
};
struct sums {
    VEC(struct sum) at;
    struct map_str *by_name; /* -> index + 1 */
    bool by_total;
};

static int add_sums(struct query *q, struct sums *s, const struct wire_function_list *w,
                    struct err *e)
{
    if (query_take(q, w->len * 4 * sizeof(struct sum), e))
        return e->code;
    for (size_t i = 0; i < w->len; i++) {
        const struct wire_function *f = &w->at[i];
        uintptr_t at = (uintptr_t)map_str_get(s->by_name, f->name);
        if (!f->len || !f->name.len)
            continue; /* what has no name is in the sum of all alone */
        if (!at) {
            vec_push(&s->at, ((struct sum){ .name = f->name }));
            at = s->at.len;
            map_str_put(s->by_name, f->name, (void *)at);
        }
        struct sum *to = &s->at.ptr[at - 1];
        to->self = u64_add_sat(to->self, f->self[0]);
        to->total = u64_add_sat(to->total, f->total[0]);
    }
    return 0;
}

static int by_self(const void *a, const void *b)
{
    const struct sum *x = a, *y = b;

    if (x->self != y->self)
        return x->self > y->self ? -1 : 1;
    return x->total != y->total ? (x->total > y->total ? -1 : 1) : str_cmp(x->name, y->name);
}

static int by_total(const void *a, const void *b)
{
    const struct sum *x = a, *y = b;

    if (x->total != y->total)
        return x->total > y->total ? -1 : 1;
    return by_self(a, b);
}

static int choose(struct query *q, struct functions *f, struct sums *s, struct err *e)
{
    struct wire_function_list w;
    size_t pos = 0;
    int n;

    while ((n = query_next_functions(q, ASK_SUMS, &pos, 1, &w, e)) > 0)
        if (add_sums(q, s, &w, e))
            return e->code;
    if (n < 0)
        return e->code;
    if (s->at.len)
        qsort(s->at.ptr, s->at.len, sizeof(*s->at.ptr), f->by_total ? by_total : by_self);
    f->names_len = (size_t)MIN(f->top, s->at.len);
    for (size_t i = 0; i < f->names_len; i++)
        f->names[i] = s->at.ptr[i].name; /* in q->data */
    return 0;
}

static int choose_top(struct query *q, struct err *e)
{
    struct functions *f = q->state;
    struct sums s = { .by_name = map_str_new() };

    int code = choose(q, f, &s, e);
    vec_free(&s.at);
    map_str_free(s.by_name);
    if (code)
        return code;
    query_calls_reset(q);
    q->step = reply;
    return f->names_len ? ask(q, ASK_SERIES, f->grid, e) : 0;
}

int api_functions(struct query *q, struct err *e)
{
    struct functions *f = ARENA_NEW(q->arena, struct functions);
    struct str text = STR_NULL;

    CHECK(f);
    q->state = f;
    (void)http_param(q->http, "query", &text);
    if (spec_render(text, false, q->arena, &f->spec, e) || read_names(q, f, e) ||
        read_top(q, f, e) || read_grid(q, f, e))
        return e->code;
    if (f->names_len) {
        q->step = reply;
        return ask(q, ASK_SERIES, f->grid, e);
    }
    struct plan_grid one = { f->from_ms + f->grid.step_ms * f->grid.points - 1,
                             f->grid.step_ms * f->grid.points, 1 };
    q->step = choose_top;
    return ask(q, ASK_SUMS, one, e);
}

/* ---- the answer -------------------------------------------------------------------------------*/

struct cell {
    uint64_t self, total;
};
struct answer {
    struct cell *cells;  /* owned: by name, point */
    uint64_t *all;       /* owned: by point */
    uint32_t *leaves;    /* owned: by point */
    struct map_str *ids; /* -> index of the name + 1 */
    bool gauge;
};

static void answer_deinit(struct answer *a)
{
    xfree(a->cells);
    xfree(a->all);
    xfree(a->leaves);
    map_str_free(a->ids);
}

static int answer_init(struct query *q, const struct functions *f, struct answer *a, struct err *e)
{
    size_t points = f->grid.points;

    *a = (struct answer){ .ids = map_str_new() };
    if (query_take(q, (f->names_len * sizeof(*a->cells) + 16) * points, e))
        return e->code;
    a->cells = xcalloc(f->names_len * points + 1, sizeof(*a->cells));
    a->all = xcalloc(points, sizeof(*a->all));
    a->leaves = xcalloc(points, sizeof(*a->leaves));
    for (size_t i = 0; i < f->names_len; i++)
        map_str_put(a->ids, f->names[i], (void *)(uintptr_t)(i + 1));
    return 0;
}

static void answer_add(struct query *q, const struct functions *f, struct answer *a,
                       const struct wire_function_list *w)
{
    a->gauge |= w->gauge;
    q->saturated += w->saturated;
    if (w->end_ms > w->start_ms) {
        q->bounds_start_ms = q->bounds_end_ms ? MIN(q->bounds_start_ms, w->start_ms) : w->start_ms;
        q->bounds_end_ms = MAX(q->bounds_end_ms, w->end_ms);
    }
    for (uint32_t k = 0; k < f->grid.points; k++) {
        a->all[k] = u64_add_sat(a->all[k], w->all[k]);
        if (w->leaves)
            a->leaves[k] = MAX(a->leaves[k], w->leaves[k]);
    }
    for (size_t i = 0; i < w->len; i++) {
        uintptr_t id = (uintptr_t)map_str_get(a->ids, w->at[i].name);
        struct cell *row = id ? a->cells + (id - 1) * f->grid.points : NULL;
        for (size_t n = 0; row && n < w->at[i].len; n++) {
            struct cell *c = &row[w->at[i].point[n]];
            c->self = u64_add_sat(c->self, w->at[i].self[n]);
            c->total = u64_add_sat(c->total, w->at[i].total[n]);
        }
    }
}

/* Gauges show the mean over leaves with data. */
static void put_value(const struct answer *a, uint64_t sum, uint64_t leaves, struct json *j)
{
    if (a->gauge && leaves)
        sum = (uint64_t)llround((double)sum / (double)leaves);
    json_u64(j, MIN(sum, (uint64_t)INT64_MAX));
}

enum column { COLUMN_SELF, COLUMN_TOTAL, COLUMN_ALL };

static uint64_t value_at(const struct answer *a, const struct cell *row, enum column column,
                         uint32_t k)
{
    return column == COLUMN_ALL ? a->all[k] : column == COLUMN_SELF ? row[k].self : row[k].total;
}

/* "key": the sum over all points, "key_at": each point. */
static void put_column(const struct functions *f, const struct answer *a, const struct cell *row,
                       enum column column, struct json *j)
{
    static const char *const keys[][2] = { [COLUMN_SELF] = { "self", "selfAt" },
                                           [COLUMN_TOTAL] = { "total", "totalAt" },
                                           [COLUMN_ALL] = { "all", "allAt" } };
    uint64_t sum = 0, leaves = 0;

    for (uint32_t k = 0; k < f->grid.points; k++) {
        sum = u64_add_sat(sum, value_at(a, row, column, k));
        leaves += a->leaves[k];
    }
    json_key(j, keys[column][0]);
    put_value(a, sum, leaves, j);
    json_key(j, keys[column][1]);
    json_arr(j);
    for (uint32_t k = 0; k < f->grid.points; k++)
        put_value(a, value_at(a, row, column, k), a->leaves[k], j);
    json_arr_end(j);
}

static void put_head(const struct query *q, const struct functions *f, const struct answer *a,
                     struct json *j)
{
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(f->spec.profile_type, &t, &e) == 0); /* it was parsed before */
    json_key(j, "profileType");
    json_str(j, f->spec.profile_type);
    json_key(j, "unit");
    json_str(j, t.sample_unit);
    json_key(j, "gauge");
    json_bool(j, a->gauge);
    json_key(j, "startMs");
    json_i64(j, f->from_ms);
    json_key(j, "stepMs");
    json_i64(j, f->grid.step_ms);
    json_key(j, "points");
    json_u64(j, f->grid.points);
    if (q->missing.missing) {
        json_key(j, "partial");
        json_bool(j, true);
    }
    put_column(f, a, NULL, COLUMN_ALL, j);
}

static int put_json(struct query *q, const struct functions *f, const struct answer *a,
                    struct err *e)
{
    struct json j;

    query_json(q, &j);
    json_obj(&j);
    put_head(q, f, a, &j);
    json_key(&j, "functions");
    json_arr(&j);
    for (size_t i = 0; i < f->names_len; i++) {
        json_obj(&j);
        json_key(&j, "name");
        json_str(&j, f->names[i]);
        put_column(f, a, a->cells + i * f->grid.points, COLUMN_SELF, &j);
        put_column(f, a, a->cells + i * f->grid.points, COLUMN_TOTAL, &j);
        json_obj_end(&j);
    }
    json_arr_end(&j);
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    const struct functions *f = q->state;
    struct wire_function_list w;
    struct answer a;
    size_t pos = 0;
    int n = 0, code = answer_init(q, f, &a, e);

    while (!code && (n = query_next_functions(q, ASK_SERIES, &pos, f->grid.points, &w, e)) > 0)
        answer_add(q, f, &a, &w);
    if (!code)
        code = n < 0 ? e->code : put_json(q, f, &a, e);
    answer_deinit(&a);
    return code;
}
