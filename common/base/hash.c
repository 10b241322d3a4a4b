/* SPDX-License-Identifier: Apache-2.0
 *
 * crc32c uses the SSE4.2 instruction where the CPU has it (chosen once, at first use) and a table
 * of 256 entries elsewhere.
 */
#include "common/base/hash.h"

#define XXH_INLINE_ALL /* most of what is hashed is short: the call would cost as much */
#include <xxhash.h>
#ifdef __x86_64__
#include <nmmintrin.h>
#endif

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

struct hash128 hash128(const void *p, size_t n, uint64_t seed)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(p, n, seed);

    return (struct hash128){ h.low64, h.high64 };
}

/* Reflected polynomial 0x82f63b78, one nibble at a time: small and fast enough as a fallback. */
static uint32_t crc32c_plain(uint32_t crc, const uint8_t *p, size_t n)
{
    static const uint32_t nibble[16] = {
        0x00000000, 0x105ec76f, 0x20bd8ede, 0x30e349b1, 0x417b1dbc, 0x5125dad3,
        0x61c69362, 0x7198540d, 0x82f63b78, 0x92a8fc17, 0xa24bb5a6, 0xb21572c9,
        0xc38d26c4, 0xd3d3e1ab, 0xe330a81a, 0xf36e6f75,
    };
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        crc = crc >> 4 ^ nibble[crc & 15];
        crc = crc >> 4 ^ nibble[crc & 15];
    }
    return crc;
}

#ifdef __x86_64__
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse(uint32_t crc, const uint8_t *p,
                                                             size_t n)
{
    uint64_t c = crc;

    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        c = _mm_crc32_u64(c, v);
    }
    for (; n; p++, n--)
        c = _mm_crc32_u8((uint32_t)c, *p);
    return (uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *p, size_t n)
{
    crc = ~crc;
#ifdef __x86_64__
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc32c_sse(crc, p, n);
#endif
    return ~crc32c_plain(crc, p, n);
}
