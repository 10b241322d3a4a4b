/* SPDX-License-Identifier: Apache-2.0
 *
 * api_grew.c: which functions grew between two ranges, of one service or of all.
 *
 *   by=function   ask both ranges of everything ──────────────────────> reply
 *   by=service    ask which services ──> some services at a time ──^──> reply
 *
 * Values come from the index of functions (RPC_FUNCTIONS, one point a range): no stack is read
 * where it has them. By service nothing is kept of a service but what is among the best so far, a
 * heap of offset + limit rows (top_rows.h). A service is whole when it is compared, since all
 * of its places and both its ranges are asked for together; so the rows are exactly those that
 * sorting everything gives.
 *
 * The rows of the heap are owned by the state, which is freed with the query (q->doc_free).
 */
#include <math.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/model/ptype.h"
#include "querier/api/table/api_functions.h"
#include "querier/merge/collectors.h"
#include "querier/merge/fn_table.h"
#include "querier/merge/label_lists.h"
#include "querier/merge/top_rows.h"
#include "querier/select/api_time.h"
#include "querier/select/function_view_args.h"

#define HOUR_MS          3600000
#define SERVICES_AT_ONCE 16
#define ROWS_MAX         10000 /* offset + limit */

enum ask { ASK_SERVICES, ASK_FIRST }; /* then two for each service: before, after */
enum by { BY_FUNCTION, BY_SERVICE };

struct range {
    struct plan_range range;
    uint64_t all;             /* shown */
    int64_t start_ms, end_ms; /* real bounds */
};
/* Functions of a service, or of everything, while they are compared. */
struct side_sums {
    struct map_str *by_name;   /* owned; name -> index */
    VEC(struct grew_row) rows; /* names borrowed from replies */
    uint64_t all[DIFF_SIDES];
    uint32_t leaves[DIFF_SIDES];
    VEC(struct leaf_part) parts[DIFF_SIDES]; /* replies that say which; borrowed */
    int64_t start_ms[DIFF_SIDES], end_ms[DIFF_SIDES];
    size_t taken; /* of the query's memory */
};
struct grew {
    struct query_spec spec;
    struct range ranges[DIFF_SIDES];
    struct view_page page;
    enum compare_mode mode;
    size_t sort, dir, by;
    bool gauge;
    struct str *services; /* owned; texts in q->data */
    size_t services_len, asked, read;
    uint64_t functions, matching;
    struct top_rows rows;
};

static const char *const side_keys[DIFF_SIDES] = { "before", "after" };

static void grew_free(void *cookie)
{
    struct grew *g = cookie; /* itself in the arena of the query */

    top_rows_free(&g->rows);
    xfree(g->services);
}

/* ---- parameters -------------------------------------------------------------------------------*/

/* Names of the parameters of a range, and the times that they have unless the request says. */
struct range_params {
    const char *from, *until;
    int64_t from_ms, until_ms;
};

static int read_range(struct query *q, struct grew *g, size_t side, const struct range_params *p,
                      struct err *e)
{
    int64_t from_ms, until_ms;

    if (api_time(q, p->until, p->until_ms, &until_ms, e) ||
        api_time(q, p->from, p->from_ms, &from_ms, e))
        return e->code;
    if (from_ms >= until_ms)
        return err_set(e, ERR_INPUT,
                       "%s is not before %s: %" PRId64 " >= %" PRId64 " (milliseconds)", p->from,
                       p->until, from_ms, until_ms);
    g->ranges[side].range = plan_range(from_ms, until_ms);
    return 0;
}

/* The earlier range is by default as long as the later one and ends where that begins, leaf for
 * leaf, so that no leaf is in both. */
static int read_ranges(struct query *q, struct grew *g, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), until_ms;
    const struct plan_range *after = &g->ranges[DIFF_RIGHT].range;
    const struct range_params later = { "from", "until", MAX(now - HOUR_MS, 1), now };

    if (read_range(q, g, DIFF_RIGHT, &later, e) ||
        api_time(q, "beforeUntil", MAX(after->start_ms, 2), &until_ms, e))
        return e->code;
    int64_t from_ms = MAX(until_ms - (after->end_ms - after->start_ms), 1);
    const struct range_params earlier = { "beforeFrom", "beforeUntil", from_ms, until_ms };
    return read_range(q, g, DIFF_LEFT, &earlier, e);
}

