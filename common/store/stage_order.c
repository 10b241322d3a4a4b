/* SPDX-License-Identifier: Apache-2.0
 *
 * stage_order: see the header. Ids become places by a bitmap over all ids from the lowest to the
 * highest, so its length is bounded by the number of nodes.
 */
#include "common/store/stage_order.h"

#define KEEP_NODES (1u << 18) /* of the largest request, from one to the next */
#define FAR        64         /* ids between two that are used, on average */
#define FEW        8          /* a vector of fewer than a node in so many is sorted */

void stage_order_deinit(struct stage_order *x)
{
    vec_free(&x->bits);
    vec_free(&x->at);
    vec_free(&x->place);
    vec_free(&x->id);
    vec_free(&x->spread);
    vec_free(&x->ids);
    vec_free(&x->values);
}

void stage_order_end(struct stage_order *x)
{
    x->id.len = 0;
    if (x->place.cap > KEEP_NODES)
        stage_order_deinit(x);
}

/* Sets the bits of ids from `low` on. */
static void mark(struct stage_order *x, const uint32_t *map, const uint8_t *used, size_t nodes,
                 uint32_t low)
{
    memset(x->bits.ptr, 0, x->bits.len * sizeof(*x->bits.ptr));
    for (size_t i = 0; i <= nodes; i++) {
        uint32_t off = used[i] ? map[i] - low : 0;
        x->bits.ptr[off / 64] |= (uint64_t)(used[i] != 0) << off % 64;
    }
}

/* Gives places to the ids that are marked. */
static void number(struct stage_order *x, uint32_t low)
{
    uint32_t n = 0;

    for (size_t w = 0; w < x->bits.len; w++)
        for (uint64_t bits = x->bits.ptr[w]; bits; bits &= bits - 1) {
            uint32_t off = (uint32_t)(w * 64) + (uint32_t)__builtin_ctzll(bits);
            x->at.ptr[off] = n;
            x->id.ptr[n++] = low + off;
        }
    x->id.len = n;
}

static void room(struct stage_order *x, size_t nodes, size_t places, size_t span)
{
    size_t had = x->spread.len;

    x->bits.len = (span + 63) / 64;
    vec_reserve(&x->bits, x->bits.len);
    vec_reserve(&x->at, span);
    vec_reserve(&x->place, nodes + 1);
    vec_reserve(&x->id, places);
    vec_reserve(&x->ids, places);
    vec_reserve(&x->values, places);
    if (places <= had)
        return;
    vec_reserve(&x->spread, places);
    memset(x->spread.ptr + had, 0, (places - had) * sizeof(*x->spread.ptr));
    x->spread.len = places;
}

void stage_order_make(struct stage_order *x, const uint32_t *map, const uint8_t *used, size_t nodes)
{
    uint32_t low = UINT32_MAX, high = 0;
    size_t n = 0;

    x->id.len = 0;
    for (size_t i = 0; i <= nodes; i++) {
        if (!used[i])
            continue;
        low = MIN(low, map[i]);
        high = MAX(high, map[i]);
        n++;
    }
    if (!n || (high - low) / FAR > n)
        return;
    room(x, nodes, n, (size_t)(high - low) + 1);
    mark(x, map, used, nodes, low);
    number(x, low);
    if (x->id.len != n) {
        x->id.len = 0; /* two nodes with one id */
        return;
    }
    for (size_t i = 0; i <= nodes; i++)
        if (used[i])
            x->place.ptr[i] = x->at.ptr[map[i] - low];
}

size_t stage_order_gather(struct stage_order *x, const uint32_t *nodes, const uint64_t *values,
                          size_t len)
{
    size_t places = x->id.len, n = 0;
    const uint32_t *place = x->place.ptr, *id = x->id.ptr;
    uint64_t *spread = x->spread.ptr, *to = x->values.ptr;
    uint32_t *ids = x->ids.ptr;

    if (len < places / FEW || !places)
        return 0;
    for (size_t i = 0; i < len; i++)
        spread[place[nodes[i]]] = values[i];
    /* Without a branch: which are absent cannot be guessed. */
    for (size_t i = 0; i < places; i++) {
        uint64_t v = spread[i];
        spread[i] = 0;
        ids[n] = id[i];
        to[n] = v;
        n += v != 0;
    }
    CHECK(n == len);
    return n;
}
