/* SPDX-License-Identifier: Apache-2.0
 *
 * api_compare.c: two queries side by side, by function and by node.
 *
 * What makes sides of different length or size comparable is said by `mode`. Seconds are those of
 * the real bounds of a side, which is what its values are sums of. Instances are the distinct sets
 * of instance-like labels that have data in the range; timelines answer that without a stack read.
 *
 * Tables show scaled values beside the stored ones. Bars of the tree are integers, so there the
 * right side is brought to the size of the left one (treeScale) and rounded once over the tree.
 */
#include <math.h>

#include "common/model/ptype.h"
#include "querier/api/table/api_views.h"
#include "querier/render/compare.h"
#include "querier/select/api_time.h"
#include "querier/select/function_view_args.h"

#define HOUR_MS         3600000
#define INSTANCE_BY_MAX 16

enum ask { ASK_TREE, ASK_INSTANCES = ASK_TREE + DIFF_SIDES };

static const char *const side_names[DIFF_SIDES] = { "left", "right" };

struct comparison {
    struct view_side side[DIFF_SIDES];
    struct compare_side size[DIFF_SIDES];
    double factor[DIFF_SIDES];
    struct view_page page;
    enum compare_mode mode;
    size_t sort, dir, max_nodes;
    bool tree, instances;
    struct str by[INSTANCE_BY_MAX];
    size_t by_len;
};

/* ---- parameters -------------------------------------------------------------------------------*/

static int check_units(const struct comparison *c, struct err *e)
{
    struct ptype t[DIFF_SIDES] = { 0 };

    for (int s = 0; s < DIFF_SIDES; s++)
        if (ptype_parse(c->side[s].spec.profile_type, &t[s], e))
            return e->code;
    if (!str_eq(t[DIFF_LEFT].sample_unit, t[DIFF_RIGHT].sample_unit))
        return err_set(e, ERR_INPUT, "left is in %.*s and right in %.*s: these have no difference",
                       STR_ARG(t[DIFF_LEFT].sample_unit), STR_ARG(t[DIFF_RIGHT].sample_unit));
    return 0;
}

/* What the roll-ups drop by default and people call an instance, the service besides. */
static int read_instance_labels(struct query *q, struct comparison *c, struct err *e)
{
    static const char *const usual[] = {
        "pod", "instance", "hostname", "host", "ip", "container_id"
    };
    const struct str *asked;
    size_t n;

    if (view_strs(q, "instanceLabel", &asked, &n, e))
        return e->code;
    if (n >= INSTANCE_BY_MAX)
        return err_set(e, ERR_LIMIT, "instanceLabel: over %d labels", INSTANCE_BY_MAX - 1);
    c->by[c->by_len++] = STR("service_name");
    for (size_t i = 0; i < (n ? n : ARRAY_LEN(usual)); i++)
        c->by[c->by_len++] = n ? asked[i] : str_c(usual[i]);
    return 0;
}

static int read_mode(struct query *q, struct comparison *c, struct err *e)
{
    struct str text;

    if (http_param(q->http, "mode", &text) && text.len && !compare_mode_parse(text, &c->mode))
        return err_set(e, ERR_INPUT,
                       "mode is \"%.*s\": want one of absolute, relative, second, instance, "
                       "second-instance",
                       (int)MIN(text.len, 40), text.ptr);
    c->instances = c->mode == COMPARE_INSTANCE || c->mode == COMPARE_SECOND_INSTANCE;
    return 0;
}

/* A left side without times is of the same time as the right side if it has a query of its own.
 * Else it is as long as the right side and ends where the right side begins, in whole leaves, so
 * that no leaf is on both sides. */
static int read_sides(struct query *q, struct comparison *c, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), from_ms, until_ms;
    struct str text;

    if (api_time(q, "rightFrom", MAX(now - HOUR_MS, 1), &from_ms, e) ||
        api_time(q, "rightUntil", now, &until_ms, e) ||
        view_side_read(q, side_names[DIFF_RIGHT], from_ms, until_ms, &c->side[DIFF_RIGHT], e))
        return e->code;
    if (!http_param(q->http, "leftQuery", &text) && !http_param(q->http, "leftFrom", &text) &&
        !http_param(q->http, "leftUntil", &text)) {
        const struct plan_range *right = &c->side[DIFF_RIGHT].range;
        until_ms = MAX(right->start_ms, 2);
        from_ms = MAX(until_ms - (right->end_ms - right->start_ms), 1);
    }
    return view_side_read(q, side_names[DIFF_LEFT], from_ms, until_ms, &c->side[DIFF_LEFT], e)
               ? e->code
               : check_units(c, e);
}

