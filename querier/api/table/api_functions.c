/* SPDX-License-Identifier: Apache-2.0
 *
 * api_functions.c: values of functions over time.
 *
 *   (names given) ────────────────────────────> ask series of them ──> reply
 *   (top n) ask sums of all ──> choose the n ───────^   (groupBy: and groups) ──> batches ──> reply
 *
 * The n most costly of a range are known only when the sums of all shards are there, so they are
 * asked for first, at one point; that is exact, where the n best of each shard would not be.
 *
 * Groups are found by a timeline of one point, which knows the values of every group without
 * reading a stack; the largest are asked for by their labels, some at a time. A label that series
 * lack is asked for as "".
 */
#include "querier/api/table/api_functions.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/ptype.h"
#include "querier/merge/collectors.h"
#include "querier/merge/fn_table.h"
#include "querier/merge/merged.h"
#include "querier/select/api_time.h"
#include "querier/select/function_view_args.h"
#include "querier/select/query_spec.h"

#define TOP_DEFAULT 10
#define TOP_MAX     1000
#define NAMES_MAX   1000
#define CELLS_MAX   1000000 /* functions x points x groups of an answer */

#define GROUP_BY_MAX   8
#define GROUPS_DEFAULT 20
#define GROUPS_MAX     200
#define GROUPS_AT_ONCE 16

enum ask { ASK_SUMS, ASK_SERIES, ASK_GROUPS, ASK_GROUP };

struct group {
    struct labels labels; /* in q->data */
    struct fn_table table;
};

struct functions {
    struct query_spec spec;
    struct plan_grid grid; /* points [from + k step, from + (k + 1) step) */
    int64_t from_ms;
    struct str *names; /* in the arena */
    size_t names_len;
    uint64_t top;
    bool by_total;
    struct fn_table table;
    struct str group_by[GROUP_BY_MAX];
    size_t group_by_len;
    uint64_t groups_max;
    struct group *groups; /* in the arena */
    size_t groups_len, groups_omitted, groups_asked, groups_read;
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

static int read_groups(struct query *q, struct functions *f, struct err *e)
{
    struct str text;

    for (size_t i = 0; http_param_at(q->http, "groupBy", i, &text); i++) {
        if (f->group_by_len == GROUP_BY_MAX)
            return err_set(e, ERR_LIMIT, "groupBy: over %d labels", GROUP_BY_MAX);
        if (text.len)
            f->group_by[f->group_by_len++] = text;
    }
    f->groups_max = GROUPS_DEFAULT;
    if (http_param(q->http, "groups", &text) &&
        (!str_u64(str_trim(text), &f->groups_max) || !f->groups_max || f->groups_max > GROUPS_MAX))
        return err_set(e, ERR_INPUT, "groups is \"%.*s\": want a number from 1 to %d",
                       (int)MIN(text.len, 40), text.ptr, GROUPS_MAX);
    f->groups = ARENA_ARRAY(q->arena, struct group, f->groups_max);
    return f->groups ? 0 : err_set(e, ERR_LIMIT, "%" PRIu64 " groups do not fit", f->groups_max);
}

/* Without a step the range is one point. */
static int read_grid(struct query *q, struct functions *f, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), until_ms;
    struct str text = STR_NULL;
    uint64_t step_s = 0, width = f->names_len ? f->names_len : f->top;

