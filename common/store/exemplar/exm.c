/* SPDX-License-Identifier: Apache-2.0
 *
 * exm: the bytes of exemplar rows.
 *
 * exm.h draws the rows. Keys are fixed arrays, written big-endian. Readers return an error that
 * names the row when a length, a version or a number is out of bounds, and nothing of such a row is
 * used.
 *
 * Pure: any thread.
 */
#include "common/store/exemplar/exm.h"

#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION  1
#define WID_LEN  16
#define TAIL_LEN 30 /* t, ptype, series, wid */
#define HEAD_LEN (EXM_SCOPE_LEN + 1)

/* ---- keys ---- */

void exm_bucket_prefix(struct exm_key *k, uint32_t bucket)
{
    put_u32be(k->b, bucket);
    k->len = 4;
}

void exm_scope_prefix(struct exm_key *k, uint32_t bucket, uint32_t tenant, uint32_t scope)
{
    put_u32be(k->b, bucket);
    put_u32be(k->b + 4, tenant);
    put_u32be(k->b + 8, scope);
    k->len = EXM_SCOPE_LEN;
}

void exm_id_prefix(struct exm_key *k, uint32_t bucket, const struct member *m, enum exid_kind kind,
                   struct str id)
{
    CHECK(id.len <= EXID_PACKED_MAX);
    exm_scope_prefix(k, bucket, m->tenant, m->scope);
    k->b[k->len++] = (char)kind;
    if (id.len)
        memcpy(k->b + k->len, id.ptr, id.len);
    k->len += id.len;
}

void exm_series_prefix(struct exm_key *k, uint32_t bucket, const struct member *m)
{
    exm_scope_prefix(k, bucket, m->tenant, m->scope);
    k->b[k->len] = 0;
    put_u16be(k->b + k->len + 1, m->ptype);
    put_u64be(k->b + k->len + 3, m->series);
    k->len += 11;
}

void exm_row_key(struct exm_key *k, const struct exm_ref *x)
{
    exm_id_prefix(k, exm_bucket(x->t), &x->m, x->kind, x->id);
    char *p = k->b + k->len;
    put_u32be(p, x->t);
    put_u16be(p + 4, x->m.ptype);
    put_u64be(p + 6, x->m.series);
    memcpy(p + 14, x->wid, WID_LEN);
    k->len += TAIL_LEN;
}

void exm_index_key(struct exm_key *k, const struct exm_ref *x)
{
    CHECK(x->id.len <= EXID_PACKED_MAX);
    exm_series_prefix(k, exm_bucket(x->t), &x->m);
    put_u32be(k->b + k->len, x->t);
    k->b[k->len + 4] = (char)x->kind;
    memcpy(k->b + k->len + 5, x->id.ptr, x->id.len);
    k->len += 5 + x->id.len;
    memcpy(k->b + k->len, x->wid, WID_LEN);
    k->len += WID_LEN;
}

void exm_key_end(struct exm_key *k)
{
    while (k->len && (uint8_t)k->b[k->len - 1] == 0xff)
        k->len--;
    CHECK(k->len);
    k->b[k->len - 1]++;
}

static bool known_kind(uint8_t kind)
{
    return kind >= EXID_SPAN && kind < EXID_KINDS;
}

static bool read_index(const char *p, struct str rest, struct exm_ref *x)
{
    if (rest.len < 15 + WID_LEN)
        return false;
    x->m.ptype = get_u16be(p);
    x->m.series = get_u64be(p + 2);
    x->t = get_u32be(p + 10);
    x->kind = (enum exid_kind)(uint8_t)p[14];
    x->id = str_sub(rest, 15, rest.len - WID_LEN);
    x->wid = (const uint8_t *)p + rest.len - WID_LEN;
    return known_kind((uint8_t)p[14]);
}

static bool read_row(const char *p, struct str rest, struct exm_ref *x)
{
    size_t n = exid_len(rest);

    if (!n || rest.len != n + TAIL_LEN)
        return false;
    x->id = str_sub(rest, 0, n);
    p += n;
    x->t = get_u32be(p);
    x->m.ptype = get_u16be(p + 4);
    x->m.series = get_u64be(p + 6);
    x->wid = (const uint8_t *)p + 14;
    return true;
}

bool exm_key_read(struct str key, bool *ret_index, struct exm_ref *ret)
{
    struct str rest = str_sub(key, HEAD_LEN, key.len);
    struct exm_ref x;
    bool ok;

    if (key.len < HEAD_LEN || key.len > EXM_KEY_MAX)
        return false;
    uint8_t kind = (uint8_t)key.ptr[EXM_SCOPE_LEN];
    x = (struct exm_ref){ .m = { .tenant = get_u32be(key.ptr + 4),
                                 .scope = get_u32be(key.ptr + 8) },
                          .kind = (enum exid_kind)kind };
    ok = kind ? known_kind(kind) && read_row(rest.ptr, rest, &x) : read_index(rest.ptr, rest, &x);
    if (!ok || !exid_valid(x.id) || exm_bucket(x.t) != get_u32be(key.ptr))
        return false;
    *ret_index = kind == 0;
    *ret = x;
    return true;
}

/* ---- values ---- */

static int no_row(struct str row, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s of an exemplar, %zu bytes, is not one of version %d", what,
                   row.len, VERSION);
}

static bool read_head(struct rd *r, uint32_t *ret_duration)
{
    uint8_t version;
    uint64_t ms;

    if (!rd_u8(r, &version) || version != VERSION || !rd_varint(r, &ms) || ms > UINT32_MAX)
        return false;
    *ret_duration = (uint32_t)ms;
    return true;
}

void exm_row_begin(struct buf *out, uint32_t duration_ms)
{
    buf_reset(out);
    wr_u8(out, VERSION);
    wr_varint(out, duration_ms);
}

int exm_row_read(struct str row, struct exm_row *ret, struct err *e)
{
    struct rd r = rd_of(row);

    if (!read_head(&r, &ret->duration_ms))
        return no_row(row, "row", e);
    ret->vector = str_sub(row, row.len - rd_left(&r), row.len);
    return 0;
}

void exm_mark_put(struct buf *out, const struct exm_mark *m)
{
    exm_row_begin(out, m->duration_ms);
    wr_varint(out, m->total);
}

int exm_mark_read(struct str row, struct exm_mark *ret, struct err *e)
{
    struct rd r = rd_of(row);

    if (!read_head(&r, &ret->duration_ms) || !rd_varint(&r, &ret->total) || rd_left(&r))
        return no_row(row, "index row", e);
    return 0;
}

bool exm_seek_bucket(struct kv_iter *it, uint32_t *bucket)
{
    struct exm_key k;

    exm_bucket_prefix(&k, *bucket);
    kv_iter_seek(it, exm_key_str(&k));
    if (!kv_iter_valid(it) || kv_iter_key(it).len < k.len)
        return false;
    *bucket = get_u32be(kv_iter_key(it).ptr);
    return true;
}
