/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_order: see the header. Ids become places by going once over all ids of the dictionary, so
 * there may be only so many for each node of the request.
 */
#include "common/store/write/stage_sort.h"

#define KEEP_NODES (1u << 18) /* of the largest request, from one to the next */
#define FAR        64         /* ids of the dictionary for a node, at most */
#define SPAN_MOST  (1u << 20) /* ids of the dictionary: five bytes for each stay with the shard */
#define FEW        8          /* a vector of fewer than a node in so many is sorted */
#define RUN        64         /* ids looked at together */

void stage_sort_deinit(struct stage_sort *x)
{
    vec_free(&x->seen);
    vec_free(&x->place);
    vec_free(&x->id);
    vec_free(&x->spread);
    vec_free(&x->some_ids);
    vec_free(&x->some_values);
    x->full = 0;
}

void stage_sort_end(struct stage_sort *x)
{
    x->id.len = 0;
    if (x->id.cap > KEEP_NODES)
        stage_sort_deinit(x);
}

/* Bit i: is seen[i] 1? */
static uint64_t run_bits(const uint8_t *seen)
{
    uint64_t bits = 0, eight;

    for (unsigned i = 0; i < RUN; i += 8) {
        memcpy(&eight, seen + i, sizeof(eight));
        bits |= (eight * UINT64_C(0x0102040810204080) >> 56) << i; /* the lowest bit of each byte */
    }
    return bits;
}

/* Gives places to the ids that are seen, and forgets that they were. */
static void number(struct stage_sort *x)
{
    uint32_t n = 0;

    for (size_t at = 0; at < x->seen.len; at += RUN) {
        uint64_t bits = run_bits(x->seen.ptr + at);
        if (!bits)
            continue;
        memset(x->seen.ptr + at, 0, RUN);
        for (; bits; bits &= bits - 1) {
            uint32_t id = (uint32_t)at + (uint32_t)__builtin_ctzll(bits);
            x->place.ptr[id] = n;
            x->id.ptr[n++] = id;
        }
    }
    x->id.len = n;
}

static void room(struct stage_sort *x, size_t nodes, size_t span)
{
    size_t seen = (span + RUN - 1) / RUN * RUN, had = x->seen.cap, spread = x->spread.cap;

    vec_reserve(&x->seen, seen);
    memset(x->seen.ptr + had, 0, x->seen.cap - had);
    x->seen.len = seen;
    vec_reserve(&x->place, span);
    vec_reserve(&x->id, nodes + 1);
    vec_reserve(&x->some_ids, nodes + 1);
    vec_reserve(&x->some_values, nodes + 1);
    vec_reserve(&x->spread, nodes + 1);
    memset(x->spread.ptr + spread, 0, (x->spread.cap - spread) * sizeof(*x->spread.ptr));
}

/* What room() makes for so many; both are bounded. */
static size_t bytes_for(size_t nodes, size_t span)
{
    return span * 5 + (nodes + 1) * 24;
}

void stage_sort_make(struct stage_sort *x, const uint32_t *map, const uint8_t *used, size_t nodes,
                     size_t span, size_t bytes_max)
{
    size_t n = 0;

    x->id.len = 0;
    x->declined = 0;
    if (span / FAR > nodes || span > SPAN_MOST)
        return;
    if (bytes_for(nodes, span) > bytes_max) {
        x->declined = bytes_for(nodes, span);
        return;
    }
    room(x, nodes, span);
    for (size_t i = 0; i <= nodes; i++) {
        if (!used[i])
            continue;
        x->seen.ptr[map[i]] = 1;
        n++;
    }
    number(x);
    x->map = map;
    if (x->id.len != n)
        x->id.len = 0; /* two nodes with one id */
}

/* Those of the places that have a value, without a branch: which have none cannot be guessed. */
static size_t gather(struct stage_sort *x)
{
    uint64_t *spread = x->spread.ptr, *values = x->some_values.ptr;
    uint32_t *ids = x->some_ids.ptr;
    size_t n = 0;

    for (size_t i = 0; i < x->id.len; i++) {
        uint64_t v = spread[i];
        spread[i] = 0;
        ids[n] = x->id.ptr[i];
        values[n] = v;
        n += v != 0;
    }
    x->ids = ids;
    x->values = values;
    return n;
}

size_t stage_sort_gather(struct stage_sort *x, const uint32_t *nodes, const uint64_t *values,
                         size_t len)
{
    size_t places = x->id.len;

    if (len < places / FEW || !places)
        return 0;
    if (x->full && len < places) {
        memset(x->spread.ptr, 0, x->full * sizeof(*x->spread.ptr));
        x->full = 0;
    }
    for (size_t i = 0; i < len; i++)
        x->spread.ptr[x->place.ptr[x->map[nodes[i]]]] = values[i];
    if (len < places) {
        CHECK(gather(x) == len);
        return len;
    }
    x->full = MAX(x->full, places);
    x->ids = x->id.ptr;
    x->values = x->spread.ptr;
    return len;
}
