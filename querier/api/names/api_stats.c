/* SPDX-License-Identifier: Apache-2.0
 *
 * api_stats.c: GetProfileStats and AnalyzeQuery (proto/WIRE.md, "querier.v1 methods", "querier.v1
 * lists").
 *
 * When the first and the last profile of a tenant came is kept nowhere: it changes with every
 * delete and every retention. It is found by asking, as in a dictionary: which of PARTS parts of
 * all time have any profile type; then the same within the first and the last of those, until they
 * are a day, which is as fine as that index is; then the points of these two days, leaf by leaf.
 *
 *   widen ──> [first part, last part] ──(wider than a day: PARTS each)──┐
 *     ^──────────────────────────────────────────────────────────────────┘
 *     └──(days)──> timelines of the types seen there ──> first and last leaf with a push
 */
#include <stdio.h>

#include "common/identity/scope.h"
#include "common/model/slot.h"
#include "querier/api/api.h"
#include "querier/merge/merged.h"
#include "querier/messages/v1.h"
#include "querier/select/connect_msg.h"

#define PARTS     32
#define DAY_MS    INT64_C(86400000)
#define POINTS    (DAY_MS / LEAF_MS)
#define TYPES_MAX 128

/* ---- GetProfileStats --------------------------------------------------------------------------*/

enum side { OLDEST, NEWEST, SIDES };

struct stats {
    struct side_range {
        int64_t from, to; /* asked about in the round at hand: whole days */
    } side[SIDES];
    int64_t part_ms[SIDES];
    struct str types[SIDES][TYPES_MAX];
    size_t types_len[SIDES];
};

static int narrow(struct query *q, struct err *e);
static int find_leaves(struct query *q, struct err *e);

static struct wire_query about(const struct query *q, int64_t from, int64_t to)
{
    return (struct wire_query){ .tenant = q->tenants[0], .range = plan_range(from, to) };
}

/* The parts of a side are asked as numbers side * PARTS + i. */
static int ask_parts(struct query *q, struct stats *s, enum side side, struct err *e)
{
    const struct side_range *r = &s->side[side];
    int64_t days = (r->to - r->from) / DAY_MS;
    int64_t part = (days + PARTS - 1) / PARTS * DAY_MS;

    s->part_ms[side] = part;
    for (int64_t from = r->from, i = 0; from < r->to; from += part, i++) {
        struct wire_query wq = about(q, from, MIN(from + part, r->to));
        if (!wq.range.empty && query_ask_labels(q, (size_t)side * PARTS + (size_t)i, &wq,
                                                (struct wire_labels){ .kind = WIRE_TYPES }, e))
            return e->code;
    }
    return 0;
}

static int add_type(struct query *q, struct stats *s, enum side side, struct str type,
                    struct err *e)
{
    for (size_t i = 0; i < s->types_len[side]; i++)
        if (str_eq(s->types[side][i], type))
            return 0;
    if (s->types_len[side] == TYPES_MAX)
        return 0; /* no room for more types: the answer then has the day of the first push */
    struct str kept = arena_strdup(q->arena, type);
    if (!kept.ptr)
        return err_set(e, ERR_LIMIT, "the names of profile types do not fit");
    s->types[side][s->types_len[side]++] = kept;
    return 0;
}

/* Reads the replies of a side. *ret is the part to continue with, or PARTS if none has data. */
static int read_parts(struct query *q, struct stats *s, enum side side, size_t *ret, struct err *e)
{
    struct wire_label_lists l;

    *ret = PARTS;
    for (size_t k = 0; k < PARTS && (*ret == PARTS || side == NEWEST); k++) {
        size_t pos = 0;
        bool any = false;
        int n;
        while ((n = query_next_labels(q, (size_t)side * PARTS + k, &pos, &l, e)) > 0) {
            s->types_len[side] = any || !l.values_len ? s->types_len[side] : 0;
            any |= l.values_len > 0;
            for (size_t i = 0; i < l.values_len; i++)
                if (add_type(q, s, side, l.values[i], e))
                    return e->code;
        }
        if (n < 0)
            return e->code;
        if (any)
            *ret = k;
    }
    return 0;
}

