/* SPDX-License-Identifier: Apache-2.0
 *
 * seal_plan: which raw rows are due, and when to look again. Due is a minute that ended
 * `seal_delay` ago by engine time, or by a wall clock that is ahead of it and has settled
 * (engine_clock.h); rows that come for it later are due at once, but wait_ms lets them gather for
 * LATE_PACE_MS, so that a dribble does not rewrite the same leaves row by row. That is counted by
 * the monotonic clock: engine time may stand still for long, behind a wall clock that went back.
 *
 * A minute of many rows is sealed by many entries, each of which begins where the last one ended
 * (seal_from): looked for from the minute's first key, its rows would be found behind all that
 * were sealed before them, which stand in memtables with their deletions until those are written
 * out. What came below meanwhile is found by a look from the lowest row, once the end is reached.
 *
 * Thread: the shard's.
 */
#include "common/store/codec/vec.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/seal/seal.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

#define ROWS_BYTES_MAX (64 * MIB) /* of one entry */
#define LATE_PACE_MS   10000
#define EMPTY_PACE_MS  100
#define WAIT_MAX_MS    60000

static int64_t due_ms(const struct store *s, uint32_t bucket)
{
    return slot_to_ms((bucket + 1) * RAW_BUCKET_SLOTS) + s->o.seal_delay_ms;
}

/* Buckets below this are due. */
static uint32_t due_end(const struct store *s, int64_t engine_ms)
{
    return raw_bucket(
        slot_of_ms(engine_ms + engine_clock_seal_ahead(&s->clock) - s->o.seal_delay_ms));
}

static int collect_row(struct store *s, struct kv_iter *it, struct seal_entry *n,
                       struct seal_rows *rows, struct err *e)
{
    struct str value = kv_iter_value(it);
    struct seal_row r;
    struct raw_row head;
    const uint8_t *wid;

    if (!key_raw_read(kv_iter_key(it), &r.m, &r.t, &wid))
        return err_set(e, ERR_CORRUPT, "raw key of %zu bytes", kv_iter_key(it).len);
    if (tombs_hold(s, &r.m, r.t))
        return 0;
    if (raw_row_read(value, &head, e))
        return e->code;
    char *copy = arena_alloc(s->arena, 16 + head.vector.len);
    if (!copy)
        return ERR_LIMIT; /* the caller ends the entry here */
    memcpy(copy, wid, 16);
    memcpy(copy + 16, head.vector.ptr, head.vector.len);
    r.wid = (const uint8_t *)(const void *)copy;
    r.vector = str_n(copy + 16, head.vector.len);
    r.wid_bucket = head.wid_bucket;
    r.wid_rows = head.wid_rows;
    int rc = seal_entry_add(n, kv_iter_key(it), &r, e);
    if (!rc)
        vec_push(&rows->at, r);
    return rc;
}

/* What is made of rows is as a rule not much larger than they are. */
static bool enough(const struct store *s)
{
    return arena_used(s->arena) >= kv_batch_max(s->kv) / 4;
}

/* The first key behind that of a raw row. */
static void key_behind(struct key *k, struct str key)
{
    CHECK(key.len < sizeof(k->b));
    memcpy(k->b, key.ptr, key.len);
    k->b[key.len] = 0;
    k->len = key.len + 1;
}

struct due { /* minutes [low, end), at a time */
    int64_t engine_ms;
    uint32_t low, end;
    size_t rows_max; /* of one entry */
};
struct collected {
    struct seal_entry entry;
    struct seal_rows rows; /* bytes in the shard's arena */
};

/* Copies committed rows of due minutes, from *from on, into *into, and moves *from behind the last
 * one. *ret_more is true if rows of these minutes are left. */
static int collect(struct store *s, const struct due *d, struct key *from, struct collected *into,
                   bool *ret_more, struct err *e)
{
    struct seal_rows *rows = &into->rows;
    struct key to;
    int rc = 0;

    key_raw_bucket(&to, d->end);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_RAW, key_str(from), key_str(&to));
    for (; kv_iter_valid(it) && rows->at.len < d->rows_max && !enough(s); kv_iter_next(it)) {
        rc = collect_row(s, it, &into->entry, rows, e);
        if (rc)
            break;
        key_behind(from, kv_iter_key(it));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    *ret_more = rc == ERR_LIMIT || (!rc && kv_iter_valid(it));
    if (rc == ERR_LIMIT)
        rc = rows->at.len
                 ? 0
                 : err_set(e, ERR_LIMIT, "a raw row is larger than %zu bytes", ROWS_BYTES_MAX);
    kv_iter_free(it);
    return rc;
}

/* Sets *ret to the key at which an entry of the minutes [low, end) begins. True if rows of these
 * minutes may be before it. */
