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
    to->index_bytes = u64_add_sat(to->index_bytes, from->index_bytes);
    to->dictionary_bytes = u64_add_sat(to->dictionary_bytes, from->dictionary_bytes);
}

NODISCARD int query_estimate(struct query *q, size_t ask, struct estimate *ret, struct err *e)
{
    struct wire_estimate w;
    size_t pos = 0;
    int n;

    while ((n = query_next_estimate(q, ask, &pos, &w, e)) > 0) {
        add(&ret->sum, &w);
        ret->ingesters++;
        ret->shards += w.shards;
    }
    return n < 0 ? e->code : 0;
}
