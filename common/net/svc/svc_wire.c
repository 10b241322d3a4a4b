/* SPDX-License-Identifier: Apache-2.0
 *
 * svc_wire: pure functions between bytes and the terms of svc.c: content types, timeouts, frames,
 * codes, statuses, retry hints.
 *
 *       Content-Type ──> svc_type      timeout text ──> ms      body ──> svc_frame ──> message
 *       struct err ──> code of gRPC, status text, details, gRPC-Web's frame of trailers
 *
 * Three protocols share these functions, so they are here once and have no state: Connect (unary
 * and streams), gRPC, and gRPC-Web (also in base64). All text comes from outside: numbers have a
 * bound on their digits, a frame's length is checked against the limit before the frame is
 * complete, and texts of errors are bounded (STATUS_TEXT_MAX) and percent-encoded. Nothing here
 * allocates but for the buffers that the caller passes.
 *
 * Codes: svc_grpc_code and svc_err_code use one table in the order of gRPC's numbers. Several of
 * our codes may have one number there; the way back gives the code a caller should act on.
 *
 * A retry hint is written in each of the forms that clients read (struct svc_retry), since each
 * client reads only its own. Thread: any.
 */
#include "common/net/svc/svc_wire.h"

#include <stdio.h>

#include "common/base/base64.h"
#include "common/base/wr.h"

#define STATUS_TEXT_MAX 2048
#define DETAILS_MAX     (2 * ERR_TEXT_MAX)

/* ---- content types -------------------------------------------------------------------------- */

static const struct type_row {
    const char *text;
    struct svc_type type;
    bool streams; /* may carry them */
} type_rows[] = {
    { "application/proto", { SVC_CONNECT, SVC_PROTO, false }, false },
    { "application/json", { SVC_CONNECT, SVC_JSON, false }, false },
    { "application/grpc", { SVC_GRPC, SVC_PROTO, false }, true },
    { "application/grpc+proto", { SVC_GRPC, SVC_PROTO, false }, true },
    { "application/grpc+json", { SVC_GRPC, SVC_JSON, false }, true },
    { "application/grpc-web", { SVC_GRPC_WEB, SVC_PROTO, false }, true },
    { "application/grpc-web+proto", { SVC_GRPC_WEB, SVC_PROTO, false }, true },
    { "application/grpc-web+json", { SVC_GRPC_WEB, SVC_JSON, false }, true },
    { "application/grpc-web-text", { SVC_GRPC_WEB, SVC_PROTO, true }, false },
    { "application/grpc-web-text+proto", { SVC_GRPC_WEB, SVC_PROTO, true }, false },
};

/* Connect's JSON may say that it is UTF-8, and nothing else. gRPC's parameters mean nothing. */
static bool params_fit(struct str params, bool connect)
{
    struct str part;
    bool more = true;

    while (connect && str_next(&params, ';', &more, &part)) {
        part = str_trim(part);
        if (part.len && !str_eq_nocase(part, STR("charset=utf-8")) &&
            !str_eq_nocase(part, STR("charset=\"utf-8\"")))
            return false;
    }
    return true;
}

bool svc_type_parse(struct str content_type, struct svc_type *ret)
{
    ptrdiff_t at = str_find(content_type, ';');
    struct str name = str_trim(at < 0 ? content_type : str_sub(content_type, 0, (size_t)at));
    struct str params = at < 0 ? STR_NULL : str_sub(content_type, (size_t)at + 1, content_type.len);

    for (size_t i = 0; i < ARRAY_LEN(type_rows); i++) {
        const struct type_row *row = &type_rows[i];
        if (!str_eq_nocase(name, str_c(row->text)))
            continue;
        *ret = row->type;
        return params_fit(params, row->type.protocol == SVC_CONNECT);
    }
    return false;
}

const char *svc_type_text(const struct svc_type *t)
{
    for (size_t i = ARRAY_LEN(type_rows); i > 0; i--) {
        const struct svc_type *row = &type_rows[i - 1].type;
        if (row->protocol == t->protocol && row->codec == t->codec && row->base64 == t->base64)
            return type_rows[i - 1].text; /* the last one of its kind names the codec */
    }
    return "application/octet-stream";
}

void svc_accept_post(unsigned codecs, bool streams, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(type_rows); i++) {
        if (!(codecs & type_rows[i].type.codec) || (streams && !type_rows[i].streams))
            continue;
        buf_addf(out, "%s%s", out->len ? ", " : "", type_rows[i].text);
    }
}

