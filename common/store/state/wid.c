/* SPDX-License-Identifier: Apache-2.0
 *
 * wid: dedupe.
 *
 *   staged ── in flight: a map here ──> committed: a row in `wid`, in the bucket of its arrival
 * hour
 *
 * A retry may come hours later, so a look-up asks every hour of the horizon, newest first; filters
 * make the misses cheap: one in memory (wid_filter.h), and those of the files. Arrival, not the
 * time of the samples, chooses the bucket: then a bucket is dropped whole once the horizon has
 * passed it, and a retry without a time of its own is found.
 *
 * Where the client chose the write id (Idempotency-Key), it may by mistake be that of another push.
 * So a fingerprint of such a push is kept as long as its write id, in a row of its own: rows of
 * write ids are written again when they are sealed, which knows nothing of pushes, and programs
 * that do not know fingerprints read these rows, too.
 */
#include "common/store/state/wid.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/store/state/wid_filter.h"

#define VERSION     2
#define VERSION_OLD 1 /* no `entry` before one folded it */

#define PRINT_VERSION 1
#define PRINT_LEN     9

struct flying {
    uint64_t seq, print;
    char key[20]; /* tenant, wid */
};
struct wids {
    struct kv *kv; /* borrowed */
    uint32_t horizon_ms;
    struct map_str *map;        /* key -> struct flying */
    VEC(struct flying *) queue; /* in order of seq; owned, from `done` on */
    size_t done;
    struct wid_filter *filter;
    struct buf row;
};

size_t wid_row_put(const struct wid_row *r, char out[WID_ROW_MAX])
{
    size_t n = 5;

    out[0] = VERSION;
    put_u32be(out + 1, r->t);
    n += varint_put((uint8_t *)out + n, r->rows);
    n += varint_put((uint8_t *)out + n, r->folded);
    n += varint_put((uint8_t *)out + n, r->entry);
    return n;
}

int wid_row_read(struct str row, struct wid_row *ret, struct err *e)
{
    struct rd r = rd_of(row);
    uint8_t version;
    uint64_t rows, folded;

    if (!rd_u8(&r, &version) || (version != VERSION && version != VERSION_OLD) ||
        !rd_u32be(&r, &ret->t) || !rd_varint(&r, &rows) || !rd_varint(&r, &folded) ||
        !rd_varint(&r, &ret->entry) || rd_left(&r) || rows > UINT32_MAX || folded > rows ||
        (version == VERSION_OLD && (folded == 0) != (ret->entry == 0)))
        return err_set(e, ERR_CORRUPT, "write id row of %zu bytes is not one of version %d",
                       row.len, VERSION);
    ret->rows = (uint32_t)rows;
    ret->folded = (uint32_t)folded;
    return 0;
}

struct wids *wids_new(struct kv *kv, uint32_t horizon_ms, size_t filter_bytes)
{
    struct wids *w = XNEW(struct wids);

    w->kv = kv;
    w->horizon_ms = horizon_ms;
    w->map = map_str_new();
    w->filter = wid_filter_new(kv, filter_bytes);
    buf_init(&w->row, KIB);
    return w;
}

void wids_free(struct wids *w)
{
    if (!w)
        return;
    map_str_free(w->map);
    for (size_t i = w->done; i < w->queue.len; i++)
        xfree(w->queue.ptr[i]);
    vec_free(&w->queue);
    wid_filter_free(w->filter);
    buf_deinit(&w->row);
    xfree(w);
}

uint32_t wids_low(const struct wids *w, int64_t engine_ms)
{
    return wid_bucket(engine_ms - w->horizon_ms);
}

static struct str flying_key(char key[20], uint32_t tenant, const uint8_t wid[16])
{
    put_u32be(key, tenant);
    memcpy(key + 4, wid, 16);
    return str_n(key, 20);
}

int wids_known(struct wids *w, const struct wid_arrival *a, bool *ret, struct wid_row *ret_row,
               struct err *e)
{
    uint32_t low = wids_low(w, a->engine_ms), at = wid_bucket(a->engine_ms);
    char key[20];
    struct key k;

