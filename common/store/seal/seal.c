/* SPDX-License-Identifier: Apache-2.0
 *
 * seal: raw rows become leaves, entry by entry of the seal log.
 *
 *   raw rows of due minutes ──> entry n {minutes, count, digests} ──seal_apply──> one batch:
 *       seal_section, for each service and type: leaves or base nodes, timelines, roll-ups, marks
 *       raw   exactly those rows deleted          wid   marked with n
 *       meta  seal log n, applied = n, lowest raw minute, engine time
 *
 * seal_plan.c makes an entry of the rows that it finds and applies it at once. Followers of a
 * replicated shard seal nothing: they receive the batch as it is, with the rest of the leader's
 * writes. So a shard that ran alone continues its seal log with replicas later.
 *
 * The batch needs no fsync of its own. If it is lost, raw rows, leaves and `applied` go back
 * together and the next seal does it again; the log of the kv keeps batches in order, so nothing
 * later survives without it.
 *
 * Streams: the batches of store_stage put raw, new wid, meta; this one puts fine, tl, wid that are
 * committed, and deletes raw. So a batch that is staged but not yet committed never meets ours over
 * a key, whichever comes first. CONTROL_RAW_LOW is written by both; stage only lowers it, and we
 * count staged rows too, so either order leaves a bound that holds.
 *
 * Thread: the shard's.
 */
#include "common/store/seal/seal.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vecsum.h"
#include "common/store/seal/seal_steps.h"
#include "common/store/state/commit.h"
#include "common/store/state/pipe.h"
#include "common/store/state/store_impl.h"

#define VERSION      1
#define VERSION_TOMB 2
#define ROW_MAX      GIB

/* ---- entries ---- */

void seal_row_put(const struct seal_entry *n, char out[SEAL_ROW_LEN])
{
    out[0] = n->tomb ? VERSION_TOMB : VERSION;
    put_u64be(out + 1, (uint64_t)n->engine_ms);
    put_u32be(out + 9, n->bucket_low);
    put_u32be(out + 13, n->bucket_high);
    put_u64be(out + 17, n->rows);
    put_u64be(out + 25, n->keys.hi);
    put_u64be(out + 33, n->keys.lo);
    put_u64be(out + 41, n->fp);
    put_u64be(out + 49, n->total);
}

int seal_row_read(uint64_t n, struct str row, struct seal_entry *ret, struct err *e)
{
    if (row.len != SEAL_ROW_LEN || (row.ptr[0] != VERSION && row.ptr[0] != VERSION_TOMB))
        return err_set(e, ERR_CORRUPT,
                       "seal entry %" PRIu64 " of %zu bytes is not one of version %d", n, row.len,
                       VERSION);
    *ret = (struct seal_entry){
        .n = n,
        .engine_ms = (int64_t)get_u64be(row.ptr + 1),
        .bucket_low = get_u32be(row.ptr + 9),
        .bucket_high = get_u32be(row.ptr + 13),
        .rows = get_u64be(row.ptr + 17),
        .keys = { .hi = get_u64be(row.ptr + 25), .lo = get_u64be(row.ptr + 33) },
        .fp = get_u64be(row.ptr + 41),
        .total = get_u64be(row.ptr + 49),
        .tomb = row.ptr[0] == VERSION_TOMB,
    };
    return 0;
}

int seal_entry_add(struct seal_entry *n, struct str key, const struct seal_row *r, struct err *e)
{
    struct vec_reader v;
    struct hash128 h = hash128(key.ptr + 4, key.len - 4, 0);
    uint32_t bucket = raw_bucket(r->t);
    int rc = vec_peek(r->vector, &v, e);

    if (rc)
        return rc;
    n->bucket_low = n->rows ? MIN(n->bucket_low, bucket) : bucket;
    n->bucket_high = n->rows ? MAX(n->bucket_high, bucket) : bucket;
    n->rows++;
    n->keys.lo += h.lo;
    n->keys.hi += h.hi + (n->keys.lo < h.lo);
    n->fp = fp_add(n->fp, v.meta.fp);
    n->total = u64_add_sat(n->total, v.meta.total);
    return 0;
}

/* ---- rows in order, by parts ---- */

static int by_member(const void *a, const void *b)
{
    const struct seal_row *x = a, *y = b;

    if (x->m.tenant != y->m.tenant)
        return x->m.tenant < y->m.tenant ? -1 : 1;
    if (x->m.scope != y->m.scope)
        return x->m.scope < y->m.scope ? -1 : 1;
    if (x->m.ptype != y->m.ptype)
        return x->m.ptype < y->m.ptype ? -1 : 1;
    if (x->m.series != y->m.series)
        return x->m.series < y->m.series ? -1 : 1;
    if (x->t != y->t)
        return x->t < y->t ? -1 : 1;
    return memcmp(x->wid, y->wid, 16);
}

static bool same_part(const struct seal_row *a, const struct seal_row *b)
{
    return a->m.tenant == b->m.tenant && a->m.scope == b->m.scope && a->m.ptype == b->m.ptype;
}

static int apply_parts(struct apply *a, const struct seal_rows *rows, struct err *e)
{
    for (size_t i = 0, end; i < rows->at.len; i = end) {
        const struct seal_row *r = &rows->at.ptr[i];
        for (end = i + 1; end < rows->at.len && same_part(r, &rows->at.ptr[end]);)
            end++;
        int rc = seal_section(a, r, end - i, e);
        if (rc)
            return rc;
    }
    return 0;
}

/* ---- the rest of the batch ---- */