static int read_params(struct query *q, struct grew *g, struct err *e)
{
    static const char *const sorts[] = { [COMPARE_SELF] = "self", [COMPARE_TOTAL] = "total" };
    static const char *const dirs[] = {
        [COMPARE_ALL] = "all", [COMPARE_GREW] = "grew", [COMPARE_SHRANK] = "shrank"
    };
    static const char *const bys[] = { [BY_FUNCTION] = "function", [BY_SERVICE] = "service" };
    static const char *const modes[] = { [COMPARE_ABSOLUTE] = "absolute",
                                         [COMPARE_RELATIVE] = "relative",
                                         [COMPARE_SECOND] = "second" };
    struct str text = STR_NULL;
    size_t mode = COMPARE_SECOND;

    g->dir = COMPARE_GREW;
    (void)http_param(q->http, "query", &text);
    if (query_spec_render(text, false, q->arena, &g->spec, e) || read_ranges(q, g, e) ||
        view_page_read(q, &g->page, e) ||
        view_word(q, "sort", sorts, ARRAY_LEN(sorts), &g->sort, e) ||
        view_word(q, "dir", dirs, ARRAY_LEN(dirs), &g->dir, e) ||
        view_word(q, "by", bys, ARRAY_LEN(bys), &g->by, e) ||
        view_word(q, "mode", modes, ARRAY_LEN(modes), &mode, e))
        return e->code;
    g->mode = (enum compare_mode)mode;
    if (g->page.offset + g->page.limit > ROWS_MAX)
        return err_set(e, ERR_LIMIT, "offset + limit is %" PRIu64 ", at most %d rows are kept",
                       g->page.offset + g->page.limit, ROWS_MAX);
    g->rows.max = (size_t)(g->page.offset + g->page.limit);
    return 0;
}

/* ---- questions --------------------------------------------------------------------------------*/

/* Both ranges of what the selectors mean. */
static int ask_ranges(struct query *q, size_t ask, const struct selector *selectors,
                      size_t selectors_len, struct err *e)
{
    const struct grew *g = q->state;
    struct wire_query wq = { .profile_type = g->spec.profile_type,
                             .selectors = selectors,
                             .selectors_len = selectors_len };

    for (size_t s = 0; s < DIFF_SIDES; s++) {
        struct plan_range r = g->ranges[s].range;
        struct wire_functions wf = { .grid = { r.end_ms - 1, r.end_ms - r.start_ms, 1 } };
        for (size_t i = 0; i < q->tenants_len && !r.empty; i++) {
            wq.tenant = q->tenants[i];
            if (query_ask_functions(q, ask + s, &wq, wf, e))
                return e->code;
        }
    }
    return 0;
}

static int ask_collectors(struct query *q, const struct grew *g, struct err *e)
{
    struct wire_query wq = { .profile_type = g->spec.profile_type,
                             .selectors = g->spec.selectors,
                             .selectors_len = g->spec.len };

    for (size_t s = 0; s < DIFF_SIDES; s++)
        for (size_t i = 0; i < q->tenants_len; i++) {
            wq.tenant = q->tenants[i];
            wq.range = g->ranges[s].range;
            if (collectors_ask(q, s, i, &wq, e))
                return e->code;
        }
    return 0;
}

static int ask_service(struct query *q, size_t ask, struct str service, struct err *e)
{
    const struct grew *g = q->state;
    struct selector selectors[QUERY_SPEC_SELECTORS_MAX + 1];
    struct matcher m = { .op = MATCH_EQ, .name = STR("service_name"), .value = service };

    memcpy(selectors, g->spec.selectors, g->spec.len * sizeof(*selectors));
    selectors[g->spec.len] = (struct selector){ .matchers = &m, .len = 1 };
    return ask_ranges(q, ask, selectors, g->spec.len + 1, e);
}

/* Services that have the type, at the times of either range. */
static int ask_services(struct query *q, const struct grew *g, struct err *e)
{
    struct selector selectors[QUERY_SPEC_SELECTORS_MAX + 1];
    struct matcher m = { .op = MATCH_EQ,
                         .name = STR("__profile_type__"),
                         .value = g->spec.profile_type };
    struct wire_query wq = { .selectors = selectors, .selectors_len = g->spec.len + 1 };
    struct wire_labels wl = { .kind = WIRE_VALUES, .name = STR("service_name") };
    const struct plan_range *a = &g->ranges[DIFF_LEFT].range, *b = &g->ranges[DIFF_RIGHT].range;

    memcpy(selectors, g->spec.selectors, g->spec.len * sizeof(*selectors));
    selectors[g->spec.len] = (struct selector){ .matchers = &m, .len = 1 };
    wq.range.start_ms = MIN(a->start_ms, b->start_ms);
    wq.range.end_ms = MAX(a->end_ms, b->end_ms);
    for (size_t i = 0; i < q->tenants_len; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ASK_SERVICES, &wq, wl, e))
            return e->code;
    }
    return 0;
}

