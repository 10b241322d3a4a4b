/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_estimate: the estimates of all shards added up.
 */
#include "ingester/read/rpc_estimate.h"

#include "common/base/size.h"
#include "common/store/query/estimate.h"
#include "ingester/base/unpack.h"
#include "proto/query.pb-c.h"

int estimate_decode(struct str payload, struct arena *a, struct read_msg *m, struct err *e)
{
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__EstimateRequest *in = embertree__estimate_request__unpack(
        &allocator, payload.len, (const uint8_t *)(const void *)payload.ptr);

    if (!in)
        return unpack_failed("EstimateRequest", payload, a, e);
    m->detail = in->detail;
    m->query.profile_type = unpack_str(in->profile_type);
    m->query.start_ms = in->start_ms;
    m->query.end_ms = in->end_ms;
    if (read_take_head(READ_HEAD(in), m, e) || read_check_times(in->start_ms, in->end_ms, e))
        return e->code;
    return read_take_matchers(in->matchers, in->n_matchers, a, &m->selector, e);
}

static int estimate_all(const struct read_msg *m, const struct read_source *src, bool detail,
                        struct store_estimate *sum, struct err *e)
{
    struct store_estimate_query q = { .q = m->query, .detail = detail };
    int code = 0;

    *sum = (struct store_estimate){ 0 };
    q.q.cancel = src->cancel;
    for (size_t i = 0; i < src->len && !code; i++) {
        struct store_view *v = store_view_get(src->stores[i]);
        struct store_estimate one;

        code = store_estimate(v, &q, &one, e);
        store_view_put(v);
        if (!code)
            store_estimate_add(sum, &one);
    }
    return code;
}

int estimate_run(const struct read_msg *m, const struct read_source *src, struct buf *out,
                 uint64_t *ret_rows, struct err *e)
{
    Embertree__EstimateReply r = EMBERTREE__ESTIMATE_REPLY__INIT;
    struct store_estimate s;

    if (estimate_all(m, src, m->detail, &s, e))
        return e->code;
    r.services = s.services;
    r.units = s.units;
    r.nodes = s.nodes;
    r.rows = s.rows;
    r.bytes = s.bytes;
    r.sampled = s.sampled;
    r.more = s.more;
    r.series = s.series;
    r.writes = s.writes;
    r.index_bytes = s.index_bytes;
    r.dictionary_bytes = s.dictionary_bytes;
    r.shards = (uint32_t)src->len;
    r.samples = s.samples;
    *ret_rows = 0;
    uint8_t *p = reply_room(out, embertree__estimate_reply__get_packed_size(&r), e);
    if (!p)
        return e->code;
    out->len += embertree__estimate_reply__pack(&r, p);
    return 0;
}

int estimate_check(const struct read_msg *m, const struct read_source *src, struct err *e)
{
    struct store_estimate s;

    if (m->cost_max == 0)
        return 0;
    if (estimate_all(m, src, false, &s, e))
        return e->code;
    if (s.bytes <= m->cost_max)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "the query would read about %" PRIu64 " MiB in %" PRIu64 " rows of %" PRIu64
                   " series or roll-ups, %" PRIu64
                   " MiB are allowed (querier.query_read_bytes_max): ask for a shorter range or "
                   "fewer series",
                   s.bytes / MIB, s.rows, s.units, m->cost_max / MIB);
}
