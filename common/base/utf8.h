/* SPDX-License-Identifier: Apache-2.0
 *
 * utf8.h: code points to UTF-8. Whether bytes are UTF-8 says str_utf8_valid (str.h).
 */
#ifndef COMMON_BASE_UTF8_H
#define COMMON_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

#define UTF8_MAX 4 /* bytes of a code point */

/* Writes code point c <= U+10FFFF; how many bytes. Surrogates are the caller's business. */
size_t utf8_put(char *to, uint32_t c);

#endif
