/* SPDX-License-Identifier: Apache-2.0
 *
 * read_msg: requests of queries become what the engine takes; results become replies.
 *
 *   payload ──unpack (arena)──> message ──check──> struct read_msg ──read_run──> *_reply_pack
 *
 * Every bound is checked before memory is taken for it: shards, matchers, points and times; the
 * arena bounds the rest. All that a message holds is in the arena, except compiled regular
 * expressions, which read_msg_deinit frees, also after an error. Replies are packed into a buffer
 * whose limit is that of an rpc message: ERR_LIMIT, never a cut reply. Any thread; no state.
 */
#include "ingester/read/read_msg.h"

#include "common/model/regex.h"
#include "common/sys/pool.h"
#include "ingester/base/unpack.h"
#include "ingester/read/ledger_run.h"
#include "ingester/read/rpc_estimate.h"
#include "ingester/read/rpc_exemplars.h"
#include "ingester/read/rpc_space.h"
#include "proto/query.pb-c.h"

#define MATCHERS_MAX 256

static int arena_full(const struct arena *a, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the query needs over %zu bytes", arena_limit(a));
}

/* ---- requests ------------------------------------------------------------------------------- */

int read_take_matchers(Embertree__Matcher *const *in, size_t n, struct arena *a,
                       struct selector *ret, struct err *e)
{
    if (n > MATCHERS_MAX)
        return err_set(e, ERR_LIMIT, "%zu matchers, at most %d are allowed", n, MATCHERS_MAX);
    ret->matchers = ARENA_ARRAY(a, struct matcher, n);
    if (!ret->matchers)
        return arena_full(a, e);
    for (size_t i = 0; i < n; i++) {
        if (in[i]->op > MATCH_NRE)
            return err_set(e, ERR_INPUT, "matcher %zu has the operator %" PRIu32, i, in[i]->op);
        if (in[i]->name.len == 0)
            return err_set(e, ERR_INPUT, "matcher %zu has no name", i);
        ret->matchers[i] = (struct matcher){
            .op = (enum match_op)in[i]->op,
            .name = unpack_str(in[i]->name),
            .value = unpack_str(in[i]->value),
            .unanchored = in[i]->unanchored,
        };
    }
    ret->len = n;
    uint64_t *steps_left = ARENA_NEW(a, uint64_t);
    if (!steps_left)
        return arena_full(a, e);
    *steps_left = REGEX_QUERY_STEPS;
    if (selector_compile(ret, e))
        return e->code;
    selector_limit(ret, steps_left);
    return 0;
}

int read_take_strs(const ProtobufCBinaryData *in, size_t n, struct arena *a, const struct str **ret,
                   size_t *ret_len, struct err *e)
{
    struct str *out = ARENA_ARRAY(a, struct str, n);

    if (!out)
        return arena_full(a, e);
    for (size_t i = 0; i < n; i++)
        out[i] = unpack_str(in[i]);
    *ret = out;
    *ret_len = n;
    return 0;
}

int read_take_head(const struct read_head *h, struct read_msg *m, struct err *e)
{
    if (h->shards_len > READ_SHARDS_MAX)
        return err_set(e, ERR_LIMIT, "%zu shards named", h->shards_len);
    m->shards = h->shards;
    m->shards_len = h->shards_len;
    m->map_version = h->map_version;
    m->query.tenant = unpack_str(h->tenant);
    m->query.selector = &m->selector;
    return 0;
}

int read_check_times(int64_t start_ms, int64_t end_ms, struct err *e)
{
    if (start_ms > end_ms)
        return err_set(e, ERR_INPUT, "start %" PRId64 " is after end %" PRId64, start_ms, end_ms);
    if (start_ms < -READ_TIME_MS_MAX || end_ms > READ_TIME_MS_MAX)
        return err_set(e, ERR_INPUT, "times %" PRId64 " to %" PRId64 " are absurd", start_ms,
                       end_ms);
    return 0;
}

static int take_merge(const Embertree__MergeRequest *in, struct arena *a, struct read_msg *m,
                      struct err *e)
{
    int code = read_take_head(READ_HEAD(in), m, e);

