/* SPDX-License-Identifier: Apache-2.0
 *
 * arrow_batch: nodes and buffers of a RecordBatch, dealt out to fields in their order.
 *
 *   nodes: one {length, nulls} per field; buffers: by kind of the field
 *
 *   null, runs                      none
 *   bool, int, fixed, dictionary    validity, values
 *   struct, fixed list              validity
 *   bytes                           validity, offsets, data
 *   list, list view                 validity, offsets, and for views sizes
 *   view                            validity, views, and as many blocks as the next of
 *                                   variadicBufferCounts says
 *
 * Lengths are the sender's word: a column is taken only if its buffers are as long as it says, and
 * one without buffers of its own (null, runs, a struct) is no longer than ROWS_MAX. A compressed
 * buffer begins with its own claim of a size, which is held against what may be inflated, and
 * against what LZ4 can do at all, before anything is allocated.
 *
 * Format: Apache Arrow columnar format 1.5, format/Message.fbs (proto/FORMATS.md, "Arrow streams").
 */
#include "distributor/parca/arrow/arrow_batch.h"

#include "common/base/compress/compress.h"
#include "common/base/size.h"
#include "common/base/wr.h"

#define ROWS_MAX   ((uint64_t)1 << 26)
#define RATIO_FREE MIB
#define LZ4_RATIO  256  /* an LZ4 block cannot do 255:1 */
#define STORED     (-1) /* claimed size of a buffer that did not get smaller */

enum codec { CODEC_NONE, CODEC_LZ4, CODEC_ZSTD };

struct reader {
    const struct arrow_schema *s;
    struct arrow_budget *budget;
    struct str body;
    struct fb_vector nodes, buffers, variadic;
    size_t node, buffer, view; /* taken so far */
    enum codec codec;
    const struct arrow_field *field; /* being read, for texts */
    struct err *e;
};

static int bad(struct reader *r, const char *what, int64_t n)
{
    return err_set(r->e, ERR_INPUT, "arrow batch: column \"%.*s\" (%s): %s %" PRId64,
                   STR_ARG(str_sub(r->field->name, 0, 64)), arrow_kind_name(r->field->kind), what,
                   n);
}

static int full(const struct reader *r)
{
    return err_set(r->e, ERR_LIMIT,
                   "arrow batch: decoding takes more than %zu bytes of memory: push smaller "
                   "batches or raise distributor.decode_bytes",
                   arena_limit(r->budget->arena));
}

/* May so many bytes come out? `size` is a claim. */
static int charge(struct reader *r, int64_t size, size_t packed)
{
    const struct limits *l = r->budget->limits;
    size_t total;

    if (size < 0)
        return bad(r, "a compressed buffer of size", size);
    if (!size_add(r->budget->inflated, (size_t)size, &total) || total > l->inflated_bytes)
        return err_set(r->e, ERR_LIMIT,
                       "arrow batch: a buffer says it expands to %" PRId64
                       " bytes, all together may have %" PRIu64,
                       size, l->inflated_bytes);
    if (r->codec == CODEC_LZ4 && (size_t)size / LZ4_RATIO > packed)
        return bad(r, "so few lz4 bytes cannot have the size", size);
    if (l->inflated_ratio && total > RATIO_FREE &&
        total / l->inflated_ratio > r->budget->body_bytes)
        return err_set(r->e, ERR_LIMIT, "arrow batch: buffers expand more than %" PRIu64 ":1",
                       l->inflated_ratio);
    r->budget->inflated = total;
    return 0;
}

static int inflate(struct reader *r, struct str in, struct str *ret)
{
    if (in.len < 8)
        return bad(r, "a compressed buffer without its size, bytes", (int64_t)in.len);
    int64_t size = (int64_t)get_u64le(in.ptr);
    in = str_sub(in, 8, in.len);
    if (size == STORED) {
        *ret = in;
        return 0;
    }
    if (charge(r, size, in.len))
        return r->e->code;
    char *to = arena_alloc(r->budget->arena, (size_t)size);
    if (!to)
        return full(r);
    int rc = r->codec == CODEC_LZ4 ? lz4_decompress_into(in, to, (size_t)size, r->e)
                                   : zstd_decompress_into(in, to, (size_t)size, r->e);
    if (rc)
        return err_wrap(r->e, "arrow batch: column \"%.*s\"",
                        STR_ARG(str_sub(r->field->name, 0, 64)));
    *ret = str_n(to, (size_t)size);
    return 0;
}

