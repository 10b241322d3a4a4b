/* SPDX-License-Identifier: Apache-2.0
 *
 * s3_xml: finds elements by name and takes their text. That is all these answers need: the elements
 * we look for hold text only, and what is around them is not looked at. No document can make it do
 * more than walk over its bytes a few times: no nesting is kept, entities are the five of XML and
 * numbers below 128.
 */
#include "common/object/s3_xml.h"

#include <stdio.h>

#include "common/base/mem.h"

/* The text between <name ...> and </name>, the first of them behind *at; moves *at behind it. */
static bool element(struct str xml, size_t *at, const char *name, struct str *ret)
{
    size_t n = strlen(name);

    for (size_t i = *at; i + n + 2 <= xml.len; i++) {
        const char *from = memchr(xml.ptr + i, '<', xml.len - i);
        struct str rest;
        ptrdiff_t open;
        char end[40];
        const char *close;

        if (!from || (size_t)(from - xml.ptr) + n + 2 > xml.len)
            return false;
        i = (size_t)(from - xml.ptr);
        if (memcmp(from + 1, name, n) != 0 || (from[n + 1] != '>' && from[n + 1] != ' '))
            continue;
        rest = str_sub(xml, i, xml.len);
        open = str_find(rest, '>');
        if (open < 0)
            return false;
        rest = str_sub(rest, (size_t)open + 1, rest.len);
        int len = snprintf(end, sizeof(end), "</%s>", name);
        CHECK(len > 0 && (size_t)len < sizeof(end));
        close = memmem(rest.ptr, rest.len, end, (size_t)len);
        if (!close)
            return false;
        *ret = str_n(rest.ptr, (size_t)(close - rest.ptr));
        *at = (size_t)(close + len - xml.ptr);
        return true;
    }
    return false;
}

static bool entity(struct str s, char *ret)
{
    static const struct {
        const char *name;
        char c;
    } known[] = { { "amp", '&' }, { "lt", '<' }, { "gt", '>' }, { "quot", '"' }, { "apos", '\'' } };
    uint64_t n;

    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        if (str_eqc(s, known[i].name)) {
            *ret = known[i].c;
            return true;
        }
    }
    if (s.len < 2 || s.ptr[0] != '#' || !str_u64(str_sub(s, 1, s.len), &n) || n >= 128)
        return false;
    *ret = (char)n;
    return true;
}

/* Bytes written to `out`, or -1. */
static ptrdiff_t unescape(struct str s, char *out, size_t size)
{
    size_t at = 0;

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];

        if (c == '&') {
            struct str rest = str_sub(s, i + 1, s.len);
            ptrdiff_t end = str_find(rest, ';');
            if (end < 0 || !entity(str_sub(rest, 0, (size_t)end), &c))
                return -1;
            i += (size_t)end + 1;
        }
        if (at == size)
            return -1;
        out[at++] = c;
    }
    return (ptrdiff_t)at;
}

static void text_of(struct str xml, const char *name, char *ret, size_t size)
{
    struct str s;
    size_t at = 0, n = 0;

    if (!element(xml, &at, name, &s))
        s = STR_NULL;
    for (; n < s.len && n + 1 < size; n++)
        ret[n] = s.ptr[n] >= ' ' && s.ptr[n] < 0x7f ? s.ptr[n] : '?';
    ret[n] = '\0';
}

void s3_xml_error(struct str xml, char *ret_code, size_t code_size, char *ret_text,
                  size_t text_size)
{
    text_of(xml, "Code", ret_code, code_size);
    text_of(xml, "Message", ret_text, text_size);
}

int s3_xml_list(struct str xml, bool (*fn)(void *cookie, struct str key, uint64_t size),
                void *cookie, bool *ret_more, struct err *e)
{
    struct str result, item, text;
    char key[S3_XML_KEY_MAX];
    size_t at = 0;

    if (!element(xml, &at, "ListBucketResult", &result))
        return err_set(e, ERR_CORRUPT, "%zu bytes are no listing of a bucket", xml.len);
    at = 0;
    *ret_more = element(result, &at, "IsTruncated", &text) && str_eqc(str_trim(text), "true");
    for (at = 0; element(result, &at, "Contents", &item);) {
        struct str name, bytes;
        size_t from = 0, size_at = 0;
        uint64_t size;
        ptrdiff_t n;

        if (!element(item, &from, "Key", &name) || !element(item, &size_at, "Size", &bytes) ||
            !str_u64(str_trim(bytes), &size))
            return err_set(e, ERR_CORRUPT, "an object of the listing has no key or size");
        n = unescape(name, key, sizeof(key));
        if (n < 0)
            return err_set(e, ERR_CORRUPT, "the key of an object cannot be read");
        if (!fn(cookie, str_n(key, (size_t)n), size))
            break;
    }
    return 0;
}
