/* SPDX-License-Identifier: Apache-2.0
 *
 * fp.h: the linear fingerprint of a vector, F = sum of value * h(stack) modulo p = 2^61 - 1.
 *
 * Being linear, F of a parent is the sum of the F of its children: a parent whose F differs from
 * that sum is wrong, and two different vectors agree by chance about once in 2^61. h(stack) must
 * come from the content of the stack (fp_of_hash), never from its dictionary id, so that F stays
 * the same over epochs, replicas and restarts.
 *
 * All fingerprints are residues in [0, p). Saturated values (vec.h) break linearity: a row with
 * that flag has no meaningful F.
 */
#ifndef COMMON_STORE_CODEC_FP_H
#define COMMON_STORE_CODEC_FP_H

#include "common/base/base.h"
#include "common/base/hash.h"

#define FP_P ((UINT64_C(1) << 61) - 1)

static inline uint64_t fp_reduce(uint64_t x)
{
    x = (x & FP_P) + (x >> 61);
    return x >= FP_P ? x - FP_P : x;
}
static inline uint64_t fp_add(uint64_t a, uint64_t b)
{
    uint64_t s = a + b; /* < 2^62: both are residues */
    return s >= FP_P ? s - FP_P : s;
}
static inline uint64_t fp_sub(uint64_t a, uint64_t b)
{
    return a >= b ? a - b : a + FP_P - b;
}
static inline uint64_t fp_mul(uint64_t a, uint64_t b)
{
    u128 m = (u128)a * b; /* < 2^122 */
    return fp_reduce(fp_reduce((uint64_t)(m & FP_P)) + (uint64_t)(m >> 61));
}
/* The residue of a content hash; never 0, so that no stack is invisible. */
static inline uint64_t fp_of_hash(struct hash128 h)
{
    uint64_t r = fp_reduce(h.lo ^ (h.hi << 32 | h.hi >> 32));
    return r ? r : 1;
}
/* F + value * h; value is any u64, h a residue. */
static inline uint64_t fp_add_value(uint64_t f, uint64_t h, uint64_t value)
{
    return fp_add(f, fp_mul(h, fp_reduce(value)));
}
/* F of n entries: value[i] of the stack with h[id[i]]. Products are below 2^125: seven fit in 128
 * bits before they must be reduced. */
static inline uint64_t fp_vector(const uint64_t *h, const uint32_t *ids, const uint64_t *values,
                                 size_t n)
{
    uint64_t f = 0;

    for (size_t i = 0; i < n;) {
        u128 m = f;
        for (size_t end = MIN(n, i + 7); i < end; i++)
            m += (u128)h[ids[i]] * values[i];
        f = fp_reduce((uint64_t)(m & FP_P) + (uint64_t)(m >> 61 & FP_P) + (uint64_t)(m >> 122));
    }
    return f;
}

#endif