static bool begin_at(const struct store *s, uint32_t low, uint32_t end, struct key *ret)
{
    struct key last;

    key_raw_bucket(ret, low);
    key_raw_bucket(&last, end);
    if (str_cmp(key_str(&s->seal_from), key_str(ret)) <= 0 ||
        str_cmp(key_str(&s->seal_from), key_str(&last)) >= 0)
        return false;
    *ret = s->seal_from;
    return true;
}

/* Writes one entry of these minutes. *ret_rows is the number of its rows, also if it fails. */
static int seal_one(struct store *s, const struct due *d, size_t *ret_rows, bool *ret_more,
                    struct err *e)
{
    struct collected c = { .entry = { .n = atomic_load(&s->applied) + 1,
                                      .engine_ms = d->engine_ms } };
    struct key from;
    bool behind = begin_at(s, d->low, d->end, &from);

    arena_reset(s->arena);
    int rc = collect(s, d, &from, &c, ret_more, e);
    if (!rc && c.rows.at.len)
        rc = seal_apply(s, &c.entry, &c.rows, e);
    else if (!rc && !behind)
        s->empty_after_ms = clock_mono_ms(s->o.clock) + EMPTY_PACE_MS;
    if (rc != ERR_LIMIT) /* else the same rows are tried again, fewer of them */
        s->seal_from.len = 0;
    if (!rc && *ret_more)
        s->seal_from = from;
    else if (!rc && behind)
        *ret_more = raw_counts_low(&s->raw) < d->end;
    *ret_rows = c.rows.at.len;
    vec_free(&c.rows.at);
    return rc;
}

static int seal_due(struct store *s, int64_t engine_ms, bool fresh, size_t rows_max, bool *ret_more,
                    struct err *e)
{
    struct due d = { .engine_ms = engine_ms,
                     .low = fresh ? MAX(s->raw_low, s->sealed_high) : s->raw_low,
                     .end = due_end(s, engine_ms),
                     .rows_max = rows_max };
    int rc;

    if (raw_counts_low(&s->raw) >= d.end || d.low >= d.end)
        return 0;
    do { /* few rows may change large nodes: where a batch cannot be that large, fewer of them */
        rc = seal_one(s, &d, &d.rows_max, ret_more, e);
        d.rows_max /= 2;
    } while (rc == ERR_LIMIT && d.rows_max);
    if (!rc && !*ret_more && !fresh)
        s->late_after_ms = clock_mono_ms(s->o.clock) + LATE_PACE_MS;
    return rc;
}

/* Drops the buckets the horizon has passed. */
static int expire_wids(struct store *s, int64_t engine_ms, struct err *e)
{
    uint32_t low = wids_low(s->wids, engine_ms);
    struct key from, to, v;

    if (low <= s->write_id_low)
        return 0;
    struct kv_batch *b = kv_batch_new();
    key_wid_bucket(&from, s->write_id_low);
    key_wid_bucket(&to, low);
    kv_batch_del_range(b, KV_WID, key_str(&from), key_str(&to));
    wids_drop_prints(low, b);
    key_u32(&v, low);
    store_put_control(b, CONTROL_WID_LOW, &v);
    store_put_clock(s, engine_ms, b);
    int rc = store_write_batch(s, b, false, e);
    if (!rc)
        s->write_id_low = low;
    kv_batch_free(b);
    return rc;
}

static int seal(struct store *s, bool fresh, size_t rows_max, bool *ret_more, struct err *e)
{
    int64_t engine_ms = store_now(s);

    *ret_more = false;
    if (store_check_writable(s, e))
        return e->code;
    if (s->clock.paused)
        return 0;
    CHECK(rows_max > 0);
    int rc = expire_wids(s, engine_ms, e);
    return rc ? rc : seal_due(s, engine_ms, fresh, rows_max, ret_more, e);
}

int store_seal(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    return seal(s, false, rows_max, ret_more, e);
}

int store_seal_fresh(struct store *s, size_t rows_max, bool *ret_more, struct err *e)
{
    return seal(s, true, rows_max, ret_more, e);
}

static uint64_t until(int64_t at_ms, int64_t now_ms)
{
    return at_ms > now_ms ? (uint64_t)(at_ms - now_ms) : 0;
}

uint64_t store_seal_wait_ms(const struct store *s)
{
    struct engine_clock clock = s->clock;
    int64_t now = engine_clock_now(&clock) + engine_clock_seal_ahead(&clock);
    uint64_t mono = clock_mono_ms(s->o.clock), wait = WAIT_MAX_MS;
    uint32_t low = raw_counts_low(&s->raw);

    if (clock.paused)
        return 1000;
    if (low != UINT32_MAX && low < s->sealed_high) {
        wait = MIN(wait, MAX(until(due_ms(s, low), now), until(s->late_after_ms, mono)));
        low = raw_counts_after(&s->raw, s->sealed_high - 1);
    }
    if (low != UINT32_MAX)
        wait = MIN(wait, MAX(until(due_ms(s, low), now), until(s->empty_after_ms, mono)));
    return wait;
}