    if (!code)
        code = read_check_times(in->start_ms, in->end_ms, e);
    if (!code)
        code =
            read_take_strs(in->call_site, in->n_call_site, a, &m->call_site, &m->call_site_len, e);
    if (!code)
        code = read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e);
    m->bytes_max = in->bytes_max;
    m->cost_max = in->cost_max;
    m->query.profile_type = unpack_str(in->profile_type);
    m->query.start_ms = in->start_ms;
    m->query.end_ms = in->end_ms;
    return code;
}

int read_take_grid(int64_t origin_ms, int64_t step_ms, uint32_t points, struct read_msg *m,
                   struct err *e)
{
    if (points == 0 || points > READ_POINTS_MAX)
        return err_set(e, ERR_INPUT, "%" PRIu32 " points, 1 to %d are allowed", points,
                       READ_POINTS_MAX);
    if (step_ms <= 0 || step_ms > READ_TIME_MS_MAX / points || origin_ms < -READ_TIME_MS_MAX ||
        origin_ms > READ_TIME_MS_MAX)
        return err_set(e, ERR_INPUT, "steps of %" PRId64 " ms from %" PRId64 " are absurd", step_ms,
                       origin_ms);
    m->origin_ms = origin_ms;
    m->step_ms = step_ms;
    m->points = points;
    m->query.start_ms = origin_ms - step_ms;
    m->query.end_ms = origin_ms + step_ms * points;
    return 0;
}

static int take_timeline(const Embertree__TimelineRequest *in, struct arena *a, struct read_msg *m,
                         struct err *e)
{
    int code = read_take_head(READ_HEAD(in), m, e);

    if (!code)
        code = read_take_grid(in->origin_ms, in->step_ms, in->points, m, e);
    if (!code)
        code = read_take_strs(in->group_by, in->n_group_by, a, &m->group_by, &m->group_by_len, e);
    if (!code)
        code = read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e);
    m->leaf_items = in->leaf_items;
    m->query.spread = in->spread;
    m->query.profile_type = unpack_str(in->profile_type);
    return code;
}

static int take_functions(const Embertree__FunctionsRequest *in, struct arena *a,
                          struct read_msg *m, struct err *e)
{
    int code = read_take_head(READ_HEAD(in), m, e);

    if (!code)
        code = read_take_grid(in->origin_ms, in->step_ms, in->points, m, e);
    if (!code)
        code = read_take_strs(in->names, in->n_names, a, &m->names, &m->names_len, e);
    if (!code)
        code = read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e);
    m->bytes_max = in->bytes_max;
    m->cost_max = in->cost_max;
    m->leaf_items = in->leaf_items;
    m->query.profile_type = unpack_str(in->profile_type);
    return code;
}

static int take_labels(const Embertree__LabelsRequest *in, struct arena *a, struct read_msg *m,
                       struct err *e)
{
    int code = read_check_times(in->start_ms, in->end_ms, e);

    if (!code)
        code = read_take_head(READ_HEAD(in), m, e);
    if (code)
        return code;
    if (in->kind > STORE_TYPES)
        return err_set(e, ERR_INPUT, "unknown kind %" PRIu32, in->kind);
    if (in->kind == STORE_VALUES && in->name.len == 0)
        return err_set(e, ERR_INPUT, "values of which label?");
    m->labels = (struct store_labels_query){
        .tenant = m->query.tenant,
        .kind = (enum store_labels_kind)in->kind,
        .name = unpack_str(in->name),
        .selector = &m->selector,
        .start_ms = in->start_ms,
        .end_ms = in->end_ms,
        .limit = in->limit,
    };
    code = read_take_strs(in->names, in->n_names, a, &m->labels.names, &m->labels.names_len, e);
    return code ? code : read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e);
}

int read_msg_decode(enum rpc_method method, struct str payload, struct arena *a,
                    struct read_msg *ret, struct err *e)
{
    const uint8_t *p = (const uint8_t *)(const void *)payload.ptr;
    ProtobufCAllocator allocator = unpack_allocator(a);
    int code;

