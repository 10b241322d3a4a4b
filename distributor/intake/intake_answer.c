/* SPDX-License-Identifier: Apache-2.0
 *
 * intake_answer: one error for a request of many pushes.
 */
#include "distributor/intake/intake.h"

#define STATUS_KEY_REUSED 422

/* What may work another time goes first: the client then sends all of it again, and what was
 * stored is known by its write ids. */
static int urgency(int code)
{
    static const int order[] = {
        ERR_CONFLICT, ERR_INPUT,   ERR_LIMIT, ERR_RATE,     ERR_INTERNAL,
        ERR_IO,       ERR_TIMEOUT, ERR_BUSY,  ERR_NO_SPACE, ERR_UNAVAILABLE
    };

    for (size_t i = ARRAY_LEN(order); i > 0; i--)
        if (order[i - 1] == code)
            return (int)i;
    return 0;
}

/* Of all that want another try the soonest: what is not due then is refused again. */
static uint32_t soonest(const struct intake_result *r, int code)
{
    uint32_t s = UINT32_MAX;

    for (size_t i = 0; i < r->rows_len; i++)
        if (r->rows[i].outcome == INTAKE_REJECTED && r->rows[i].err->code == code)
            s = MIN(s, r->rows[i].err->again_s);
    return s == UINT32_MAX ? 0 : s;
}

int intake_status(const struct err *e)
{
    return e->code == ERR_CONFLICT ? STATUS_KEY_REUSED : err_http_status(e->code);
}

int intake_error(const struct intake_result *r,
                 void (*text_of)(void *cookie, size_t row, struct buf *out), void *cookie,
                 struct err *e)
{
    size_t errors = 0;
    int code = 0;
    struct buf text;

    if (r->err) {
        *e = *r->err;
        return e->code;
    }
    buf_init(&text, 64 * KIB);
    for (size_t i = 0; i < r->rows_len; i++) {
        const struct intake_row *row = &r->rows[i];
        if (row->outcome != INTAKE_REJECTED)
            continue;
        if (!code || urgency(row->err->code) > urgency(code))
            code = row->err->code;
        if (text.len < ERR_TEXT_MAX) { /* the rest would be cut off */
            buf_add_str(&text, errors ? STR("; ") : STR(""));
            if (text_of)
                text_of(cookie, i, &text);
            buf_add_str(&text, str_c(row->err->text));
        }
        errors++;
    }
    if (errors == 1)
        (void)err_set(e, code, "%.*s", STR_ARG(buf_str(&text)));
    else if (errors)
        (void)err_set(e, code, "%zu errors: %.*s", errors, STR_ARG(buf_str(&text)));
    e->again_s = soonest(r, code);
    buf_deinit(&text);
    return errors ? code : 0;
}
