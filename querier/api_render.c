/* SPDX-License-Identifier: Apache-2.0
 *
 * api_render.c: flame graph and timeline in one answer.
 *
 *   api_render ──(a profile type)───────────────────────> ask ──> reply
 *      └──(an old name) ask types ──> choose_types ──────────^
 *
 * A profile type asks at once. An old application name first asks which types the service has, and
 * takes all of the best rank; their units are the same, so they add up. POST /merge is the same
 * question about some profiles, by their ids, with the parameters in a JSON body.
 */
#include "querier/api_render.h"

#include <stdio.h>

#include "common/base/hash.h"
#include "common/model/attime.h"
#include "common/render/folded.h"
#include "common/render/metadata.h"
#include "querier/connect_msg.h"
#include "querier/exemplars.h"
#include "querier/merged.h"
#include "querier/spec.h"

#define TYPES_MAX 8
#define TIME_MAX  INT64_C(253402300799999) /* end of the year 9999 */

enum ask { ASK_MERGE, ASK_TIMELINE, ASK_GROUPS, ASK_TYPES };
enum format { FORMAT_JSON, FORMAT_FOLDED };

struct render {
    struct spec spec;
    struct str query, group_by;
    int64_t from_ms, until_ms;
    struct plan_range range;
    struct plan_timeline timeline;
    size_t max_nodes;
    enum format format;
    bool old; /* the old route: other formats, more keys */
    bool average;
    struct str types[TYPES_MAX];
    size_t types_len;
    struct exm_ids ids;
    bool merge; /* POST /merge */
    struct str start_text, end_text;
    size_t profiles;
};

/* ---- parameters -------------------------------------------------------------------------------*/

NODISCARD int api_time(const struct query *q, const char *name, int64_t absent, int64_t *ret,
                       struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), ms = absent;
    struct str text;

    if (http_param(q->http, name, &text) && str_trim(text).len && attime_parse(text, now, &ms, e))
        return err_wrap(e, "%s", name);
    if (ms < 0 || ms > TIME_MAX)
        return err_set(e, ERR_INPUT, "%s: %" PRId64 " ms is no time between 1970 and 9999", name,
                       ms);
    *ret = ms;
    return 0;
}

static int read_times(struct query *q, struct render *r, struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);

    if (api_time(q, "from", now, &r->from_ms, e) || api_time(q, "until", now, &r->until_ms, e))
        return e->code;
    if (r->from_ms == 0 || r->until_ms == 0)
        return err_set(e, ERR_INPUT,
                       "missing time range in the query: from and until may not be 0");
    if (r->from_ms > r->until_ms)
        return err_set(e, ERR_INPUT,
                       "from is after until: %" PRId64 " > %" PRId64 " (milliseconds)", r->from_ms,
                       r->until_ms);
    /* from = until is a point in time: the leaf it lies in. */
    r->range = plan_range(r->from_ms, MAX(r->until_ms, r->from_ms + 1));
    r->timeline = plan_timeline(r->from_ms, r->until_ms);
    return 0;
}

static int read_max_nodes(struct query *q, struct render *r, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    struct str text;
    uint64_t n;

    r->max_nodes = r->format == FORMAT_FOLDED ? 0 : c->nodes_default;
    if (!http_param(q->http, "maxNodes", &text) && !http_param(q->http, "max-nodes", &text))
        return 0;
    if (!str_u64(str_trim(text), &n) || n == 0)
        return 0;
    if (n > c->nodes_max)
        return err_set(e, ERR_INPUT, "max-nodes is %" PRIu64 ", the limit is %" PRIu64, n,
                       c->nodes_max);
    r->max_nodes = n;
    return 0;
}

static int read_format(struct query *q, struct render *r, struct err *e)
{
    struct str f = STR_NULL;

    (void)http_param(q->http, "format", &f);
    if (str_eqc(f, "collapsed")) {
        r->format = FORMAT_FOLDED;
        return 0;
    }
    if (str_eqc(f, "dot") || (r->old && (str_eqc(f, "pprof") || str_eqc(f, "html"))))
        return err_set(e, ERR_UNIMPLEMENTED,
                       "format %.*s is not supported by this version: use json or collapsed",
                       STR_ARG(f));
    if (r->old && f.len && !str_eqc(f, "json"))
        return err_set(e, ERR_INPUT, "unknown format \"%.*s\": use json or collapsed",
                       (int)MIN(f.len, 40), f.ptr);
    r->format = FORMAT_JSON;
    return 0;
}

