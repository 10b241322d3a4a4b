/* SPDX-License-Identifier: Apache-2.0
 *
 * str.h: a borrowed slice of bytes. Not NUL-terminated, may hold NULs, may be {NULL, 0}.
 */
#ifndef COMMON_BASE_STR_H
#define COMMON_BASE_STR_H

#include "common/base/base.h"

struct str {
    const char *ptr;
    size_t len;
};

#define STR(literal) ((struct str){ "" literal, sizeof(literal) - 1 })
#define STR_NULL     ((struct str){ NULL, 0 })
/* printf("%.*s", STR_ARG(s)); cuts at INT_MAX. */
#define STR_ARG(s) (int)((s).len > INT32_MAX ? INT32_MAX : (s).len), ((s).ptr ? (s).ptr : "")

struct str str_c(const char *c); /* NULL gives STR_NULL */
struct str str_n(const void *p, size_t n);
bool str_eq(struct str a, struct str b);
bool str_eqc(struct str a, const char *b);
bool str_eq_nocase(struct str a, struct str b); /* ASCII */
int str_cmp(struct str a, struct str b);        /* bytewise, shorter first */
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
bool str_contains(struct str s, struct str needle);
struct str str_sub(struct str s, size_t from, size_t to); /* clamped */
struct str str_trim(struct str s);                        /* ASCII blanks, both ends */
/* Index of the first / last byte c, or -1. */
ptrdiff_t str_find(struct str s, char c);
ptrdiff_t str_rfind(struct str s, char c);
/* Cuts the part before the first `c` off *rest; false when *rest is exhausted. Empty parts count;
 * "a,b" gives "a", "b"; "" gives nothing; "a," gives "a", "". Start with *more = true. */
bool str_next(struct str *rest, char c, bool *more, struct str *ret_part);

/* Whole-string numbers: no sign on u64, no blanks, no overflow. */
bool str_u64(struct str s, uint64_t *ret);
bool str_i64(struct str s, int64_t *ret);
bool str_double(struct str s, double *ret); /* decimal and exponent forms; no inf, nan, hex */
/* "64KiB", "2 MiB", "1GB", "100": bytes. "250ms", "10s", "5m", "2h", "7d": milliseconds. */
bool str_bytes(struct str s, uint64_t *ret);
bool str_duration_ms(struct str s, uint64_t *ret);
bool str_utf8_valid(struct str s);

#endif
