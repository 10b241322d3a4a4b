/* SPDX-License-Identifier: Apache-2.0
 *
 * http_param: reading a request: headers, query and form parameters, negotiation, body encoding.
 *
 * Nothing is parsed ahead: a request has a handful of parameters and a handler asks for each once,
 * so a scan per question costs less than a table per request, and needs no memory.
 */
#include "common/net/http_param.h"

#include "common/base/compress/compress.h"
#include "common/base/hex.h"
#include "common/net/http.h"

struct str http_header(const struct http_req *r, const char *name)
{
    for (size_t i = 0; i < r->headers_len; i++) {
        if (str_eq_nocase(r->headers[i].name, str_c(name)))
            return r->headers[i].value;
    }
    return STR_NULL;
}

int http_header_once(const struct http_req *r, const char *name, struct str *ret, struct err *e)
{
    size_t n = 0;

    *ret = STR_NULL;
    for (size_t i = 0; i < r->headers_len; i++) {
        if (!str_eq_nocase(r->headers[i].name, str_c(name)))
            continue;
        if (n++)
            return err_set(e, ERR_INPUT,
                           "there is more than one %s header; send it once, and let a gateway "
                           "replace it rather than add its own",
                           name);
        *ret = r->headers[i].value;
    }
    return 0;
}

/* ---- percent-decoding */

/* One decoded byte; moves *i behind its encoded form. */
static char next_byte(struct str s, bool plus, size_t *i)
{
    char c = s.ptr[(*i)++];

    if (c == '+' && plus)
        return ' ';
    if (c != '%' || s.len - *i < 2)
        return c;
    int high = hex_digit(s.ptr[*i]), low = hex_digit(s.ptr[*i + 1]);
    if (high < 0 || low < 0)
        return c;
    *i += 2;
    return (char)(high << 4 | low);
}

struct str http_unescape(struct str s, bool plus, struct arena *a)
{
    size_t len = 0;

    if (str_find(s, '%') < 0 && (!plus || str_find(s, '+') < 0))
        return s;
    char *to = arena_alloc(a, s.len);
    if (!to)
        return STR_NULL;
    for (size_t i = 0; i < s.len;)
        to[len++] = next_byte(s, plus, &i);
    return (struct str){ to, len };
}

/* Is the written form `s` the name, once decoded? */
static bool name_is(struct str s, struct str name)
{
    size_t i = 0, k = 0;

    while (i < s.len && k < name.len) {
        if (next_byte(s, true, &i) != name.ptr[k++])
            return false;
    }
    return i == s.len && k == name.len;
}

bool form_param(struct str form, const char *name, size_t i, struct arena *a, struct str *ret)
{
    struct str part;
    bool more = true;

    while (str_next(&form, '&', &more, &part)) {
        ptrdiff_t eq = str_find(part, '=');
        size_t key_len = eq < 0 ? part.len : (size_t)eq;
        if (part.len == 0 || !name_is(str_sub(part, 0, key_len), str_c(name)) || i-- > 0)
            continue;
        struct str value = eq < 0 ? STR("") : str_sub(part, key_len + 1, part.len);
        value = http_unescape(value, true, a);
        if (!value.ptr)
            return false;
        *ret = value;
        return true;
    }
    return false;
}

bool http_param_at(const struct http_req *r, const char *name, size_t i, struct str *ret)
{
    return form_param(r->query, name, i, r->arena, ret);
}

bool http_param(const struct http_req *r, const char *name, struct str *ret)
{
    return http_param_at(r, name, 0, ret);
}

/* ---- negotiation */

/* "gzip;q=0.5": the name, and whether q allows it. */
static bool coding_allowed(struct str item, struct str *ret_name)
{
    struct str part;
    bool more = true, allowed = true, first = true;

    while (str_next(&item, ';', &more, &part)) {
        double q;

        part = str_trim(part);
        if (first)
            *ret_name = part;
        else if (str_starts(part, STR("q=")) || str_starts(part, STR("Q=")))
            allowed = str_double(str_sub(part, 2, part.len), &q) && q > 0;
        first = false;
    }
    return allowed;
}

bool http_accepts_gzip(const struct http_req *r)
{
    bool any = false;

    for (size_t i = 0; i < r->headers_len; i++) {
        struct str rest = r->headers[i].value, item, name = STR_NULL;
        bool more = true;

        if (!str_eq_nocase(r->headers[i].name, STR("Accept-Encoding")))
            continue;
        while (str_next(&rest, ',', &more, &item)) {
            bool allowed = coding_allowed(item, &name);
            if (str_eq_nocase(name, STR("gzip")) || str_eq_nocase(name, STR("x-gzip")))
                return allowed;
            if (str_eqc(name, "*"))
                any = allowed;
        }
    }
    return any;
}

bool http_none_match(const struct http_req *r, struct str etag)
{
    struct str v = http_header(r, "If-None-Match");

    if (str_eqc(v, "*"))
        return true;
    for (;;) {
        ptrdiff_t from = str_find(v, '"');
        if (from < 0)
            return false;
        v = str_sub(v, (size_t)from + 1, v.len);
        ptrdiff_t to = str_find(v, '"');
        if (to < 0)
            return false;
        if (str_eq(str_sub(v, 0, (size_t)to), etag))
            return true;
        v = str_sub(v, (size_t)to + 1, v.len);
    }
}

/* ---- the body without its encoding
 * --------------------------------------------------------------- */

/* The one Content-Encoding, empty if the request has no such header. */
static int find_coding(const struct http_req *r, struct str *ret, struct err *e)
{
    *ret = STR_NULL;
    for (size_t i = 0; i < r->headers_len; i++) {
        struct str v = r->headers[i].value;

        if (!str_eq_nocase(r->headers[i].name, STR("Content-Encoding")) || v.len == 0 ||
            str_eq_nocase(v, STR("identity")))
            continue;
        if (ret->len)
            return err_set(e, ERR_INPUT, "more than one Content-Encoding: %.*s, %.*s",
                           (int)MIN(ret->len, 64), ret->ptr, (int)MIN(v.len, 64), v.ptr);
        *ret = v;
    }
    return 0;
}

int http_body_plain(const struct http_req *r, const struct inflate_limits *l, struct buf *tmp,
                    struct str *ret, struct err *e)
{
    static const struct {
        const char *name;
        int (*decode)(struct str in, const struct inflate_limits *l, struct buf *out,
                      struct err *e);
    } codings[] = {
        { "gzip", gunzip },
        { "x-gzip", gunzip },
        { "zstd", zstd_inflate },
        { "br", brotli_decompress },
        { "deflate", deflate_decompress },
        { "snappy", snappy_inflate },
        { "x-snappy-framed", snappy_inflate },
    };
    struct str coding;
    int code = find_coding(r, &coding, e);

    if (code)
        return code;
    if (coding.len == 0) {
        *ret = r->body;
        return 0;
    }
    for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
        if (!str_eq_nocase(coding, str_c(codings[i].name)))
            continue;
        code = codings[i].decode(r->body, l, tmp, e);
        if (code)
            return err_wrap(e, "body with Content-Encoding: %s", codings[i].name);
        *ret = buf_str(tmp);
        return 0;
    }
    return err_set(
        e, ERR_INPUT,
        "Content-Encoding '%.*s' is unknown; send gzip, zstd, snappy, br, deflate or identity",
        (int)MIN(coding.len, 64), coding.ptr);
}