/* Who has an id need not know when it was: without from and until all that is kept is looked at. */
static void any_time(const struct query *q, struct render *r)
{
    struct str text;

    if (!http_param(q->http, "from", &text) && !http_param(q->http, "until", &text))
        r->range = (struct plan_range){ 0 };
}

static int read_params(struct query *q, struct render *r, struct err *e)
{
    struct str aggregation = STR_NULL;

    if (!http_param(q->http, "query", &r->query) && r->old)
        (void)http_param(q->http, "name", &r->query);
    if (read_format(q, r, e) || read_times(q, r, e) || read_max_nodes(q, r, e) ||
        spec_render(r->query, r->old, q->arena, &r->spec, e) ||
        exm_of_spec(&r->spec, q->arena, &r->ids, e))
        return e->code;
    if (r->ids.kinds)
        any_time(q, r);
    (void)http_param(q->http, "groupBy", &r->group_by);
    (void)http_param(q->http, "aggregation", &aggregation);
    r->average = str_eqc(aggregation, "avg");
    return 0;
}

/* ---- questions --------------------------------------------------------------------------------*/

static int reply(struct query *q, struct err *e);

static int ask_one(struct query *q, const struct render *r, struct str tenant, struct str type,
                   struct err *e)
{
    struct wire_query wq = { .tenant = tenant,
                             .profile_type = type,
                             .selectors = r->spec.selectors,
                             .selectors_len = r->spec.len,
                             .range = r->range };
    struct wire_timeline tl = { .grid = r->timeline.grid };

    if (r->ids.kinds)
        return exm_ask_merge(q, ASK_MERGE, &wq, &r->ids, NULL, 0, e) ||
                       (r->format == FORMAT_JSON &&
                        exm_ask_timeline(q, ASK_TIMELINE, &wq, &r->ids, tl.grid, e))
                   ? e->code
                   : 0;
    if (query_ask_merge(q, ASK_MERGE, &wq, NULL, 0, e))
        return e->code;
    if (r->format == FORMAT_FOLDED)
        return 0;
    if (query_ask_timeline(q, ASK_TIMELINE, &wq, &tl, e))
        return e->code;
    tl.group_by = &r->group_by;
    tl.group_by_len = 1;
    return r->group_by.len ? query_ask_timeline(q, ASK_GROUPS, &wq, &tl, e) : 0;
}

static int ask(struct query *q, struct err *e)
{
    const struct render *r = q->state;

    q->step = reply;
    if (r->range.empty)
        return 0;
    for (size_t i = 0; i < q->tenants_len; i++)
        for (size_t k = 0; k < r->types_len; k++)
            if (ask_one(q, r, q->tenants[i], r->types[k], e))
                return e->code;
    return 0;
}

static bool known_type(const struct render *r, struct str id)
{
    for (size_t i = 0; i < r->types_len; i++)
        if (str_eq(r->types[i], id))
            return true;
    return false;
}

/* The types of the best rank that the service has. */
static int choose_types(struct query *q, struct err *e)
{
    struct render *r = q->state;
    struct wire_label_lists list;
    size_t pos = 0;
    int n, best = INT32_MAX;

    while ((n = query_next_labels(q, ASK_TYPES, &pos, &list, e)) > 0)
        for (size_t i = 0; i < list.values_len; i++) {
            struct ptype t;
            struct err skip;
            int rank =
                ptype_parse(list.values[i], &t, &skip) ? -1 : legacy_rank(r->spec.app.kind, &t);
            if (rank < 0 || rank > best || known_type(r, list.values[i]))
                continue;
            if (rank < best)
                r->types_len = 0;
            best = rank;
            if (r->types_len < TYPES_MAX)
                r->types[r->types_len++] = list.values[i];
        }
    if (n < 0)
        return e->code;
    query_calls_reset(q);
    return ask(q, e);
}