static void put_stats(struct query *q, bool any, int64_t oldest, int64_t newest)
{
    struct msg_out o;

    query_msg(q, &o);
    msg_out_bool(&o, 1, "dataIngested", any);
    msg_out_i64(&o, 2, "oldestProfileTime", oldest);
    msg_out_i64(&o, 3, "newestProfileTime", newest);
    msg_out_end(&o);
}

static int ask_leaves(struct query *q, const struct stats *s, struct err *e)
{
    q->step = find_leaves;
    for (size_t side = 0; side < SIDES; side++) {
        struct wire_timeline tl = { .grid = { s->side[side].from + LEAF_MS - SLOT_MS, LEAF_MS,
                                              POINTS } };
        struct wire_query wq = about(q, s->side[side].from, s->side[side].to);
        for (size_t i = 0; i < s->types_len[side]; i++) {
            wq.profile_type = s->types[side][i];
            if (query_ask_timeline(q, side, &wq, &tl, e))
                return e->code;
        }
    }
    return 0;
}

static int narrow(struct query *q, struct err *e)
{
    struct stats *s = q->state;
    size_t at[SIDES];

    for (size_t side = 0; side < SIDES; side++)
        if (read_parts(q, s, (enum side)side, &at[side], e))
            return e->code;
    query_calls_reset(q);
    if (at[OLDEST] == PARTS || at[NEWEST] == PARTS) { /* the data may just have been deleted */
        put_stats(q, false, 0, 0);
        return query_out_end(q, e);
    }
    bool days = true;
    for (size_t side = 0; side < SIDES; side++) {
        struct side_range *r = &s->side[side];
        r->from += (int64_t)at[side] * s->part_ms[side];
        r->to = MIN(r->from + s->part_ms[side], r->to);
        days &= r->to - r->from <= DAY_MS;
    }
    if (days)
        return ask_leaves(q, s, e);
    q->step = narrow;
    for (size_t side = 0; side < SIDES; side++)
        if (ask_parts(q, s, (enum side)side, e))
            return e->code;
    return 0;
}

/* The first or last point with pushes. */
static int read_leaves(struct query *q, enum side side, uint32_t *ret, bool *ret_any, struct err *e)
{
    struct wire_timelines w;
    size_t pos = 0;
    int n;

    *ret_any = false;
    while ((n = query_next_timelines(q, side, &pos, POINTS, &w, e)) > 0)
        for (size_t i = 0; i < w.len; i++) {
            const struct wire_points *p = &w.series[i];
            uint32_t k = !p->len ? 0 : p->point[side == OLDEST ? 0 : p->len - 1];
            if (!p->len)
                continue;
            *ret = !*ret_any ? k : side == OLDEST ? MIN(*ret, k) : MAX(*ret, k);
            *ret_any = true;
        }
    return n < 0 ? e->code : 0;
}

static int find_leaves(struct query *q, struct err *e)
{
    const struct stats *s = q->state;
    /* Where the points of a day have expired only its edges are known. */
    int64_t at[SIDES] = { s->side[OLDEST].from, s->side[NEWEST].to - LEAF_MS };

    for (size_t side = 0; side < SIDES; side++) {
        uint32_t k;
        bool any;
        if (read_leaves(q, (enum side)side, &k, &any, e))
            return e->code;
        if (any)
            at[side] = s->side[side].from + (int64_t)k * LEAF_MS;
    }
    put_stats(q, true, at[OLDEST], at[NEWEST]);
    return query_out_end(q, e);
}

