/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_pack.h: the inner loops of vec_encode.c, as vec_bytes.h has those of vec.c: with SSE2 four
 * ids or eight values at a time, in plain C elsewhere (and with VEC_PLAIN, for the test that
 * compares them). No other file includes it.
 */
#ifndef COMMON_STORE_CODEC_VEC_PACK_H
#define COMMON_STORE_CODEC_VEC_PACK_H

#include "common/store/codec/vec_bytes.h"

/* ---- values ---- */

struct vec_look {
    uint64_t sum; /* modulo 2^64 */
    uint64_t any; /* all of them, or'ed */
    bool zero;    /* one of them is 0 */
};
static inline struct vec_look vec_look_at(const uint64_t *v, size_t n)
{
    struct vec_look x = { 0 };
    size_t i = 0;

#if VEC_SSE2
    const __m128i none = _mm_setzero_si128();
    __m128i sum = none, any = none, zero = none;
    for (; i + 2 <= n; i += 2) {
        __m128i two = vec_load16((const uint8_t *)(v + i)), half = _mm_cmpeq_epi32(two, none);
        sum = _mm_add_epi64(sum, two);
        any = _mm_or_si128(any, two);
        zero = _mm_or_si128(zero, _mm_and_si128(half, _mm_shuffle_epi32(half, 0xb1)));
    }
    x.sum = vec_halves(sum);
    x.any = (uint64_t)_mm_cvtsi128_si64(any) |
            (uint64_t)_mm_cvtsi128_si64(_mm_unpackhi_epi64(any, any));
    x.zero = _mm_movemask_epi8(zero) != 0;
#endif
    for (; i < n; i++) {
        x.sum += v[i];
        x.any |= v[i];
        x.zero |= v[i] == 0;
    }
    return x;
}

/* How many have more than 1, 2, 3 bytes; all of them fit in 32 bits. */
static inline void vec_count_long(const uint64_t *v, size_t n, uint64_t ret[3])
{
    size_t i = 0;

#if VEC_SSE2
    const __m128i zero = _mm_setzero_si128();
    /* Lanes count down from n those that are not longer: of 32 bits, so not for huge vectors. */
    size_t rest = MIN(n, (size_t)UINT32_MAX) / 4 * 4;
    __m128i short1 = zero, short2 = zero, short3 = zero;
    for (; i < rest; i += 4) {
        __m128 a = _mm_castsi128_ps(vec_load16((const uint8_t *)(v + i)));
        __m128 b = _mm_castsi128_ps(vec_load16((const uint8_t *)(v + i + 2)));
        __m128i x = _mm_castps_si128(_mm_shuffle_ps(a, b, 0x88)); /* the low halves */
        short1 = _mm_sub_epi32(short1, _mm_cmpeq_epi32(_mm_srli_epi32(x, 8), zero));
        short2 = _mm_sub_epi32(short2, _mm_cmpeq_epi32(_mm_srli_epi32(x, 16), zero));
        short3 = _mm_sub_epi32(short3, _mm_cmpeq_epi32(_mm_srli_epi32(x, 24), zero));
    }
    const __m128i low = _mm_set_epi32(0, -1, 0, -1);
    ret[0] += i - vec_halves(_mm_add_epi64(_mm_and_si128(short1, low), _mm_srli_epi64(short1, 32)));
    ret[1] += i - vec_halves(_mm_add_epi64(_mm_and_si128(short2, low), _mm_srli_epi64(short2, 32)));
    ret[2] += i - vec_halves(_mm_add_epi64(_mm_and_si128(short3, low), _mm_srli_epi64(short3, 32)));
#endif
    for (; i < n; i++) {
        ret[0] += v[i] > 0xff;
        ret[1] += v[i] > 0xffff;
        ret[2] += v[i] > 0xffffff;
    }
}

