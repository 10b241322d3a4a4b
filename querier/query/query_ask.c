/* SPDX-License-Identifier: Apache-2.0
 *
 * query_ask.c: what steps use: memory, questions to ingesters, their replies. Pool threads; a query
 * has one step at a time.
 */
#include "querier/query/query.h"

#include "common/base/size.h"

#define REQUEST_BYTES_MAX (256 * KIB)

/* ---- memory -----------------------------------------------------------------------------------*/

size_t query_left(const struct query *q)
{
    return q->qr->query_bytes_max - q->held;
}

NODISCARD int query_take(struct query *q, size_t n, struct err *e)
{
    if (n > query_left(q))
        return err_set(e, ERR_LIMIT,
                       "this query needs over %zu MiB of memory (querier.query_bytes_max): narrow "
                       "its labels or its time range",
                       q->qr->query_bytes_max / MIB);
    if (tenant_queue_bytes_take(&q->turn, n, e))
        return e->code;
    if (!budget_reserve(&q->qr->bytes, n)) {
        tenant_queue_bytes_give(&q->turn, n);
        return err_set(e, ERR_BUSY, "running queries use all of their %zu MiB of memory",
                       q->qr->bytes.max / MIB);
    }
    q->held += n;
    return 0;
}

void query_give(struct query *q, size_t n)
{
    CHECK(n <= q->held);
    tenant_queue_bytes_give(&q->turn, n);
    budget_release(&q->qr->bytes, n);
    q->held -= n;
}

/* ---- questions --------------------------------------------------------------------------------*/

/* Which targets to ask: the places of the service, or of the tenant, or all. *ret_all: all. */
static int targets_of(const struct query *q, const struct scoped_matchers *of,
                      struct plan_targets *ret, bool *ret_all, struct err *e)
{
    const struct route *route = q->qr->route;
    struct str service, tenant = scoped_matchers_tenant(of);
    uint32_t *places;
    size_t n;

    *ret_all = false;
    if (scoped_matchers_service(of, &service)) {
        uint32_t found[MAP_PLACES_MAX];

        n = map_places(q->map, tenant, service, found, ARRAY_LEN(found));
        places = ARENA_ARRAY(q->arena, uint32_t, n);
        if (places)
            memcpy(places, found, n * sizeof(*places));
    } else {
        n = map_tenant_places(q->map, tenant, NULL, 0);
        *ret = q->targets;
        *ret_all = n == 0;
        if (!n)
            return 0;
        places = ARENA_ARRAY(q->arena, uint32_t, n);
        if (places)
            n = map_tenant_places(q->map, tenant, places, n);
    }
    if (!places)
        return err_set(e, ERR_LIMIT, "no memory in the query's arena for %zu places", n);
    return plan_targets_some(places, n, route_targets(route), route_moves(route), q->arena, ret, e);
}

/* What differs between the kinds of questions. */
struct question {
    enum rpc_method method;
    const struct wire_merge *merge;
    const struct wire_timeline *timeline;
    const struct wire_functions *functions;
    const struct wire_labels *labels;
    const struct wire_exemplars *exemplars;
    bool detail;   /* of RPC_ESTIMATE */
    bool optional; /* what takes too much is not answered */
};

static int put_question(const struct question *what, const struct wire_query *wq,
                        const struct wire_to *to, struct arena *a, struct buf *out, struct err *e)
{
    if (what->merge)
        return wire_put_merge(wq, what->merge, to, a, out, e);
    if (what->timeline)
        return wire_put_timeline(wq, what->timeline, to, a, out, e);
    if (what->functions)
        return wire_put_functions(wq, what->functions, to, a, out, e);
    if (what->exemplars)
        return wire_put_exemplars(wq, what->exemplars, to, a, out, e);
    if (what->method == RPC_ESTIMATE)
        return wire_put_estimate(wq, what->detail, to, a, out, e);
    return wire_put_labels(wq, what->labels, to, a, out, e);
}

/* One call: its message goes to q->calls, also where it is not whole. */
static int put_call(struct query *q, size_t number, const struct question *what,
                    const struct wire_query *wq, const struct wire_to *to, struct err *e)
{
    struct fanout_call c = { .ask = number,
                             .ingester = to->target->ingester,
                             .method = what->method,
                             .optional = what->optional };
    struct arena_mark mark = arena_mark(q->arena);

    buf_init(&c.payload, REQUEST_BYTES_MAX);
    buf_init(&c.reply, 0);
    int code = put_question(what, wq, to, q->arena, &c.payload, e);
    vec_push(&q->calls, c);
    arena_rewind(q->arena, mark);
    return code;
}