/* A batch that is refused for its size would end all writing. */
static int check_size(const struct apply *a, const struct seal_rows *rows, struct err *e)
{
    size_t rest = rows->at.len * (KEY_RAW_LEN + 2) + 4 * KIB; /* what is still to come */

    if (kv_batch_bytes(a->b) + rest <= kv_batch_max(a->s->kv))
        return 0;
    return err_set(e, ERR_LIMIT, "what becomes of %zu rows has more than %zu bytes", rows->at.len,
                   kv_batch_max(a->s->kv));
}

static void delete_raw(struct apply *a, const struct seal_rows *rows)
{
    struct key k;

    vec_for (i, &rows->at) {
        const struct seal_row *r = &rows->at.ptr[i];
        key_raw(&k, &r->m, r->t, r->wid);
        kv_batch_del(a->b, KV_RAW, key_str(&k));
        raw_counts_sub(&a->s->raw, raw_bucket(r->t), 1);
    }
}

void seal_put_log(struct store *s, const struct seal_entry *n, struct kv_batch *b)
{
    char row[SEAL_ROW_LEN];
    struct key k, from, v;

    seal_row_put(n, row);
    key_seal(&k, n->n);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
    if (n->n > SEAL_LOG_KEPT && n->n % 1024 == 0) {
        key_seal(&from, 0);
        key_seal(&k, n->n - SEAL_LOG_KEPT);
        kv_batch_del_range(b, KV_META, key_str(&from), key_str(&k));
    }
    if (!n->tomb)
        s->sealed_high = MAX(s->sealed_high, n->bucket_high + 1);
    key_u64(&v, n->n);
    put_u32be(v.b + 8, s->sealed_high);
    v.len = 12;
    store_put_control(b, CONTROL_APPLIED, &v);
    if (s->raw_low != raw_counts_low(&s->raw)) {
        s->raw_low = raw_counts_low(&s->raw);
        key_u32(&v, s->raw_low);
        store_put_control(b, CONTROL_RAW_LOW, &v);
    }
    store_put_clock(s, n->engine_ms, b);
}

/* The base group of each row, for the hot sums; where none are kept: nothing. */
static int find_groups(struct apply *a, const struct seal_rows *rows, struct err *e)
{
    struct store *s = a->s;
    const struct series *cached = NULL;
    struct group_scope *scope = NULL;
    uint64_t gid;

    for (size_t i = 0; s->o.hot_bytes_max && i < rows->at.len; i++) {
        const struct seal_row *r = &rows->at.ptr[i];
        const struct member *m = &r->m;
        if ((!i || !same_part(r - 1, r)) && groups_known(s->groups, m->tenant, m->scope, &scope, e))
            return e->code;
        if (!i || r[-1].m.series != m->series || !same_part(r - 1, r))
            cached = series_peek(s->series, m->tenant, m->scope, m->series);
        if (groups_of(s->groups, scope, &(struct group_data){ cached, m->series, r->t }, &gid, e))
            return e->code;
        vec_push(&a->gids, gid);
    }
    return 0;
}

/* Readers see the entry from here on, or soon (pipe.c). */
static void on_applied(void *cookie)
{
    struct apply *a = cookie;

    vec_for (i, &a->gids) {
        const struct seal_row *r = &a->rows->at.ptr[i];
        struct member m = r->m;
        m.series = a->gids.ptr[i];
        hot_fold(a->s->hot, &m, r->t, r->vector, a->n->n);
        m.series = GID(GROUP_WHOLE, 0);
        hot_fold(a->s->hot, &m, r->t, r->vector, a->n->n);
    }
    if (!kv_begins(a->s->kv))
        a->s->published_applied = a->n->n;
}

static int apply_rows(struct apply *a, struct seal_rows *rows, struct err *e)
{
    uint32_t fresh = a->s->sealed_high;

    qsort(rows->at.ptr, rows->at.len, sizeof(*rows->at.ptr), by_member);
    a->rows = rows;
    int rc = find_groups(a, rows, e);
    if (!rc)
        rc = apply_parts(a, rows, e);
    if (!rc)
        rc = tl_rows_put(a->s->tl_rows, fresh * RAW_BUCKET_SLOTS, a->b, e);
    if (!rc)
        rc = seal_mark_wids(a, rows, e);
    if (!rc)
        rc = check_size(a, rows, e);
    if (rc)
        return rc;
    delete_raw(a, rows);
    seal_put_log(a->s, a->n, a->b);
    return pipe_write(a->s, a->b, &(struct pipe_seal){ a->n->n, a->n->bucket_high, on_applied, a },
                      e);
}

int seal_apply(struct store *s, const struct seal_entry *n, struct seal_rows *rows, struct err *e)
{
    struct apply a = { .s = s, .n = n };

    CHECK(n->n == atomic_load(&s->applied) + 1);
    CHECK(n->rows == rows->at.len);
    a.b = kv_batch_new();
    vecsum_init(&a.fold);
    buf_init(&a.old, ROW_MAX);
    buf_init(&a.out, ROW_MAX);
    int rc = apply_rows(&a, rows, e);
    if (!rc) {
        atomic_store(&s->applied, n->n);
        atomic_fetch_sub(&s->raw_rows, n->rows);
        atomic_fetch_add(&s->saturated, vecsum_saturated(&a.fold));
    } else {
        part_cache_clear(s->parts);
        tl_rows_reset(s->tl_rows);
    }
    vecsum_deinit(&a.fold);
    vec_free(&a.tl.points);
    vec_free(&a.windows);
    vec_free(&a.gids);
    buf_deinit(&a.old);
    buf_deinit(&a.out);
    kv_batch_free(a.b);
    return rc ? err_wrap(e, "seal entry %" PRIu64, n->n) : 0;
}
