/* SPDX-License-Identifier: Apache-2.0
 *
 * store: open, close, batches, commits, and the state around them.
 *
 * What survives what:
 *   kill, power cut   A batch is all or nothing, and batches survive in order. So a database is at
 *                     any time what some prefix of the committed and sealed batches made it; every
 *                     dictionary id a row names, every series, every write id came in the same or
 *                     an earlier batch. Opening replays nothing beyond the kv's own log.
 *   failed write      After a write or fsync that failed nobody knows what is on disk: the batch
 *                     may be there after a restart or not. In memory are dictionary ids, numbers
 *                     and write ids of it that must not be used if it is not. Guessing which is how
 *                     databases get corrupted, so the store takes no more writes until it is opened
 *                     again, and then reads what is true. What was committed can still be read.
 *
 * Threads: the shard thread stages and seals; the committer commits; anyone reads (store.h). What
 * they share is atomics that are only counted or published, the dictionaries (dict_cache.c), and
 * the kv, whose one writer at a time is kept by `write`.
 */
#include "common/store/store.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/build/build_impl.h"
#include "common/store/catalog/group.h"
#include "common/store/catalog/names_max.h"
#include "common/store/ledger/ledger_impl.h"
#include "common/store/mask/tomb_impl.h"
#include "common/store/query/rollup.h"
#include "common/store/retain/retain_impl.h"
#include "common/store/state/pipe.h"
#include "common/store/state/store_impl.h"
#include "common/store/upgrade.h"

#define ARENA_MAX       (64 * MIB)
#define EPOCH_NODES     (1u << 20)
#define NAMES_BYTES     (192 * MIB)
#define WID_FILTER_PART 8 /* of the share of names: at most, besides it */
#define CLOCK_EVERY_MS  60000
#define BATCH_RESERVED  MIB /* of a new batch, at most */

static const char MAGIC_TEXT[] = "EMBR";

/* ---- state ---- */

