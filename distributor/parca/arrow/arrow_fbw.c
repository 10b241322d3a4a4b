/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_fbw.c: writes flatbuffers front to back: a vtable, its table, then what the table refers
 * to.
 *
 * Each table has its own vtable and 8 bytes for each field. That wastes some bytes of small
 * messages, and saves all bookkeeping of alignment. References are written as zero and patched when
 * their target is written. A full buffer is found at the end (buf_ok); until then writes are
 * skipped.
 */
#include "distributor/parca/arrow/arrow_fbw.h"

#include "common/base/wr.h"

static void pad(struct fbw *w, size_t to, size_t rest)
{
    while ((w->out->len - w->base) % to != rest && buf_add_c(w->out, 0))
        ;
}

static void zeros(struct fbw *w, size_t n)
{
    char *to = buf_room(w->out, n);

    if (!to)
        return;
    memset(to, 0, n);
    w->out->len += n;
}

static void patch(struct fbw *w, size_t at, const void *p, size_t n)
{
    if (buf_ok(w->out))
        memcpy(w->out->ptr + at, p, n);
}

static void patch_u32(struct fbw *w, size_t at, size_t v)
{
    char four[4];

    put_u32le(four, (uint32_t)v);
    patch(w, at, four, sizeof(four));
}

void fbw_init(struct fbw *w, struct buf *out)
{
    *w = (struct fbw){ out, out->len };
    zeros(w, 4); /* the reference to the root */
}

/* The vtable stands in front of its table; present fields follow each other. */
size_t fbw_table(struct fbw *w, uint32_t mask)
{
    unsigned fields = 0, present = 0;

    while (fields < 32 && mask >> fields)
        fields++;
    size_t bytes = 4 + 2 * (size_t)fields;
    pad(w, 8, (12 - bytes % 8) % 8); /* the table starts 4 before a multiple of 8 */
    size_t vtable = w->out->len, table = vtable + bytes;
    zeros(w, bytes + 4);
    for (unsigned i = 0; i < fields; i++)
        if (mask >> i & 1) {
            uint16_t off = (uint16_t)(4 + 8 * present++);
            patch(w, vtable + 4 + 2 * i, &off, sizeof(off));
        }
    zeros(w, 8 * present);
    const uint16_t sizes[2] = { (uint16_t)bytes, (uint16_t)(4 + 8 * present) };
    patch(w, vtable, sizes, sizeof(sizes));
    patch_u32(w, table, bytes);
    if (buf_ok(w->out) && get_u32le(w->out->ptr + w->base) == 0)
        patch_u32(w, w->base, table - w->base);
    return table;
}

/* Where a field of the table is. */
static size_t slot(const struct fbw *w, size_t table, unsigned field)
{
    uint16_t off;

    memcpy(&off, w->out->ptr + table - get_u32le(w->out->ptr + table) + 4 + 2 * field, sizeof(off));
    CHECK(off);
    return table + off;
}

void fbw_put(struct fbw *w, size_t table, unsigned field, uint64_t v)
{
    char eight[8];

    memcpy(eight, &v, sizeof(v));
    if (buf_ok(w->out))
        patch(w, slot(w, table, field), eight, sizeof(eight));
}

void fbw_ref(struct fbw *w, size_t table, unsigned field, size_t target)
{
    if (!buf_ok(w->out))
        return;
    size_t at = slot(w, table, field);
    patch_u32(w, at, target - at);
}

size_t fbw_vector(struct fbw *w, size_t n, size_t size)
{
    size_t at;

    pad(w, 8, 4);
    at = w->out->len;
    wr_u32le(w->out, (uint32_t)n);
    zeros(w, n * size);
    return at;
}

void fbw_element(struct fbw *w, size_t vector, size_t i, size_t target)
{
    size_t at = vector + 4 + 4 * i;

    patch_u32(w, at, target - at);
}

void fbw_number(struct fbw *w, size_t vector, size_t i, uint64_t v)
{
    patch(w, vector + 4 + 8 * i, &v, sizeof(v));
}

size_t fbw_string(struct fbw *w, struct str s)
{
    size_t at = fbw_vector(w, s.len + 1, 1);

    patch_u32(w, at, s.len);
    if (s.len)
        patch(w, at + 4, s.ptr, s.len);
    return at;
}

void fbw_end(struct fbw *w)
{
    pad(w, 8, 0);
}
