/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_cell: the value of one cell. Every index, offset and length of the input is held against
 * what it points into at the moment it is used; the length of buffers was checked before
 * (arrow_batch.c).
 */
#include "common/base/wr.h"
#include "distributor/parca/arrow/arrow.h"

#define VIEW_INLINE 12 /* bytes of a value that stand in the view itself */

bool arrow_fault(struct arrow *a, uint32_t field, const char *what, int64_t n)
{
    const struct arrow_field *f = &a->schema.fields.ptr[field];

    if (!a->fault.code)
        (void)err_set(&a->fault, ERR_INPUT, "arrow column \"%.*s\" (%s): %s %" PRId64,
                      STR_ARG(str_sub(f->name, 0, 64)), arrow_kind_name(f->kind), what, n);
    return false;
}

static struct arrow_col *column(const struct arrow_cell *c)
{
    return &c->batch->cols[c->field - c->batch->first];
}

static uint64_t load(const char *p, uint32_t width, bool is_signed)
{
    uint16_t two;

    switch (width) {
    case 1:
        return is_signed ? (uint64_t)(int64_t)(int8_t)*p : (uint8_t)*p;
    case 2:
        memcpy(&two, p, sizeof(two));
        return is_signed ? (uint64_t)(int64_t)(int16_t)two : two;
    case 4:
        return is_signed ? (uint64_t)(int64_t)(int32_t)get_u32le(p) : get_u32le(p);
    default:
        return get_u64le(p);
    }
}

/* The i-th offset or size of a list or of bytes; a negative one counts as beyond the end. */
static uint64_t offset(const struct arrow_field *f, const char *p, uint64_t i)
{
    return f->wide ? get_u64le(p + 8 * i) : (uint64_t)(int64_t)(int32_t)get_u32le(p + 4 * i);
}

/* The run that has this row: run ends ascend, and the last one is not below the row. */
static uint64_t find_run(struct arrow_col *c, uint64_t row)
{
    const struct arrow_col *ends = c + 1;
    uint32_t w = ends->field->width;
    uint64_t lo = 0, hi = ends->len - 1, hint = c->hint;

    for (uint64_t i = hint; i < ends->len && i <= hint + 1; i++)
        if (load(ends->data + i * w, w, true) > row &&
            (i == 0 || load(ends->data + (i - 1) * w, w, true) <= row))
            return c->hint = i;
    while (lo < hi) {
        uint64_t mid = lo + (hi - lo) / 2;
        if (load(ends->data + mid * w, w, true) > row)
            hi = mid;
        else
            lo = mid + 1;
    }
    return c->hint = lo;
}

/* The entry of a dictionary: *c moves there. */
static bool enter(struct arrow *a, struct arrow_cell *c, const struct arrow_field *f, uint64_t at)
{
    struct arrow_dict *d = &a->dicts[f->dict];
    size_t lo = 0, hi = d->chunks.len;

    if (at >= d->len)
        return arrow_fault(a, c->field, "an index outside its dictionary:", (int64_t)at);
    while (hi - lo > 1) {
        size_t mid = lo + (hi - lo) / 2;
        if (d->chunks.ptr[mid].base <= at)
            lo = mid;
        else
            hi = mid;
    }
    c->batch = &d->chunks.ptr[lo].batch;
    c->field = a->schema.dicts.ptr[f->dict].root;
    c->row = at - d->chunks.ptr[lo].base;
    return true;
}

bool arrow_resolve(struct arrow *a, struct arrow_cell *c)
{
    for (;;) { /* each round goes to a child or to a dictionary: the schema is a finite tree */
        struct arrow_col *col = column(c);
        const struct arrow_field *f = col->field;
        if (c->row >= col->len)
            return arrow_fault(a, c->field, "a row outside the column:", (int64_t)c->row);
        if (col->valid && !(col->valid[c->row / 8] >> (c->row % 8) & 1))
            return false;
        if (f->kind == ARROW_RUNS) {
            c->row = find_run(col, c->row);
            c->field = col[1].field->end;
        } else if (f->kind == ARROW_DICT) {
            if (!enter(a, c, f, load(col->data + c->row * f->width, f->width, f->is_signed)))
                return false;
        } else {
            return f->kind != ARROW_NULL;
        }
    }
}

