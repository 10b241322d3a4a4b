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
 */
#include "common/store/wid.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/store/wid_filter.h"

#define VERSION     2
#define VERSION_OLD 1 /* no `entry` before one folded it */

struct flying {
    uint64_t seq;
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

int wids_known(struct wids *w, uint32_t tenant, const uint8_t wid[16], int64_t engine_ms, bool *ret,
               struct wid_row *ret_row, struct err *e)
{
    uint32_t low = wids_low(w, engine_ms), at = wid_bucket(engine_ms);
    char key[20];
    struct key k;

    *ret_row = (struct wid_row){ .entry = UINT64_MAX };
    *ret = map_str_get(w->map, flying_key(key, tenant, wid)) != NULL;
    if (*ret)
        return 0;
    wid_filter_forget(w->filter, low);
    for (;; at--) {
        bool may;
        if (wid_filter_may(w->filter, at, tenant, wid, &may, e))
            return e->code;
        if (!may && at == low)
            return 0;
        if (!may)
            continue;
        key_wid(&k, at, tenant, wid);
        int rc = kv_get(w->kv, NULL, KV_WID, key_str(&k), &w->row, e);
        if (rc != ERR_NOT_FOUND) {
            *ret = !rc;
            return rc ? rc : wid_row_read(buf_str(&w->row), ret_row, e);
        }
        if (at == low)
            return 0;
    }
}

bool wids_add(struct wids *w, uint32_t tenant, const uint8_t wid[16], int64_t engine_ms,
              const struct wid_row *row, uint64_t seq, struct kv_batch *b)
{
    struct flying *f = XNEW(struct flying);
    char value[WID_ROW_MAX];
    struct key k;

    f->seq = seq;
    if (map_str_get(w->map, flying_key(f->key, tenant, wid))) {
        xfree(f);
        return false;
    }
    map_str_put(w->map, str_n(f->key, sizeof(f->key)), f);
    vec_push(&w->queue, f);
    wid_filter_add(w->filter, wid_bucket(engine_ms), tenant, wid);
    key_wid(&k, wid_bucket(engine_ms), tenant, wid);
    kv_batch_put(b, KV_WID, key_str(&k), str_n(value, wid_row_put(row, value)));
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
