/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_bytes.h: the inner loops of vec.c over runs of bytes: 16 at a time with SSE2, which every
 * x86-64 has, 8 at a time in plain words elsewhere (and with VEC_PLAIN, for the test that compares
 * them). Only vec.c and vec_pack.h include it.
 */
#ifndef COMMON_STORE_CODEC_VEC_BYTES_H
#define COMMON_STORE_CODEC_VEC_BYTES_H

#include "common/base/base.h"

#if defined(__SSE2__) && !defined(VEC_PLAIN)
#define VEC_SSE2 1
#include <emmintrin.h>
#else
#define VEC_SSE2 0
#endif

static inline uint64_t vec_load8(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* How many of the eight bytes are zero. Exact: no carry passes from byte to byte. */
static inline uint64_t vec_zeros8(uint64_t v)
{
    const uint64_t low7 = UINT64_C(0x7f7f7f7f7f7f7f7f), ones = UINT64_C(0x0101010101010101);
    uint64_t zero = ~(((v & low7) + low7) | v | low7); /* 0x80 where v has 0 */

    return (zero >> 7) * ones >> 56;
}

#if VEC_SSE2
static inline __m128i vec_load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
/* The sum of both halves. */
static inline uint64_t vec_halves(__m128i v)
{
    return (uint64_t)_mm_cvtsi128_si64(v) + (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(v, v));
}
#endif

/* Sum of n bytes; *ret_count = how many of them equal `what`. */
static inline uint64_t vec_sum(const uint8_t *p, size_t n, uint8_t what, uint64_t *ret_count)
{
    uint64_t sum = 0, count = 0;

#if VEC_SSE2
    const __m128i zero = _mm_setzero_si128(), same = _mm_set1_epi8((char)what);
    __m128i sums = zero, counts = zero;
    while (n >= 16) {
        __m128i found = zero; /* bytes: 255 rounds at most */
        size_t rounds = MIN(n / 16, 255);
        for (size_t i = 0; i < rounds; i++, p += 16) {
            __m128i v = vec_load16(p);
            sums = _mm_add_epi64(sums, _mm_sad_epu8(v, zero));
            found = _mm_sub_epi8(found, _mm_cmpeq_epi8(v, same));
        }
        counts = _mm_add_epi64(counts, _mm_sad_epu8(found, zero));
        n -= rounds * 16;
    }
    sum = vec_halves(sums);
    count = vec_halves(counts);
#else
    const uint64_t even = UINT64_C(0x00ff00ff00ff00ff), same = what * UINT64_C(0x0101010101010101);
    while (n >= 8) {
        uint64_t lanes = 0; /* four of 16 bits: 128 rounds of at most 2 * 255 */
        size_t rounds = MIN(n / 8, 128);
        for (size_t i = 0; i < rounds; i++, p += 8) {
            uint64_t v = vec_load8(p);
            lanes += (v & even) + (v >> 8 & even);
            count += vec_zeros8(v ^ same);
        }
        n -= rounds * 8;
        sum += (lanes & 0xffff) + (lanes >> 16 & 0xffff) + (lanes >> 32 & 0xffff) + (lanes >> 48);
    }
#endif
    for (; n; n--, p++) {
        sum += *p;
        count += *p == what;
    }
    *ret_count = count;
    return sum;
}

/* Of n entries in `planes` planes of n bytes each: how many are zero in all of them. */
static inline uint64_t vec_count_zero(const uint8_t *p, size_t n, size_t planes)
{
    uint64_t count = 0;
    size_t i = 0;

#if VEC_SSE2
    const __m128i zero = _mm_setzero_si128();
    for (; i + 16 <= n; i += 16) {
        __m128i any = vec_load16(p + i);
        for (size_t k = 1; k < planes; k++)
            any = _mm_or_si128(any, vec_load16(p + k * n + i));
        count += vec_halves(_mm_sad_epu8(_mm_sub_epi8(zero, _mm_cmpeq_epi8(any, zero)), zero));
    }
#endif
    for (; i + 8 <= n; i += 8) {
        uint64_t any = 0;
        for (size_t k = 0; k < planes; k++)
            any |= vec_load8(p + k * n + i);
        count += vec_zeros8(any);
    }
    for (; i < n; i++) {
        uint8_t any = 0;
        for (size_t k = 0; k < planes; k++)
            any |= p[k * n + i];
        count += any == 0;
    }
    return count;
}

/* Eight gaps, none of them 255, to eight ids: ids[i] = base + gaps so far + i. Returns the last
 * id + 1, or leaves ids alone and returns `base` if one of them is 255. */
static inline uint32_t vec_ids8(const uint8_t *p, uint32_t base, uint32_t *ids)
{
    uint64_t gaps = vec_load8(p);

    if (UNLIKELY(vec_zeros8(~gaps)))
        return base;
#if VEC_SSE2
    const __m128i zero = _mm_setzero_si128();
    __m128i v = _mm_unpacklo_epi8(_mm_cvtsi64_si128((long long)gaps), zero);
    /* Prefix sums of eight lanes of 16 bits, at most 8 * 255. */
    v = _mm_add_epi16(v, _mm_slli_si128(v, 2));
    v = _mm_add_epi16(v, _mm_slli_si128(v, 4));
    v = _mm_add_epi16(v, _mm_slli_si128(v, 8));
    v = _mm_add_epi16(v, _mm_set_epi16(7, 6, 5, 4, 3, 2, 1, 0));
    __m128i from = _mm_set1_epi32((int)base);
    __m128i low = _mm_add_epi32(_mm_unpacklo_epi16(v, zero), from);
    __m128i high = _mm_add_epi32(_mm_unpackhi_epi16(v, zero), from);
    _mm_storeu_si128((__m128i *)(void *)ids, low);
    _mm_storeu_si128((__m128i *)(void *)(ids + 4), high);
    return base + (uint32_t)_mm_extract_epi16(v, 7) + 1;
#else
    for (int i = 0; i < 8; i++, gaps >>= 8) {
        base += (uint32_t)(gaps & 0xff);
        ids[i] = base++;
    }
    return base;
#endif
}

#endif