static int ask_types(struct query *q, const struct render *r, struct err *e)
{
    struct wire_query wq = { .selectors = r->spec.selectors,
                             .selectors_len = r->spec.len,
                             .range = r->range };

    q->step = choose_types;
    for (size_t i = 0; i < q->tenants_len && !r->range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ASK_TYPES, &wq, (struct wire_labels){ .kind = WIRE_TYPES }, e))
            return e->code;
    }
    return 0;
}

static int begin(struct query *q, bool old, struct err *e)
{
    struct render *r = ARENA_NEW(q->arena, struct render);

    CHECK(r);
    r->old = old;
    q->state = r;
    if (read_params(q, r, e))
        return e->code;
    if (r->spec.legacy)
        return ask_types(q, r, e);
    r->types[r->types_len++] = r->spec.profile_type;
    return ask(q, e);
}

int api_render(struct query *q, struct err *e)
{
    return begin(q, false, e);
}

int api_render_old(struct query *q, struct err *e)
{
    return begin(q, true, e);
}

/* ---- POST /merge ------------------------------------------------------------------------------*/

static int body_time(const struct query *q, struct str text, const char *what, int64_t *ret,
                     struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);

    *ret = now;
    if (!str_trim(text).len)
        return 0;
    if (attime_parse(text, now, ret, e))
        return err_wrap(e, "%s", what);
    if (*ret < 0 || *ret > TIME_MAX)
        return err_set(e, ERR_INPUT, "%s: %" PRId64 " ms is no time between 1970 and 9999", what,
                       *ret);
    return 0;
}

static int read_merge(struct query *q, struct render *r, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    const struct json_val *m;
    const struct str *profiles;
    int64_t nodes = 0;

    if (msg_begin(q, &m, e) ||
        json_take_str(json_get(m, "appName", NULL), "appName", &r->query, e) ||
        msg_strings(q, m, "profiles", NULL, &profiles, &r->profiles, e) ||
        json_take_str(json_get(m, "startTime", NULL), "startTime", &r->start_text, e) ||
        json_take_str(json_get(m, "endTime", NULL), "endTime", &r->end_text, e) ||
        json_take_i64(json_get(m, "maxNodes", NULL), "maxNodes", &nodes, e) ||
        body_time(q, r->start_text, "startTime", &r->from_ms, e) ||
        body_time(q, r->end_text, "endTime", &r->until_ms, e))
        return e->code;
    if (!r->query.len || !r->profiles)
        return err_set(e, ERR_INPUT, "appName and at least one of profiles are required");
    if (nodes < 0 || nodes > (int64_t)c->nodes_max)
        return err_set(e, ERR_INPUT, "maxNodes is %" PRId64 ", the limit is %" PRIu64, nodes,
                       c->nodes_max);
    if (r->from_ms > r->until_ms)
        return err_set(e, ERR_INPUT, "startTime is after endTime");
    r->max_nodes = nodes ? (size_t)nodes : c->nodes_default;
    r->timeline = plan_timeline(r->from_ms, r->until_ms);
    if (r->start_text.len || r->end_text.len)
        r->range = plan_range(r->from_ms, MAX(r->until_ms, r->from_ms + 1));
    return spec_render(r->query, true, q->arena, &r->spec, e) ||
                   exm_of_texts(profiles, r->profiles, 1u << EXID_SPAN | 1u << EXID_PROFILE,
                                q->arena, &r->ids, e)
               ? e->code
               : 0;
}

int api_merge_old(struct query *q, struct err *e)
{
    struct render *r = ARENA_NEW(q->arena, struct render);

    CHECK(r);
    r->old = r->merge = true;
    q->state = r;
    if (read_merge(q, r, e))
        return e->code;
    if (r->spec.legacy)
        return ask_types(q, r, e);
    r->types[r->types_len++] = r->spec.profile_type;
    return ask(q, e);
}

static void put_merge_metadata(const struct query *q, const struct render *r, struct json *j)
{
    char id[24];

    json_key(j, "mergeMetadata");
    json_obj(j);
    json_key(j, "appName");
    json_str(j, r->query);
    json_key(j, "startTime");
    json_str(j, r->start_text);
    json_key(j, "endTime");
    json_str(j, r->end_text);
    json_key(j, "profilesLength");
    json_u64(j, r->profiles);
    json_obj_end(j);
    json_key(j, "queryID"); /* the same question has the same one */
    (void)snprintf(id, sizeof(id), "%016" PRIx64, hash64(q->http->body.ptr, q->http->body.len, 0));
    json_cstr(j, id);
}

