/* SPDX-License-Identifier: Apache-2.0
 *
 * open: opens, loads and closes a store. The only file that knows all parts of one.
 *
 * Opening checks the format, reads the control values (clock, seal log, lowest unsealed minute),
 * counts unsealed rows, series and dictionary nodes, and loads the deletes that are not purged. It
 * replays nothing beyond the kv's own log: batches are all or nothing (write/batch.c).
 *
 * Threads: the owner opens and closes a store. Shares may be set and read by any thread, under the
 * gate (reader_gate.c); figures (store_stats) are for the shard's thread.
 */
#include "common/store/open.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/build/build_state.h"
#include "common/store/catalog/group.h"
#include "common/store/catalog/names_max.h"
#include "common/store/delete/purge.h"
#include "common/store/exemplar/exm.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/retain/retain_state.h"
#include "common/store/seal/rollup_seal.h"
#include "common/store/state/commit.h"
#include "common/store/state/pipe.h"
#include "common/store/state/reader_gate.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/store/upgrade.h"
#include "common/store/write/stage_scratch.h"

#define ARENA_MAX       (64 * MIB)
#define EPOCH_NODES     (1u << 20)
#define NAMES_BYTES     (192 * MIB)
#define WID_FILTER_PART 8 /* of the share of names: at most, besides it */
#define CLOCK_EVERY_MS  60000

static const char MAGIC_TEXT[] = "EMBR";

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
        return err_set(e, ERR_CORRUPT,
                       "not an Embertree database: the format row is missing or damaged");
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

/* A database that is opened for reading only is not upgraded. */
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
        get_control_u32(s, CONTROL_WID_LOW, 0, &s->write_id_low, e) ||
        get_control_u32(s, CONTROL_WID_HIGH, 0, &s->write_id_high_saved, e))
        return e->code;
    /* The clock is written once a minute; a push acked behind it may have begun another hour of
     * write ids, and its retry must look there. */
    if (s->write_id_high_saved)
        clock_ms = MAX(clock_ms, SLOT_EPOCH_MS + s->write_id_high_saved * WID_BUCKET_MS);
    engine_clock_init(&s->clock, s->o.clock, clock_ms);
    s->clock.others = s->o.others;
    if (get_control(s, CONTROL_STOOD, 16, e))
        return e->code;
    s->clock_jump_saved = s->row.len > 0;
    if (s->row.len)
        engine_clock_stood(&s->clock, (int64_t)get_u64be(s->row.ptr),
                           (int64_t)get_u64be(s->row.ptr + 8));
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
    s->on_clock = ledger_put_clock;
    s->arena = arena_new(ARENA_MAX);
    s->groups = groups_new(s->kv, &(struct groups_opts){ .drop = o->group_drop,
                                                         .cookie = o->group_cookie,
                                                         .bytes_max = names_share(o) / 6,
                                                         .rule_max = o->test.groups_max,
                                                         .whole_after = o->test.whole_after });
    s->series = series_cache_new(s->kv, names_share(o) / 2, mask);
    s->parts = part_cache_new();
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
    s->stage = stage_new();
    s->exm = exm_gate_new();
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
    purge_close(s->tombs);
    tombs_close(s->tombs);
    wids_free(s->wids);
    ledger_free(s->ledger);
    pipe_state_free(s->pipe);
    part_cache_free(s->parts);
    tl_rows_free(s->tl_rows);
    build_state_free(s->build);
    dict_cache_free(s->dicts);
    dict_scratch_deinit(&s->scratch);
    sum_deinit(&s->sum);
    stage_free(s->stage);
    exm_gate_free(s->exm);
    dict_cap_deinit(&s->dict_cap);
    buf_deinit(&s->row);
    buf_deinit(&s->text);
    vec_free(&s->raw.at);
    arena_free(s->arena);
    mutex_deinit(&s->write);
    mutex_deinit(&s->show);
    kv_close(s->kv);
}

void store_tenants_max(struct store *s, uint32_t max)
{
    if (s->names) /* else it is without a database */
        names_tenants_max(s->names, max);
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
    if (!reader_gate_enter(s->gate, false))
        return; /* being opened again: with full caches, until the next change */
    atomic_store(&s->shrunk_to, percent);
    resize_dicts(s);
    if (s->o.cache_bytes)
        kv_cache_resize(s->kv, s->o.cache_bytes / 100 * percent);
    reader_gate_leave(s->gate);
}

void store_share(struct store *s, const struct store_shares *to)
{
    if (!reader_gate_enter(s->gate, false))
        return;
    atomic_store(&s->share_dicts, to->dict_bytes);
    atomic_store(&s->share_names, to->names_bytes);
    resize_dicts(s);
    atomic_store(&s->share_stage, to->stage_bytes);
    atomic_store(&s->share_hot, to->hot_bytes);
    hot_resize(s->hot, to->hot_bytes);
    reader_gate_leave(s->gate);
}

void store_shares(const struct store *s, struct store_shares *ret)
{
    *ret = (struct store_shares){ 0 };
    if (!reader_gate_enter(s->gate, false))
        return;
    *ret = (struct store_shares){ atomic_load(&s->share_dicts), atomic_load(&s->share_names),
                                  atomic_load(&s->share_hot), atomic_load(&s->share_stage) };
    reader_gate_leave(s->gate);
}
