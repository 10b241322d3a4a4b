/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_fb.c: reads tables, vectors and strings of flatbuffers, checked at each access.
 *
 * Offsets are relative to where they stand and come from outside: each is added with a check
 * against the buffer, and ERR_INPUT names the field that points outside. A field that is absent
 * gives its default. Nothing recurses; depth is the caller's concern. Pure: any thread.
 */
#include "distributor/parca/arrow/arrow_fb.h"

#include "common/base/wr.h"

static int outside(const char *what, size_t at, size_t len, struct err *e)
{
    return err_set(e, ERR_INPUT, "arrow metadata: a %s at %zu is not inside its %zu bytes", what,
                   at, len);
}

static uint16_t u16_at(struct str b, size_t at)
{
    uint16_t v;

    memcpy(&v, b.ptr + at, sizeof(v));
    return v;
}

static bool fits(struct str b, size_t at, size_t n)
{
    return at <= b.len && n <= b.len - at;
}

static int table_at(struct str buf, size_t at, struct fb_table *ret, struct err *e)
{
    struct fb_table t = { .buf = buf, .at = at };

    if (!fits(buf, at, 4))
        return outside("table", at, buf.len, e);
    int64_t vtable = (int64_t)at - (int32_t)get_u32le(buf.ptr + at);
    if (vtable < 0 || !fits(buf, (size_t)vtable, 4))
        return outside("vtable", (size_t)vtable, buf.len, e);
    t.vtable = (size_t)vtable;
    t.fields = u16_at(buf, t.vtable);
    t.size = u16_at(buf, t.vtable + 2);
    if (t.fields < 4 || !fits(buf, t.vtable, t.fields))
        return outside("vtable", t.vtable, buf.len, e);
    if (t.size < 4 || !fits(buf, at, t.size))
        return outside("table", at, buf.len, e);
    *ret = t;
    return 0;
}

int fb_root(struct str buf, struct fb_table *ret, struct err *e)
{
    if (buf.len < 4)
        return outside("root", 0, buf.len, e);
    return table_at(buf, get_u32le(buf.ptr), ret, e);
}

/* Where a field of `size` bytes is in the buffer; *ret = 0: absent. */
static int find(const struct fb_table *t, unsigned field, size_t size, size_t *ret, struct err *e)
{
    size_t slot = 4 + 2 * (size_t)field;

    *ret = 0;
    if (slot + 2 > t->fields)
        return 0;
    size_t off = u16_at(t->buf, t->vtable + slot);
    if (off == 0)
        return 0;
    if (off + size > t->size)
        return outside("field", t->at + off, t->buf.len, e);
    *ret = t->at + off;
    return 0;
}

int fb_u8(const struct fb_table *t, unsigned field, uint8_t *ret, struct err *e)
{
    size_t at;

    if (find(t, field, 1, &at, e))
        return e->code;
    if (at)
        *ret = (uint8_t)t->buf.ptr[at];
    return 0;
}

int fb_i16(const struct fb_table *t, unsigned field, int16_t *ret, struct err *e)
{
    size_t at;

    if (find(t, field, 2, &at, e))
        return e->code;
    if (at)
        *ret = (int16_t)u16_at(t->buf, at);
    return 0;
}

int fb_i32(const struct fb_table *t, unsigned field, int32_t *ret, struct err *e)
{
    size_t at;

    if (find(t, field, 4, &at, e))
        return e->code;
    if (at)
        *ret = (int32_t)get_u32le(t->buf.ptr + at);
    return 0;
}

int fb_i64(const struct fb_table *t, unsigned field, int64_t *ret, struct err *e)
{
    size_t at;

    if (find(t, field, 8, &at, e))
        return e->code;
    if (at)
        *ret = (int64_t)get_u64le(t->buf.ptr + at);
    return 0;
}

/* Where the reference at `at` leads. */
static size_t target(struct str b, size_t at)
{
    return at + get_u32le(b.ptr + at);
}

int fb_child(const struct fb_table *t, unsigned field, bool *ret_has, struct fb_table *ret,
             struct err *e)
{
    size_t at;

    *ret_has = false;
    if (find(t, field, 4, &at, e))
        return e->code;
    if (at == 0)
        return 0;
    *ret_has = true;
    return table_at(t->buf, target(t->buf, at), ret, e);
}

int fb_vector(const struct fb_table *t, unsigned field, size_t size, struct fb_vector *ret,
              struct err *e)
{
    struct fb_vector v = { .buf = t->buf };
    size_t at;

    *ret = v;
    if (find(t, field, 4, &at, e))
        return e->code;
    if (at == 0)
        return 0;
    at = target(t->buf, at);
    if (!fits(t->buf, at, 4))
        return outside("vector", at, t->buf.len, e);
    v.len = get_u32le(t->buf.ptr + at);
    v.at = at + 4;
    if (v.len > (t->buf.len - v.at) / size)
        return outside("vector", at, t->buf.len, e);
    *ret = v;
    return 0;
}

int fb_string(const struct fb_table *t, unsigned field, struct str *ret, struct err *e)
{
    struct fb_vector v;

    if (fb_vector(t, field, 1, &v, e))
        return e->code;
    *ret = v.at ? str_n(t->buf.ptr + v.at, v.len) : STR_NULL;
    return 0;
}

int fb_element(const struct fb_vector *v, size_t i, struct fb_table *ret, struct err *e)
{
    CHECK(i < v->len);
    return table_at(v->buf, target(v->buf, v->at + 4 * i), ret, e);
}

int64_t fb_number(const struct fb_vector *v, size_t i, size_t size, size_t off)
{
    CHECK(i < v->len && off + 8 <= size);
    return (int64_t)get_u64le(v->buf.ptr + v->at + i * size + off);
}