/* ---- timeouts ------------------------------------------------------------------------------- */

bool svc_connect_timeout(struct str text, uint64_t *ret_ms)
{
    return text.len <= 10 && str_u64(text, ret_ms);
}

bool svc_grpc_timeout(struct str text, uint64_t *ret_ms)
{
    static const struct {
        char unit;
        uint64_t ns;
    } units[] = {
        { 'H', UINT64_C(3600000000000) },
        { 'M', UINT64_C(60000000000) },
        { 'S', 1000000000 },
        { 'm', 1000000 },
        { 'u', 1000 },
        { 'n', 1 },
    };
    uint64_t n;

    if (text.len < 2 || text.len > 9 || !str_u64(str_sub(text, 0, text.len - 1), &n))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (units[i].unit != text.ptr[text.len - 1])
            continue;
        /* 10^8 hours in nanoseconds are more than 64 bits hold. */
        *ret_ms = units[i].ns >= 1000000 ? n * (units[i].ns / 1000000)
                                         : (n * units[i].ns + 999999) / 1000000;
        return true;
    }
    return false;
}

/* ---- frames --------------------------------------------------------------------------------- */

int svc_frame_take(struct str *rest, size_t message_max, struct svc_frame *ret, size_t *ret_need,
                   struct err *e)
{
    *ret_need = SVC_FRAME_HEAD;
    if (rest->len < SVC_FRAME_HEAD)
        return 0;
    uint8_t flags = (uint8_t)rest->ptr[0];
    size_t len = get_u32be(rest->ptr + 1);
    if (flags & ~SVC_FRAME_GZIP)
        return -err_set(e, ERR_INPUT, "a frame with flags 0x%02x: messages have 0 or 1", flags);
    if (len > message_max)
        return -err_set(e, ERR_TOO_LARGE, "a message of %zu bytes, at most %zu are taken here", len,
                        message_max);
    *ret_need = SVC_FRAME_HEAD + len;
    if (rest->len < *ret_need)
        return 0;
    *ret = (struct svc_frame){ flags, str_sub(*rest, SVC_FRAME_HEAD, *ret_need) };
    *rest = str_sub(*rest, *ret_need, rest->len);
    return 1;
}

int svc_frame_only(struct str body, struct svc_frame *ret, struct err *e)
{
    struct str rest = body;
    size_t need;

    int got = svc_frame_take(&rest, SIZE_MAX, ret, &need, e);
    if (got < 0)
        return -got;
    if (got == 0)
        return body.len == 0
                   ? err_set(e, ERR_INPUT, "the request has no message")
                   : err_set(e, ERR_INPUT, "a frame of %zu bytes ends after %zu", need, body.len);
    if (rest.len)
        return err_set(e, ERR_INPUT, "%zu bytes behind the only message of a unary request",
                       rest.len);
    return 0;
}

void svc_frame_head(uint8_t flags, size_t len, char to[SVC_FRAME_HEAD])
{
    CHECK(len <= UINT32_MAX);
    to[0] = (char)flags;
    put_u32be(to + 1, (uint32_t)len);
}

void svc_frame_tail(const struct err *e, struct buf *out)
{
    struct svc_retry retry;
    struct buf text;
    char head[SVC_FRAME_HEAD];

    buf_init(&text, STATUS_TEXT_MAX + DETAILS_MAX + 256);
    buf_addf(&text, "grpc-status: %" PRIu32 "\r\n", svc_status(e));
    if (e) {
        buf_add_str(&text, STR("grpc-message: "));
        svc_status_text(e, &text);
        buf_add_str(&text, STR("\r\n"));
    }
    svc_retry_init(&retry, e);
    if (retry.after_s)
        buf_addf(&text, "%s: %s\r\n%s: %.*s\r\n", SVC_RETRY_PUSHBACK, retry.pushback_ms,
                 SVC_RETRY_DETAILS, STR_ARG(buf_str(&retry.details)));
    svc_retry_deinit(&retry);
    svc_frame_head(SVC_FRAME_TAIL, text.len, head);
    buf_add(out, head, sizeof(head));
    buf_add_str(out, buf_str(&text));
    buf_deinit(&text);
}

/* ---- codes ---------------------------------------------------------------------------------- */

/* The names that err.c gives to codes, in the order of gRPC's numbers. `back`: what a caller of
 * others makes of them. */
