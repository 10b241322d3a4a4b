/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/codec/sum.h"

#include "common/base/size.h"

void sum_init(struct sum *s)
{
    *s = (struct sum){ 0 };
}

void sum_deinit(struct sum *s)
{
    vec_free(&s->keys);
    vec_free(&s->values);
    vec_free(&s->room);
    vec_free(&s->ids);
    vec_free(&s->sums);
}

void sum_begin(struct sum *s)
{
    s->keys.len = s->values.len = 0;
}

/* One pass of a radix sort over byte `shift` / 8, from -> to. */
static void pass(const uint64_t *from, uint64_t *to, size_t n, unsigned shift)
{
    uint32_t at[256] = { 0 }, next = 0;

    for (size_t i = 0; i < n; i++)
        at[from[i] >> shift & 0xff]++;
    for (size_t i = 0; i < 256; i++) {
        uint32_t count = at[i];
        at[i] = next;
        next += count;
    }
    for (size_t i = 0; i < n; i++)
        to[at[from[i] >> shift & 0xff]++] = from[i];
}

/* By id, only over the bytes in which ids differ; sorted input costs one look. */
static void sort(struct sum *s)
{
    size_t n = s->keys.len;
    uint64_t any = 0;
    bool sorted = true;

    for (size_t i = 1; i < n; i++) {
        any |= s->keys.ptr[i] ^ s->keys.ptr[i - 1];
        sorted = sorted && s->keys.ptr[i] > s->keys.ptr[i - 1];
    }
    if (sorted)
        return;
    vec_reserve(&s->room, s->keys.cap);
    for (unsigned shift = 32; shift < 64; shift += 8) {
        if (!(any >> shift & 0xff))
            continue;
        pass(s->keys.ptr, s->room.ptr, n, shift);
        uint64_t *ptr = s->keys.ptr;
        s->keys.ptr = s->room.ptr;
        s->room.ptr = ptr;
        size_t cap = s->keys.cap;
        s->keys.cap = s->room.cap;
        s->room.cap = cap;
    }
}

void sum_end(struct sum *s)
{
    size_t n = s->keys.len;

    CHECK(n < UINT32_MAX);
    sort(s);
    vec_reserve(&s->ids, n);
    vec_reserve(&s->sums, n);
    s->ids.len = s->sums.len = 0;
    for (size_t i = 0; i < n;) {
        uint32_t id = (uint32_t)(s->keys.ptr[i] >> 32);
        uint64_t sum = 0;
        for (; i < n && s->keys.ptr[i] >> 32 == id; i++) {
            if (!u64_add(sum, s->values.ptr[(uint32_t)s->keys.ptr[i]], &sum)) {
                sum = UINT64_MAX;
                s->saturated++;
            }
        }
        if (!sum)
            continue;
        s->ids.ptr[s->ids.len++] = id;
        s->sums.ptr[s->sums.len++] = sum;
    }
}