/* ---- comparing --------------------------------------------------------------------------------*/

static int sums_add(struct query *q, struct side_sums *s, size_t side,
                    const struct wire_function_list *w, struct err *e)
{
    size_t bytes =
        w->len * (2 * sizeof(struct grew_row) + 64); /* rows and slots, while they grow */

    if (query_take(q, bytes, e))
        return e->code;
    s->taken += bytes;
    s->all[side] = u64_add_sat(s->all[side], w->all[0]);
    if (w->leaves)
        s->leaves[side] = MAX(s->leaves[side], w->leaves[0]);
    if (w->items.items_len)
        vec_push(&s->parts[side], w->items);
    if (w->end_ms > w->start_ms) {
        bool first = s->end_ms[side] == 0;
        s->start_ms[side] = first ? w->start_ms : MIN(s->start_ms[side], w->start_ms);
        s->end_ms[side] = MAX(s->end_ms[side], w->end_ms);
    }
    for (size_t i = 0; i < w->len; i++) {
        const struct wire_function *f = &w->at[i];
        if (!f->len || !f->name.len)
            continue; /* what has no name is in the sum of all alone */
        size_t at = map_str_index(s->by_name, f->name, s->rows.len);
        if (at == s->rows.len)
            vec_push(&s->rows, ((struct grew_row){ .name = f->name }));
        struct grew_row *r = &s->rows.ptr[at];
        r->self[side] = u64_add_sat(r->self[side], f->self[0]);
        r->total[side] = u64_add_sat(r->total[side], f->total[0]);
    }
    return 0;
}

static double weight_of(const struct grew *g, const struct grew_row *r)
{
    struct compare c = { .factor = { r->factor[DIFF_LEFT], r->factor[DIFF_RIGHT] } };
    double delta = compare_delta(&c, g->sort == COMPARE_SELF ? r->self : r->total);

    return g->dir == COMPARE_GREW ? delta : g->dir == COMPARE_SHRANK ? -delta : fabs(delta);
}

/* What the rows of one service are worth. */
static int offer_all(struct query *q, struct grew *g, struct side_sums *s, struct str service,
                     struct err *e)
{
    double factor[DIFF_SIDES];

    for (size_t k = 0; k < DIFF_SIDES; k++) {
        const struct plan_range *asked = &g->ranges[k].range;
        struct range *range = &g->ranges[k];
        bool known = s->end_ms[k] > s->start_ms[k];
        int64_t start = known ? s->start_ms[k] : asked->start_ms;
        int64_t end = known ? s->end_ms[k] : asked->end_ms;
        struct compare_side size = { fn_shown(g->gauge, s->all[k], s->leaves[k]),
                                     (uint64_t)(end - start), 0, g->gauge };
        factor[k] = compare_factor(&size, g->mode);
        range->all = u64_add_sat(range->all, size.total);
        range->start_ms = range->end_ms ? MIN(range->start_ms, start) : start;
        range->end_ms = MAX(range->end_ms, end);
    }
    vec_for (i, &s->rows) {
        struct grew_row r = s->rows.ptr[i];
        r.service = service;
        for (size_t k = 0; k < DIFF_SIDES; k++) {
            r.self[k] = fn_shown(g->gauge, r.self[k], s->leaves[k]);
            r.total[k] = fn_shown(g->gauge, r.total[k], s->leaves[k]);
            r.factor[k] = factor[k];
        }
        g->functions++;
        r.weight = weight_of(g, &r);
        if (g->page.search.len && !top_text_has(r.name, g->page.search))
            continue;
        if (g->dir != COMPARE_ALL && !(r.weight > 0))
            continue;
        g->matching++;
        if (top_rows_offer(&g->rows, q, r, e))
            return e->code;
    }
    return 0;
}

static int read_sides(struct query *q, struct grew *g, size_t ask, struct side_sums *s,
                      struct err *e)
{
    struct wire_function_list w;

    for (size_t k = 0; k < DIFF_SIDES; k++) {
        size_t pos = 0;
        int n;
        while ((n = query_next_functions(q, ask + k, &pos, 1, &w, e)) > 0) {
            g->gauge |= w.gauge;
            q->saturated += w.saturated;
            if (sums_add(q, s, k, &w, e))
                return e->code;
        }
        if (n < 0)
            return e->code;
        fn_leaves(s->parts[k].ptr, s->parts[k].len, &s->leaves[k], 1);
    }
    return 0;
}

/* Compares the replies to two asks and forgets them. */
static int read_service(struct query *q, struct grew *g, size_t ask, struct str service,
                        struct err *e)
{
    struct side_sums s = { .by_name = map_str_new() };

