/* SPDX-License-Identifier: Apache-2.0
 *
 * render_side: a profile type asks at once. An old application name first asks which types the
 * service has, and takes all of the best rank.
 */
#include "querier/select/flame_request.h"

#include <stdio.h>

#include "common/model/ptype.h"
#include "querier/merge/collectors.h"
#include "querier/select/api_time.h"

/* ---- parameters -------------------------------------------------------------------------------*/

/* "left" and "from" give "leftFrom"; without a prefix the name stays. */
static const char *prefixed(const char *prefix, const char *name, char *buf, size_t size)
{
    if (!*prefix)
        return name;
    (void)snprintf(buf, size, "%s%c%s", prefix, *name - 'a' + 'A', name + 1);
    return buf;
}

NODISCARD int side_range(struct flame_request *s, struct err *e)
{
    if (s->from_ms == 0 || s->until_ms == 0)
        return err_set(e, ERR_INPUT,
                       "missing time range in the query: from and until may not be 0");
    if (s->from_ms > s->until_ms)
        return err_set(e, ERR_INPUT,
                       "from is after until: %" PRId64 " > %" PRId64 " (milliseconds)", s->from_ms,
                       s->until_ms);
    /* from = until is a point in time: the leaf it lies in. */
    s->range = plan_range(s->from_ms, MAX(s->until_ms, s->from_ms + 1));
    return 0;
}

NODISCARD int side_parse(struct query *q, bool old, struct flame_request *s, struct err *e)
{
    return query_spec_render(s->query, old, q->arena, &s->spec, e) ||
                   exm_of_spec(&s->spec, q->arena, &s->ids, e)
               ? e->code
               : 0;
}

NODISCARD int side_read(struct query *q, const char *prefix, bool old, struct flame_request *ret,
                        struct err *e)
{
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);
    char query[32], from[32], until[32];
    struct str text;

    *ret = (struct flame_request){ 0 };
    (void)prefixed(prefix, "query", query, sizeof(query));
    const char *from_name = prefixed(prefix, "from", from, sizeof(from));
    const char *until_name = prefixed(prefix, "until", until, sizeof(until));
    if (!http_param(q->http, *prefix ? query : "query", &ret->query) && old)
        (void)http_param(q->http, *prefix ? "query" : "name", &ret->query);
    if (api_time(q, from_name, now, &ret->from_ms, e) ||
        api_time(q, until_name, now, &ret->until_ms, e))
        return e->code;
    if (side_range(ret, e) || side_parse(q, old, ret, e))
        return *prefix ? err_wrap(e, "%s", prefix) : e->code;
    /* A caller that has an id need not know its time. */
    if (ret->ids.kinds && !http_param(q->http, from_name, &text) &&
        !http_param(q->http, until_name, &text))
        ret->range = (struct plan_range){ 0 };
    return 0;
}

/* ---- types ------------------------------------------------------------------------------------*/

NODISCARD int side_begin(struct query *q, size_t ask, struct flame_request *s, bool *ret_asked,
                         struct err *e)
{
    struct wire_query wq = { .selectors = s->spec.selectors,
                             .selectors_len = s->spec.len,
                             .range = s->range };

    if (!s->spec.legacy) {
        s->types[s->types_len++] = s->spec.profile_type;
        return 0;
    }
    *ret_asked = true;
    for (size_t i = 0; i < q->tenants_len && !s->range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_labels(q, ask, &wq, (struct wire_labels){ .kind = WIRE_TYPES }, e))
            return e->code;
    }
    return 0;
}

static bool known_type(const struct flame_request *s, struct str id)
{
    for (size_t i = 0; i < s->types_len; i++)
        if (str_eq(s->types[i], id))
            return true;
    return false;
}

NODISCARD int side_types(struct query *q, size_t ask, struct flame_request *s, struct err *e)
{
    struct wire_label_lists list;
    size_t pos = 0;
    int n, best = INT32_MAX;

    while (s->spec.legacy && (n = query_next_labels(q, ask, &pos, &list, e)) != 0) {
        if (n < 0)
            return e->code;
        for (size_t i = 0; i < list.values_len; i++) {
            struct ptype t;
            struct err skip;
            int rank = ptype_parse(list.values[i], &t, &skip)
                           ? -1
                           : app_name_types_rank(s->spec.app.kind, &t);
            if (rank < 0 || rank > best || known_type(s, list.values[i]))
                continue;
            if (rank < best)
                s->types_len = 0;
            best = rank;
            if (s->types_len < SIDE_TYPES_MAX)
                s->types[s->types_len++] = list.values[i];
        }
    }
    return 0;
}

struct str side_type_id(const struct flame_request *s)
{
    return s->types_len ? s->types[0] : str_c(app_name_types_type_id(s->spec.app.kind));
}

struct ptype side_type(const struct flame_request *s)
{
    struct ptype t = { 0 };
    struct err e;

    CHECK(ptype_parse(side_type_id(s), &t, &e) == 0); /* it was parsed before */
    return t;
}

/* ---- questions --------------------------------------------------------------------------------*/

struct wire_query side_wire(const struct flame_request *s, struct str tenant, struct str type)
{
    return (struct wire_query){ .tenant = tenant,
                                .profile_type = type,
                                .selectors = s->spec.selectors,
                                .selectors_len = s->spec.len,
                                .range = s->range };
}

NODISCARD int side_ask(struct query *q, size_t ask, const struct flame_request *s, struct err *e)
{
    for (size_t i = 0; i < q->tenants_len && !s->range.empty; i++)
        for (size_t k = 0; k < s->types_len; k++) {
            struct wire_query wq = side_wire(s, q->tenants[i], s->types[k]);
            if (s->ids.kinds
                    ? exm_ask_merge(q, ask, &wq, &s->ids, (struct exm_site){ 0 }, e)
                    : query_ask_merge(q, ask, &wq, NULL, 0, e) || collectors_ask(q, ask, i, &wq, e))
                return e->code;
        }
    return 0;
}
