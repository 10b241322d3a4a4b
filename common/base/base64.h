/* SPDX-License-Identifier: Apache-2.0
 *
 * base64.h: RFC 4648, both alphabets on the way in, the standard one on the way out.
 */
#ifndef COMMON_BASE_BASE64_H
#define COMMON_BASE_BASE64_H

#include "common/base/buf.h"

/* Appends the bytes. Standard and URL-safe letters, mixed if need be; padding may be missing at the
 * end, and may end any group of four (texts that were encoded one by one and put together). False:
 * another byte, a lone last letter, or bits that stand for nothing; or *out is full. */
bool base64_decode(struct str text, struct buf *out) NODISCARD;
/* Appends the text, with padding. False: *out is full. */
bool base64_encode(struct str bytes, struct buf *out);

#endif
