/* SPDX-License-Identifier: Apache-2.0
 *
 * base.h: what every file may assume. Compiler extensions live here and nowhere else.
 *
 * CHECK stays on in release builds: a broken invariant stops the process with file, line and
 * condition, because going on would write wrong sums. Never CHECK bytes that came from outside.
 */
#ifndef COMMON_BASE_BASE_H
#define COMMON_BASE_BASE_H

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define NODISCARD         __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define CLEANUP(fn)       __attribute__((cleanup(fn)))
/* For code that reads its own stack from outside its variables (the self-profiler). */
#define NO_SANITIZE   __attribute__((no_sanitize("address", "thread", "undefined")))
#define NOINLINE      __attribute__((noinline)) /* to be seen in profiles */
#define EXPORTED      __attribute__((visibility("default")))
#define UNUSED        __attribute__((unused))
#define NORETURN      __attribute__((noreturn))
#define WEAK          __attribute__((weak)) /* NULL where no library has it */
#define ALWAYS_INLINE inline __attribute__((always_inline))
#define VECTOR(bytes) __attribute__((vector_size(bytes)))
#define PREFETCH(p)   __builtin_prefetch(p)
#define LIKELY(x)     __builtin_expect(!!(x), 1)
#define UNLIKELY(x)   __builtin_expect(!!(x), 0)
#define ARRAY_LEN(a)  (sizeof(a) / sizeof((a)[0]))
/* <sys/param.h>, which <uv.h> includes, has them too. */
#undef MIN
#undef MAX
#define MIN(a, b)                     ((a) < (b) ? (a) : (b))
#define MAX(a, b)                     ((a) > (b) ? (a) : (b))
#define container_of(p, type, member) ((type *)(void *)((char *)(void *)(p)-offsetof(type, member)))

/* Products of two 64-bit numbers. C17 has no type for them. */
__extension__ typedef unsigned __int128 u128;

#define KIB ((size_t)1024)
#define MIB (KIB * 1024)
#define GIB (MIB * 1024)

/* Prints "CHECK failed: cond (text) at file:line in function" to stderr and aborts. */
void check_failed(const char *cond, const char *file, int line, const char *func) NORETURN;

#define CHECK(cond)                                            \
    do {                                                       \
        if (UNLIKELY(!(cond)))                                 \
            check_failed(#cond, __FILE__, __LINE__, __func__); \
    } while (0)

#ifdef DEBUG
#define DCHECK(cond) CHECK(cond)
#else
#define DCHECK(cond) ((void)sizeof(cond))
#endif

/* First member of structs that travel through a void pointer; checked on entry. */
#define MAGIC(a, b, c, d) \
    ((uint32_t)(a) << 24 | (uint32_t)(b) << 16 | (uint32_t)(c) << 8 | (uint32_t)(d))

#endif
