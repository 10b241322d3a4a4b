/* SPDX-License-Identifier: Apache-2.0
 *
 * ru: rows of roll-ups, and their sums.
 *
 * A row is read without a look at the entries of its vector: vecsum proves those when they are
 * added. What a list says stands under a checksum of its own, since it decides which rows are read.
 *
 * rollup_row_sum does not know levels. It adds rows and remembers three things about them that the
 * form of the result depends on: the members named, whether some row had more members than are
 * named, and whether some row has no vector. The last is why a parent's vector may need the
 * members' own rows: their sums stand nowhere else.
 */
#include "common/store/state/rollup_row.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/size.h"
#include "common/store/codec/fp.h"

#define VERSION      1
#define FLAG_ROLLED0 1
#define FLAG_LIST    2
#define FLAG_VECTOR  4
#define ROW_MAX      GIB

/* ---- reading ---- */

static int bad(struct err *e, size_t len, const char *what)
{
    return err_set(e, ERR_CORRUPT, "roll-up row of %zu bytes: %s", len, what);
}

static int read_list(struct rd *r, struct str row, struct rollup_row *ret, struct err *e)
{
    struct str ids;
    uint64_t n;

    if (!rd_varint(r, &n) || n < 1 || n > ROLLUP_ROW_LIST_MAX || !rd_bytes(r, (size_t)n * 8, &ids))
        return bad(e, row.len, "its list of members ends early or is too long");
    ret->ids = (const uint8_t *)(const void *)ids.ptr;
    ret->len = (size_t)n;
    for (size_t i = 1; i < ret->len; i++)
        if (rollup_row_id(ret, i) <= rollup_row_id(ret, i - 1))
            return bad(e, row.len, "its members do not ascend");
    return 0;
}

static int read_crc(struct rd *r, struct str row, struct err *e)
{
    size_t n = row.len - rd_left(r);
    uint32_t crc;

    if (!rd_u32le(r, &crc) || crc != crc32c(0, row.ptr, n))
        return bad(e, row.len, "the checksum of its list is wrong");
    return 0;
}

static int read_meta(struct rd *r, struct str row, struct rollup_row *ret, struct err *e)
{
    struct vec_meta *m = &ret->meta;

    if (!rd_varint(r, &m->total) || !rd_varint(r, &m->writes) || !rd_u64le(r, &m->fp))
        return bad(e, row.len, "it ends early");
    if (!m->writes || m->fp >= FP_P)
        return bad(e, row.len, "writes or F are out of range");
    m->saturated = m->total == UINT64_MAX;
    return 0;
}

int rollup_row_read(struct str row, struct rollup_row *ret, struct err *e)
{
    struct rd r = rd_of(row);
    struct vec_reader v;
    uint8_t version, flags;

    *ret = (struct rollup_row){ 0 };
    if (!rd_u8(&r, &version) || !rd_u8(&r, &flags) || version != VERSION)
        return bad(e, row.len, "not one of version 1");
    if (flags >= 2 * FLAG_VECTOR || !(flags & (FLAG_LIST | FLAG_VECTOR)) ||
        ((flags & FLAG_ROLLED0) && flags != (FLAG_ROLLED0 | FLAG_VECTOR)))
        return bad(e, row.len, "unknown flags");
    ret->rolled0 = flags & FLAG_ROLLED0;
    if ((flags & FLAG_LIST) && read_list(&r, row, ret, e))
        return e->code;
    if (!(flags & FLAG_VECTOR) && read_meta(&r, row, ret, e))
        return e->code;
    if ((flags & FLAG_LIST) && read_crc(&r, row, e))
        return e->code;
    if (!(flags & FLAG_VECTOR))
        return rd_left(&r) ? bad(e, row.len, "bytes behind its end") : 0;
    ret->vector = str_sub(row, row.len - rd_left(&r), row.len);
    if (vec_peek(ret->vector, &v, e))
        return e->code;
    ret->meta = v.meta;
    return 0;
}

/* ---- sums ---- */

void rollup_row_sum_init(struct rollup_row_sum *s)
{
    *s = (struct rollup_row_sum){ 0 };
    vecsum_init(&s->fold);
    buf_init(&s->vector, ROW_MAX);
}

void rollup_row_sum_deinit(struct rollup_row_sum *s)
{
    vecsum_deinit(&s->fold);
    vec_free(&s->ids);
    buf_deinit(&s->vector);
}

void rollup_row_sum_begin(struct rollup_row_sum *s)
{
    vecsum_begin(&s->fold);
    s->ids.len = 0;
    s->rolled0 = s->many = s->lists = false;
    s->rows = 0;
    s->meta = (struct vec_meta){ 0 };
}

static void add_meta(struct rollup_row_sum *s, const struct vec_meta *m)
{
    s->rows++;
    if (!u64_add(s->meta.total, m->total, &s->meta.total)) {
        s->meta.total = UINT64_MAX;
        s->meta.saturated = true;
    }
    s->meta.writes = u64_add_sat(s->meta.writes, m->writes);
    s->meta.fp = fp_add(s->meta.fp, m->fp);
    s->meta.saturated |= m->saturated;
}

/* All but the vector. */
static void add_head(struct rollup_row_sum *s, const struct rollup_row *r)
{
    add_meta(s, &r->meta);
    s->rolled0 |= r->rolled0;
    s->many |= !r->ids;
    s->lists |= !r->vector.ptr;
    for (size_t i = 0; i < r->len; i++)
        vec_push(&s->ids, rollup_row_id(r, i));
}

