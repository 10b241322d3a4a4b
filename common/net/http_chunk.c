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

#include "common/base/hex.h"
#include "common/net/http_head.h"

enum chunk_state {
    CHUNK_SIZE,
    CHUNK_EXT, /* behind ';': a name begins */
    CHUNK_EXT_NAME,
    CHUNK_EXT_EQUALS, /* behind '=': a value begins */
    CHUNK_EXT_VALUE,
    CHUNK_EXT_QUOTED,
    CHUNK_EXT_END, /* behind a quoted value */
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
#define CHUNK_DIGITS_MAX 15 /* a size of 2^60 or more is refused */

static const char *expect(struct http_chunk *c, bool ok, enum chunk_state to, const char *why)
{
    c->state = (uint8_t)to;
    return ok ? NULL : why;
}

static const char *size_byte(struct http_chunk *c, uint8_t b)
{
    int digit = hex_digit(b);

    if (digit >= 0) {
        c->left = c->left << 4 | (uint64_t)digit;
        return ++c->digits <= CHUNK_DIGITS_MAX ? NULL : "a chunk size of more than 15 digits";
    }
    return expect(c, c->digits && (b == ';' || b == '\r'), b == ';' ? CHUNK_EXT : CHUNK_SIZE_LF,
                  "a chunk size is not a hexadecimal number");
}

static const char *count_extra(struct http_chunk *c)
{
    return ++c->extra > HTTP_CHUNK_EXTRA_MAX ? "more than 16 KiB of chunk extensions and trailers"
                                             : NULL;
}

static bool is_text(uint8_t b)
{
    return b == '\t' || (b >= 0x20 && b != 0x7f);
}

/* ;name=value or ;name="quoted": taken apart only to know that no quote hides the CRLF behind it.
 * One is enough for whoever uses them, and llhttp 8.1 takes what follows a value and ';' for more
 * digits of the size. */
static const char *ext_byte(struct http_chunk *c, uint8_t b)
{
    static const char bad[] = "a chunk has more than one extension of the form ';name=value'";
    bool token = http_is_tchar(b);
    const char *why = count_extra(c);

    if (why)
        return why;
    if (c->state == CHUNK_EXT_QUOTED) {
        if (b == '"')
            c->state = CHUNK_EXT_END;
        return b != '\\' && is_text(b) ? NULL : bad;
    }
    if (c->state != CHUNK_EXT && c->state != CHUNK_EXT_EQUALS && b == '\r') {
        c->state = CHUNK_SIZE_LF;
        return NULL;
    }
    if (c->state == CHUNK_EXT)
        return expect(c, token, CHUNK_EXT_NAME, bad);
    if (c->state == CHUNK_EXT_NAME)
        return expect(c, token || b == '=', b == '=' ? CHUNK_EXT_EQUALS : CHUNK_EXT_NAME, bad);
    if (c->state == CHUNK_EXT_EQUALS)
        return expect(c, token || b == '"', b == '"' ? CHUNK_EXT_QUOTED : CHUNK_EXT_VALUE, bad);
    return c->state == CHUNK_EXT_VALUE && token ? NULL : bad;
}

/* Names that say how long a body is belong in the head; where a parser heeds them in a trailer
 * (llhttp does), it sees another message than we do. */
static bool is_framing(const struct http_chunk *c)
{
    struct str name = { c->name, MIN((size_t)c->name_len, sizeof(c->name)) };

    return str_eq_nocase(name, STR("Transfer-Encoding")) ||
           str_eq_nocase(name, STR("Content-Length")) || str_eq_nocase(name, STR("Host")) ||
           str_eq_nocase(name, STR("Connection")) || str_eq_nocase(name, STR("Upgrade"));
}

static const char *trailer_byte(struct http_chunk *c, uint8_t b)
{
    const char *why = count_extra(c);

    if (why)
        return why;
    if (c->state == CHUNK_TRAILER_VALUE) {
        if (b == '\r')
            c->state = CHUNK_TRAILER_LF;
        return b == '\r' || is_text(b) ? NULL : "a control byte in a trailer";
    }
    if (c->state == CHUNK_TRAILER_START) {
        c->name_len = 0;
        if (b == '\r') {
            c->state = CHUNK_END_LF;
            return NULL;
        }
    } else if (b == ':') {
        c->state = CHUNK_TRAILER_VALUE;
        return is_framing(c) ? "a trailer that belongs in the head" : NULL;
    }
    c->state = CHUNK_TRAILER_NAME;
    if (c->name_len < sizeof(c->name))
        c->name[c->name_len] = (char)b;
    if (c->name_len < UINT8_MAX)
        c->name_len++;
    return http_is_tchar(b) ? NULL : "a trailer is not 'name: value'";
}

static const char *chunk_byte(struct http_chunk *c, uint8_t b)
{
    switch ((enum chunk_state)c->state) {
    case CHUNK_SIZE:
        return size_byte(c, b);
    case CHUNK_EXT:
    case CHUNK_EXT_NAME:
    case CHUNK_EXT_EQUALS:
    case CHUNK_EXT_VALUE:
    case CHUNK_EXT_QUOTED:
    case CHUNK_EXT_END:
        return ext_byte(c, b);
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
    case CHUNK_TRAILER_VALUE:
        return trailer_byte(c, b);
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

uint64_t http_chunk_ahead(const struct http_chunk *c)
{
    return c->state == CHUNK_BODY ? c->left : 0;
}
