/* SPDX-License-Identifier: Apache-2.0
 *
 * size.h: arithmetic on sizes and values that says when it would overflow.
 */
#ifndef COMMON_BASE_SIZE_H
#define COMMON_BASE_SIZE_H

#include "common/base/base.h"

/* Each returns false, and leaves *ret untouched, if the exact result does not fit. */
static inline bool size_add(size_t a, size_t b, size_t *ret)
{
    size_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool size_mul(size_t a, size_t b, size_t *ret)
{
    size_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool u64_add(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool u64_mul(uint64_t a, uint64_t b, uint64_t *ret)
{
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool i64_add(int64_t a, int64_t b, int64_t *ret)
{
    int64_t r;
    if (__builtin_add_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool i64_sub(int64_t a, int64_t b, int64_t *ret)
{
    int64_t r;
    if (__builtin_sub_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

static inline bool i64_mul(int64_t a, int64_t b, int64_t *ret)
{
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *ret = r;
    return true;
}

/* Sum that stays at UINT64_MAX instead of wrapping. */
static inline uint64_t u64_add_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_add_overflow(a, b, &r) ? UINT64_MAX : r;
}

static inline uint64_t u64_mul_sat(uint64_t a, uint64_t b)
{
    uint64_t r;
    return __builtin_mul_overflow(a, b, &r) ? UINT64_MAX : r;
}

/* Narrowing that stops the process if the value does not fit: for values we made ourselves. */
static inline uint32_t u32_from(uint64_t v)
{
    CHECK(v <= UINT32_MAX);
    return (uint32_t)v;
}

static inline int int_from(size_t v)
{
    CHECK(v <= INT32_MAX);
    return (int)v;
}

#endif
