/* SPDX-License-Identifier: Apache-2.0
 *
 * msg_out: one writer, two encodings.
 *
 * A length stands before its message and is known behind it. Room for it is kept when the message
 * begins: one byte, or as many as the caller's guess needs. At the end the length goes there; where
 * it needs another number of bytes than were kept, the message is moved by the difference. So most
 * (labels, points) are never moved, and large ones only if no length could be guessed. No byte is
 * ever in two buffers.
 */
#include "querier/messages/msg_out.h"

#include "common/base/base64.h"
#include "common/base/wr.h"

enum { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2 };

void msg_out_init(struct msg_out *o, bool json, struct buf *out)
{
    *o = (struct msg_out){ .out = out, .is_json = json };
    json_init(&o->json, out);
    if (json)
        json_obj(&o->json);
}

void msg_out_end(struct msg_out *o)
{
    CHECK(o->depth == 0);
    if (o->is_json)
        json_obj_end(&o->json);
}

static struct msg_out_level *push(struct msg_out *o)
{
    CHECK(o->depth < MSG_OUT_DEPTH);
    struct msg_out_level *l = &o->level[o->depth++];
    *l = (struct msg_out_level){ 0 };
    return l;
}

static struct msg_out_level *top(struct msg_out *o)
{
    CHECK(o->depth > 0);
    return &o->level[o->depth - 1];
}

/* What stands before a value: its tag, or its key. */
static void begin(struct msg_out *o, uint32_t number, const char *name, unsigned wire)
{
    if (!name) {
        struct msg_out_level *l = top(o);
        CHECK(l->list);
        number = l->number;
        if (o->is_json && !l->any) {
            json_key(&o->json, l->name);
            json_arr(&o->json);
        }
        l->any = true;
    } else if (o->is_json) {
        json_key(&o->json, name);
    }
    if (!o->is_json)
        wr_varint(o->out, (uint64_t)number << 3 | wire);
}

/* ---- messages and lists ---- */

void msg_out_obj_of(struct msg_out *o, uint32_t number, const char *name, size_t bytes)
{
    static const char room[10];

    begin(o, number, name, WIRE_BYTES);
    struct msg_out_level *l = push(o);
    if (o->is_json) {
        json_obj(&o->json);
        return;
    }
    l->start = o->out->len;
    l->width = (unsigned)varint_len(bytes);
    buf_add(o->out, room, l->width);
}

void msg_out_obj(struct msg_out *o, uint32_t number, const char *name)
{
    msg_out_obj_of(o, number, name, 0);
}

void msg_out_obj_end(struct msg_out *o)
{
    struct msg_out_level *l = top(o);
    struct buf *b = o->out;

    CHECK(!l->list);
    o->depth--;
    if (o->is_json) {
        json_obj_end(&o->json);
        return;
    }
    if (!buf_ok(b))
        return;
    size_t from = l->start + l->width, len = b->len - from, width = varint_len(len);
    if (width > l->width && !buf_room(b, width - l->width))
        return;
    if (width != l->width)
        memmove(b->ptr + l->start + width, b->ptr + from, len);
    (void)varint_put((uint8_t *)(void *)(b->ptr + l->start), len);
    b->len = l->start + width + len;
}

void msg_out_list(struct msg_out *o, uint32_t number, const char *name)
{
    struct msg_out_level *l = push(o);

    l->list = true;
    l->number = number;
    l->name = name;
}

void msg_out_list_end(struct msg_out *o)
{
    struct msg_out_level *l = top(o);

    CHECK(l->list);
    o->depth--;
    if (o->is_json && l->any)
        json_arr_end(&o->json);
}

/* ---- values ---- */

static void put_bytes(struct msg_out *o, struct str v)
{
    wr_varint(o->out, v.len);
    buf_add_str(o->out, v);
}

/* Readers of proto3 refuse a whole message for one string that is not UTF-8: bytes that are not
 * become U+FFFD, as in JSON. */
static void put_mended(struct msg_out *o, struct str v)
{
    struct buf text;

    buf_init(&text, v.len * 3);
    for (size_t i = 0, n; i < v.len; i += n) {
        for (n = 1; n < 4 && i + n < v.len && !str_utf8_valid(str_sub(v, i, i + n));)
            n++;
        if (str_utf8_valid(str_sub(v, i, i + n))) {
            buf_add_str(&text, str_sub(v, i, i + n));
        } else {
            buf_add_str(&text, STR("\xef\xbf\xbd"));
            n = 1;
        }
    }
    put_bytes(o, buf_str(&text));
    buf_deinit(&text);
}

void msg_out_str(struct msg_out *o, uint32_t number, const char *name, struct str v)
{
    if (name && !v.len)
        return;
    begin(o, number, name, WIRE_BYTES);
    if (o->is_json)
        json_str(&o->json, v);
    else if (str_utf8_valid(v))
        put_bytes(o, v);
    else
        put_mended(o, v);
}

void msg_out_bytes(struct msg_out *o, uint32_t number, const char *name, struct str v)
{
    if (name && !v.len)
        return;
    begin(o, number, name, WIRE_BYTES);
    if (!o->is_json) {
        put_bytes(o, v);
        return;
    }
    json_str(&o->json, STR("")); /* then the text goes between the quotes */
    if (buf_ok(o->out)) {
        o->out->len--;
        base64_encode(v, o->out);
        buf_add_c(o->out, '"');
    }
}

