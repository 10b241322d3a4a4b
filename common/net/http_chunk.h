/* SPDX-License-Identifier: Apache-2.0
 *
 * http_chunk.h: the chunked transfer coding (RFC 9112 section 7.1), strictly: CRLF pairs only, no
 * blanks around the size, extensions and trailers bounded and thrown away. Bytes may come in pieces
 * of any size; nothing is buffered here.
 */
#ifndef COMMON_NET_HTTP_CHUNK_H
#define COMMON_NET_HTTP_CHUNK_H

#include "common/base/str.h"

#define HTTP_CHUNK_EXTRA_MAX (16 * KIB) /* bytes of extensions and trailers in one body */

enum http_chunk_result { HTTP_CHUNK_MORE, HTTP_CHUNK_DATA, HTTP_CHUNK_DONE, HTTP_CHUNK_BAD };
struct http_chunk { /* zero at the start of a body */
    uint8_t state;
    uint8_t digits;
    uint8_t name_len; /* of the trailer at hand; 255 stands for more */
    uint32_t extra;
    uint64_t left; /* bytes of the current chunk still to come */
    char name[24]; /* as much of it as fits */
};
/* Reads in[*pos..) and moves *pos. DATA: *ret_data is body (a slice of `in`), call again. MORE: all
 * of `in` was read. DONE: *pos is the first byte after the body. BAD: *ret_why (static). */
enum http_chunk_result http_chunk_next(struct http_chunk *c, struct str in, size_t *pos,
                                       struct str *ret_data, const char **ret_why);
/* Bytes the chunk at hand still announces; 0 until its size was read to the end. */
uint64_t http_chunk_ahead(const struct http_chunk *c);

#endif
