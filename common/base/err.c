/* SPDX-License-Identifier: Apache-2.0
 *
 * err: codes with the names and statuses that depend on them, and the text.
 *
 * All that depends on a code is one row of a table, so a new code cannot be forgotten in one of the
 * protocols. A text that is too long is cut at the end of a UTF-8 character; err_wrap puts its
 * context in front, so the cut loses the innermost part. No function allocates: an error can
 * be reported when memory is short.  Thread: any, each with its own struct err.
 */
#include "common/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "common/base/str.h"

/* One row per code, with everything that depends on it. */
struct err_row {
    const char *name;
    const char *connect;
    int http;
    int connect_status;
};
static const struct err_row err_rows[ERR_CODES] = {
    [ERR_OK] = { "ERR_OK", "ok", 200, 200 },
    [ERR_INPUT] = { "ERR_INPUT", "invalid_argument", 400, 400 },
    [ERR_LIMIT] = { "ERR_LIMIT", "invalid_argument", 400, 400 },
    [ERR_TOO_LARGE] = { "ERR_TOO_LARGE", "invalid_argument", 413, 429 },
    [ERR_RATE] = { "ERR_RATE", "resource_exhausted", 429, 429 },
    [ERR_UNAUTHENTICATED] = { "ERR_UNAUTHENTICATED", "unauthenticated", 401, 401 },
    [ERR_FORBIDDEN] = { "ERR_FORBIDDEN", "permission_denied", 403, 403 },
    [ERR_NOT_FOUND] = { "ERR_NOT_FOUND", "not_found", 404, 404 },
    [ERR_BUSY] = { "ERR_BUSY", "unavailable", 503, 503 },
    [ERR_UNAVAILABLE] = { "ERR_UNAVAILABLE", "unavailable", 503, 503 },
    [ERR_TIMEOUT] = { "ERR_TIMEOUT", "deadline_exceeded", 504, 504 },
    [ERR_CANCELED] = { "ERR_CANCELED", "canceled", 499, 499 },
    [ERR_CONFIG] = { "ERR_CONFIG", "failed_precondition", 412, 400 },
    [ERR_IO] = { "ERR_IO", "internal", 500, 500 },
    [ERR_NO_SPACE] = { "ERR_NO_SPACE", "unavailable", 503, 503 },
    [ERR_CORRUPT] = { "ERR_CORRUPT", "data_loss", 500, 500 },
    [ERR_UNIMPLEMENTED] = { "ERR_UNIMPLEMENTED", "unimplemented", 501, 501 },
    [ERR_INTERNAL] = { "ERR_INTERNAL", "internal", 500, 500 },
    [ERR_UNSUPPORTED_MEDIA] = { "ERR_UNSUPPORTED_MEDIA", "invalid_argument", 415, 415 },
    [ERR_METHOD] = { "ERR_METHOD", "unimplemented", 405, 405 },
    [ERR_CONFLICT] = { "ERR_CONFLICT", "already_exists", 409, 409 },
};

static const struct err_row *err_row(int code)
{
    return code >= 0 && code < ERR_CODES && err_rows[code].name ? &err_rows[code]
                                                                : &err_rows[ERR_INTERNAL];
}

/* Cutting in the middle of a UTF-8 sequence would make the JSON reply invalid. */
static void trim_utf8(char *s, size_t len)
{
    size_t i = len;

    while (i > 0 && len - i < 4 && ((unsigned char)s[i - 1] & 0xc0) == 0x80)
        i--;
    if (i == 0 || (unsigned char)s[i - 1] < 0xc0)
        return;
    unsigned char lead = (unsigned char)s[i - 1];
    size_t need = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (len - (i - 1) < need)
        s[i - 1] = '\0';
}

static void put_text(struct err *e, const char *fmt, va_list ap) PRINTF(2, 0);
static void put_text(struct err *e, const char *fmt, va_list ap)
{
    char text[ERR_TEXT_MAX]; /* arguments may point into e->text */
    int n = vsnprintf(text, sizeof(text), fmt, ap);

    if (n >= (int)sizeof(text))
        trim_utf8(text, sizeof(text) - 1);
    memcpy(e->text, text, sizeof(text));
}

int err_set(struct err *e, int code, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_text(e, fmt, ap);
    va_end(ap);
    e->code = code;
    e->again_s = 0;
    return code;
}

int err_set_again(struct err *e, int code, uint32_t again_s, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    put_text(e, fmt, ap);
    va_end(ap);
    e->code = code;
    e->again_s = again_s;
    return code;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    va_list ap;
    char text[ERR_TEXT_MAX];

    va_start(ap, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (n < 0)
        return e->code;
    size_t used = MIN((size_t)n, sizeof(text) - 1);
    struct str parts[] = { STR(": "), str_c(e->text) };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        size_t take = MIN(parts[i].len, sizeof(text) - 1 - used);
        memcpy(text + used, parts[i].ptr, take);
        used += take;
    }
    text[used] = '\0';
    if (used == sizeof(text) - 1)
        trim_utf8(text, used);
    memcpy(e->text, text, sizeof(text));
    return e->code;
}

int err_errno(struct err *e, int errnum, const char *fmt, ...)
{
    va_list ap;
    char text[ERR_TEXT_MAX / 2];
    char reason[128];

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    return err_set(e, errnum == ENOSPC || errnum == EDQUOT ? ERR_NO_SPACE : ERR_IO, "%s: %s", text,
                   strerror_r(errnum, reason, sizeof(reason)));
}

void err_clear(struct err *e)
{
    e->code = ERR_OK;
    e->text[0] = '\0';
    e->again_s = 0;
}

const char *err_connect_name(int code)
{
    return err_row(code)->connect;
}

int err_http_status(int code)
{
    return err_row(code)->http;
}

int err_connect_status(int code)
{
    return err_row(code)->connect_status;
}

const char *err_name(int code)
{
    return err_row(code)->name;
}