    struct arena_mark mark = arena_mark(query_data(q));
    size_t used = arena_used(q->data);
    int code = read_sides(q, g, ask, &s, e);
    if (!code)
        code = offer_all(q, g, &s, service, e);
    map_str_free(s.by_name);
    vec_free(&s.rows);
    for (size_t k = 0; k < DIFF_SIDES; k++)
        vec_free(&s.parts[k]);
    if (code)
        return code;
    query_give(q, arena_used(q->data) - used + s.taken);
    arena_rewind(q->data, mark);
    return 0;
}

/* ---- the answer -------------------------------------------------------------------------------*/

static void put_head(const struct query *q, const struct grew *g, struct json *j)
{
    view_type_json(g->spec.profile_type, g->gauge, j);
    json_put_cstr(j, "mode", compare_mode_name(g->mode));
    view_notes_json(q, j);
    for (size_t k = 0; k < DIFF_SIDES; k++) {
        const struct range *r = &g->ranges[k];
        json_key(j, side_keys[k]);
        json_obj(j);
        json_put_i64(j, "startMs", r->end_ms ? r->start_ms : r->range.start_ms);
        json_put_i64(j, "endMs", r->end_ms ? r->end_ms : r->range.end_ms);
        json_put_u64(j, "all", MIN(r->all, (uint64_t)INT64_MAX));
        json_obj_end(j);
    }
    if (g->by == BY_SERVICE)
        json_put_u64(j, "services", g->services_len);
    json_put_u64(j, "functions", g->functions);
    json_put_u64(j, "matching", g->matching);
    json_put_u64(j, "offset", g->page.offset);
}

static int put_json(struct query *q, struct grew *g, struct err *e)
{
    struct json j;

    top_rows_sort(&g->rows);
    query_json(q, &j);
    json_obj(&j);
    put_head(q, g, &j);
    json_key(&j, "rows");
    json_arr(&j);
    top_rows_json(&g->rows, (size_t)g->page.offset, g->by == BY_SERVICE, &j);
    json_arr_end(&j);
    json_obj_end(&j);
    return query_out_end(q, e);
}

/* ---- steps ------------------------------------------------------------------------------------*/

static int reply_function(struct query *q, struct err *e)
{
    struct grew *g = q->state;

    return read_service(q, g, ASK_FIRST, STR_NULL, e) ? e->code : put_json(q, g, e);
}

static int next_services(struct query *q, struct err *e)
{
    struct grew *g = q->state;

    for (size_t first = g->read; g->read < g->asked; g->read++)
        if (read_service(q, g, ASK_FIRST + (g->read - first) * DIFF_SIDES, g->services[g->read], e))
            return e->code;
    query_calls_reset(q);
    for (size_t n = 0; n < SERVICES_AT_ONCE && g->asked < g->services_len; n++, g->asked++)
        if (ask_service(q, ASK_FIRST + n * DIFF_SIDES, g->services[g->asked], e))
            return e->code;
    if (!q->calls.len)
        return put_json(q, g, e);
    q->step = next_services;
    return 0;
}

/* A list that was cut would leave out services, and so maybe the worst ones. */
static int on_services(struct query *q, struct err *e)
{
    struct grew *g = q->state;
    struct label_lists l;
    struct str *names;

    if (label_lists_read(q, ASK_SERVICES, false, &l, e))
        return e->code;
    if (q->truncated)
        (void)err_set(e, ERR_LIMIT,
                      "over %" PRIu64 " services (querier.labels_max): narrow the query, or ask "
                      "by=function",
                      q->qr->conf->labels_max);
    else if (!query_take(q, (l.values.len + 1) * sizeof(struct str), e)) {
        names = XNEW_ARRAY(struct str, l.values.len + 1);
        if (l.values.len)
            memcpy(names, l.values.ptr, l.values.len * sizeof(*names));
        g->services = names;
        g->services_len = l.values.len;
        err_clear(e);
    }
    label_lists_deinit(&l);
    return e->code ? e->code : next_services(q, e);
}

int api_grew(struct query *q, struct err *e)
{
    struct grew *g = ARENA_NEW(q->arena, struct grew);

    CHECK(g);
    q->state = g;
    q->doc = g;
    q->doc_free = grew_free;
    if (read_params(q, g, e))
        return e->code;
    q->step = g->by == BY_SERVICE ? on_services : reply_function;
    if (ask_collectors(q, g, e))
        return e->code;
    return g->by == BY_SERVICE ? ask_services(q, g, e)
                               : ask_ranges(q, ASK_FIRST, g->spec.selectors, g->spec.len, e);
}
