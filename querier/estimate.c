/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/estimate.h"

#include "common/base/size.h"

static void add(struct wire_estimate *to, const struct wire_estimate *from)
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
        add(&at[i].sum, &w);
        at[i].sum.shards = MAX(at[i].sum.shards, w.shards);
        add(&ret->sum, &w);
    }
    return n < 0 ? e->code : 0;
}
