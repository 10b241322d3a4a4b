/* SPDX-License-Identifier: Apache-2.0 */
#include "common/render/escape.h"

#define REPLACEMENT STR("\xef\xbf\xbd")

/* Length of the character at p, 0 if it is not UTF-8 or nothing that XML allows. */
static size_t char_len(const char *p, size_t left)
{
    unsigned char c = (unsigned char)*p;
    size_t n = c < 0x80 ? 1 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;

    if (n > left || !str_utf8_valid(str_n(p, n)))
        return 0;
    /* U+FFFE and U+FFFF are not characters. */
    return n == 3 && memcmp(p, "\xef\xbf", 2) == 0 && (unsigned char)p[2] >= 0xbe ? 0 : n;
}

/* Adds one character; `special` gives the replacement of an ASCII character, or an empty text. */
static size_t put_char(struct str s, size_t at, struct str (*special)(char c), struct buf *out)
{
    size_t n = char_len(s.ptr + at, s.len - at);
    char c = s.ptr[at];

    if (n == 0) {
        buf_add_str(out, REPLACEMENT);
        return 1;
    }
    struct str instead = n == 1 ? special(c) : STR_NULL;
    if (instead.len)
        buf_add_str(out, instead);
    else if (n == 1 && ((unsigned char)c < 0x20 || c == 0x7f))
        buf_add_c(out, ' ');
    else
        buf_add(out, s.ptr + at, n);
    return n;
}

static struct str xml_special(char c)
{
    switch (c) {
    case '&':
        return STR("&amp;");
    case '<':
        return STR("&lt;");
    case '>':
        return STR("&gt;");
    case '"':
        return STR("&quot;");
    case '\'':
        return STR("&#39;");
    default:
        return STR_NULL;
    }
}

static struct str dot_special(char c)
{
    switch (c) {
    case '&':
        return STR("&amp;");
    case '"':
        return STR("\\\"");
    case '\\':
        return STR("\\\\");
    default:
        return STR_NULL;
    }
}

void escape_xml(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.len && buf_ok(out);)
        i += put_char(s, i, xml_special, out);
}

void escape_dot(struct str s, struct buf *out)
{
    for (size_t i = 0; i < s.len && buf_ok(out);)
        i += put_char(s, i, dot_special, out);
}
