/* SPDX-License-Identifier: Apache-2.0
 *
 * retain_trim: deletes rows below a floor in the bucket that the floor is inside.
 *
 * Within a bucket the keys are ordered by series, then time, so the rows below a floor are one
 * range per series. This work is needed where floors are not at the edge of a bucket: at coarse
 * levels, whose buckets are wide, and with short retentions. Readers do not look below floors, so
 * the work is not urgent. It is done in steps, and its position is kept in memory. When a
 * service and type is finished, the floors up to which it was trimmed are written. So a restart
 * repeats only the service and type that was unfinished.
 */
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"

struct trim_walk { /* over the rows of a run in one bucket */
    struct kv_iter *it;
    const struct retain_run *run;
    uint32_t bucket;
    struct member m; /* its series is that of the row at hand, or the first to look for */
    uint32_t t;      /* slot of the row at hand */
    bool found;      /* there is a row at hand */
};

/* Moves to the first row whose series is w->m.series or a later one. */
static int seek(struct trim_walk *w, struct err *e)
{
    struct key k;

    retain_key(&k, w->run, w->bucket, &w->m, 0);
    kv_iter_seek(w->it, key_str(&k));
    w->found = kv_iter_valid(w->it);
    if (!w->found)
        return kv_iter_status(w->it, e);
    struct str key = kv_iter_key(w->it);
    if (key.len < RETAIN_PREFIX + 12)
        return err_set(e, ERR_CORRUPT, "a key of %zu bytes in column family %d", key.len,
                       (int)w->run->cf);
    w->m.series = get_u64be(key.ptr + RETAIN_PREFIX);
    w->t = get_u32be(key.ptr + RETAIN_PREFIX + 8);
    return 0;
}

/* Some series of one run; *rows counts down. *ret_done: the run has no more. */
static int purge_run(struct store *s, const struct retain_run *run, uint32_t floor, size_t *rows,
                     bool *ret_done, struct err *e)
{
    struct retain *r = s->retain;
    uint32_t bucket = floor / run->bucket, end = floor - floor % run->chunk;
    struct trim_walk w = { .run = run, .bucket = bucket, .m = r->part, .found = true };
    struct kv_batch *b = kv_batch_new();
    struct key from, to;
    int rc = 0;

    retain_prefix(&from, run, bucket, &w.m);
    to = from;
    key_end(&to);
    w.it = kv_iter_new(s->kv, NULL, run->cf, key_str(&from), key_str(&to));
    for (w.m.series = r->part_series; *rows > 0 && end > bucket * run->bucket; --*rows) {
        rc = seek(&w, e);
        if (rc || !w.found)
            break;
        if (w.t < end) {
            retain_key(&from, run, bucket, &w.m, 0);
            retain_key(&to, run, bucket, &w.m, end);
            kv_batch_del_range(b, run->cf, key_str(&from), key_str(&to));
            r->stats.rows_purged++;
        }
        w.found = w.m.series != UINT64_MAX;
        if (!w.found)
            break;
        w.m.series++;
    }
    kv_iter_free(w.it);
    r->part_series = w.m.series;
    *ret_done = !w.found || end <= bucket * run->bucket;
    if (!rc && kv_batch_count(b))
        rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    return rc;
}

static int begin_part(struct store *s, bool *ret_found, struct err *e)
{
    struct retain *r = s->retain;
    struct buf row;
    uint32_t first;
    struct key k;
    int rc;

    if (retain_next_part(s, &r->part, &first, ret_found, e))
        return e->code;
    if (!*ret_found)
        return 0;
    buf_init(&row, FLOORS_ROW_LEN + 1);
    r->part_purged = (struct floors){ 0 };
    rc = floors_load(s->kv, NULL, &r->part, &r->part_floors, e);
    retain_purged_key(&k, &r->part);
    if (!rc)
        rc = kv_get(s->kv, NULL, KV_META, key_str(&k), &row, e);
    if (rc == ERR_NOT_FOUND)
        rc = 0;
    else if (!rc)
        rc = floors_read(buf_str(&row), &r->part_purged, e);
    buf_deinit(&row);
    r->in_part = !rc && memcmp(&r->part_purged, &r->part_floors, sizeof(struct floors)) != 0;
    r->part_level = r->part_run = 0;
    r->part_series = 0;
    return rc;
}

static int end_part(struct store *s, struct err *e)
{
    struct retain *r = s->retain;
    struct kv_batch *b = kv_batch_new();
    struct key k;
    int rc;

    retain_purged_key(&k, &r->part);
    char row[FLOORS_ROW_LEN];
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        put_u32be(row + (size_t)4 * l, r->part_floors.at[l]);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
    rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    r->in_part = false;
    return rc;
}

int retain_trim_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e)
{
    struct retain *r = s->retain;
    struct retain_run runs[RETAIN_RUNS];
    size_t rows = rows_max;
    bool found = true;

    *ret_done = false;
    while (rows > 0) {
        if (!r->in_part) {
            rows--;
            if (begin_part(s, &found, e))
                return e->code;
            if (!found) {
                *ret_done = true;
                return 0;
            }
            continue;
        }
        if (r->part_level == KEY_LEVELS)
            return end_part(s, e);
        uint32_t floor = r->part_floors.at[r->part_level];
        bool done = true;
        if (r->part_run >= retain_runs(r->part_level, runs)) {
            r->part_level++;
            r->part_run = 0;
            continue;
        }
        if (floor > r->part_purged.at[r->part_level] &&
            purge_run(s, &runs[r->part_run], floor, &rows, &done, e))
            return e->code;
        if (done) {
            r->part_run++;
            r->part_series = 0;
        }
    }
    return 0;
}