static int ask(struct query *q, size_t number, const struct wire_query *wq,
               const struct question *what, struct err *e)
{
    struct scoped_ask scope = { q->identity, ROLE_READ, wq->tenant, wq->selectors,
                                wq->selectors_len };
    struct arena_mark mark = arena_mark(q->arena);
    const struct scoped_matchers *of;
    struct plan_targets targets;
    struct wire_query asked = *wq;
    bool all;

    if (scoped_matchers_make(&scope, q->arena, &of, e) || targets_of(q, of, &targets, &all, e))
        return e->code;
    asked.map_version = all ? 0 : q->map->version;
    asked.leaf_items = targets.len > 1 || q->tenants_len > 1;
    if (q->calls.len + targets.len > q->calls_max)
        return err_set(e, ERR_LIMIT,
                       "the request asks for too much at once: over %zu calls to ingesters",
                       q->calls_max);
    for (size_t i = 0; i < targets.len; i++)
        if (put_call(q, number, what, &asked, &(struct wire_to){ of, &targets.ptr[i] }, e))
            return e->code;
    arena_rewind(q->arena, mark); /* the messages have all of it */
    return 0;
}

NODISCARD int query_ask_merge(struct query *q, size_t number, const struct wire_query *wq,
                              const struct str *call_site, size_t call_site_len, struct err *e)
{
    /* A reply grows by about eight on its way to a flame graph. */
    struct wire_merge m = { .call_site = call_site,
                            .call_site_len = call_site_len,
                            .bytes_max = q->qr->query_bytes_max / 10,
                            .cost_max = tenant_queue_limits_of(&q->turn)->read_bytes };

    return ask(q, number, wq, &(struct question){ .method = RPC_MERGE, .merge = &m }, e);
}

NODISCARD int query_ask_timeline(struct query *q, size_t number, const struct wire_query *wq,
                                 const struct wire_timeline *tl, struct err *e)
{
    return ask(q, number, wq, &(struct question){ .method = RPC_TIMELINE, .timeline = tl }, e);
}

NODISCARD int query_ask_timeline_if(struct query *q, size_t number, const struct wire_query *wq,
                                    const struct wire_timeline *tl, struct err *e)
{
    struct question what = { .method = RPC_TIMELINE, .timeline = tl, .optional = true };

    return ask(q, number, wq, &what, e);
}

NODISCARD int query_ask_functions(struct query *q, size_t number, const struct wire_query *wq,
                                  struct wire_functions f, struct err *e)
{
    f.bytes_max = q->qr->query_bytes_max / 10;
    f.cost_max = tenant_queue_limits_of(&q->turn)->read_bytes;
    return ask(q, number, wq, &(struct question){ .method = RPC_FUNCTIONS, .functions = &f }, e);
}

NODISCARD int query_ask_labels(struct query *q, size_t number, const struct wire_query *wq,
                               struct wire_labels l, struct err *e)
{
    l.limit = (uint32_t)MIN(q->qr->conf->labels_max, UINT32_MAX);
    return ask(q, number, wq, &(struct question){ .method = RPC_LABELS, .labels = &l }, e);
}

NODISCARD int query_ask_exemplars(struct query *q, size_t number, const struct wire_query *wq,
                                  struct wire_exemplars x, struct err *e)
{
    x.bytes_max = q->qr->query_bytes_max / 10;
    return ask(q, number, wq, &(struct question){ .method = RPC_EXEMPLARS, .exemplars = &x }, e);
}

NODISCARD int query_ask_estimate(struct query *q, size_t number, const struct wire_query *wq,
                                 bool detail, struct err *e)
{
    return ask(q, number, wq, &(struct question){ .method = RPC_ESTIMATE, .detail = detail }, e);
}

void query_calls_reset(struct query *q)
{
    vec_for (i, &q->calls)
        query_give(q, q->calls.ptr[i].reply.len);
    fanout_calls_deinit(q->calls.ptr, q->calls.len);
    q->calls.len = 0;
}

struct arena *query_data(struct query *q)
{
    if (!q->data)
        q->data = arena_new(q->qr->query_bytes_max);
    return q->data;
}

void query_data_reset(struct query *q)
{
    if (!q->data)
        return;
    query_give(q, MIN(arena_used(q->data), q->held));
    arena_reset(q->data);
}

/* ---- replies ----------------------------------------------------------------------------------*/

/* The next answered call of `ask`, or NULL. */
static struct fanout_call *next_call(struct query *q, size_t ask, size_t *pos)
{
    while (*pos < q->calls.len) {
        struct fanout_call *c = &q->calls.ptr[(*pos)++];
        if (c->ask == ask && !c->err.code)
            return c;
    }
    return NULL;
}

/* A reply being decoded. */
struct reply {
    struct fanout_call *call;
    size_t cost;   /* reserved for decoding */
    size_t before; /* used of the arena */
};

/* 1 and the next reply with the memory to decode it reserved; 0: none is left; -1: error. */
static int reply_begin(struct query *q, size_t ask, size_t *pos, size_t (*cost_of)(size_t),
                       struct reply *ret, struct err *e)
{
    struct fanout_call *c = next_call(q, ask, pos);

    if (!c)
        return 0;
    size_t cost = cost_of(c->reply.len);
    if (query_take(q, cost, e)) {
        (void)err_wrap(e, "reply of ingester %zu", c->ingester);
        return -1;
    }
    *ret = (struct reply){ c, cost, arena_used(query_data(q)) };
    return 1;
}