static int read_params(struct query *q, struct comparison *c, struct err *e)
{
    static const char *const sorts[] = {
        [COMPARE_SELF] = "self", [COMPARE_TOTAL] = "total", [COMPARE_NAME] = "name"
    };
    static const char *const dirs[] = {
        [COMPARE_ALL] = "all", [COMPARE_GREW] = "grew", [COMPARE_SHRANK] = "shrank"
    };

    return read_sides(q, c, e) || read_mode(q, c, e) || read_instance_labels(q, c, e) ||
                   view_page_read(q, &c->page, e) || view_nodes(q, &c->max_nodes, e) ||
                   view_word(q, "sort", sorts, ARRAY_LEN(sorts), &c->sort, e) ||
                   view_word(q, "dir", dirs, ARRAY_LEN(dirs), &c->dir, e) ||
                   view_flag(q, "tree", &c->tree, e)
               ? e->code
               : 0;
}

/* ---- questions --------------------------------------------------------------------------------*/

static int ask_instances(struct query *q, size_t ask, const struct comparison *c,
                         const struct view_side *s, struct err *e)
{
    struct plan_range r = s->range;
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = r };
    struct wire_timeline tl = { .grid = { r.end_ms - 1, r.end_ms - r.start_ms, 1 },
                                .group_by = c->by,
                                .group_by_len = c->by_len };

    for (size_t i = 0; i < q->tenants_len && !r.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_timeline(q, ask, &wq, &tl, e))
            return e->code;
    }
    return 0;
}

static int reply(struct query *q, struct err *e);

int api_compare(struct query *q, struct err *e)
{
    struct comparison *c = ARENA_NEW(q->arena, struct comparison);

    CHECK(c);
    q->state = c;
    if (read_params(q, c, e))
        return e->code;
    for (size_t s = 0; s < DIFF_SIDES; s++) {
        if (c->instances && c->side[s].ids.kinds)
            return err_set(e, ERR_INPUT, "mode %s: spans and profiles have no instances",
                           compare_mode_name(c->mode));
        if (view_ask(q, ASK_TREE + s, &c->side[s], e) ||
            (c->instances && ask_instances(q, ASK_INSTANCES + s, c, &c->side[s], e)))
            return e->code;
    }
    q->step = reply;
    return 0;
}

/* ---- the answer -------------------------------------------------------------------------------*/

static int count_instances(struct query *q, size_t ask, uint64_t *ret, struct err *e)
{
    struct timeline t;

    timeline_init(&t, query_data(q));
    int code = merged_timeline(q, ask, 1, false, &t, e);
    *ret = t.groups.len;
    timeline_deinit(&t);
    return code;
}

static int read_sizes(struct query *q, struct comparison *c, const struct merged m[DIFF_SIDES],
                      struct err *e)
{
    for (size_t s = 0; s < DIFF_SIDES; s++) {
        struct compare_side *size = &c->size[s];
        size->total = calltree_total(&m[s].tree);
        size->range_ms = (uint64_t)(c->side[s].end_ms - c->side[s].start_ms);
        size->gauge = m[s].facts.gauge;
        if (c->instances && count_instances(q, ASK_INSTANCES + s, &size->instances, e))
            return e->code;
        c->factor[s] = compare_factor(size, c->mode);
    }
    return 0;
}

static void put_sides(const struct comparison *c, const struct merged m[DIFF_SIDES], struct json *j)
{
    for (size_t s = 0; s < DIFF_SIDES; s++) {
        json_key(j, side_names[s]);
        json_obj(j);
        view_side_json(&c->side[s], &m[s], j);
        if (c->instances)
            json_put_u64(j, "instances", c->size[s].instances);
        json_put_double(j, "factor", c->factor[s]);
        json_obj_end(j);
    }
}