    width *= f->group_by_len ? f->groups_max + 1 : 1;

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

static int ask(struct query *q, size_t number, struct plan_grid grid,
               const struct selector *selectors, size_t selectors_len, struct err *e)
{
    const struct functions *f = q->state;
    struct wire_query wq = { .profile_type = f->spec.profile_type,
                             .selectors = selectors,
                             .selectors_len = selectors_len };
    struct wire_functions wf = { .grid = grid };

    if (number != ASK_SUMS) {
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

static struct plan_grid one_point(const struct functions *f)
{
    return (struct plan_grid){ f->from_ms + f->grid.step_ms * f->grid.points - 1,
                               f->grid.step_ms * f->grid.points, 1 };
}

static int ask_groups(struct query *q, const struct functions *f, struct err *e)
{
    struct wire_query wq = { .profile_type = f->spec.profile_type,
                             .selectors = f->spec.selectors,
                             .selectors_len = f->spec.len };
    struct wire_timeline tl = { .grid = one_point(f),
                                .group_by = f->group_by,
                                .group_by_len = f->group_by_len };

    for (size_t i = 0; i < q->tenants_len; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_timeline(q, ASK_GROUPS, &wq, &tl, e))
            return e->code;
    }
    return 0;
}

static int reply(struct query *q, struct err *e);

static int ask_collectors(struct query *q, const struct functions *f, struct err *e)
{
    int64_t end_ms = f->from_ms + f->grid.step_ms * f->grid.points;
    struct wire_query wq = { .profile_type = f->spec.profile_type,
                             .selectors = f->spec.selectors,
                             .selectors_len = f->spec.len,
                             .range = plan_range(f->from_ms, end_ms) };

    for (size_t i = 0; i < q->tenants_len; i++) {
        wq.tenant = q->tenants[i];
        if (collectors_ask(q, 0, i, &wq, e))
            return e->code;
    }
    return 0;
}

/* The names are known. */
static int ask_series(struct query *q, struct err *e)
{
    struct functions *f = q->state;

    q->step = reply;
    if (!f->names_len)
        return 0;
    if (ask(q, ASK_SERIES, f->grid, f->spec.selectors, f->spec.len, e) || ask_collectors(q, f, e))
        return e->code;
    return f->group_by_len ? ask_groups(q, f, e) : 0;
}

/* ---- the most costly --------------------------------------------------------------------------*/

struct sum {
    struct str name;
    uint64_t self, total;
};
struct sums {
    VEC(struct sum) at;
    struct map_str *by_name; /* -> index */
    bool by_total;
};

static int add_sums(struct query *q, struct sums *s, const struct wire_function_list *w,
                    struct err *e)
{
    if (query_take(q, w->len * 4 * sizeof(struct sum), e))
        return e->code;
    for (size_t i = 0; i < w->len; i++) {
        const struct wire_function *f = &w->at[i];
        if (!f->len || !f->name.len)
            continue; /* what has no name is in the sum of all alone */
        size_t at = map_str_index(s->by_name, f->name, s->at.len);
        if (at == s->at.len)
            vec_push(&s->at, ((struct sum){ .name = f->name }));
        struct sum *to = &s->at.ptr[at];
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
    return ask_series(q, e);
}

int api_functions(struct query *q, struct err *e)
{
    struct functions *f = ARENA_NEW(q->arena, struct functions);
    struct str text = STR_NULL;

    CHECK(f);
    q->state = f;
    (void)http_param(q->http, "query", &text);
    if (query_spec_render(text, false, q->arena, &f->spec, e) || read_names(q, f, e) ||
        read_top(q, f, e) || read_groups(q, f, e) || read_grid(q, f, e))
        return e->code;
    if (f->names_len)
        return ask_series(q, e);
    q->step = choose_top;
    return ask(q, ASK_SUMS, one_point(f), f->spec.selectors, f->spec.len, e);
}

/* ---- groups -----------------------------------------------------------------------------------*/

/* The groups with the largest values. */
static int find_groups(struct query *q, struct functions *f, struct err *e)
{
    struct timeline t;

    timeline_init(&t, query_data(q));
    int code = merged_timeline(q, ASK_GROUPS, 1, false, &t, e);
    f->groups_len = (size_t)MIN(t.groups.len, f->groups_max);
    f->groups_omitted = t.groups.len - f->groups_len;
    for (size_t i = 0; i < f->groups_len; i++)
        f->groups[i].labels = t.groups.ptr[i].labels; /* in q->data */
    timeline_deinit(&t);
    return code;
}

/* Asks for what the query matches and is of the group: the labels it is grouped by as it has them,
 * and those it lacks as "". */
static int ask_group(struct query *q, const struct functions *f, size_t i, struct err *e)
{
    struct selector selectors[QUERY_SPEC_SELECTORS_MAX + 1];
    struct matcher matchers[GROUP_BY_MAX];

    for (size_t k = 0; k < f->group_by_len; k++)
        matchers[k] = (struct matcher){ .op = MATCH_EQ,
                                        .name = f->group_by[k],
                                        .value = labels_get(&f->groups[i].labels, f->group_by[k]) };
    memcpy(selectors, f->spec.selectors, f->spec.len * sizeof(*selectors));
    selectors[f->spec.len] = (struct selector){ .matchers = matchers, .len = f->group_by_len };
    return ask(q, ASK_GROUP + i, f->grid, selectors, f->spec.len + 1, e);
}

/* Reads the groups that were asked for, and asks for the next ones. */
static int next_groups(struct query *q, struct err *e)
{
    struct functions *f = q->state;

    for (; f->groups_read < f->groups_asked; f->groups_read++) {
        struct fn_table *t = &f->groups[f->groups_read].table;
        if (fn_table_init(t, q, f->names, f->names_len, f->grid.points, e) ||
            fn_table_read(t, q, ASK_GROUP + f->groups_read, e))
            return e->code;
    }
    query_calls_reset(q);
    for (size_t n = 0; n < GROUPS_AT_ONCE && f->groups_asked < f->groups_len; n++)
        if (ask_group(q, f, f->groups_asked++, e))
            return e->code;
    return 0;
}

/* ---- the answer -------------------------------------------------------------------------------*/

static void put_head(const struct query *q, const struct functions *f, struct json *j)
{
    view_type_json(f->spec.profile_type, f->table.gauge, j);
    json_put_i64(j, "startMs", f->from_ms);
    json_put_i64(j, "stepMs", f->grid.step_ms);
    json_put_u64(j, "points", f->grid.points);
    view_notes_json(q, j);
}

static void put_groups(const struct functions *f, struct json *j)
{
    json_put_u64(j, "groupsOmitted", f->groups_omitted);
    json_key(j, "groups");
    json_arr(j);
    for (size_t i = 0; i < f->groups_len; i++) {
        json_obj(j);
        json_key(j, "labels");
        json_obj(j);
        for (size_t k = 0; k < f->group_by_len; k++) {
            json_key_str(j, f->group_by[k]);
            json_str(j, labels_get(&f->groups[i].labels, f->group_by[k]));
        }
        json_obj_end(j);
        fn_table_json(&f->groups[i].table, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

static int put_json(struct query *q, const struct functions *f, struct err *e)
{
    struct json j;

    query_json(q, &j);
    json_obj(&j);
    put_head(q, f, &j);
    fn_table_json(&f->table, &j);
    if (f->group_by_len)
        put_groups(f, &j);
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    struct functions *f = q->state;

    if (!f->table.points && /* the first time */
        (fn_table_init(&f->table, q, f->names, f->names_len, f->grid.points, e) ||
         fn_table_read(&f->table, q, ASK_SERIES, e) || (f->group_by_len && find_groups(q, f, e))))
        return e->code;
    if (next_groups(q, e))
        return e->code;
    if (!q->calls.len)
        return put_json(q, f, e);
    q->step = reply;
    return 0;
}