static int take_buffer(struct reader *r, struct str *ret)
{
    if (r->buffer == r->buffers.len)
        return bad(r, "there are too few buffers:", (int64_t)r->buffers.len);
    int64_t at = fb_number(&r->buffers, r->buffer, 16, 0);
    int64_t len = fb_number(&r->buffers, r->buffer++, 16, 8);
    if (at < 0 || len < 0 || (uint64_t)at > r->body.len || (uint64_t)len > r->body.len - (size_t)at)
        return bad(r, "a buffer is not inside its message, at", at);
    *ret = str_n(r->body.ptr + at, (size_t)len);
    return r->codec == CODEC_NONE || len == 0 ? 0 : inflate(r, *ret, ret);
}

/* A buffer of n elements of `size` bytes at least. */
static int take_array(struct reader *r, uint64_t n, size_t size, const char **ret)
{
    struct str b;
    uint64_t need;

    if (take_buffer(r, &b))
        return r->e->code;
    if (!u64_mul(n, size, &need) || b.len < need)
        return bad(r, "its buffer is too short, bytes", (int64_t)b.len);
    *ret = b.ptr;
    return 0;
}

static int take_validity(struct reader *r, uint64_t nulls, struct arrow_col *c)
{
    struct str b;

    if (take_buffer(r, &b))
        return r->e->code;
    if (nulls == 0)
        return 0;
    if (b.len < (c->len + 7) / 8)
        return bad(r, "its validity bitmap is too short, bytes", (int64_t)b.len);
    c->valid = b.ptr;
    return 0;
}

static int take_blocks(struct reader *r, struct arrow_col *c)
{
    if (take_array(r, c->len, 16, &c->data))
        return r->e->code;
    if (r->view == r->variadic.len)
        return bad(r, "nothing says how many blocks it has:", (int64_t)r->variadic.len);
    int64_t n = fb_number(&r->variadic, r->view++, 8, 0);
    if (n < 0 || (uint64_t)n > r->buffers.len - r->buffer)
        return bad(r, "number of blocks", n);
    struct str *blocks = ARENA_ARRAY(r->budget->arena, struct str, (size_t)n);
    if (!blocks)
        return full(r);
    for (int64_t i = 0; i < n; i++)
        if (take_buffer(r, &blocks[i]))
            return r->e->code;
    c->blocks = blocks;
    c->blocks_len = (uint32_t)n;
    return 0;
}

static int take_data(struct reader *r, struct arrow_col *c)
{
    const struct arrow_field *f = r->field;
    size_t offset = f->wide ? 8 : 4;

    switch (f->kind) {
    case ARROW_BOOL:
        return take_array(r, (c->len + 7) / 8, 1, &c->data);
    case ARROW_INT:
    case ARROW_FIXED:
    case ARROW_DICT:
        return take_array(r, c->len, f->width, &c->data);
    case ARROW_BYTES: /* of nothing, there need not be the one offset */
        return take_array(r, c->len ? c->len + 1 : 0, offset, &c->data) || take_buffer(r, &c->extra)
                   ? r->e->code
                   : 0;
    case ARROW_LIST:
        return take_array(r, c->len ? c->len + 1 : 0, offset, &c->data);
    case ARROW_LISTVIEW:
        return take_array(r, c->len, offset, &c->data) ||
                       take_array(r, c->len, offset, &c->extra.ptr)
                   ? r->e->code
                   : 0;
    case ARROW_VIEW:
        return take_blocks(r, c);
    case ARROW_FIXEDLIST:
    case ARROW_STRUCT:
    case ARROW_NULL:
    case ARROW_RUNS:
        return 0;
    }
    return 0;
}

static int take_column(struct reader *r, struct arrow_col *c)
{
    const struct arrow_field *f = r->field;

    if (r->node == r->nodes.len)
        return bad(r, "there are too few nodes:", (int64_t)r->nodes.len);
    int64_t len = fb_number(&r->nodes, r->node, 16, 0);
    int64_t nulls = fb_number(&r->nodes, r->node++, 16, 8);
    if (len < 0 || (uint64_t)len > ROWS_MAX)
        return bad(r, "number of rows", len);
    if (nulls < 0 || nulls > len)
        return bad(r, "number of nulls", nulls);
    c->field = f;
    c->len = (uint64_t)len;
    if (f->kind == ARROW_NULL || f->kind == ARROW_RUNS)
        return 0;
    return take_validity(r, (uint64_t)nulls, c) || take_data(r, c) ? r->e->code : 0;
}

static int64_t run_end(const struct arrow_col *ends, uint64_t i)
{
    const char *p = ends->data + i * ends->field->width;
    int16_t two;

    if (ends->field->width == 8)
        return (int64_t)get_u64le(p);
    if (ends->field->width == 4)
        return (int32_t)get_u32le(p);
    memcpy(&two, p, sizeof(two));
    return two;
}

