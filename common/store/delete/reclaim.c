/* SPDX-License-Identifier: Apache-2.0
 *
 * reclaim: what makes the bytes of a purged delete leave the files (reclaim.h).
 *
 * A purge deletes rows, and RocksDB keeps their bytes until a compaction. Ranges that a purge
 * touched are compacted one by one, and a range is forgotten only after its compaction, so a crash
 * repeats a compaction and skips none. Behind the last range everything is flushed: then the
 * write-ahead log holds nothing of the delete either. With copies each node does this for its own
 * files; store_reclaimed records that all members are done.
 *
 * Thread: the shard's, or the one thread that looks after a copy.
 */
#include "common/store/delete/reclaim.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/store/delete/purge.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ROW_MAX (64 * MIB)

static_assert(RECLAIM_KEY_LEN == KEY_TOMB_SPAN_LEN, "the header says how long they are");

/* ---- ranges ---- */

static void key_of(const struct reclaim_key *k, struct key *ret)
{
    ret->len = RECLAIM_KEY_LEN;
    memcpy(ret->b, k->b, RECLAIM_KEY_LEN);
}

static void meta_range(uint32_t table, uint32_t tenant, struct key *from, struct key *to)
{
    key_table(from, (enum key_table)table, tenant);
    if (table == KEY_TENANT_NAME || table == KEY_DOC || table == KEY_DOC_CHUNK)
        from->len = 1; /* by the tenant's name */
    *to = *from;
    key_end(to);
}

/* False: not now. */
static bool compact(struct kv *db, const struct key *row)
{
    struct purge_span span = { 0 };
    enum kv_cf cf = KV_META;
    struct key from, to;

    if (!key_tomb_span_read(key_str(row), &cf, &span.lead, &span.bucket))
        return true;
    uint32_t tenant = get_u32be(row->b + 1);
    if (cf == KV_RAW)
        return kv_compact(db, cf, STR(""), STR("\xff\xff\xff\xff\xff"));
    span.head = cf == KV_WID || cf == KV_EXM ? 0 : 1;
    if (cf == KV_META)
        meta_range(span.lead, tenant, &from, &to);
    else
        purge_span_keys(&span, tenant, 0, &from, &to);
    return kv_compact(db, cf, key_str(&from), key_str(&to));
}

/* May rows of the range still be deleted, under the same row that says so? */
static bool being_purged(struct kv *db, const struct kv_snap *snap, struct str span,
                         struct buf *row)
{
    struct tomb *t = tomb_new();
    struct err e;
    struct key k;

    key_tomb(&k, KEY_TOMB, get_u32be(span.ptr + 1), get_u64be(span.ptr + 5));
    bool known = !kv_get(db, snap, KV_META, key_str(&k), row, &e) &&
                 !tomb_row_read(key_str(&k), buf_str(row), t, &e);
    bool yes = known && t->state == TOMB_PURGING;
    tomb_free(t);
    return yes;
}

/* Reads at most `max` rows of table 63, except those of deletes that are not purged yet: rows that
 * such a delete removes after its range was compacted would stay in files unnoticed. */
static int each_range(struct kv *db, const struct kv_snap *snap, size_t max, struct reclaim *r,
                      struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TOMB_SPAN } }, end = from;
    char asked[KEY_TOMB_LEN - 1] = { 0 };
    struct reclaim_key k = { 0 };
    struct buf row;

    key_end(&end);
    buf_init(&row, ROW_MAX);
    struct kv_iter *it = kv_iter_new(db, snap, KV_META, key_str(&from), key_str(&end));
    while (r->at.len < max && kv_iter_valid(it)) {
        struct str key = kv_iter_key(it);
        if (key.len != RECLAIM_KEY_LEN)
            break;
        if (memcmp(asked, key.ptr + 1, sizeof(asked))) { /* another delete */
            memcpy(asked, key.ptr + 1, sizeof(asked));
            if (being_purged(db, snap, key, &row)) {
                key_tomb(&from, KEY_TOMB_SPAN, get_u32be(key.ptr + 1), get_u64be(key.ptr + 5));
                key_end(&from); /* behind all of it */
                kv_iter_seek(it, key_str(&from));
                continue;
            }
        }
        memcpy(k.b, key.ptr, RECLAIM_KEY_LEN);
        vec_push(&r->at, k);
        kv_iter_next(it);
    }
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_deinit(&row);
    return rc;
}

/* ---- of a store ---- */