    *ret_row = (struct wid_row){ .entry = UINT64_MAX };
    const struct flying *f = map_str_get(w->map, flying_key(key, a->tenant, a->wid));
    *ret = f != NULL;
    if (f) {
        ret_row->print = f->print;
        return 0;
    }
    wid_filter_forget(w->filter, low);
    for (;; at--) {
        bool may;
        if (wid_filter_may(w->filter, at, a->tenant, a->wid, &may, e))
            return e->code;
        if (!may && at == low)
            return 0;
        if (!may)
            continue;
        key_wid(&k, at, a->tenant, a->wid);
        int rc = kv_get(w->kv, NULL, KV_WID, key_str(&k), &w->row, e);
        if (rc != ERR_NOT_FOUND) {
            *ret = !rc;
            ret_row->bucket = at;
            return rc ? rc : wid_row_read(buf_str(&w->row), ret_row, e);
        }
        if (at == low)
            return 0;
    }
}

int wid_print_read(struct str row, uint64_t *ret, struct err *e)
{
    if (row.len != PRINT_LEN || row.ptr[0] != PRINT_VERSION)
        return err_set(e, ERR_CORRUPT, "fingerprint row of %zu bytes is not one of version %d",
                       row.len, PRINT_VERSION);
    *ret = get_u64be(row.ptr + 1);
    return 0;
}

static void put_print(uint32_t bucket, uint32_t tenant, const uint8_t wid[16], uint64_t print,
                      struct kv_batch *b)
{
    char value[PRINT_LEN] = { PRINT_VERSION };
    struct key k;

    put_u64be(value + 1, print);
    key_wid_print(&k, bucket, tenant, wid);
    kv_batch_put(b, KV_META, key_str(&k), str_n(value, sizeof(value)));
}

/* A client that uses one key for two pushes must know that the second is not stored. */
int wids_check_print(struct wids *w, uint32_t tenant, const uint8_t wid[16],
                     const struct wid_row *row, uint64_t print, struct err *e)
{
    bool flying = row->entry == UINT64_MAX;
    uint64_t was = row->print;
    struct key k;

    if (!print)
        return 0;
    if (!flying) {
        key_wid_print(&k, row->bucket, tenant, wid);
        int rc = kv_get(w->kv, NULL, KV_META, key_str(&k), &w->row, e);
        if (rc == ERR_NOT_FOUND)
            return 0;
        if (rc || wid_print_read(buf_str(&w->row), &was, e))
            return e->code;
    }
    if (!was || was == print)
        return 0;
    return err_set(e, ERR_CONFLICT,
                   "idempotency_key_reused: another push was stored under this Idempotency-Key; "
                   "nothing of this one is stored: send it again with a key of its own, and use a "
                   "key twice only to repeat the same request");
}

void wids_drop_prints(uint32_t low, struct kv_batch *b)
{
    struct key from, to;

    key_wid_print_bucket(&from, 0);
    key_wid_print_bucket(&to, low);
    kv_batch_del_range(b, KV_META, key_str(&from), key_str(&to));
}

bool wids_add(struct wids *w, const struct wid_arrival *a, const struct wid_row *row, uint64_t seq,
              struct kv_batch *b)
{
    uint32_t bucket = wid_bucket(a->engine_ms);
    struct flying *f = XNEW(struct flying);
    char value[WID_ROW_MAX];
    struct key k;

    f->seq = seq;
    f->print = row->print;
    if (map_str_get(w->map, flying_key(f->key, a->tenant, a->wid))) {
        xfree(f);
        return false;
    }
    map_str_put(w->map, str_n(f->key, sizeof(f->key)), f);
    vec_push(&w->queue, f);
    wid_filter_add(w->filter, bucket, a->tenant, a->wid);
    key_wid(&k, bucket, a->tenant, a->wid);
    kv_batch_put(b, KV_WID, key_str(&k), str_n(value, wid_row_put(row, value)));
    if (row->print)
        put_print(bucket, a->tenant, a->wid, row->print, b);
    return true;
}

void wids_committed(struct wids *w, uint64_t committed)
{
    while (w->done < w->queue.len && w->queue.ptr[w->done]->seq <= committed) {
        struct flying *f = w->queue.ptr[w->done++];
        map_str_del(w->map, str_n(f->key, sizeof(f->key)));
        xfree(f);
    }
    if (w->done == w->queue.len) {
        w->queue.len = w->done = 0;
    } else if (w->done > 4096 && w->done > w->queue.len / 2) {
        memmove(w->queue.ptr, w->queue.ptr + w->done,
                (w->queue.len - w->done) * sizeof(*w->queue.ptr));
        w->queue.len -= w->done;
        w->done = 0;
    }
}
