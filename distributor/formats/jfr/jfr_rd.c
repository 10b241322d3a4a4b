/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr_rd.c: reads varints and strings of JFR, and turns strings into UTF-8.
 *
 * A string is only skipped when it is read (jfr_string_read keeps a slice of its bytes); it is
 * decoded when its text is needed, since most strings of a recording never are. Java's UTF-8 has
 * surrogates as three bytes each: pairs become one character, lone ones U+FFFD. Never reads past
 * the end.
 */
#include "distributor/formats/jfr/jfr_rd.h"

#include "common/base/utf8.h"

bool jfr_varint_end(struct rd *r, uint64_t *ret)
{
    const uint8_t *p = r->p;
    uint64_t v = 0;

    for (unsigned shift = 0; shift <= 56; shift += 7) {
        if (p == r->end)
            return false;
        uint8_t c = *p++;
        if (shift == 56 || c < 0x80) {
            *ret = v | (uint64_t)c << shift;
            r->p = p;
            return true;
        }
        v |= (uint64_t)(c & 0x7f) << shift;
    }
    return false;
}

static bool skip_units(struct rd *r, uint64_t n)
{
    uint64_t unit;

    if (n > rd_left(r))
        return false;
    for (; n > 0; n--)
        if (!jfr_varint(r, &unit))
            return false;
    return true;
}

bool jfr_string_read(struct rd *r, struct jfr_string *ret)
{
    struct rd at = *r;
    uint8_t encoding;
    uint64_t n;

    *ret = (struct jfr_string){ 0 };
    if (!rd_u8(&at, &encoding) || encoding > JFR_LATIN1)
        return false;
    ret->encoding = (enum jfr_encoding)encoding;
    if (encoding == JFR_KEY) {
        if (!jfr_varint(&at, &ret->key))
            return false;
    } else if (encoding >= JFR_UTF8) {
        if (!jfr_varint(&at, &n))
            return false;
        const uint8_t *from = at.p;
        if (encoding == JFR_UTF16 ? !skip_units(&at, n) : n > rd_left(&at))
            return false;
        if (encoding != JFR_UTF16)
            at.p += n;
        ret->bytes = str_n(from, (size_t)(at.p - from));
    }
    *r = at;
    return true;
}

static void add_utf8(struct buf *out, uint32_t c)
{
    char b[UTF8_MAX];

    buf_add(out, b, utf8_put(b, c));
}

static bool high_surrogate(uint64_t u)
{
    return u >= 0xd800 && u < 0xdc00;
}

static bool low_surrogate(uint64_t u)
{
    return u >= 0xdc00 && u < 0xe000;
}

static uint32_t pair(uint64_t high, uint64_t low)
{
    return (uint32_t)(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
}

static void add_utf16(struct buf *out, struct str units)
{
    struct rd r = rd_of(units), next;
    uint64_t u, low;

    while (jfr_varint(&r, &u)) {
        u &= 0xffff;
        next = r;
        if (high_surrogate(u) && jfr_varint(&next, &low) && low_surrogate(low)) {
            add_utf8(out, pair(u, low));
            r = next;
        } else if (high_surrogate(u) || low_surrogate(u)) {
            buf_add_c(out, '?');
        } else {
            add_utf8(out, (uint32_t)u);
        }
    }
}

/* The surrogate that three bytes of Java's UTF-8 stand for, 0 if they do not. */
static uint32_t java_surrogate(const unsigned char *p, size_t left)
{
    if (left < 3 || p[0] != 0xed || p[1] < 0xa0 || p[1] > 0xbf || (p[2] & 0xc0) != 0x80)
        return 0;
    return 0xd000u | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
}

/* Java writes U+0000 as c0 80, and what is above U+FFFF as two surrogates of three bytes. */
static void add_java(struct buf *out, struct str s)
{
    const unsigned char *p = (const unsigned char *)s.ptr;

    for (size_t i = 0; i < s.len;) {
        uint32_t high = java_surrogate(p + i, s.len - i);
        uint32_t low = high_surrogate(high) ? java_surrogate(p + i + 3, s.len - i - 3) : 0;
        if (low_surrogate(low)) {
            add_utf8(out, pair(high, low));
            i += 6;
        } else if (high) {
            buf_add_c(out, '?');
            i += 3;
        } else if (p[i] == 0xc0 && s.len - i > 1 && p[i + 1] == 0x80) {
            buf_add_c(out, '\0');
            i += 2;
        } else {
            buf_add_c(out, s.ptr[i++]);
        }
    }
}

void jfr_string_append(const struct jfr_string *s, struct buf *out)
{
    switch (s->encoding) {
    case JFR_NULL:
    case JFR_EMPTY:
    case JFR_KEY:
        return;
    case JFR_UTF8:
        if (s->bytes.len &&
            (memchr(s->bytes.ptr, 0xc0, s->bytes.len) || memchr(s->bytes.ptr, 0xed, s->bytes.len)))
            add_java(out, s->bytes);
        else
            buf_add_str(out, s->bytes);
        return;
    case JFR_UTF16:
        add_utf16(out, s->bytes);
        return;
    case JFR_LATIN1:
        for (size_t i = 0; i < s->bytes.len; i++)
            add_utf8(out, (unsigned char)s->bytes.ptr[i]);
        return;
    }
}