bool store_reclaim_settled(struct store *s)
{
    return view_oldest(s) >= atomic_load(&s->tombs->purged_view);
}

/* Deletes the row of a range whose bytes are free. Before the last row is deleted, the memtables
 * are flushed, so that the write-ahead log is cut. */
static int forget_range(struct store *s, const struct reclaim *r, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    struct key row;
    int rc = r->at.len > 1 ? 0 : kv_flush(s->kv, e);

    key_of(&r->at.ptr[0], &row);
    kv_batch_del(b, KV_META, key_str(&row));
    if (!rc)
        rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    return rc;
}

int store_reclaim(struct store *s, bool *ret_more, struct err *e)
{
    struct reclaim r = { 0 };
    struct key row;
    int rc = 0;

    *ret_more = false;
    struct store_view *v = store_view_get(s); /* keeps the database open */
    if (store_reclaim_settled(s))
        rc = each_range(s->kv, v->snap, 2, &r, e);
    if (!rc && r.at.len) {
        key_of(&r.at.ptr[0], &row);
        if (compact(s->kv, &row)) {
            rc = forget_range(s, &r, e);
            *ret_more = !rc;
        }
    }
    reclaim_deinit(&r);
    store_view_put(v);
    return rc;
}

/* ---- of one copy ---- */

void reclaim_deinit(struct reclaim *r)
{
    vec_free(&r->at);
}

static int by_key(const void *a, const void *b)
{
    return memcmp(a, b, RECLAIM_KEY_LEN);
}

static struct reclaim_key *find(const struct reclaim_key *keys, size_t n, const char *key)
{
    return n ? bsearch(key, keys, n, sizeof(*keys), by_key) : NULL;
}

int reclaim_look(struct reclaim *r, struct kv *db, const struct kv_snap *snap, size_t *ret_left,
                 struct err *e)
{
    struct reclaim now = { .flush = r->flush };
    size_t left = 0;
    int rc = each_range(db, snap, SIZE_MAX, &now, e);

    if (rc) {
        reclaim_deinit(&now);
        return rc;
    }
    vec_for (i, &now.at) {
        const struct reclaim_key *was = find(r->at.ptr, r->at.len, now.at.ptr[i].b);
        now.at.ptr[i].done = was && was->done;
        left += !now.at.ptr[i].done;
    }
    reclaim_deinit(r);
    *r = now;
    *ret_left = left + r->flush;
    return 0;
}

int reclaim_one(struct reclaim *r, struct kv *db, bool *ret_more, struct err *e)
{
    struct key row;

    *ret_more = false;
    vec_for (i, &r->at) {
        if (r->at.ptr[i].done)
            continue;
        key_of(&r->at.ptr[i], &row);
        *ret_more = r->at.ptr[i].done = compact(db, &row);
        r->flush |= *ret_more;
        return 0;
    }
    if (!r->flush)
        return 0;
    int rc = kv_flush(db, e);
    r->flush = rc != 0;
    return rc;
}

/* ---- what all copies have ---- */

/* Has the delete ranges that are not among these? */
static int others(struct store *s, const struct tomb *t, const struct reclaim_key *keys, size_t n,
                  bool *ret, struct err *e)
{
    struct key from, to;

    key_tomb(&from, KEY_TOMB_SPAN, t->tenant, t->entry);
    to = from;
    key_end(&to);
    *ret = false;
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !*ret && kv_iter_valid(it); kv_iter_next(it))
        *ret = kv_iter_key(it).len != RECLAIM_KEY_LEN || !find(keys, n, kv_iter_key(it).ptr);
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int store_reclaimed(struct store *s, const struct reclaim_key *keys, size_t n, bool all,
                    struct err *e)
{
    struct tombs *tombs = s->tombs;
    bool left = false;
    int rc = store_check_writable(s, e);

    for (size_t i = 0; !rc && i < tombs->at.len; i++) {
        struct tomb *t = tombs->at.ptr[i];
        if (t->state != TOMB_PURGED || !tomb_ripe(s, t))
            continue;
        rc = others(s, t, keys, n, &left, e);
        if (!rc && !left)
            rc = tomb_done(s, t, e);
    }
    if (rc || !all)
        return rc;
    struct kv_batch *b = kv_batch_new();
    for (size_t i = 0; i < n; i++) {
        struct key row;
        key_of(&keys[i], &row);
        kv_batch_del(b, KV_META, key_str(&row));
    }
    rc = kv_batch_count(b) ? store_write_batch(s, b, false, e) : 0;
    kv_batch_free(b);
    return rc;
}
