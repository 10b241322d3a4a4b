/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/gen/vec_gen.h"

size_t vec_gen_ids(struct prng *p, uint32_t *ids, size_t n, uint32_t spread)
{
    uint64_t id = prng_below(p, spread);

    for (size_t i = 0; i < n; i++) {
        if (id > UINT32_MAX)
            return i;
        ids[i] = (uint32_t)id;
        /* Half of the neighbours follow at once, as children follow their parents. */
        id += prng_chance(p, 0.5) ? 1 : 1 + prng_below(p, 2 * (uint64_t)spread - 1);
    }
    return n;
}

static uint64_t profile_value(struct prng *p)
{
    uint64_t samples = 1;

    while (samples < UINT64_C(1) << 20 && prng_chance(p, 0.3))
        samples = samples * 2 + prng_below(p, 2);
    return samples * 10000000;
}

/* In two steps: the operands of >> are evaluated in any order. */
static uint64_t mixed_value(struct prng *p)
{
    uint64_t v = prng_u64(p);

    return v >> prng_below(p, 64) | 1;
}

static uint64_t extreme_value(struct prng *p)
{
    uint64_t edge = UINT64_C(1) << prng_below(p, 64);

    switch (prng_below(p, 4)) {
    case 0:
        return edge;
    case 1:
        return edge > 1 ? edge - 1 : 1;
    case 2:
        return UINT64_MAX - prng_below(p, 3);
    }
    return edge + 1;
}

void vec_gen_values(struct prng *p, uint64_t *values, size_t n, enum vec_gen_values kind)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 1;
        if (kind == VEC_GEN_SMALL)
            v = 1 + prng_below(p, 20);
        else if (kind == VEC_GEN_PROFILE)
            v = profile_value(p);
        else if (kind == VEC_GEN_MIXED)
            v = mixed_value(p);
        else if (kind == VEC_GEN_EXTREME)
            v = extreme_value(p);
        values[i] = v;
    }
}
