/* SPDX-License-Identifier: Apache-2.0
 *
 * The same tests over the form without SSE2.
 */
#define VEC_PLAIN 1
#include "tests/unit/common/store/codec/test_vec_pack.c"
