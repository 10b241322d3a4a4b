/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_raw: the unsealed rows that a delete takes, and their write ids.
 *
 * Unsealed rows are few and young, so a delete removes them in its own entry of the seal log
 * instead of hiding them. Large deletes take several parts, each within one batch. The write-id row
 * of a push stays when its rows leave: a copy of the push that is still on its way must be known,
 * or it would come back.
 *
 * Thread: the shard's.
 */
#include <stdlib.h>

#include "common/base/size.h"
#include "common/store/delete/tomb_delete_impl.h"
#include "common/store/state/store_impl.h"

#define ROW_BYTES      (KEY_RAW_LEN + KEY_WID_LEN + WID_ROW_MAX) /* in the batch, at most */
#define PART_BYTES_MAX (32 * MIB)

/* The rest of a batch is for what else is in it. */
static size_t part_bytes(const struct store *s)
{
    return MIN(kv_batch_max(s->kv) / 4, PART_BYTES_MAX);
}

bool tomb_raw_many(const struct store *s)
{
    return s->raw.rows * ROW_BYTES > part_bytes(s);
}

/* ---- rows ---- */

static bool covered(const struct deleting *x, const struct member *m, uint32_t t)
{
    if (x->p->kind == TOMB_TENANT)
        return m->tenant == x->p->tenant;
    vec_for (i, &x->masks)
        if (mask_covers(&x->masks.ptr[i], m->scope, m->ptype, m->series, t))
            return true;
    return false;
}

static int take_row(struct deleting *x, struct kv_iter *it, uint32_t *taken, struct err *e)
{
    struct gone_wid w = { 0 };
    struct seal_row r = { 0 };
    struct raw_row head;
    const uint8_t *wid;

    if (!key_raw_read(kv_iter_key(it), &r.m, &r.t, &wid))
        return err_set(e, ERR_CORRUPT, "raw key of %zu bytes", kv_iter_key(it).len);
    if (!covered(x, &r.m, r.t))
        return 0;
    if (raw_row_read(kv_iter_value(it), &head, e))
        return e->code;
    r.vector = head.vector;
    if (seal_entry_add(&x->n, kv_iter_key(it), &r, e))
        return e->code;
    bool stays = x->part || x->p->kind == TOMB_SERIES || x->p->kind == TOMB_RANGE;
    if (stays && ledger_outs_add(&x->outs, &r.m, r.t, true, r.vector, e))
        return e->code;
    kv_batch_del(x->b, KV_RAW, kv_iter_key(it));
    w.bucket = head.wid_bucket;
    w.t = r.t;
    w.had = head.wid_rows;
    memcpy(w.wid, wid, 16);
    if (w.bucket >= x->s->write_id_low)
        vec_push(&x->wids, w);
    ++*taken;
    return 0;
}

/* Of a part. */
static bool enough(const struct deleting *x)
{
    return x->part && x->n.rows * ROW_BYTES >= part_bytes(x->s);
}

/* Rows of one minute of the tenant, or of one service. */
static int take_run(struct deleting *x, uint32_t bucket, uint32_t scope, uint32_t *taken,
                    struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_raw_scope(&from, bucket, x->p->tenant, scope);
    if (!scope)
        from.len -= 4;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_RAW, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it) && !enough(x); kv_iter_next(it))
        rc = take_row(x, it, taken, e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int tomb_take_raw(struct deleting *x, struct err *e)
{
    const struct raw_counts *c = &x->s->raw;
    int rc = 0;

    for (size_t i = 0; !rc && i < c->at.len && !enough(x); i++) {
        struct raw_count n = { c->at.ptr[i].bucket, 0 };
        if ((n.bucket + 1) * RAW_BUCKET_SLOTS <= x->p->from ||
            n.bucket * RAW_BUCKET_SLOTS >= x->p->to)
            continue;
        if (x->p->kind == TOMB_TENANT)
            rc = take_run(x, n.bucket, 0, &n.rows, e);
        for (size_t j = 0; !rc && !enough(x) && x->p->kind != TOMB_TENANT && j < x->p->scopes.len;
             j++)
            rc = take_run(x, n.bucket, x->p->scopes.ptr[j].scope, &n.rows, e);
        if (n.rows)
            vec_push(&x->raw, n);
    }
    return rc;
}

/* ---- their write ids ---- */

static int by_wid(const void *a, const void *b)
{
    const struct gone_wid *x = a, *y = b;
    int d = memcmp(x->wid, y->wid, 16);

    if (d || x->bucket != y->bucket)
        return d ? d : x->bucket < y->bucket ? -1 : 1;
    return x->t < y->t ? -1 : x->t > y->t;
}

static bool same_wid(const struct gone_wid *x, const struct gone_wid *y)
{
    return x->bucket == y->bucket && !memcmp(x->wid, y->wid, 16);
}

/* All unsealed rows of a push go, or some do. Its row stays, for copies that are under way, and
 * counts them as no longer raw. It says still that it came before this entry: when just, matters
 * only where a part of the push is left. */
static int take_wid(struct deleting *x, const struct gone_wid *w, uint32_t rows, struct err *e)
{
    struct wid_row row = { .t = w->t, .rows = w->had, .folded = w->had, .entry = x->t->entry - 1 };
    char value[WID_ROW_MAX];
    struct key k;

    key_wid(&k, w->bucket, x->p->tenant, w->wid);
    if ((x->p->kind != TOMB_RANGE && !x->part) || w->had == rows) {
        kv_batch_put(x->b, KV_WID, key_str(&k), str_n(value, wid_row_put(&row, value)));
        return 0;
    }
    int rc = kv_get(x->s->kv, NULL, KV_WID, key_str(&k), &x->row, e);
    if (rc == ERR_NOT_FOUND)
        return 0; /* behind the horizon */
    if (!rc)
        rc = wid_row_read(buf_str(&x->row), &row, e);
    if (rc)
        return rc;
    if (rows > row.rows - row.folded)
        return err_set(e, ERR_CORRUPT, "a write id of %u rows, %u folded, has %u raw ones",
                       row.rows, row.folded, rows);
    row.folded += rows;
    kv_batch_put(x->b, KV_WID, key_str(&k), str_n(value, wid_row_put(&row, value)));
    return 0;
}

int tomb_take_wids(struct deleting *x, struct err *e)
{
    int rc = 0;

    if (x->wids.len)
        qsort(x->wids.ptr, x->wids.len, sizeof(*x->wids.ptr), by_wid);
    for (size_t i = 0, end; !rc && i < x->wids.len; i = end) {
        for (end = i + 1; end < x->wids.len && same_wid(&x->wids.ptr[i], &x->wids.ptr[end]);)
            end++;
        rc = take_wid(x, &x->wids.ptr[i], (uint32_t)(end - i), e);
    }
    return rc;
}
