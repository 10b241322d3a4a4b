/* SPDX-License-Identifier: Apache-2.0
 *
 * hex.h: hexadecimal text (base 16 of RFC 4648). It is written in lower case. Each reader says
 * whether it also takes upper case: names of files and keys do not, what people and clients write
 * does.
 */
#ifndef COMMON_BASE_HEX_H
#define COMMON_BASE_HEX_H

#include "common/base/buf.h"

/* Returns the value of a digit of either case, or -1: for characters and for -1, the end. */
static inline int hex_digit(int c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* True if the text is one or more digits of lower case. */
bool hex_is_lower(struct str s);
/* True if the text is 1 to 16 digits of lower case; then *ret is their value. */
bool hex_u64(struct str s, uint64_t *ret);
/* Reads n bytes from 2 n digits of either case. If it returns false, `to` has undefined bytes. */
bool hex_read(const char *from, size_t n, void *to);

/* Writes 2 n digits, and no NUL. */
void hex_put(const void *from, size_t n, char *to);
/* Writes 2 n digits and a NUL. */
void hex_put_c(const void *from, size_t n, char *to);
bool hex_add(struct buf *out, const void *from, size_t n);

#endif