/* Byte p of v[i] to to[p * n + i], for 8 values and planes 0 .. k - 1. */
static inline void vec_put_planes8(const uint64_t v[8], uint8_t *to, size_t n, size_t k)
{
#if VEC_SSE2
    __m128i v01 = vec_load16((const uint8_t *)v), v23 = vec_load16((const uint8_t *)(v + 2));
    __m128i v45 = vec_load16((const uint8_t *)(v + 4)), v67 = vec_load16((const uint8_t *)(v + 6));
    /* Bytes of 0 and 4, 1 and 5, ...; then of all even and all odd ones; then of all. */
    __m128i v04 = _mm_unpacklo_epi8(v01, v45), v15 = _mm_unpackhi_epi8(v01, v45);
    __m128i v26 = _mm_unpacklo_epi8(v23, v67), v37 = _mm_unpackhi_epi8(v23, v67);
    __m128i even = _mm_unpacklo_epi8(v04, v26), odd = _mm_unpacklo_epi8(v15, v37);
    for (size_t p = 0; p < k; p += 2) {
        __m128i two = p % 4 ? _mm_unpackhi_epi8(even, odd) : _mm_unpacklo_epi8(even, odd);
        _mm_storel_epi64((__m128i *)(void *)(to + p * n), two);
        if (p + 1 < k)
            _mm_storel_epi64((__m128i *)(void *)(to + (p + 1) * n), _mm_unpackhi_epi64(two, two));
        if (p == 2) {
            even = _mm_unpackhi_epi8(v04, v26);
            odd = _mm_unpackhi_epi8(v15, v37);
        }
    }
#else
    for (size_t p = 0; p < k; p++)
        for (size_t i = 0; i < 8; i++)
            to[p * n + i] = (uint8_t)(v[i] >> 8 * p);
#endif
}

/* ---- ids ---- */

/* Do they ascend strictly? *ret_far: how many are 256 or more behind the one before, the first
 * behind -1. */
static inline bool vec_ascend(const uint32_t *ids, size_t n, size_t *ret_far)
{
    size_t far = n && ids[0] >= 255, i = 1;
    bool ascend = true;

#if VEC_SSE2
    const __m128i most = _mm_set1_epi32(255), zero = _mm_setzero_si128();
    __m128i all = _mm_set1_epi32(-1), any = zero;
    for (; i + 4 <= n; i += 4) {
        __m128i at = vec_load16((const uint8_t *)(ids + i));
        __m128i step = _mm_sub_epi32(at, vec_load16((const uint8_t *)(ids + i - 1)));
        any = _mm_or_si128(any, at);
        all = _mm_and_si128(all, _mm_cmpgt_epi32(step, zero));
        int long_step = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpgt_epi32(step, most)));
        if (UNLIKELY(long_step))
            far += (size_t)__builtin_popcount((unsigned)long_step);
    }
    /* Steps of ids from 2^31 on may look negative, or go round: those one by one. */
    if (_mm_movemask_ps(_mm_castsi128_ps(any)) || (n && ids[0] > INT32_MAX)) {
        far = ids[0] >= 255;
        i = 1;
    } else {
        ascend = _mm_movemask_epi8(all) == 0xffff;
    }
#endif
    for (; i < n; i++) {
        ascend = ascend && ids[i] > ids[i - 1];
        far += ids[i] - ids[i - 1] > 255;
    }
    *ret_far = far;
    return ascend;
}

/* Ids that ascend as gaps to the one before, the first to -1; 255 for all from 255 on. */
static inline void vec_put_gaps(const uint32_t *ids, size_t n, uint8_t *to)
{
    size_t i = 1;

    if (!n)
        return;
    to[0] = (uint8_t)MIN(ids[0], 255u);
#if VEC_SSE2
    const __m128i one = _mm_set1_epi32(1);
    /* Saturating packs are of signed numbers. */
    for (; ids[n - 1] <= INT32_MAX && i + 8 <= n; i += 8) {
        const uint8_t *at = (const uint8_t *)(ids + i), *before = (const uint8_t *)(ids + i - 1);
        __m128i a = _mm_sub_epi32(_mm_sub_epi32(vec_load16(at), vec_load16(before)), one);
        __m128i b = _mm_sub_epi32(_mm_sub_epi32(vec_load16(at + 16), vec_load16(before + 16)), one);
        a = _mm_packs_epi32(a, b);
        _mm_storel_epi64((__m128i *)(void *)(to + i), _mm_packus_epi16(a, a));
    }
#endif
    for (; i < n; i++)
        to[i] = (uint8_t)MIN(ids[i] - ids[i - 1] - 1, 255u);
}

#endif
