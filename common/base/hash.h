/* SPDX-License-Identifier: Apache-2.0
 *
 * hash.h: 64- and 128-bit content hashes (XXH3, xxHash spec) and crc32c (Castagnoli, RFC 3720).
 * Not cryptographic: seed them per tenant or process and compare contents where a hash decides.
 */
#ifndef COMMON_BASE_HASH_H
#define COMMON_BASE_HASH_H

#include "common/base/str.h"

struct hash128 {
    uint64_t lo, hi;
};

uint64_t hash64(const void *p, size_t n, uint64_t seed);
struct hash128 hash128(const void *p, size_t n, uint64_t seed);
static inline bool hash128_eq(struct hash128 a, struct hash128 b)
{
    return a.lo == b.lo && a.hi == b.hi;
}
/* Mixes one word well enough for a table index (fmix64, MurmurHash3). */
static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    x ^= x >> 33;
    return x;
}
/* Mixes two words: half the cost of two hash_u64. Low and high half of a product of 128 bits, as
 * wyhash does. If the words come from outside, both need a secret in them: a word that is 0 hides
 * the other. */
static inline uint64_t hash_mix(uint64_t a, uint64_t b)
{
    u128 m = (u128)a * b;

    return (uint64_t)m ^ (uint64_t)(m >> 64);
}
/* x turned left by 1 to 63 bits: another secret where x is one. */
static inline uint64_t hash_turn(uint64_t x, unsigned bits)
{
    return x << bits | x >> (64 - bits);
}
/* Continue with the previous return value; start with 0. */
uint32_t crc32c(uint32_t crc, const void *p, size_t n);

#endif
