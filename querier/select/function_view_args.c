/* SPDX-License-Identifier: Apache-2.0
 *
 * function_view_args.c: parameters of the views, one function for each, with errors that name the
 * parameter.
 *
 * A parameter that is absent has a default, and a wrong one is an error: a view must not show
 * something else than was asked for. view_read keeps the real bounds of one side apart from those
 * of the query, since two sides of a comparison cover different ranges.
 */
#include "querier/select/function_view_args.h"

#include <stdio.h>

#include "common/model/ptype.h"
#include "querier/merge/collectors.h"
#include "querier/select/api_time.h"

#define STRS_MAX      1024 /* stacks are not deeper */
#define LIMIT_DEFAULT 100
#define LIMIT_MAX     10000

/* ---- parameters -------------------------------------------------------------------------------*/

/* "left" and "from" give "leftFrom"; without a prefix the name stays. */
static const char *prefixed(const char *prefix, const char *name, char *buf, size_t size)
{
    if (!*prefix)
        return name;
    (void)snprintf(buf, size, "%s%c%s", prefix, *name - 'a' + 'A', name + 1);
    return buf;
}

NODISCARD int view_strs(struct query *q, const char *name, const struct str **ret, size_t *ret_len,
                        struct err *e)
{
    struct str text, *list = NULL;
    size_t n = 0;

    while (http_param_at(q->http, name, n, &text)) {
        if (n == STRS_MAX)
            return err_set(e, ERR_LIMIT, "%s: over %d in one request", name, STRS_MAX);
        if (!list && !(list = ARENA_ARRAY(q->arena, struct str, STRS_MAX)))
            return err_set(e, ERR_LIMIT, "the request needs over %zu bytes", arena_limit(q->arena));
        list[n++] = text;
    }
    *ret = list;
    *ret_len = n;
    return 0;
}

NODISCARD int view_side_read(struct query *q, const char *prefix, int64_t from_ms, int64_t until_ms,
                             struct view_side *ret, struct err *e)
{
    char name[32];
    struct str text = STR_NULL;

    *ret = (struct view_side){ 0 };
    if (!http_param(q->http, prefixed(prefix, "query", name, sizeof(name)), &text))
        (void)http_param(q->http, "query", &text);
    if (query_spec_render(text, false, q->arena, &ret->spec, e) ||
        exm_of_spec(&ret->spec, q->arena, &ret->ids, e) ||
        api_time(q, prefixed(prefix, "from", name, sizeof(name)), from_ms, &from_ms, e) ||
        api_time(q, prefixed(prefix, "until", name, sizeof(name)), until_ms, &until_ms, e) ||
        view_strs(q, "callSite", &ret->call_site, &ret->call_site_len, e))
        return *prefix ? err_wrap(e, "%s", prefix) : e->code;
    if (from_ms >= until_ms)
        return err_set(e, ERR_INPUT,
                       "%s%sfrom is not before until: %" PRId64 " >= %" PRId64 " (milliseconds)",
                       prefix, *prefix ? ": " : "", from_ms, until_ms);
    ret->range = plan_range(from_ms, until_ms);
    return 0;
}