    *ret = (struct read_msg){ .method = method };
    if (method == RPC_MERGE) {
        const Embertree__MergeRequest *in =
            embertree__merge_request__unpack(&allocator, payload.len, p);

        code = in ? take_merge(in, a, ret, e) : unpack_failed("MergeRequest", payload, a, e);
    } else if (method == RPC_TIMELINE) {
        const Embertree__TimelineRequest *in =
            embertree__timeline_request__unpack(&allocator, payload.len, p);

        code = in ? take_timeline(in, a, ret, e) : unpack_failed("TimelineRequest", payload, a, e);
    } else if (method == RPC_FUNCTIONS) {
        const Embertree__FunctionsRequest *in =
            embertree__functions_request__unpack(&allocator, payload.len, p);

        code =
            in ? take_functions(in, a, ret, e) : unpack_failed("FunctionsRequest", payload, a, e);
    } else if (method == RPC_EXEMPLARS) {
        code = exemplars_decode(payload, a, ret, e);
    } else if (method == RPC_ESTIMATE) {
        code = estimate_decode(payload, a, ret, e);
    } else if (method == RPC_SPACE) {
        return space_decode(payload, a, ret, e); /* no tenant: of all */
    } else if (method == RPC_LEDGER) {
        return ledger_decode(payload, a, ret, e); /* the same */
    } else {
        const Embertree__LabelsRequest *in =
            embertree__labels_request__unpack(&allocator, payload.len, p);

        CHECK(method == RPC_LABELS);
        code = in ? take_labels(in, a, ret, e) : unpack_failed("LabelsRequest", payload, a, e);
    }
    if (!code && ret->query.tenant.len == 0)
        code = err_set(e, ERR_INPUT, "no tenant");
    return code;
}

void read_msg_deinit(struct read_msg *m)
{
    selector_deinit(&m->selector);
}

/* ---- replies -------------------------------------------------------------------------------- */

/* Room for a packed message, or NULL with ERR_LIMIT. */
uint8_t *reply_room(struct buf *out, size_t size, struct err *e)
{
    char *p = buf_room(out, size);

    if (!p)
        (void)err_set(e, ERR_LIMIT,
                      "the answer takes %zu bytes, at most %zu may be sent; ask for a shorter "
                      "time or fewer series",
                      size, out->max);
    return (uint8_t *)(void *)p;
}

int merge_reply_pack(const struct store_merge *m, struct buf *out, struct err *e)
{
    Embertree__MergeReply reply = EMBERTREE__MERGE_REPLY__INIT;
    Embertree__Stacks stacks;
    struct stacks_view view = stacks_view(m->stacks);
    uint8_t *p;

    pack_stacks(&view, &stacks);
    reply.stacks = &stacks;
    reply.node = m->nodes.ptr;
    reply.n_node = m->nodes.len;
    reply.value = m->values.ptr;
    reply.n_value = m->values.len;
    reply.total = m->total;
    reply.start_ms = m->start_ms;
    reply.end_ms = m->end_ms;
    reply.series = m->series;
    reply.rows = m->rows;
    reply.gauge = m->gauge;
    reply.leaf = m->leaves.ptr;
    reply.n_leaf = m->leaves.len;
    reply.saturated = m->saturated;
    p = reply_room(out, embertree__merge_reply__get_packed_size(&reply), e);
    if (!p)
        return e->code;
    out->len += embertree__merge_reply__pack(&reply, p);
    return 0;
}

Embertree__LabelPair **pack_labels(const struct labels *l, struct arena *a)
{
    Embertree__LabelPair **list = ARENA_ARRAY(a, Embertree__LabelPair *, l->len);
    Embertree__LabelPair *pairs = ARENA_ARRAY(a, Embertree__LabelPair, l->len);

    if (!list || !pairs)
        return NULL;
    for (size_t i = 0; i < l->len; i++) {
        embertree__label_pair__init(&pairs[i]);
        pairs[i].name = pack_str(l->ptr[i].name);
        pairs[i].value = pack_str(l->ptr[i].value);
        list[i] = &pairs[i];
    }
    return list;
}

int timeline_reply_pack(const struct store_timeline *t, bool leaf_items, struct arena *a,
                        struct buf *out, struct err *e)
{
    Embertree__TimelineReply reply = EMBERTREE__TIMELINE_REPLY__INIT;
    Embertree__TimelineSeries *series = ARENA_ARRAY(a, Embertree__TimelineSeries, t->series.len);
    uint8_t *p;