void msg_out_i64(struct msg_out *o, uint32_t number, const char *name, int64_t v)
{
    if (name && !v)
        return;
    begin(o, number, name, WIRE_VARINT);
    if (o->is_json)
        json_i64_str(&o->json, v);
    else
        wr_varint(o->out, (uint64_t)v);
}

void msg_out_u64(struct msg_out *o, uint32_t number, const char *name, uint64_t v)
{
    if (v <= INT64_MAX || !o->is_json) {
        msg_out_i64(o, number, name, (int64_t)v);
        return;
    }
    char text[20];
    size_t at = sizeof(text);
    for (; v; v /= 10)
        text[--at] = (char)('0' + v % 10);
    msg_out_str(o, number, name, str_n(text + at, sizeof(text) - at));
}

void msg_out_i32(struct msg_out *o, uint32_t number, const char *name, int32_t v)
{
    if (name && !v)
        return;
    begin(o, number, name, WIRE_VARINT);
    if (o->is_json)
        json_i64(&o->json, v);
    else
        wr_varint(o->out, (uint64_t)(int64_t)v);
}

static void put_double(struct buf *b, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    wr_u64le(b, bits);
}

void msg_out_double(struct msg_out *o, uint32_t number, const char *name, double v)
{
    if (name && v == 0)
        return;
    begin(o, number, name, WIRE_64);
    if (o->is_json)
        json_double(&o->json, v);
    else
        put_double(o->out, v);
}

void msg_out_bool(struct msg_out *o, uint32_t number, const char *name, bool v)
{
    if (name && !v)
        return;
    begin(o, number, name, WIRE_VARINT);
    if (o->is_json)
        json_bool(&o->json, v);
    else
        wr_varint(o->out, v);
}

void msg_out_enum(struct msg_out *o, uint32_t number, const char *name, uint32_t v,
                  const char *text)
{
    if (name && !v)
        return;
    begin(o, number, name, WIRE_VARINT);
    if (o->is_json)
        json_cstr(&o->json, text);
    else
        wr_varint(o->out, v);
}

/* ---- lists of numbers ---- */

static uint64_t shown(uint64_t v)
{
    return MIN(v, (uint64_t)INT64_MAX);
}

size_t msg_out_size(uint32_t number, size_t n)
{
    return varint_len((uint64_t)number << 3) + varint_len(n) + n;
}

size_t msg_out_i64s_size(const uint64_t *v, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += varint_len(shown(v[i]));
    return bytes;
}

/* Opens the list; true: as JSON. */
static bool begin_numbers(struct msg_out *o, uint32_t number, const char *name, size_t bytes)
{
    begin(o, number, name, WIRE_BYTES);
    if (o->is_json)
        json_arr(&o->json);
    else
        wr_varint(o->out, bytes);
    return o->is_json;
}

void msg_out_i64s(struct msg_out *o, uint32_t number, const char *name, const uint64_t *v, size_t n)
{
    if (!n)
        return;
    if (begin_numbers(o, number, name, o->is_json ? 0 : msg_out_i64s_size(v, n))) {
        for (size_t i = 0; i < n; i++)
            json_i64_str(&o->json, (int64_t)shown(v[i]));
        json_arr_end(&o->json);
        return;
    }
    for (size_t i = 0; i < n; i++)
        wr_varint(o->out, shown(v[i]));
}

void msg_out_i32s(struct msg_out *o, uint32_t number, const char *name, const uint32_t *v, size_t n)
{
    size_t bytes = 0;

    if (!n)
        return;
    for (size_t i = 0; i < n; i++)
        bytes += varint_len(MIN(v[i], (uint32_t)INT32_MAX));
    bool json = begin_numbers(o, number, name, bytes);
    for (size_t i = 0; i < n; i++) {
        if (json)
            json_u64(&o->json, MIN(v[i], (uint32_t)INT32_MAX));
        else
            wr_varint(o->out, MIN(v[i], (uint32_t)INT32_MAX));
    }
    if (json)
        json_arr_end(&o->json);
}

void msg_out_doubles(struct msg_out *o, uint32_t number, const char *name, const double *v,
                     size_t n)
{
    if (!n)
        return;
    bool json = begin_numbers(o, number, name, n * sizeof(double));
    for (size_t i = 0; i < n; i++) {
        if (json)
            json_double(&o->json, v[i]);
        else
            put_double(o->out, v[i]);
    }
    if (json)
        json_arr_end(&o->json);
}

/* ---- more ---- */

void msg_out_labels(struct msg_out *o, uint32_t number, const char *name, const struct labels *l)
{
    msg_out_list(o, number, name);
    for (size_t i = 0; i < l->len; i++) {
        msg_out_obj(o, MSG_ITEM);
        msg_out_str(o, 1, "name", l->ptr[i].name);
        msg_out_str(o, 2, "value", l->ptr[i].value);
        msg_out_obj_end(o);
    }
    msg_out_list_end(o);
}

void msg_out_raw(struct msg_out *o, uint32_t number, struct str message)
{
    CHECK(!o->is_json);
    wr_varint(o->out, (uint64_t)number << 3 | WIRE_BYTES);
    put_bytes(o, message);
}
