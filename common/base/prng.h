/* SPDX-License-Identifier: Apache-2.0
 *
 * prng.h: seeded random numbers (xoshiro256**, Blackman and Vigna 2018), for tests, jitter and
 * simulation. Not for secrets.
 */
#ifndef COMMON_BASE_PRNG_H
#define COMMON_BASE_PRNG_H

#include "common/base/base.h"

struct prng {
    uint64_t s[4];
};
void prng_init(struct prng *p, uint64_t seed);
uint64_t prng_u64(struct prng *p);
uint64_t prng_below(struct prng *p, uint64_t n); /* [0, n), n > 0, unbiased */
double prng_unit(struct prng *p);                /* [0, 1) */
bool prng_chance(struct prng *p, double probability);

#endif
