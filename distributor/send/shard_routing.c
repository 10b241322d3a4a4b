/* SPDX-License-Identifier: Apache-2.0
 *
 * placing: which series go where.
 *
 * A push whose samples carry labels becomes many series. If each of them went to a place of its
 * own, every push of a spread service would become a message, and a write to disk, on nearly all of
 * its shards: as many as before on each of them, and nothing would be won. So pushes are spread, by
 * what their sender is called (pod, instance, ...), and a push mostly stays one message. Series of
 * the same labels that come by another way (an import has no base) may have another place; answers
 * are sums over places, so that costs nothing but a row.
 *
 * Labels of the inside (__*__) are left out: the profile types of one pod stay together.
 */
#include "distributor/send/shard_routing.h"

#include "common/base/hash.h"
#include "common/model/attime.h"
#include "common/model/slot.h"

#define SEED UINT64_C(0x706c6163696e67)

static bool has(const struct labels *l, struct str name)
{
    for (size_t i = 0; i < l->len; i++)
        if (str_eq(l->ptr[i].name, name))
            return true;
    return false;
}

/* A sum, so that the order of labels is no part of it. */
uint64_t shard_routing_hash(const struct labels *l, const struct labels *base)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < l->len; i++) {
        const struct label *at = &l->ptr[i];

        if (push_label_hidden(at->name) || (base && !has(base, at->name)))
            continue;
        sum += hash_u64(
            hash64(at->value.ptr, at->value.len, hash64(at->name.ptr, at->name.len, SEED)));
    }
    return sum;
}

/* "now-10s", and all else that means another instant tomorrow. */
static bool is_relative(struct str text)
{
    int64_t a = 0, b = 0;
    struct err e;

    if (str_trim(text).len == 0)
        return false;
    return attime_parse(text, INT64_C(1000000000123), &a, &e) ||
           attime_parse(text, INT64_C(1987654321987), &b, &e) || a != b;
}

int64_t shard_routing_when(const struct ingest *in, const struct push *p, enum write_key kind,
                           uint32_t first_slot)
{
    bool own = in->has_from    ? !is_relative(in->raw.from)
               : in->has_until ? !is_relative(in->raw.until)
                               : p->has_time;

    if (!own && kind != WRITE_KEY_RANDOM)
        return MAP_WHEN_FIRST;
    return slot_to_ms(slot_leaf(first_slot));
}