int64_t store_now(struct store *s)
{
    int64_t now = eclock_now(&s->clock);

    /* Who sees it sees the writes before it, too: view.c. */
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
    if (s->clock.stood_ms || s->stood_written) {
        key_u64(&v, (uint64_t)s->clock.stood_ms);
        put_u64be(v.b + 8, (uint64_t)s->clock.wall_ms);
        v.len = 16;
        store_put_control(b, CONTROL_STOOD, &v);
        s->stood_written = s->clock.stood_ms > 0;
    }
    ledger_put_clock(s, engine_ms, b);
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

int store_refuse(const struct store *s, struct err *e)
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
    int rc = store_refuse(s, e);
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
    int rc = store_refuse(s, e);
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

/* ---- open ---- */

static int get_meta(struct store *s, const struct key *k, struct err *e)
{
    return kv_get(s->kv, NULL, KV_META, key_str(k), &s->row, e);
}

static int write_format(struct store *s, struct err *e)
{
    struct kv_batch *b = kv_batch_new();
    char row[8];
    struct key k;

    memcpy(row, MAGIC_TEXT, 4);
    put_u16be(row + 4, FORMAT_WRITTEN);
    put_u16be(row + 6, FORMAT_LEAST_READER);
    key_format(&k);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
    int rc = kv_write(s->kv, b, true, e);
    kv_batch_free(b);
    return rc;
}

static int check_format(struct store *s, struct err *e)
{
    struct key k;

    key_format(&k);
    int rc = get_meta(s, &k, e);
    s->format = FORMAT_WRITTEN;
    if (rc == ERR_NOT_FOUND)
        return write_format(s, e);
    if (rc)
        return rc;
    if (s->row.len != 8 || memcmp(s->row.ptr, MAGIC_TEXT, 4))
        return err_set(e, ERR_CORRUPT, "this is no database of ours: its format row is wrong");
    unsigned written = get_u16be(s->row.ptr + 4), least = get_u16be(s->row.ptr + 6);
    if (least > FORMAT_WRITTEN)
        return err_set(
            e, ERR_CONFIG,
            "the database was written in format %u and needs a program that reads format "
            "%u; this one reads up to %d: use a newer version",
            written, least, FORMAT_WRITTEN);
    s->format = written;
    return 0;
}

/* One that is opened to be read stays as it is. */
static int upgrade(struct store *s, struct err *e)
{
    int rc = s->format < FORMAT_WRITTEN ? store_upgrade(s, s->format, e) : 0;

    if (rc == ERR_UNAVAILABLE)
        return 0;
    if (!rc)
        s->format = MAX(s->format, (unsigned)FORMAT_WRITTEN);
    return rc;
}

/* The bytes of a control value, or an empty one. */
static int get_control(struct store *s, enum key_control id, size_t len, struct err *e)
{
    struct key k;

    key_control(&k, id);
    int rc = get_meta(s, &k, e);
    if (rc == ERR_NOT_FOUND) {
        buf_reset(&s->row);
        return 0;
    }
    if (!rc && s->row.len != len)
        rc = err_set(e, ERR_CORRUPT, "control value %d has %zu bytes, not %zu", (int)id, s->row.len,
                     len);
    return rc;
}

/* A number, or `none` if there is no such value yet. */
static int get_control_u32(struct store *s, enum key_control id, uint32_t none, uint32_t *ret,
                           struct err *e)
{
    if (get_control(s, id, 4, e))
        return e->code;
    *ret = s->row.len ? get_u32be(s->row.ptr) : none;
    return 0;
}

static int read_controls(struct store *s, struct err *e)
{
    int64_t clock_ms = -1;

    if (get_control(s, CONTROL_CLOCK, 8, e))
        return e->code;
    if (s->row.len)
        clock_ms = (int64_t)get_u64be(s->row.ptr);
    if (ledger_open(s, clock_ms, e))
        return e->code;
    if (get_control(s, CONTROL_APPLIED, 12, e))
        return e->code;
    if (s->row.len) {
        atomic_store(&s->applied, get_u64be(s->row.ptr));
        s->sealed_high = get_u32be(s->row.ptr + 8);
    }
    if (get_control_u32(s, CONTROL_RAW_LOW, UINT32_MAX, &s->raw_low, e) ||
        get_control_u32(s, CONTROL_WID_LOW, 0, &s->wid_low, e) ||
        get_control_u32(s, CONTROL_WID_HIGH, 0, &s->wid_high, e))
        return e->code;
    /* The clock is written once a minute; a push acked behind it may have begun another hour of
     * write ids, and its retry must look there. */
    if (s->wid_high)
        clock_ms = MAX(clock_ms, SLOT_EPOCH_MS + s->wid_high * WID_BUCKET_MS);
    eclock_init(&s->clock, s->o.clock, clock_ms);
    s->clock.others = s->o.others;
    if (get_control(s, CONTROL_STOOD, 16, e))
        return e->code;
    s->stood_written = s->row.len > 0;
    if (s->row.len)
        eclock_stood(&s->clock, (int64_t)get_u64be(s->row.ptr), (int64_t)get_u64be(s->row.ptr + 8));
    return 0;
}

/* Calls fn for each row of KV_RAW from the lowest minute on, or of a meta table. */
static int for_rows(struct store *s, enum kv_cf cf, const struct key *from,
                    int (*fn)(struct store *, struct str key, struct str value, struct err *),
                    struct err *e)
{
    struct key to = *from;
    int rc = 0;

    if (cf == KV_META)
        key_end(&to);
    struct kv_iter *it =
        kv_iter_new(s->kv, NULL, cf, key_str(from), cf == KV_META ? key_str(&to) : STR_NULL);
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = fn(s, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int count_raw(struct store *s, struct str key, struct str value, struct err *e)
{
    struct member m;
    const uint8_t *wid;
    uint32_t t;

    (void)value;
    if (!key_raw_read(key, &m, &t, &wid))
        return err_set(e, ERR_CORRUPT, "raw key of %zu bytes", key.len);
    raw_counts_add(&s->raw, raw_bucket(t), 1);
    return 0;
}

static int count_tenant(struct store *s, struct str key, struct str value, struct err *e)
{
    struct tenant_row r;
    int rc = tenant_row_read(value, &r, e);

    (void)key;
    if (!rc)
        atomic_fetch_add(&s->series_count, r.next_ordinal);
    return rc;
}

static int count_epoch(struct store *s, struct str key, struct str value, struct err *e)
{
    struct dict_counts n;
    bool closed;
    int rc = dict_epoch_read(value, &closed, &n, e);

    (void)key;
    if (!rc)
        atomic_fetch_add(&s->dict_nodes, n.nodes - 1);
    return rc;
}

static int count_all(struct store *s, struct err *e)
{
    struct key k;

    key_raw_bucket(&k, s->raw_low);
    if (for_rows(s, KV_RAW, &k, count_raw, e))
        return e->code;
    atomic_store(&s->raw_rows, s->raw.rows);
    k = (struct key){ .len = 1, .b = { KEY_TENANT } };
    if (for_rows(s, KV_META, &k, count_tenant, e))
        return e->code;
    k = (struct key){ .len = 1, .b = { KEY_EPOCH } };
    return for_rows(s, KV_META, &k, count_epoch, e);
}

/* Label sets are larger than label pairs. */
static size_t names_share(const struct store_opts *o)
{
    return o->names_bytes_max ? o->names_bytes_max : MIN(o->dict_bytes_max, NAMES_BYTES);
}

void store_init(struct store *s, const struct store_opts *o, struct store_gate *gate)
{
    uint64_t mask =
        o->hash_bits && o->hash_bits < 64 ? (UINT64_C(1) << o->hash_bits) - 1 : UINT64_MAX;
    s->o = *o;
    if (!s->gate)
        s->gate = gate;
    CHECK(s->gate == gate);
    if (!s->o.epoch_nodes_max)
        s->o.epoch_nodes_max = EPOCH_NODES;
    s->kv = o->kv;
    s->arena = arena_new(ARENA_MAX);
    s->groups = groups_new(s->kv, &(struct groups_opts){ .drop = o->group_drop,
                                                         .cookie = o->group_cookie,
                                                         .bytes_max = names_share(o) / 6,
                                                         .rule_max = o->test.groups_max,
                                                         .whole_after = o->test.whole_after });
    s->series = series_cache_new(s->kv, names_share(o) / 2, mask);
    s->parts = parts_new();
    s->tl_rows = tl_rows_new(s->kv);
    s->build = build_state_new();
    s->tombs = tombs_new();
    s->ledger = ledger_new();
    s->pipe = pipe_state_new();
    s->wids = wids_new(s->kv, o->wid_horizon_ms, (size_t)names_share(o) / WID_FILTER_PART);
    s->dicts = dict_cache_new(s->kv, o->dict_bytes_max, mask);
    s->rollup = rollup_new(s->dicts);
    dict_scratch_init(&s->scratch);
    sum_init(&s->sum);
    exm_gate_init(&s->exm);
    dict_cap_init(&s->dict_cap, &s->o.dict_cap);
    buf_init(&s->row, STORE_ROW_MAX);
    buf_init(&s->text, STORE_TEXT_MAX);
    mutex_init(&s->write);
    mutex_init(&s->show);
    list_init(&s->shown_all);
    s->retain = retain_new();
}

int store_load(struct store *s, struct err *e)
{
    int rc = check_format(s, e);

    if (!rc)
        rc = read_controls(s, e);
    if (!rc)
        rc = names_new(s->kv, s->o.seed, names_share(&s->o) / 3, &s->names, e);
    if (!rc)
        rc = count_all(s, e);
    if (!rc)
        rc = upgrade(s, e);
    if (!rc)
        rc = tombs_open(s, e);
    if (rc)
        return err_wrap(e, "shard %u", s->o.shard);
    view_open(s);
    s->clock_written_ms = store_now(s) - CLOCK_EVERY_MS;
    return 0;
}

int store_open(const struct store_opts *o, struct store **ret, struct err *e)
{
    struct store *s = XNEW(struct store);

    store_init(s, o, gate_new());
    int rc = store_load(s, e);
    if (rc)
        store_close(s);
    else
        *ret = s;
    return rc;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    gate_free(s->gate);
    store_deinit(s);
    xfree(s);
}

void store_deinit(struct store *s)
{
    view_close(s);
    retain_free(s->retain);
    names_free(s->names);
    series_cache_free(s->series);
    groups_free(s->groups);
    rollup_free(s->rollup);
    tombs_close(s->tombs);
    wids_free(s->wids);
    ledger_free(s->ledger);
    pipe_state_free(s->pipe);
    parts_free(s->parts);
    tl_rows_free(s->tl_rows);
    build_state_free(s->build);
    dict_cache_free(s->dicts);
    dict_scratch_deinit(&s->scratch);
    sum_deinit(&s->sum);
    stage_fold_deinit(&s->fold);
    stage_order_deinit(&s->order);
    exm_gate_deinit(&s->exm);
    dict_cap_deinit(&s->dict_cap);
    buf_deinit(&s->row);
    buf_deinit(&s->text);
    vec_free(&s->raw.at);
    arena_free(s->arena);
    mutex_deinit(&s->write);
    mutex_deinit(&s->show);
    kv_close(s->kv);
}

/* ---- batches ---- */

struct store_batch *store_batch_new(struct store *s)
{
    struct store_batch *b = XNEW(struct store_batch);

    b->s = s;
    b->kb = kv_batch_new();
    b->seq = ++s->staged;
    /* The next one is about as large: it need not move while it grows. */
    kv_batch_reserve(b->kb, MIN(s->batch_bytes, (size_t)BATCH_RESERVED));
    return b;
}

void store_tenants_max(struct store *s, uint32_t max)
{
    if (s->names) /* else it is without a database */
        names_tenants_max(s->names, max);
}

size_t store_batch_max(const struct store *s)
{
    return kv_batch_max(s->kv);
}

size_t store_batch_bytes(const struct store_batch *b)
{
    return kv_batch_bytes(b->kb);
}

static void on_committed(void *cookie)
{
    struct store_batch *b = cookie;

    vec_for (i, &b->hot) {
        const struct hot_row *r = &b->hot.ptr[i];
        hot_add(b->s->hot, &r->m, r->slot, kv_batch_part(b->kb, r->at, r->len), b->seq);
    }
    b->s->shown_seq = b->seq;
}

int store_commit(struct store *s, struct store_batch *b, struct err *e)
{
    int rc = store_refuse(s, e);

    CHECK(b->s == s && (rc || b->seq == atomic_load(&s->committed) + 1));
    ledger_in_commit(b);
    if (!rc && kv_batch_count(b->kb))
        rc = store_write_then(s, b->kb, true, on_committed, b, e);
    if (!rc)
        atomic_store_explicit(&s->committed, b->seq, memory_order_release);
    kv_batch_free(b->kb);
    vec_free(&b->hot);
    vec_free(&b->ledger);
    xfree(b);
    return rc;
}

void store_stats(struct store *s, struct store_stats *ret)
{
    *ret = (struct store_stats){
        .applied = atomic_load(&s->applied),
        .saturated = atomic_load(&s->saturated),
        .raw_rows = atomic_load(&s->raw_rows),
        .series = atomic_load(&s->series_count),
        .dict_nodes = atomic_load(&s->dict_nodes),
        .dict_bytes = dict_cache_bytes(s->dicts),
        .overflow = atomic_load(&s->overflow),
        .exemplars = atomic_load(&s->exm_stored),
        .exemplars_over = atomic_load(&s->exm_over),
        .exemplars_old = atomic_load(&s->exm_old),
        .names_bytes = atomic_load(&s->names_bytes),
        .stage_bytes = atomic_load(&s->stage_bytes),
        .stage_wants = atomic_load(&s->stage_wants),
        .hot_bytes = hot_bytes(s->hot),
        .rows_built = atomic_load(&s->rows_built),
        .marks = atomic_load(&s->marks),
        .marks_due = atomic_load(&s->marks_due),
        .build_lag_ms = atomic_load(&s->build_lag_ms),
        .build_lag_coarse_ms = atomic_load(&s->build_lag_coarse_ms),
    };
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        ret->nodes_built += atomic_load(&s->nodes_built[l]);
    kv_stats(s->kv, &ret->kv);
}

static void resize_dicts(struct store *s)
{
    uint64_t share = atomic_load(&s->share_dicts), percent = atomic_load(&s->shrunk_to);

    share = share ? share : s->o.dict_bytes_max;
    dict_cache_resize(s->dicts, percent ? share / 100 * percent : share);
}

void store_shrink(struct store *s, unsigned percent)
{
    if (!gate_enter(s->gate, false))
        return; /* being opened again: with full caches, until the next change */
    atomic_store(&s->shrunk_to, percent);
    resize_dicts(s);
    if (s->o.cache_bytes)
        kv_cache_resize(s->kv, s->o.cache_bytes / 100 * percent);
    gate_leave(s->gate);
}

void store_share(struct store *s, const struct store_shares *to)
{
    if (!gate_enter(s->gate, false))
        return;
    atomic_store(&s->share_dicts, to->dict_bytes);
    atomic_store(&s->share_names, to->names_bytes);
    resize_dicts(s);
    atomic_store(&s->share_stage, to->stage_bytes);
    atomic_store(&s->share_hot, to->hot_bytes);
    hot_resize(s->hot, to->hot_bytes);
    gate_leave(s->gate);
}

void store_shares(const struct store *s, struct store_shares *ret)
{
    *ret = (struct store_shares){ 0 };
    if (!gate_enter(s->gate, false))
        return;
    *ret = (struct store_shares){ atomic_load(&s->share_dicts), atomic_load(&s->share_names),
                                  atomic_load(&s->share_hot), atomic_load(&s->share_stage) };
    gate_leave(s->gate);
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
