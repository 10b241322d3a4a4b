/* SPDX-License-Identifier: Apache-2.0
 *
 * vec.h: a typed growing array.  VEC(uint32_t) ids = { 0 };  vec_push(&ids, 7);
 *
 * Elements move when it grows: keep indexes, not pointers. Free with vec_free.
 */
#ifndef COMMON_BASE_VEC_H
#define COMMON_BASE_VEC_H

#include "common/base/mem.h"

#define VEC(type)   \
    struct {        \
        type *ptr;  \
        size_t len; \
        size_t cap; \
    }

/* Grows *ptr of element size `size` so that `need` elements fit; doubles. */
void vec_grow(void **ptr, size_t *cap, size_t need, size_t size);

#define vec_reserve(v, need)                                         \
    do {                                                             \
        if ((need) > (v)->cap) {                                     \
            void *vec_p_ = (v)->ptr;                                 \
            vec_grow(&vec_p_, &(v)->cap, (need), sizeof(*(v)->ptr)); \
            (v)->ptr = vec_p_;                                       \
        }                                                            \
    } while (0)
#define vec_push(v, value)              \
    do {                                \
        vec_reserve((v), (v)->len + 1); \
        (v)->ptr[(v)->len++] = (value); \
    } while (0)
#define vec_free(v)              \
    do {                         \
        xfree((v)->ptr);         \
        (v)->ptr = NULL;         \
        (v)->len = (v)->cap = 0; \
    } while (0)
#define vec_for(i, v) for (size_t i = 0; i < (v)->len; i++)

/* Index of the first element >= want; len if all are smaller. Elements are ascending. */
#define VEC_LOWER(name, type)                                        \
    static inline size_t name(const type *at, size_t len, type want) \
    {                                                                \
        size_t low = 0, high = len;                                  \
                                                                     \
        while (low < high) {                                         \
            size_t mid = low + (high - low) / 2;                     \
            if (at[mid] < want)                                      \
                low = mid + 1;                                       \
            else                                                     \
                high = mid;                                          \
        }                                                            \
        return low;                                                  \
    }
VEC_LOWER(vec_lower_u32, uint32_t)
VEC_LOWER(vec_lower_u64, uint64_t)

#endif
