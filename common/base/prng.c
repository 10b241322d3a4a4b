/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/prng.h"

/* splitmix64 (Steele, Lea, Flood 2014) spreads the seed. */
void prng_init(struct prng *p, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15ULL;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ z >> 27) * 0x94d049bb133111ebULL;
        p->s[i] = z ^ z >> 31;
    }
}

static uint64_t rotl(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t prng_u64(struct prng *p)
{
    uint64_t *s = p->s;
    uint64_t r = rotl(s[1] * 5, 7) * 9, t = s[1] << 17;

    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotl(s[3], 45);
    return r;
}

uint64_t prng_below(struct prng *p, uint64_t n)
{
    CHECK(n > 0);
    uint64_t reject = (UINT64_MAX - n + 1) % n; /* 2^64 mod n */
    for (;;) {
        uint64_t r = prng_u64(p);
        if (r >= reject)
            return r % n;
    }
}

double prng_unit(struct prng *p)
{
    return (double)(prng_u64(p) >> 11) * 0x1p-53;
}

bool prng_chance(struct prng *p, double probability)
{
    return prng_unit(p) < probability;
}