int api_profile_stats(struct query *q, struct err *e)
{
    struct stats *s = ARENA_NEW(q->arena, struct stats);
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock);
    struct v1_nothing m;

    CHECK(s);
    if (msg_read(q, &v1_nothing_desc, &m, e))
        return e->code;
    if (q->tenants_len != 1)
        return err_set(e, ERR_INPUT, "GetProfileStats is of one tenant, X-Scope-OrgID names %zu",
                       q->tenants_len);
    int64_t days = MAX(now + DAY_MS - SLOT_EPOCH_MS, 0) / DAY_MS + 1;
    for (size_t side = 0; side < SIDES; side++)
        s->side[side] = (struct side_range){ SLOT_EPOCH_MS, SLOT_EPOCH_MS + days * DAY_MS };
    q->state = s;
    q->step = narrow;
    for (size_t side = 0; side < SIDES; side++)
        if (ask_parts(q, s, (enum side)side, e))
            return e->code;
    return 0;
}

/* ---- AnalyzeQuery -----------------------------------------------------------------------------*/

enum { ASK_ESTIMATE };

/* `whole`: sizes that are those of whole services, which a key for some series does not learn. */
static void put_scope(struct query *q, const struct estimate_part *p, bool whole, struct msg_out *o)
{
    char name[64];
    int n = snprintf(name, sizeof(name), "%s %zu", route_moves(q->qr->route) ? "Shard" : "Ingester",
                     p->target);

    msg_out_obj(o, MSG_ITEM);
    msg_out_str(o, 1, "componentType", str_n(name, (size_t)n));
    msg_out_u64(o, 2, "componentCount", 1);
    msg_out_u64(o, 3, "blockCount", p->sum.shards);
    msg_out_u64(o, 4, "seriesCount", p->sum.series);
    msg_out_u64(o, 5, "profileCount", p->sum.writes);
    msg_out_u64(o, 6, "sampleCount", p->sum.samples);
    msg_out_u64(o, 7, "indexBytes", whole ? p->sum.index_bytes : 0);
    msg_out_u64(o, 8, "profileBytes", p->sum.bytes);
    msg_out_u64(o, 9, "symbolBytes", whole ? p->sum.dictionary_bytes : 0);
    msg_out_obj_end(o);
}

static int reply_estimate(struct query *q, struct err *e)
{
    bool whole = !scope_limited(q->identity, ROLE_READ, q->tenants, q->tenants_len);
    struct estimate x = { 0 };
    struct msg_out o;

    if (query_estimate(q, ASK_ESTIMATE, &x, e))
        return e->code;
    query_msg(q, &o);
    msg_out_list(&o, 1, "queryScopes");
    for (size_t i = 0; i < x.len; i++)
        put_scope(q, &x.at[i], whole, &o);
    msg_out_list_end(&o);
    msg_out_obj(&o, 2, "queryImpact");
    msg_out_u64(&o, 2, "totalBytesInTimeRange", x.sum.bytes);
    msg_out_u64(&o, 3, "totalQueriedSeries", x.sum.series);
    msg_out_obj_end(&o);
    msg_out_end(&o);
    return query_out_end(q, e);
}

int api_analyze_query(struct query *q, struct err *e)
{
    struct query_spec *spec = ARENA_NEW(q->arena, struct query_spec);
    struct v1_analyze m;
    struct msg_times t;
    struct err no_type;

    CHECK(spec);
    if (msg_read(q, &v1_analyze_desc, &m, e) || msg_times(q, m.start, m.end, false, &t, e))
        return e->code;
    /* With a profile type it is one query, without it is those of all types. */
    if (query_spec_render(m.query, false, q->arena, spec, &no_type) &&
        query_spec_labels(m.query, false, q->arena, spec, e))
        return e->code;
    struct wire_query wq = { .profile_type = spec->profile_type,
                             .selectors = spec->selectors,
                             .selectors_len = spec->len,
                             .range = t.range };
    q->step = reply_estimate;
    for (size_t i = 0; i < q->tenants_len && !t.range.empty; i++) {
        wq.tenant = q->tenants[i];
        if (query_ask_estimate(q, ASK_ESTIMATE, &wq, true, e))
            return e->code;
    }
    return 0;
}
