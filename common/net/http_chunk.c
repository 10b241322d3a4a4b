/* SPDX-License-Identifier: Apache-2.0
 *
 *   SIZE ──;──> EXT ──CR──> SIZE_LF ──LF──> DATA ──> DATA_CR ──> DATA_LF ──> SIZE ...
 *                            size 0 └─────> TRAILER_START ──CR──> END_LF ──LF──> DONE
 *                                             │ name, ':', value, CRLF ▲
 *                                             └────────────────────────┘
 * Trailer lines obey the same rules as lines of the head (http_head.c), since a body that two
 * parsers end at two places is as good for smuggling as a head.
 */
#include "common/net/http_chunk.h"

#include "common/net/http_head.h"

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXT,
    CHUNK_SIZE_LF,
    CHUNK_BODY,
    CHUNK_BODY_CR,
    CHUNK_BODY_LF,
    CHUNK_TRAILER_START,
    CHUNK_TRAILER_NAME,
    CHUNK_TRAILER_VALUE,
    CHUNK_TRAILER_LF,
    CHUNK_END_LF,
    CHUNK_OVER,
};
#define CHUNK_DIGITS_MAX 15 /* 2^60 and more is no size of ours */

static int hex(uint8_t c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static const char *expect(struct http_chunk *c, bool ok, enum chunk_state to, const char *why)
{
    c->state = (uint8_t)to;
    return ok ? NULL : why;
}

static const char *size_byte(struct http_chunk *c, uint8_t b)
{
    int digit = hex(b);

    if (digit >= 0) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->digits <= CHUNK_DIGITS_MAX ? NULL : "a chunk size of more than 15 digits";
    }
    return expect(c, c->digits && (b == ';' || b == '\r'), b == ';' ? CHUNK_EXT : CHUNK_SIZE_LF,
                  "a chunk size is not a hexadecimal number");
}

/* Bytes that are thrown away up to CR. */
static const char *extra_byte(struct http_chunk *c, uint8_t b, enum chunk_state after_cr)
{
    if (b == '\r') {
        c->state = (uint8_t)after_cr;
        return NULL;
    }
    if (++c->extra > HTTP_CHUNK_EXTRA_MAX)
        return "more than 16 KiB of chunk extensions and trailers";
    return b == '\t' || (b >= 0x20 && b != 0x7f) ? NULL : "a control byte between chunks";
}

static const char *trailer_byte(struct http_chunk *c, uint8_t b)
{
    if (c->state == CHUNK_TRAILER_START && b == '\r') {
        c->state = CHUNK_END_LF;
        return NULL;
    }
    if (c->state == CHUNK_TRAILER_NAME && b == ':') {
        c->state = CHUNK_TRAILER_VALUE;
        return NULL;
    }
    c->state = CHUNK_TRAILER_NAME;
    if (++c->extra > HTTP_CHUNK_EXTRA_MAX)
        return "more than 16 KiB of chunk extensions and trailers";
    return http_is_tchar(b) ? NULL : "a trailer is not 'name: value'";
}

static const char *chunk_byte(struct http_chunk *c, uint8_t b)
{
    switch ((enum chunk_state)c->state) {
    case CHUNK_SIZE:
        return size_byte(c, b);
    case CHUNK_EXT:
        return extra_byte(c, b, CHUNK_SIZE_LF);
    case CHUNK_SIZE_LF:
        c->digits = 0;
        return expect(c, b == '\n', c->left ? CHUNK_BODY : CHUNK_TRAILER_START,
                      "a chunk size does not end in CRLF");
    case CHUNK_BODY_CR:
        return expect(c, b == '\r', CHUNK_BODY_LF, "a chunk is longer than its size says");
    case CHUNK_BODY_LF:
        return expect(c, b == '\n', CHUNK_SIZE, "a chunk does not end in CRLF");
    case CHUNK_TRAILER_START:
    case CHUNK_TRAILER_NAME:
        return trailer_byte(c, b);
    case CHUNK_TRAILER_VALUE:
        return extra_byte(c, b, CHUNK_TRAILER_LF);
    case CHUNK_TRAILER_LF:
        return expect(c, b == '\n', CHUNK_TRAILER_START, "a trailer does not end in CRLF");
    case CHUNK_END_LF:
        return expect(c, b == '\n', CHUNK_OVER, "the last chunk does not end in CRLF");
    case CHUNK_BODY:
    case CHUNK_OVER:
        break;
    }
    return "bytes after the last chunk";
}

enum http_chunk_result http_chunk_next(struct http_chunk *c, struct str in, size_t *pos,
                                       struct str *ret_data, const char **ret_why)
{
    while (*pos < in.len) {
        if (c->state == CHUNK_BODY) {
            size_t n = MIN((uint64_t)(in.len - *pos), c->left);
            *ret_data = (struct str){ in.ptr + *pos, n };
            *pos += n;
            c->left -= n;
            if (c->left == 0)
                c->state = CHUNK_BODY_CR;
            return HTTP_CHUNK_DATA;
        }
        const char *why = chunk_byte(c, (uint8_t)in.ptr[(*pos)++]);
        if (why) {
            *ret_why = why;
            return HTTP_CHUNK_BAD;
        }
        if (c->state == CHUNK_OVER)
            return HTTP_CHUNK_DONE;
    }
    return HTTP_CHUNK_MORE;
}
