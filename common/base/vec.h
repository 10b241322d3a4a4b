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

#endif
