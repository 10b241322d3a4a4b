/* SPDX-License-Identifier: Apache-2.0
 *
 * upgrade: adds to a database of format 1, which had only leaves and their timelines:
 *
 *   marks      on all nodes above its leaves. Without a mark a node that was never built would
 *              count as empty. One row of timelines of level 0 covers exactly a node of 10 m, so
 *              the keys of these rows name the nodes. The shard and the compactor then build them
 *              as usual.
 *   presence   of gauges, from the points of the same rows
 *
 * Services get groups with the next push of each series (group.h), and their roll-ups begin there:
 * older times are answered by members.
 */
#include "common/store/upgrade.h"

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define BATCH_BYTES  (4 * MIB)
#define BATCH_POINTS 100000

struct upgrade {
    struct store *s;
    struct kv_batch *b;
    struct tl tl;
    struct member part; /* whose windows are gathered */
    uint32_t bucket, first;
    uint64_t windows; /* bit i: the node of 10 m at first + i nodes has leaves */
    size_t points;    /* in tl_rows */
};

static int flush(struct upgrade *x, bool sync, struct err *e)
{
    int rc = tl_rows_put(x->s->tl_rows, UINT32_MAX, x->b, e);

    if (!rc)
        rc = kv_write(x->s->kv, x->b, sync, e);
    kv_batch_clear(x->b);
    x->points = 0;
    return rc;
}

static void mark(struct upgrade *x, uint32_t t)
{
    const struct dirty_mark never_built = { 0 };
    char row[DIRTY_ROW_LEN];
    struct key k;

    dirty_row_put(&never_built, row);
    for (uint32_t level = DIRTY_FIRST; level < KEY_LEVELS; level++) {
        key_dirty(&k, &x->part, level, node_of(level, t));
        kv_batch_put(x->b, KV_META, key_str(&k), str_n(row, sizeof(row)));
    }
}

/* The windows of one service and type in one bucket. */
static int put_marks(struct upgrade *x, struct err *e)
{
    for (uint32_t i = 0; x->windows; i++, x->windows >>= 1)
        if (x->windows & 1)
            mark(x, x->first + i * LEVELS[DIRTY_FIRST].node);
    return kv_batch_bytes(x->b) >= BATCH_BYTES ? flush(x, false, e) : 0;
}

static int on_row(struct upgrade *x, const struct member *m, uint32_t t, struct str value,
                  struct err *e)
{
    uint32_t bucket = t / LEVELS[0].bucket;

    static_assert(6 * 60 / 10 <= 64, "windows of a bucket of level 0 are bits");
    if (m->tenant != x->part.tenant || m->scope != x->part.scope || m->ptype != x->part.ptype ||
        bucket != x->bucket) {
        if (put_marks(x, e))
            return e->code;
        x->part = *m;
        x->bucket = bucket;
        x->first = bucket * LEVELS[0].bucket;
    }
    x->windows |= UINT64_C(1) << (t - x->first) / LEVELS[DIRTY_FIRST].node;
    int rc = timeline_row_decode(value, LEVELS[0].tl_chunk, &x->tl, e);
    if (rc)
        return err_wrap(e, "timeline at slot %u of series %016" PRIx64, t, m->series);
    vec_for (i, &x->tl.points)
        tl_rows_present(x->s->tl_rows, false, m, t + x->tl.points.ptr[i].point);
    x->points += x->tl.points.len;
    return x->points >= BATCH_POINTS ? flush(x, false, e) : 0;
}

static int walk_timelines(struct upgrade *x, struct err *e)
{
    struct key from = { .len = 1, .b = { 0 } }, to = { .len = 1, .b = { 1 } };
    uint32_t flags, level, t;
    struct member m;
    int rc = 0;

    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_TL, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_tl_read(kv_iter_key(it), &flags, &level, &m, &t))
            rc = err_set(e, ERR_CORRUPT, "key of a timeline has %zu bytes", kv_iter_key(it).len);
        else
            rc = on_row(x, &m, t, kv_iter_value(it), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc ? rc : put_marks(x, e);
}

static int from_1(struct upgrade *x, struct err *e)
{
    int rc = walk_timelines(x, e);

    return rc ? err_wrap(e, "bringing a database of format 1 to format %d", FORMAT_WRITTEN) : 0;
}

static void put_format(struct kv_batch *b)
{
    char row[8] = { 'E', 'M', 'B', 'R' };
    struct key k;

    put_u16be(row + 4, FORMAT_WRITTEN);
    put_u16be(row + 6, FORMAT_LEAST_READER);
    key_format(&k);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

int store_upgrade(struct store *s, unsigned written, struct err *e)
{
    struct upgrade x = { .s = s, .b = kv_batch_new(), .bucket = UINT32_MAX };
    int rc = written < 2 ? from_1(&x, e) : 0;

    put_format(x.b);
    if (!rc)
        rc = flush(&x, true, e);
    tl_rows_reset(s->tl_rows);
    vec_free(&x.tl.points);
    kv_batch_free(x.b);
    return rc;
}