/* Frees the reply's bytes and sets right what was reserved. 1 or -1. */
static int reply_end(struct query *q, const struct reply *r, int code, struct err *e)
{
    size_t used = arena_used(q->data) - r->before;

    query_give(q, r->call->reply.len);
    buf_deinit(&r->call->reply);
    buf_init(&r->call->reply, 0);
    if (!code && used > r->cost)
        code = query_take(q, used - r->cost, e);
    else if (used < r->cost)
        query_give(q, r->cost - used);
    if (code)
        (void)err_wrap(e, "reply of ingester %zu", r->call->ingester);
    return code ? -1 : 1;
}

int query_next_merged(struct query *q, size_t ask, size_t *pos, struct wire_merged *ret,
                      struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_merged, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_merged(buf_str(&r.call->reply), q->data, ret, e), e);
}

int query_next_timelines(struct query *q, size_t ask, size_t *pos, uint32_t points,
                         struct wire_timelines *ret, struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_lists, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_timelines(buf_str(&r.call->reply), points, q->data, ret, e),
                     e);
}

int query_next_functions(struct query *q, size_t ask, size_t *pos, uint32_t points,
                         struct wire_function_list *ret, struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_lists, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_functions(buf_str(&r.call->reply), points, q->data, ret, e),
                     e);
}

int query_next_labels(struct query *q, size_t ask, size_t *pos, struct wire_label_lists *ret,
                      struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_lists, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_labels(buf_str(&r.call->reply), q->data, ret, e), e);
}

int query_next_exemplars(struct query *q, size_t ask, size_t *pos, struct wire_exm_list *ret,
                         struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_lists, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_exemplars(buf_str(&r.call->reply), q->data, ret, e), e);
}

int query_next_estimate(struct query *q, size_t ask, size_t *pos, struct wire_estimate *ret,
                        struct err *e)
{
    struct reply r;
    int n = reply_begin(q, ask, pos, wire_cost_lists, &r, e);

    if (n <= 0)
        return n;
    return reply_end(q, &r, wire_get_estimate(buf_str(&r.call->reply), q->data, ret, e), e);
}

/* ---- the reply --------------------------------------------------------------------------------*/

void query_json(struct query *q, struct json *j)
{
    buf_init(&q->out, query_left(q));
    json_init(j, &q->out);
}

void query_msg(struct query *q, struct msg_out *o)
{
    buf_init(&q->out, query_left(q));
    msg_out_init(o, q->call.codec != SVC_PROTO, &q->out);
}

NODISCARD int query_out_end(struct query *q, struct err *e)
{
    /* gRPC's frame is a copy. */
    bool framed = q->route->connect && q->call.protocol != SVC_CONNECT;

    if (!buf_ok(&q->out))
        return err_set(e, ERR_LIMIT,
                       "the answer is over %zu MiB (querier.query_bytes_max): ask for fewer nodes "
                       "or points",
                       q->out.max / MIB);
    return query_take(q, q->out.len * (framed ? 2 : 1), e);
}

/* ---- estimates --------------------------------------------------------------------------------*/

static void add_estimate(struct wire_estimate *to, const struct wire_estimate *from)
{
    to->services = u64_add_sat(to->services, from->services);
    to->units = u64_add_sat(to->units, from->units);
    to->nodes = u64_add_sat(to->nodes, from->nodes);
    to->rows = u64_add_sat(to->rows, from->rows);
    to->bytes = u64_add_sat(to->bytes, from->bytes);
    to->sampled |= from->sampled;
    to->more |= from->more;
    to->series = u64_add_sat(to->series, from->series);
    to->writes = u64_add_sat(to->writes, from->writes);
    to->samples = u64_add_sat(to->samples, from->samples);
    to->index_bytes = u64_add_sat(to->index_bytes, from->index_bytes);
    to->dictionary_bytes = u64_add_sat(to->dictionary_bytes, from->dictionary_bytes);
}

NODISCARD int query_estimate(struct query *q, size_t ask, struct estimate *ret, struct err *e)
{
    struct estimate_part *at = ARENA_ARRAY(q->arena, struct estimate_part, q->calls.len + 1);
    struct wire_estimate w;
    size_t pos = 0, i;
    int n;

    *ret = (struct estimate){ .at = at };
    if (!at)
        return err_set(e, ERR_LIMIT, "the request needs over %zu bytes", arena_limit(q->arena));
    while ((n = query_next_estimate(q, ask, &pos, &w, e)) > 0) {
        size_t target = q->calls.ptr[pos - 1].ingester;
        for (i = 0; i < ret->len && at[i].target != target;)
            i++;
        if (i == ret->len)
            at[ret->len++] = (struct estimate_part){ .target = target };
        add_estimate(&at[i].sum, &w);
        at[i].sum.shards = MAX(at[i].sum.shards, w.shards);
        add_estimate(&ret->sum, &w);
    }
    return n < 0 ? e->code : 0;
}