static bool number(struct arrow *a, struct arrow_cell *c, uint64_t *ret, bool *ret_signed)
{
    if (!arrow_resolve(a, c))
        return false;
    const struct arrow_col *col = column(c);
    const struct arrow_field *f = col->field;
    if (f->kind == ARROW_BOOL) {
        *ret = (uint64_t)(col->data[c->row / 8] >> (c->row % 8) & 1);
        *ret_signed = false;
        return true;
    }
    if (f->kind != ARROW_INT)
        return arrow_fault(a, c->field, "want a number, not kind", (int64_t)f->kind);
    *ret = load(col->data + c->row * f->width, f->width, f->is_signed);
    *ret_signed = f->is_signed;
    return true;
}

bool arrow_i64(struct arrow *a, struct arrow_cell c, int64_t *ret)
{
    uint64_t v;
    bool is_signed;

    if (!number(a, &c, &v, &is_signed))
        return false;
    if (!is_signed && v > INT64_MAX)
        return arrow_fault(a, c.field, "a number over 2^63 in row", (int64_t)c.row);
    *ret = (int64_t)v;
    return true;
}

bool arrow_u64(struct arrow *a, struct arrow_cell c, uint64_t *ret)
{
    uint64_t v;
    bool is_signed;

    if (!number(a, &c, &v, &is_signed))
        return false;
    if (is_signed && (int64_t)v < 0)
        return arrow_fault(a, c.field, "a number below 0:", (int64_t)v);
    *ret = v;
    return true;
}

static bool view(struct arrow *a, const struct arrow_cell *c, const struct arrow_col *col,
                 struct str *ret)
{
    const char *p = col->data + 16 * c->row;
    uint32_t len = get_u32le(p);

    if (len <= VIEW_INLINE) {
        *ret = str_n(p + 4, len);
        return true;
    }
    uint32_t block = get_u32le(p + 8), at = get_u32le(p + 12);
    if (block >= col->blocks_len || at > col->blocks[block].len ||
        len > col->blocks[block].len - at)
        return arrow_fault(a, c->field, "a view outside its block, bytes", len);
    *ret = str_n(col->blocks[block].ptr + at, len);
    return true;
}

bool arrow_bytes(struct arrow *a, struct arrow_cell c, struct str *ret)
{
    if (!arrow_resolve(a, &c))
        return false;
    const struct arrow_col *col = column(&c);
    const struct arrow_field *f = col->field;
    if (f->kind == ARROW_VIEW)
        return view(a, &c, col, ret);
    if (f->kind == ARROW_FIXED) {
        *ret = str_n(col->data + c.row * f->width, f->width);
        return true;
    }
    if (f->kind != ARROW_BYTES)
        return arrow_fault(a, c.field, "want text or bytes, not kind", (int64_t)f->kind);
    uint64_t from = offset(f, col->data, c.row), to = offset(f, col->data, c.row + 1);
    if (from > to || to > col->extra.len)
        return arrow_fault(a, c.field, "offsets outside the data, row", (int64_t)c.row);
    *ret = str_n(col->extra.ptr + from, (size_t)(to - from));
    return true;
}

bool arrow_list(struct arrow *a, struct arrow_cell c, struct arrow_cell *ret_first, uint64_t *ret_n)
{
    uint64_t from, n;

    if (!arrow_resolve(a, &c))
        return false;
    const struct arrow_col *col = column(&c);
    const struct arrow_field *f = col->field;
    if (f->kind == ARROW_LIST) {
        from = offset(f, col->data, c.row);
        n = offset(f, col->data, c.row + 1) - from;
    } else if (f->kind == ARROW_LISTVIEW) {
        from = offset(f, col->data, c.row);
        n = offset(f, col->extra.ptr, c.row);
    } else if (f->kind == ARROW_FIXEDLIST) {
        from = c.row * f->width;
        n = f->width;
    } else {
        return arrow_fault(a, c.field, "want a list, not kind", (int64_t)f->kind);
    }
    if (from > col[1].len || n > col[1].len - from)
        return arrow_fault(a, c.field, "a list outside its elements, row", (int64_t)c.row);
    *ret_first = (struct arrow_cell){ c.batch, c.field + 1, from };
    *ret_n = n;
    return true;
}

bool arrow_struct(struct arrow *a, struct arrow_cell *c)
{
    if (!arrow_resolve(a, c))
        return false;
    const struct arrow_field *f = column(c)->field;
    return f->kind == ARROW_STRUCT || arrow_fault(a, c->field, "want a struct, not kind", f->kind);
}