/* Ascending, and up to the end: then a search by halves always ends at a run. */
static int check_runs(struct reader *r, const struct arrow_col *runs)
{
    const struct arrow_col *ends = runs + 1;
    const struct arrow_col *values = runs + (ends->field->end - (runs->field - r->s->fields.ptr));
    int64_t before = 0;

    if (ends->valid || ends->len > values->len)
        return bad(r, "more run ends than values:", (int64_t)ends->len);
    /* Each run has bytes of its own, unless buffers overlap to make us walk them many times. */
    r->budget->runs += ends->len;
    if (r->budget->runs > r->budget->body_bytes + r->budget->inflated)
        return bad(r, "buffers overlap: more runs than there are bytes,", (int64_t)ends->len);
    for (uint64_t i = 0; i < ends->len; i++) {
        int64_t end = run_end(ends, i);
        if (end <= before)
            return bad(r, "a run ends before it starts, at", end);
        before = end;
    }
    if ((uint64_t)before < runs->len)
        return bad(r, "the runs stop at row", before);
    return 0;
}

/* Children that have no offsets of their own are as long as their parent. */
static int check_children(struct reader *r, uint32_t from, const struct arrow_col *c)
{
    const struct arrow_field *f = c->field, *fields = r->s->fields.ptr;
    uint32_t self = (uint32_t)(f - fields);
    uint64_t need = c->len;

    r->field = f;
    if (f->kind == ARROW_RUNS)
        return check_runs(r, c);
    if (f->kind == ARROW_FIXEDLIST && !u64_mul(c->len, f->width, &need))
        return bad(r, "number of rows", (int64_t)c->len);
    if (f->kind != ARROW_FIXEDLIST && f->kind != ARROW_STRUCT)
        return 0;
    for (uint32_t k = self + 1; k < f->end; k = fields[k].end)
        if ((c - (self - from))[k - from].len < need)
            return bad(r, "a child has fewer rows than its", (int64_t)need);
    return 0;
}

static int take_codec(struct reader *r, const struct fb_table *header)
{
    struct fb_table c = { 0 };
    uint8_t codec = 0, method = 0;
    bool has;

    if (fb_child(header, 3, &has, &c, r->e))
        return r->e->code;
    if (!has)
        return 0;
    if (fb_u8(&c, 0, &codec, r->e) || fb_u8(&c, 1, &method, r->e))
        return r->e->code;
    if (codec > 1 || method != 0)
        return err_set(r->e, ERR_INPUT, "arrow batch: unknown compression %u, method %u", codec,
                       method);
    r->codec = codec == 0 ? CODEC_LZ4 : CODEC_ZSTD;
    return 0;
}

static int take_columns(struct reader *r, uint32_t from, uint32_t to, struct arrow_batch *b)
{
    const struct arrow_field *fields = r->s->fields.ptr;

    for (uint32_t i = from; i < to; i++) {
        r->field = &fields[i];
        if (take_column(r, &b->cols[i - from]))
            return r->e->code;
    }
    for (uint32_t i = from; i < to; i++)
        if (check_children(r, from, &b->cols[i - from]))
            return r->e->code;
    for (uint32_t i = from; i < to; i = fields[i].end) {
        r->field = &fields[i];
        if (b->cols[i - from].len != b->rows)
            return bad(r, "not as many rows as the batch has:", (int64_t)b->rows);
    }
    return 0;
}

int arrow_batch_read(const struct arrow_record *record, struct arrow_budget *budget,
                     struct arrow_batch *ret, struct err *e)
{
    const struct fb_table *header = record->header;
    struct reader r = { .s = record->s, .budget = budget, .body = record->body, .e = e };
    struct arrow_batch b = { .first = record->from };
    int64_t rows = 0;

    if (fb_i64(header, 0, &rows, e) || fb_vector(header, 1, 16, &r.nodes, e) ||
        fb_vector(header, 2, 16, &r.buffers, e) || fb_vector(header, 4, 8, &r.variadic, e) ||
        take_codec(&r, header))
        return e->code;
    if (rows < 0 || (uint64_t)rows > ROWS_MAX)
        return err_set(e, ERR_INPUT, "arrow batch: %" PRId64 " rows", rows);
    b.rows = (uint64_t)rows;
    b.cols = ARENA_ARRAY(budget->arena, struct arrow_col, record->to - record->from);
    if (!b.cols)
        return full(&r);
    if (take_columns(&r, record->from, record->to, &b))
        return e->code;
    *ret = b;
    return 0;
}