static void put_values(const struct compare *t, const char *key, const uint64_t v[DIFF_SIDES],
                       struct json *j)
{
    double left = compare_value(t, DIFF_LEFT, v[DIFF_LEFT]), delta = compare_delta(t, v);

    json_key(j, key);
    json_obj(j);
    json_put_u64(j, "left", v[DIFF_LEFT]);
    json_put_u64(j, "right", v[DIFF_RIGHT]);
    json_key(j, "shown");
    json_arr(j);
    json_double(j, left);
    json_double(j, compare_value(t, DIFF_RIGHT, v[DIFF_RIGHT]));
    json_arr_end(j);
    json_put_double(j, "delta", delta);
    json_key(j, "change"); /* null: new */
    json_double(j, left > 0 ? delta / left : (double)NAN);
    json_obj_end(j);
}

static void put_table(const struct comparison *c, const struct compare *t, struct json *j)
{
    size_t begin = (size_t)MIN(c->page.offset, t->len);
    size_t end = begin + (size_t)MIN(c->page.limit, t->len - begin);

    json_put_u64(j, "functions", t->functions);
    json_put_u64(j, "matching", t->len);
    json_put_u64(j, "offset", c->page.offset);
    json_key(j, "rows");
    json_arr(j);
    for (size_t i = begin; i < end; i++) {
        json_obj(j);
        json_put_str(j, "name", t->rows[i].name);
        put_values(t, "self", t->rows[i].self, j);
        put_values(t, "total", t->rows[i].total, j);
        json_obj_end(j);
    }
    json_arr_end(j);
}

/* Changes the right tree. */
static int put_tree(struct query *q, const struct comparison *c, struct merged m[DIFF_SIDES],
                    struct json *j, struct err *e)
{
    struct calltree *left = &m[DIFF_LEFT].tree, *right = &m[DIFF_RIGHT].tree;
    double scale = c->factor[DIFF_LEFT] > 0 && c->factor[DIFF_RIGHT] > 0
                       ? c->factor[DIFF_RIGHT] / c->factor[DIFF_LEFT]
                       : 1;
    struct diff d;

    if (query_take(q, diff_cost(left, right), e))
        return e->code;
    if (scale < 1 || scale > 1)
        compare_scale(right, scale);
    q->saturated += right->saturated;
    diff_init(&d, left, right, c->max_nodes);
    json_put_double(j, "treeScale", scale);
    json_put_u64(j, "leftTicks", d.ticks[DIFF_LEFT]);
    json_put_u64(j, "rightTicks", d.ticks[DIFF_RIGHT]);
    json_key(j, "flamebearer");
    diff_json(&d, j);
    diff_deinit(&d);
    return 0;
}

static int put_json(struct query *q, const struct comparison *c, struct merged m[DIFF_SIDES],
                    struct err *e)
{
    struct compare t;
    struct json j;

    if (query_take(q, compare_cost(&m[DIFF_LEFT].tree, &m[DIFF_RIGHT].tree), e))
        return e->code;
    compare_init(&t, &m[DIFF_LEFT].tree, &m[DIFF_RIGHT].tree, c->factor);
    if (c->page.search.len)
        compare_search(&t, c->page.search);
    compare_order(&t, (enum compare_sort)c->sort, (enum compare_dir)c->dir);
    query_json(q, &j);
    json_obj(&j);
    json_put_cstr(&j, "mode", compare_mode_name(c->mode));
    view_notes_json(q, &j);
    put_sides(c, m, &j);
    put_table(c, &t, &j);
    compare_deinit(&t);
    if (c->tree && put_tree(q, c, m, &j, e))
        return e->code;
    json_obj_end(&j);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    struct comparison *c = q->state;
    struct merged m[DIFF_SIDES];
    int code = 0;
    size_t read = 0;

    while (!code && read < DIFF_SIDES) {
        code = view_read(q, ASK_TREE + read, &c->side[read], &m[read], e);
        read++;
    }
    if (!code)
        code = read_sizes(q, c, m, e);
    if (!code)
        code = put_json(q, c, m, e);
    while (read > 0)
        merged_deinit(&m[--read]);
    return code;
}