const char *view_nodes_given(const struct query *q, struct str *ret)
{
    static const char *const names[] = { "maxNodes", "max-nodes", "max_nodes" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (http_param(q->http, names[i], ret))
            return names[i];
    return NULL;
}

NODISCARD int view_nodes(struct query *q, size_t *ret, struct err *e)
{
    const struct querier_conf *c = q->qr->conf;
    struct str text;
    uint64_t n;

    *ret = c->nodes_default;
    const char *name = view_nodes_given(q, &text);
    if (!name)
        return 0;
    if (!str_u64(str_trim(text), &n) || n == 0)
        return err_set(e, ERR_INPUT, "%s is \"%.*s\": want a number from 1 to %" PRIu64, name,
                       (int)MIN(text.len, 40), text.ptr, c->nodes_max);
    if (n > c->nodes_max)
        return err_set(e, ERR_INPUT, "%s is %" PRIu64 ", the limit is %" PRIu64, name, n,
                       c->nodes_max);
    *ret = (size_t)n;
    return 0;
}

static int read_number(struct query *q, const char *name, uint64_t max, uint64_t *io, struct err *e)
{
    struct str text;

    if (!http_param(q->http, name, &text) || !str_trim(text).len)
        return 0;
    if (!str_u64(str_trim(text), io) || *io > max)
        return err_set(e, ERR_INPUT, "%s is \"%.*s\": want a number up to %" PRIu64, name,
                       (int)MIN(text.len, 40), text.ptr, max);
    return 0;
}

NODISCARD int view_page_read(struct query *q, struct view_page *ret, struct err *e)
{
    *ret = (struct view_page){ .limit = LIMIT_DEFAULT };
    (void)http_param(q->http, "search", &ret->search);
    return read_number(q, "offset", UINT32_MAX, &ret->offset, e) ||
                   read_number(q, "limit", LIMIT_MAX, &ret->limit, e)
               ? e->code
               : 0;
}

NODISCARD int view_word(struct query *q, const char *name, const char *const *words, size_t n,
                        size_t *ret, struct err *e)
{
    struct str text;
    struct buf list;

    if (!http_param(q->http, name, &text) || !text.len)
        return 0;
    for (size_t i = 0; i < n; i++)
        if (str_eqc(text, words[i])) {
            *ret = i;
            return 0;
        }
    buf_init(&list, 256);
    for (size_t i = 0; i < n; i++)
        buf_addf(&list, "%s%s", i ? ", " : "", words[i]);
    (void)err_set(e, ERR_INPUT, "%s is \"%.*s\": want one of %.*s", name, (int)MIN(text.len, 40),
                  text.ptr, STR_ARG(buf_str(&list)));
    buf_deinit(&list);
    return e->code;
}

NODISCARD int view_function(struct query *q, struct str *ret, struct err *e)
{
    if (!http_param(q->http, "function", ret) || !ret->len)
        return err_set(e, ERR_INPUT, "function is missing: which one?");
    return 0;
}

NODISCARD int view_flag(struct query *q, const char *name, bool *ret, struct err *e)
{
    static const char *const words[] = { "0", "1", "false", "true" };
    size_t n = 0;

    if (view_word(q, name, words, ARRAY_LEN(words), &n, e))
        return e->code;
    *ret = n % 2;
    return 0;
}

/* ---- the tree ---------------------------------------------------------------------------------*/

NODISCARD int view_ask(struct query *q, size_t ask, const struct view_side *s, struct err *e)
{
    struct wire_query wq = { .profile_type = s->spec.profile_type,
                             .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = s->range };
    const struct exm_site site = { s->call_site, s->call_site_len };

    for (size_t i = 0; i < q->tenants_len && !s->range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (s->ids.kinds ? exm_ask_merge(q, ask, &wq, &s->ids, site, e)
                         : query_ask_merge(q, ask, &wq, s->call_site, s->call_site_len, e) ||
                               collectors_ask(q, ask, i, &wq, e))
            return e->code;
    }
    return 0;
}

NODISCARD int view_read(struct query *q, size_t ask, struct view_side *s, struct merged *m,
                        struct err *e)
{
    int64_t start_ms = q->bounds_start_ms, end_ms = q->bounds_end_ms;

    q->bounds_start_ms = q->bounds_end_ms = 0;
    merged_init(m, q);
    int code = merged_read(m, q, ask, e);
    bool known = q->bounds_end_ms != 0;
    s->start_ms = known ? q->bounds_start_ms : s->range.start_ms;
    s->end_ms = known ? q->bounds_end_ms : s->range.end_ms;
    if (end_ms) { /* of another tree of the same answer */
        q->bounds_start_ms = known ? MIN(q->bounds_start_ms, start_ms) : start_ms;
        q->bounds_end_ms = MAX(q->bounds_end_ms, end_ms);
    }
    return code;
}

/* ---- answers ----------------------------------------------------------------------------------*/

void view_type_json(struct str profile_type, bool gauge, struct json *j)
{
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(profile_type, &t, &e) == 0); /* it was parsed before */
    json_put_str(j, "profileType", profile_type);
    json_put_str(j, "unit", t.sample_unit);
    json_put_bool(j, "gauge", gauge);
}

void view_side_json(const struct view_side *s, const struct merged *m, struct json *j)
{
    view_type_json(s->spec.profile_type, m->facts.gauge, j);
    json_put_i64(j, "startMs", s->start_ms);
    json_put_i64(j, "endMs", s->end_ms);
    json_put_u64(j, "total", calltree_total(&m->tree));
}

void view_notes_json(const struct query *q, struct json *j)
{
    if (q->missing.missing)
        json_put_bool(j, "partial", true);
    collectors_json(q, j);
}

NODISCARD int view_flame_json(struct query *q, const struct calltree *t, size_t max_nodes,
                              struct json *j, struct err *e)
{
    struct layout l;
    struct flame f;

    layout_init(&l, t, max_nodes);
    size_t cost = flame_cost(&l);
    int code = query_take(q, cost, e);
    if (!code) {
        flame_init(&f, &l, t);
        flame_json(&f, j);
        flame_deinit(&f);
        query_give(q, cost);
    }
    layout_deinit(&l);
    return code;
}

double view_percent(uint64_t v, uint64_t total)
{
    return total ? 100.0 * (double)v / (double)total : 0;
}