static const struct {
    const char *name;
    int back;
} grpc_codes[] = {
    { "ok", 0 },
    { "canceled", ERR_CANCELED },
    { "unknown", ERR_INTERNAL },
    { "invalid_argument", ERR_INPUT },
    { "deadline_exceeded", ERR_TIMEOUT },
    { "not_found", ERR_NOT_FOUND },
    { "already_exists", ERR_INPUT },
    { "permission_denied", ERR_FORBIDDEN },
    { "resource_exhausted", ERR_RATE },
    { "failed_precondition", ERR_CONFIG },
    { "aborted", ERR_UNAVAILABLE },
    { "out_of_range", ERR_INPUT },
    { "unimplemented", ERR_UNIMPLEMENTED },
    { "internal", ERR_INTERNAL },
    { "unavailable", ERR_UNAVAILABLE },
    { "data_loss", ERR_CORRUPT },
    { "unauthenticated", ERR_UNAUTHENTICATED },
};

uint32_t svc_grpc_code(int code)
{
    /* As over Connect, where its status is 429. */
    struct str name =
        code == ERR_TOO_LARGE ? STR("resource_exhausted") : str_c(err_connect_name(code));

    for (size_t i = 0; i < ARRAY_LEN(grpc_codes); i++)
        if (str_eqc(name, grpc_codes[i].name))
            return (uint32_t)i;
    return 2;
}

int svc_err_code(uint32_t grpc)
{
    return grpc < ARRAY_LEN(grpc_codes) ? grpc_codes[grpc].back : ERR_INTERNAL;
}

uint32_t svc_status(const struct err *e)
{
    return e ? svc_grpc_code(e->code) : 0;
}

void svc_percent(struct str text, struct buf *out)
{
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.ptr[i];
        if (c < 0x20 || c > 0x7e || c == '%')
            buf_addf(out, "%%%02X", c);
        else
            buf_add_c(out, (char)c);
    }
}

static_assert(STATUS_TEXT_MAX >= 3 * ERR_TEXT_MAX, "every byte may be escaped");
void svc_status_text(const struct err *e, struct buf *out)
{
    if (e)
        svc_percent(str_c(e->text), out);
}

/* ---- when to try again ----------------------------------------------------------------------- */

static void put_field(struct buf *out, uint8_t number, struct str bytes)
{
    wr_u8(out, (uint8_t)(number << 3 | 2));
    wr_varint(out, bytes.len);
    buf_add_str(out, bytes);
}

/* Status { 1: code, 2: message, 3: Any { 1: type, 2: RetryInfo { 1: Duration { 1: seconds } } } }.
 * Code and message are repeated here, since a client that reads this field takes them from it. */
static void put_status(const struct err *e, uint32_t after_s, struct buf *out)
{
    struct buf any, info;

    buf_init(&any, 128);
    buf_init(&info, 32);
    wr_u8(&info, 1 << 3 | 2);
    wr_varint(&info, 1 + varint_len(after_s));
    wr_u8(&info, 1 << 3);
    wr_varint(&info, after_s);
    put_field(&any, 1, STR("type.googleapis.com/google.rpc.RetryInfo"));
    put_field(&any, 2, buf_str(&info));
    wr_u8(out, 1 << 3);
    wr_varint(out, svc_status(e));
    put_field(out, 2, str_c(e->text));
    put_field(out, 3, buf_str(&any));
    buf_deinit(&any);
    buf_deinit(&info);
}

static_assert(DETAILS_MAX >= (ERR_TEXT_MAX + 128) * 4 / 3 + 4, "in base64");
void svc_retry_init(struct svc_retry *r, const struct err *e)
{
    struct buf status;

    *r = (struct svc_retry){ .after_s = e ? http_retry_after(err_connect_status(e->code), e) : 0 };
    buf_init(&r->details, DETAILS_MAX);
    if (!r->after_s)
        return;
    (void)snprintf(r->pushback_ms, sizeof(r->pushback_ms), "%" PRIu64, (uint64_t)r->after_s * 1000);
    buf_init(&status, ERR_TEXT_MAX + 128);
    put_status(e, r->after_s, &status);
    CHECK(buf_ok(&status) && base64_encode(buf_str(&status), &r->details));
    buf_deinit(&status);
    while (r->details.len && r->details.ptr[r->details.len - 1] == '=')
        r->details.len--;
}

void svc_retry_deinit(struct svc_retry *r)
{
    buf_deinit(&r->details);
}
