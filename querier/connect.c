/* SPDX-License-Identifier: Apache-2.0 */
#include "querier/connect.h"

#include "common/base/compress.h"

#define ACCEPT_POST "application/json"

/* "application/json" with no parameter but charset=utf-8. */
static bool is_json(struct str content_type)
{
    struct str part;
    bool more = true;

    if (!str_next(&content_type, ';', &more, &part) ||
        !str_eq_nocase(str_trim(part), STR("application/json")))
        return false;
    while (str_next(&content_type, ';', &more, &part)) {
        part = str_trim(part);
        if (part.len && !str_eq_nocase(part, STR("charset=utf-8")) &&
            !str_eq_nocase(part, STR("charset=\"utf-8\"")))
            return false;
    }
    return true;
}

bool connect_accepts(struct http_req *r)
{
    struct str version = http_header(r, "Connect-Protocol-Version");
    struct str encoding = http_header(r, "Content-Encoding");
    struct err e;

    if (!is_json(http_header(r, "Content-Type"))) {
        http_reply_header(r, "Accept-Post", STR(ACCEPT_POST));
        http_reply(r, 415, NULL, NULL);
        return false;
    }
    if (version.ptr && !str_eqc(version, "1"))
        err_set(&e, ERR_INPUT, "Connect-Protocol-Version must be \"1\", not \"%.*s\"",
                (int)MIN(version.len, 40), version.ptr);
    else if (encoding.len && !str_eq_nocase(encoding, STR("identity")) &&
             !str_eq_nocase(encoding, STR("gzip")))
        err_set(&e, ERR_UNIMPLEMENTED, "unknown compression \"%.*s\": use gzip or identity",
                (int)MIN(encoding.len, 40), encoding.ptr);
    else
        return true;
    http_reply_connect_err(r, &e);
    return false;
}

NODISCARD int connect_timeout(const struct http_req *r, uint64_t *ret, struct err *e)
{
    struct str text = http_header(r, "Connect-Timeout-Ms");
    uint64_t ms;

    if (!text.ptr)
        return 0;
    if (text.len > 10 || !str_u64(text, &ms))
        return err_set(e, ERR_INPUT, "Connect-Timeout-Ms must be 1 to 10 digits, not \"%.*s\"",
                       (int)MIN(text.len, 40), text.ptr);
    *ret = ms;
    return 0;
}

NODISCARD int connect_body(const struct http_req *r, size_t bytes_max, struct json_doc **ret,
                           struct err *e)
{
    struct inflate_limits limits = { .bytes_max = bytes_max, .ratio_max = 200 };
    struct json_doc *doc = NULL;
    struct buf tmp;
    struct str text;

    buf_init(&tmp, bytes_max);
    int code = http_body_plain(r, &limits, &tmp, &text, e);
    if (!code && text.len == 0)
        code = err_set(e, ERR_INPUT, "zero-length body is no JSON message; send {}");
    if (!code)
        code = json_parse(text, &doc, e);
    if (!code && !json_is_obj(json_root(doc)))
        code = err_set(e, ERR_INPUT, "the body is no JSON object");
    if (code)
        json_doc_free(doc);
    else
        *ret = doc;
    buf_deinit(&tmp);
    return code;
}

/* Some parameter of some media range is allow-utf8-labelnames=true. */
bool connect_utf8_names(const struct http_req *r)
{
    struct str accept = http_header(r, "Accept"), range, param;
    bool ranges = true;

    while (str_next(&accept, ',', &ranges, &range)) {
        bool params = true;
        while (str_next(&range, ';', &params, &param))
            if (str_eq_nocase(str_trim(param), STR("allow-utf8-labelnames=true")))
                return true;
    }
    return false;
}
