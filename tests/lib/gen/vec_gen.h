/* SPDX-License-Identifier: Apache-2.0
 *
 * vec_gen.h: random vectors for property tests and benchmarks of store/codec/vec.h.
 */
#ifndef TESTS_LIB_GEN_VEC_GEN_H
#define TESTS_LIB_GEN_VEC_GEN_H

#include "common/base/prng.h"

/* n ascending ids with gaps of `spread` on average (1 = dense); never past UINT32_MAX: fewer then.
 * Returns how many. */
size_t vec_gen_ids(struct prng *p, uint32_t *ids, size_t n, uint32_t spread);

enum vec_gen_values {
    VEC_GEN_ONES,
    VEC_GEN_SMALL,   /* 1 .. 20 */
    VEC_GEN_PROFILE, /* mostly small multiples of 10^7, a few large: CPU time of real profiles */
    VEC_GEN_MIXED,   /* any number of bits */
    VEC_GEN_EXTREME, /* 1, 255, 256, ..., 2^64 - 1 */
    VEC_GEN_KINDS,
};
void vec_gen_values(struct prng *p, uint64_t *values, size_t n, enum vec_gen_values kind);

#endif
