/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_ask: what the server answers in the first half of a Write: {stacktrace_id: binary}.
 *
 * Format: Apache Arrow columnar format 1.5, metadata V5 (proto/FORMATS.md, "Arrow streams",
 * "Parca schema v1").
 */
#include "distributor/parca/arrow/arrow_ask.h"

#include "common/base/wr.h"
#include "distributor/parca/arrow/arrow_fbw.h"

#define VERSION_V5   4
#define TYPE_BINARY  4
#define HEAD_SCHEMA  1
#define HEAD_RECORDS 3

void arrow_ask_init(struct arrow_ask *a)
{
    *a = (struct arrow_ask){ 0 };
    buf_init(&a->data, ARROW_ASK_MAX);
}

void arrow_ask_deinit(struct arrow_ask *a)
{
    buf_deinit(&a->data);
    vec_free(&a->ends);
}

bool arrow_ask_add(struct arrow_ask *a, struct str v)
{
    if (a->ends.len >= ARROW_ASK_MAX / 16 || !buf_add_str(&a->data, v))
        return false;
    vec_push(&a->ends, (uint32_t)a->data.len);
    return true;
}

struct str arrow_ask_at(const struct arrow_ask *a, size_t i)
{
    return str_sub(buf_str(&a->data), i ? a->ends.ptr[i - 1] : 0, a->ends.ptr[i]);
}

/* Prefix and root of a message; the header table comes next, and then message_end. */
static size_t message_begin(struct fbw *w, struct buf *out, unsigned kind, size_t body)
{
    wr_u32le(out, UINT32_MAX);
    wr_u32le(out, 0);
    fbw_init(w, out);
    size_t m = fbw_table(w, 0xf);
    fbw_put(w, m, 0, VERSION_V5);
    fbw_put(w, m, 1, kind);
    fbw_put(w, m, 3, body);
    return m;
}

static void message_end(struct fbw *w)
{
    fbw_end(w);
    if (buf_ok(w->out))
        put_u32le(w->out->ptr + w->base - 4, (uint32_t)(w->out->len - w->base));
}

static void write_schema(struct str column, struct buf *out)
{
    struct fbw w;
    size_t m = message_begin(&w, out, HEAD_SCHEMA, 0);
    size_t s = fbw_table(&w, 3), fields = fbw_vector(&w, 1, 4);
    size_t f = fbw_table(&w, 0x2f);

    fbw_ref(&w, m, 2, s);
    fbw_ref(&w, s, 1, fields);
    fbw_element(&w, fields, 0, f);
    fbw_ref(&w, f, 0, fbw_string(&w, column));
    fbw_put(&w, f, 2, TYPE_BINARY);
    fbw_ref(&w, f, 3, fbw_table(&w, 0));
    fbw_ref(&w, f, 5, fbw_vector(&w, 0, 4));
    message_end(&w);
}

static size_t padded(size_t n)
{
    return (n + 7) / 8 * 8;
}

static void write_records(const struct arrow_ask *a, struct buf *out)
{
    size_t offsets = 4 * (a->ends.len + 1), body = padded(offsets) + padded(a->data.len);
    struct fbw w;
    size_t m = message_begin(&w, out, HEAD_RECORDS, body);
    size_t r = fbw_table(&w, 7), nodes = fbw_vector(&w, 1, 16), bufs = fbw_vector(&w, 3, 16);

    fbw_ref(&w, m, 2, r);
    fbw_put(&w, r, 0, a->ends.len);
    fbw_ref(&w, r, 1, nodes);
    fbw_number(&w, nodes, 0, a->ends.len);
    fbw_ref(&w, r, 2, bufs); /* the first, of validity, is empty */
    fbw_number(&w, bufs, 3, offsets);
    fbw_number(&w, bufs, 4, padded(offsets));
    fbw_number(&w, bufs, 5, a->data.len);
    message_end(&w);
    size_t from = out->len;
    wr_u32le(out, 0);
    vec_for (i, &a->ends)
        wr_u32le(out, a->ends.ptr[i]);
    while (buf_ok(out) && (out->len - from) % 8)
        buf_add_c(out, 0);
    buf_add_str(out, buf_str(&a->data));
    while (buf_ok(out) && (out->len - from) % 8)
        buf_add_c(out, 0);
}

bool arrow_ask_write(const struct arrow_ask *a, struct str column, struct buf *out)
{
    write_schema(column, out);
    write_records(a, out);
    wr_u32le(out, UINT32_MAX);
    wr_u32le(out, 0);
    return buf_ok(out);
}