    reply.series = ARENA_ARRAY(a, Embertree__TimelineSeries *, t->series.len);
    reply.gauge = t->gauge;
    reply.start_ms = t->start_ms;
    reply.end_ms = t->end_ms;
    reply.rows = t->rows;
    if (!series || !reply.series)
        return arena_full(a, e);
    vec_for (i, &t->series) {
        const struct store_points *from = &t->series.ptr[i];
        Embertree__TimelineSeries *to = &series[i];

        pool_slice_step(i);
        embertree__timeline_series__init(to);
        to->n_labels = from->labels.len;
        to->labels = pack_labels(&from->labels, a);
        if (!to->labels)
            return arena_full(a, e);
        to->point = from->point.ptr;
        to->n_point = from->point.len;
        to->value = from->value.ptr;
        to->n_value = from->value.len;
        to->writes = from->writes.ptr;
        to->n_writes = from->writes.len;
        to->leaves = from->leaves.ptr;
        to->n_leaves = from->leaves.len;
        to->leaf_items = from->items.ptr;
        to->n_leaf_items = leaf_items ? from->items.len : 0;
        reply.series[reply.n_series++] = to;
    }
    p = reply_room(out, embertree__timeline_reply__get_packed_size(&reply), e);
    if (!p)
        return e->code;
    out->len += embertree__timeline_reply__pack(&reply, p);
    return 0;
}

int functions_reply_pack(const struct store_functions *f, bool leaf_items, struct arena *a,
                         struct buf *out, struct err *e)
{
    Embertree__FunctionsReply reply = EMBERTREE__FUNCTIONS_REPLY__INIT;
    Embertree__FunctionSeries *series = ARENA_ARRAY(a, Embertree__FunctionSeries, f->at.len);
    uint8_t *p;

    reply.functions = ARENA_ARRAY(a, Embertree__FunctionSeries *, f->at.len);
    if (!series || !reply.functions)
        return arena_full(a, e);
    vec_for (i, &f->at) {
        const struct store_function *from = &f->at.ptr[i];
        Embertree__FunctionSeries *to = &series[i];

        embertree__function_series__init(to);
        to->name = pack_str(from->name);
        to->point = from->point.ptr;
        to->n_point = from->point.len;
        to->self = from->self.ptr;
        to->n_self = from->self.len;
        to->total = from->total.ptr;
        to->n_total = from->total.len;
        reply.functions[reply.n_functions++] = to;
    }
    reply.all = f->all.ptr;
    reply.n_all = f->all.len;
    reply.leaves = f->leaves.ptr;
    reply.n_leaves = f->leaves.len;
    reply.leaf_items = f->items.ptr;
    reply.n_leaf_items = leaf_items ? f->items.len : 0;
    reply.gauge = f->gauge;
    reply.start_ms = f->start_ms;
    reply.end_ms = f->end_ms;
    reply.rows = f->rows;
    reply.saturated = f->saturated;
    p = reply_room(out, embertree__functions_reply__get_packed_size(&reply), e);
    if (!p)
        return e->code;
    out->len += embertree__functions_reply__pack(&reply, p);
    return 0;
}

int labels_reply_pack(const struct store_labels *l, struct arena *a, struct buf *out, struct err *e)
{
    Embertree__LabelsReply reply = EMBERTREE__LABELS_REPLY__INIT;
    Embertree__LabelSet *sets = ARENA_ARRAY(a, Embertree__LabelSet, l->sets.len);
    uint8_t *p;

    reply.values = ARENA_ARRAY(a, ProtobufCBinaryData, l->values.len);
    reply.sets = ARENA_ARRAY(a, Embertree__LabelSet *, l->sets.len);
    reply.truncated = l->truncated;
    if (!sets || !reply.values || !reply.sets)
        return arena_full(a, e);
    vec_for (i, &l->values)
        reply.values[reply.n_values++] = pack_str(l->values.ptr[i]);
    vec_for (i, &l->sets) {
        pool_slice_step(i);
        embertree__label_set__init(&sets[i]);
        sets[i].n_labels = l->sets.ptr[i].len;
        sets[i].labels = pack_labels(&l->sets.ptr[i], a);
        if (!sets[i].labels)
            return arena_full(a, e);
        reply.sets[reply.n_sets++] = &sets[i];
    }
    p = reply_room(out, embertree__labels_reply__get_packed_size(&reply), e);
    if (!p)
        return e->code;
    out->len += embertree__labels_reply__pack(&reply, p);
    return 0;
}