int rollup_row_sum_add(struct rollup_row_sum *s, struct str row, struct err *e)
{
    struct rollup_row r;
    int rc = rollup_row_read(row, &r, e);

    if (rc)
        return rc;
    add_head(s, &r);
    return r.vector.ptr ? vecsum_add(&s->fold, r.vector, e) : 0;
}

int rollup_row_sum_vector(struct rollup_row_sum *s, struct str vector, struct err *e)
{
    struct vec_reader v;
    int rc = vec_peek(vector, &v, e);

    if (rc)
        return rc;
    add_meta(s, &v.meta);
    return vecsum_add(&s->fold, vector, e);
}

int rollup_row_sum_head(struct rollup_row_sum *s, struct str row, struct err *e)
{
    struct rollup_row r;
    int rc = rollup_row_read(row, &r, e);

    if (!rc)
        add_head(s, &r);
    return rc;
}

int rollup_row_sum_listed(struct rollup_row_sum *s, struct str vector, struct err *e)
{
    return vecsum_add(&s->fold, vector, e);
}

void rollup_row_sum_member(struct rollup_row_sum *s, uint64_t id)
{
    if (!s->ids.len || s->ids.ptr[s->ids.len - 1] != id)
        vec_push(&s->ids, id);
}

static int by_number(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

size_t rollup_row_sum_ids(struct rollup_row_sum *s)
{
    size_t n = 0;

    if (s->ids.len)
        qsort(s->ids.ptr, s->ids.len, sizeof(*s->ids.ptr), by_number);
    vec_for (i, &s->ids) {
        if (!i || s->ids.ptr[i] != s->ids.ptr[n - 1])
            s->ids.ptr[n++] = s->ids.ptr[i];
    }
    s->ids.len = n;
    return n;
}

static int put_list(struct rollup_row_sum *s, bool meta, struct buf *out, struct err *e)
{
    size_t n = rollup_row_sum_ids(s);

    if (n < 1 || n > ROLLUP_ROW_LIST_MAX)
        return err_set(e, ERR_LIMIT, "a list of %zu members; a roll-up takes 1 to %d", n,
                       ROLLUP_ROW_LIST_MAX);
    wr_varint(out, n);
    vec_for (i, &s->ids)
        wr_u64be(out, s->ids.ptr[i]);
    if (meta) {
        wr_varint(out, s->meta.total);
        wr_varint(out, s->meta.writes);
        wr_u64le(out, s->meta.fp);
    }
    wr_u32le(out, crc32c(0, out->ptr, out->len));
    return 0;
}

/* What was added must be what the rows say. */
static int check_sum(const struct rollup_row_sum *s, struct err *e)
{
    const struct vec_meta *f = &s->fold.meta;

    if (s->meta.saturated || f->saturated)
        return 0;
    if (f->writes != s->meta.writes || f->fp != s->meta.fp)
        return err_set(e, ERR_CORRUPT,
                       "a roll-up of %zu rows has %" PRIu64 " writes, its vectors have %" PRIu64
                       " (or another fingerprint): rows of members are missing",
                       s->rows, s->meta.writes, f->writes);
    return 0;
}

int rollup_row_sum_end(struct rollup_row_sum *s, enum rollup_row_form form, struct buf *out,
                       struct err *e)
{
    static const uint8_t flags[] = {
        [ROLLUP_ROW_LIST] = FLAG_LIST,
        [ROLLUP_ROW_LIST_VECTOR] = FLAG_LIST | FLAG_VECTOR,
        [ROLLUP_ROW_ROLLED_VECTOR] = FLAG_ROLLED0 | FLAG_VECTOR,
        [ROLLUP_ROW_VECTOR] = FLAG_VECTOR,
    };

    CHECK(s->rows);
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_u8(out, flags[form]);
    if ((flags[form] & FLAG_LIST) && put_list(s, form == ROLLUP_ROW_LIST, out, e))
        return e->code;
    if (form != ROLLUP_ROW_LIST) {
        if (check_sum(s, e) || vecsum_end(&s->fold, &s->vector, e))
            return e->code;
        buf_add_str(out, buf_str(&s->vector));
    }
    return buf_ok(out) ? 0 : err_set(e, ERR_LIMIT, "a roll-up has more than %zu bytes", out->max);
}

/* ---- building ---- */

int rollup_row_merge_is_list(struct rollup_row_sum *s, const struct str *rows, size_t n, bool *ret,
                             struct err *e)
{
    rollup_row_sum_begin(s);
    for (size_t i = 0; i < n; i++)
        if (rollup_row_sum_head(s, rows[i], e))
            return e->code;
    *ret = !s->many && rollup_row_sum_ids(s) < ROLLUP_ROW_VECTOR_FROM;
    return 0;
}

int rollup_row_merge(struct rollup_row_sum *s, const struct str *rows, size_t n, struct buf *out,
                     struct vec_meta *ret_meta, struct err *e)
{
    bool list;
    int rc = rollup_row_merge_is_list(s, rows, n, &list, e);

    *ret_meta = s->meta;
    if (rc || list)
        return rc ? rc : rollup_row_sum_end(s, ROLLUP_ROW_LIST, out, e);
    rollup_row_sum_begin(s);
    for (size_t i = 0; !rc && i < n; i++)
        rc = rollup_row_sum_add(s, rows[i], e);
    return rc ? rc : rollup_row_sum_end(s, ROLLUP_ROW_VECTOR, out, e);
}
