/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_encode: vectors of a request in ids of the dictionary. In order of the ids by stage_sort.c
 * where that is made, else by sorting the pairs.
 */
#include "common/store/write/stage_encode.h"

#include "common/store/codec/fp.h"
#include "common/store/codec/vec.h"
#include "common/store/state/store_impl.h"
#include "common/store/write/stage_scratch.h"

static void encode(const struct dict *d, struct vec_meta meta, const uint32_t *ids,
                   const uint64_t *values, size_t n, struct buf *out)
{
    struct vec_part part = { d->id.epoch, ids, values, n };

    meta.fp = fp_vector(dict_node_hashes(d), ids, values, n);
    CHECK(vec_encode(&part, n ? 1 : 0, &meta, out));
}

/* The pairs in s->sum as a row; *saturated: how many sums had before they were added. */
static void encode_sum(struct store *s, const struct dict *d, uint64_t writes, uint64_t saturated,
                       struct buf *out)
{
    struct vec_meta meta = { .writes = writes };

    sum_end(&s->sum);
    meta.saturated = s->sum.saturated != saturated;
    encode(d, meta, s->sum.ids.ptr, s->sum.sums.ptr, s->sum.ids.len, out);
}

void stage_encode(struct store *s, const struct dict *d, const uint32_t *nodes,
                  const uint64_t *values, size_t len, struct buf *out)
{
    const uint32_t *map = s->scratch.node_map.ptr;
    size_t n = stage_sort_gather(&s->stage->order, nodes, values, len);

    if (n) {
        encode(d, (struct vec_meta){ .writes = 1 }, s->stage->order.ids, s->stage->order.values, n,
               out);
        return;
    }
    sum_begin(&s->sum);
    for (size_t i = 0; i < len; i++)
        sum_add(&s->sum, map[nodes[i]], values[i]);
    encode_sum(s, d, 1, s->sum.saturated, out);
}

void stage_encode_run(struct store *s, const struct dict *d, const struct store_vector *v, size_t n,
                      size_t nodes, struct buf *out)
{
    uint64_t saturated = s->sum.saturated;

    if (n == 1) {
        stage_encode(s, d, v->nodes, v->values, v->len, out);
        return;
    }
    sum_begin(&s->sum);
    stage_fold(&s->stage->fold, v, n, nodes, s->scratch.node_map.ptr, &s->sum);
    encode_sum(s, d, n, saturated, out);
}