/* ---- the answer -------------------------------------------------------------------------------*/

static void put_metadata(const struct query *q, const struct render *r, struct json *j)
{
    struct str id = r->types_len ? r->types[0] : str_c(legacy_type_id(r->spec.app.kind));
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(id, &t, &e) == 0); /* it was parsed before */
    json_key(j, "metadata");
    json_obj(j);
    metadata_json(&t, "single", j);
    if (r->old) {
        json_key(j, "appName");
        json_str(j, r->spec.app_text);
        json_key(j, "startTime");
        json_i64(j, r->from_ms / 1000);
        json_key(j, "endTime");
        json_i64(j, r->until_ms / 1000);
        json_key(j, "query");
        json_str(j, r->query);
        json_key(j, "maxNodes");
        json_u64(j, r->max_nodes);
    }
    json_obj_end(j);
    if (r->old) {
        json_key(j, "annotations");
        json_arr(j);
        json_arr_end(j);
    }
    if (q->missing.missing) {
        json_key(j, "partial");
        json_bool(j, true);
    }
}

/* The value of the grouping label names a group; "*" where it is missing. */
static int put_groups(struct query *q, const struct render *r, struct json *j, struct err *e)
{
    struct timeline t;

    json_key(j, "groups");
    if (!r->group_by.len) {
        json_null(j);
        return 0;
    }
    timeline_init(&t, q->arena);
    int code = merged_timeline(q, ASK_GROUPS, r->timeline.samples, r->average, &t, e);
    json_obj(j);
    for (size_t i = 0; !code && i < t.groups.len; i++) {
        struct str value = labels_get(&t.groups.ptr[i].labels, r->group_by);
        json_key_str(j, value.len ? value : STR("*"));
        timeline_json(&t, &t.groups.ptr[i], &r->timeline, r->average, j);
    }
    json_obj_end(j);
    timeline_deinit(&t);
    return code;
}

static int put_timelines(struct query *q, const struct render *r, struct json *j, struct err *e)
{
    struct timeline t;

    timeline_init(&t, q->arena);
    int code = merged_timeline(q, ASK_TIMELINE, r->timeline.samples, r->average, &t, e);
    json_key(j, "timeline");
    timeline_json(&t, t.groups.len ? &t.groups.ptr[0] : NULL, &r->timeline, r->average, j);
    timeline_deinit(&t);
    return code ? code : put_groups(q, r, j, e);
}

static int put_json(struct query *q, const struct render *r, const struct merged *m,
                    const struct layout *l, struct err *e)
{
    struct flame f;
    struct json j;

    flame_init(&f, l, &m->tree);
    query_json(q, &j);
    json_obj(&j);
    json_key(&j, "version");
    json_u64(&j, 1);
    json_key(&j, "flamebearer");
    flame_json(&f, &j);
    flame_deinit(&f);
    put_metadata(q, r, &j);
    int code = put_timelines(q, r, &j, e);
    json_key(&j, "heatmap");
    json_null(&j);
    if (r->merge)
        put_merge_metadata(q, r, &j);
    json_obj_end(&j);
    return code ? code : query_out_end(q, e);
}

static int put_folded(struct query *q, const struct merged *m, const struct layout *l,
                      struct err *e)
{
    q->content_type = "text/plain; charset=utf-8";
    q->attachment = "profile.folded.txt";
    buf_init(&q->out, query_left(q));
    folded_write(l, &m->tree, &q->out);
    return query_out_end(q, e);
}

static int reply(struct query *q, struct err *e)
{
    const struct render *r = q->state;
    struct merged m;
    struct layout l;

    merged_init(&m, q);
    int code = merged_read(&m, q, ASK_MERGE, e);
    if (!code)
        code = merged_layout(&m, q, r->max_nodes, &l, e);
    if (!code) {
        code = r->format == FORMAT_FOLDED ? put_folded(q, &m, &l, e) : put_json(q, r, &m, &l, e);
        layout_deinit(&l);
    }
    merged_deinit(&m);
    return code;
}
