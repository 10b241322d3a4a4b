/* SPDX-License-Identifier: Apache-2.0
 *
 * commit: every write of the store to its database, the clock and the control values.
 *
 * After a write or fsync that failed it is unknown what is on disk: the batch may be there after a
 * restart or not. In memory are dictionary ids, numbers and write ids of it that must not be used
 * if it is not. Guessing which is how databases get corrupted, so the store takes no more writes
 * until it is opened again, and then reads what is true. What was committed can still be read.
 *
 * Threads: the shard's and the committer write; `write` keeps it to one writer at a time. Any
 * thread asks for the clock and whether the store is read-only, by atomics.
 */
#include "common/store/state/commit.h"

#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/state/pipe.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

int64_t store_now(struct store *s)
{
    int64_t now = engine_clock_now(&s->clock);

    /* A thread that sees this time sees the earlier writes, too: view.c. */
    atomic_store_explicit(&s->engine_ms, now, memory_order_release);
    atomic_store_explicit(&s->ahead_ms, s->clock.held ? s->clock.ahead_ms : 0,
                          memory_order_relaxed);
    atomic_store_explicit(&s->held, s->clock.held, memory_order_relaxed);
    atomic_store_explicit(&s->paused, s->clock.paused, memory_order_relaxed);
    return now;
}

void store_clock(const struct store *s, struct store_clock *ret)
{
    ret->engine_ms = atomic_load_explicit(&s->engine_ms, memory_order_relaxed);
    ret->held = atomic_load_explicit(&s->held, memory_order_relaxed);
    ret->paused = atomic_load_explicit(&s->paused, memory_order_relaxed);
    ret->jump_ms = atomic_load_explicit(&s->ahead_ms, memory_order_relaxed);
}

void store_put_control(struct kv_batch *b, enum key_control id, const struct key *value)
{
    struct key k;

    key_control(&k, id);
    kv_batch_put(b, KV_META, key_str(&k), key_str(value));
}

void store_put_clock(struct store *s, int64_t engine_ms, struct kv_batch *b)
{
    struct key v;

    key_u64(&v, (uint64_t)engine_ms);
    store_put_control(b, CONTROL_CLOCK, &v);
    if (s->clock.stood_ms || s->clock_jump_saved) {
        key_u64(&v, (uint64_t)s->clock.stood_ms);
        put_u64be(v.b + 8, (uint64_t)s->clock.wall_ms);
        v.len = 16;
        store_put_control(b, CONTROL_STOOD, &v);
        s->clock_jump_saved = s->clock.stood_ms > 0;
    }
    s->on_clock(s, engine_ms, b);
    s->clock_written_ms = engine_ms;
}

bool store_read_only(const struct store *s)
{
    return atomic_load_explicit(&s->shut, memory_order_acquire) != 0;
}

static const struct err *why(const struct store *s)
{
    return &s->whys[atomic_load_explicit(&s->why_at, memory_order_acquire) % STORE_WHYS];
}

void store_set_read_only(struct store *s, const struct err *e)
{
    uint32_t at = atomic_load_explicit(&s->why_at, memory_order_relaxed) + 1;

    if (e->code != why(s)->code || strcmp(e->text, why(s)->text) != 0) {
        s->whys[at % STORE_WHYS] = *e;
        atomic_store_explicit(&s->why_at, at, memory_order_release);
    }
    atomic_fetch_or_explicit(&s->shut, STORE_SHUT_READ_ONLY, memory_order_release);
}

const char *store_read_only_why(const struct store *s)
{
    return store_read_only(s) ? why(s)->text : "";
}

int store_read_only_code(const struct store *s)
{
    return store_read_only(s) ? why(s)->code : 0;
}

int store_check_writable(const struct store *s, struct err *e)
{
    if (!(atomic_load_explicit(&s->shut, memory_order_acquire) & STORE_SHUT_READ_ONLY))
        return 0;
    return err_set(
        e, ERR_UNAVAILABLE,
        "shard %u takes no writes since one failed (%s); it is opened again when the cause is gone",
        s->o.shard, why(s)->text);
}

int store_write_batch(struct store *s, struct kv_batch *b, bool sync, struct err *e)
{
    return sync ? store_write_then(s, b, true, NULL, NULL, e) : pipe_write(s, b, NULL, e);
}

int store_put_rows(struct store *s, const struct kv_batch *b, struct err *e)
{
    return store_write_batch(s, (struct kv_batch *)(uintptr_t)b, true, e);
}

int store_write_then(struct store *s, struct kv_batch *b, bool sync, void (*then)(void *cookie),
                     void *cookie, struct err *e)
{
    mutex_lock(&s->write);
    int rc = store_check_writable(s, e);
    if (!rc) {
        rc = kv_write(s->kv, b, sync, e);
        if (rc) {
            store_set_read_only(s, e);
            hot_stop(s->hot);
        } else {
            if (then)
                then(cookie);
            view_publish(s);
        }
    }
    mutex_unlock(&s->write);
    return rc;
}

int store_drop_range(struct store *s, enum kv_cf cf, struct str from, struct str to, struct err *e)
{
    mutex_lock(&s->write);
    int rc = store_check_writable(s, e);
    if (!rc) {
        rc = kv_drop_range(s->kv, cf, from, to, e);
        if (rc) {
            store_set_read_only(s, e);
            hot_stop(s->hot);
        } else {
            view_publish(s);
        }
    }
    mutex_unlock(&s->write);
    return rc;
}

void store_share_names(struct store *s)
{
    uint64_t bytes = atomic_load_explicit(&s->share_names, memory_order_relaxed);

    if (!bytes)
        return;
    groups_resize(s->groups, bytes / 6);
    series_cache_resize(s->series, bytes / 2);
    names_resize(s->names, bytes / 3);
}

int64_t store_newest_ms(const struct store *s)
{
    uint32_t end = s->sealed_high;

    if (s->raw.at.len)
        end = MAX(end, s->raw.at.ptr[s->raw.at.len - 1].bucket + 1);
    return slot_to_ms(end * RAW_BUCKET_SLOTS) - 1;
}
