/* SPDX-License-Identifier: Apache-2.0
 *
 * stage: one request into a batch.
 *
 *   check   the request's own shape (stage_check.c)           ERR_INPUT, ERR_LIMIT
 *   plan    known write ids? numbers, series, dictionary       ERR_IO, ERR_CORRUPT, ERR_LIMIT
 *   apply   intern, encode, put rows                           cannot fail
 *
 * So a request that fails has put nothing into the batch and nothing into the dictionary. What plan
 * reserved in memory (names.h) is used by a later request or forgotten.
 *
 * A series of the request is stored whole or is a duplicate. Its samples become one raw row per
 * slot, or, where that slot's level is not kept any more, per node (stage_fold.h); ids of the
 * request's nodes become ids of the service's open dictionary epoch. A request stands in one epoch:
 * the epoch may close before it, never in its middle.
 *
 * Thread: the shard's.
 */
#include "common/base/mem.h"
#include "common/model/ptype.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/group.h"
#include "common/store/dict/dict_known.h"
#include "common/store/exemplar/exm.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/retain/retain.h"
#include "common/store/state/commit.h"
#include "common/store/state/pipe.h"
#include "common/store/state/spread.h"
#include "common/store/state/store_batch.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"
#include "common/store/write/stage_ahead.h"
#include "common/store/write/stage_encode.h"
#include "common/store/write/stage_scratch.h"

#define LABELS_MAX     1024
#define LABEL_BYTES    (64 * KIB) /* canonical, all of a series */
#define CLOCK_EVERY_MS 60000
#define KEY_NAME_HEAD  5 /* of a key by name: table, tenant */
#define AHEAD_MS       (INT64_C(3600) * 1000)

struct plan_series {
    const struct store_series *in;
    struct series *series; /* NULL: a duplicate */
    struct known_name *ptype, *activity;
    struct floors floors; /* of its service and type; all 0: not known to be committed */
    size_t rows;          /* its vectors become; stage_fold.h */
    bool born;            /* its service and type has no rows in the ledger yet */
    struct spread_push spread;
};
struct plan {
    struct store *s;
    const struct store_write *w;
    struct tenant *tenant;
    struct known_name *scope;
    struct dict *dict;          /* referenced; NULL: the service is new, or all are duplicates */
    bool closes;                /* the epoch ends before this request */
    struct group_scope *groups; /* NULL: all are duplicates */
    struct plan_series *series;
    size_t fresh;
    int64_t engine_ms;
};

/* ---- plan ---- */

/* Canonical bytes of the labels that are stored, in s->text. */
static int stored_labels(struct plan *p, const struct labels *in, struct err *e)
{
    struct label kept[LABELS_MAX + 1];
    struct labels l = { kept, 0 };
    struct store *s = p->s;
    bool service = false;

    for (size_t i = 0; i < in->len; i++) {
        int order = service ? 1 : str_cmp(in->ptr[i].name, SERVICE_LABEL);
        if (order == 0 && !str_eq(in->ptr[i].value, p->w->service))
            return err_set(e, ERR_INPUT, "label service_name is %.*s, the service %.*s",
                           STR_ARG(in->ptr[i].value), STR_ARG(p->w->service));
        if (order > 0 && !service)
            kept[l.len++] = (struct label){ SERVICE_LABEL, p->w->service };
        service = service || order >= 0;
        if (derived_find(in->ptr[i].name) < 0)
            kept[l.len++] = in->ptr[i];
    }
    if (!service)
        kept[l.len++] = (struct label){ SERVICE_LABEL, p->w->service };
    buf_reset(&s->text);
    labels_encode(&l, &s->text);
    if (!buf_ok(&s->text) || s->text.len > LABEL_BYTES)
        return err_set(e, ERR_INPUT, "labels of a series are over %zu bytes", LABEL_BYTES);
    return 0;
}

/* They ascend: often all of a request, one behind the other. */
static void use_run(uint8_t *used, const uint32_t *nodes, size_t n)
{
    if (n && nodes[n - 1] - nodes[0] == n - 1) {
        memset(used + nodes[0], 1, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        used[nodes[i]] = 1;
}

static void use_nodes(struct store *s, const struct store_series *r)
{
    for (size_t i = 0; i < r->len; i++)
        use_run(s->scratch.used.ptr, r->vectors[i].nodes, r->vectors[i].len);
    for (size_t i = 0; i < r->exemplars_len; i++)
        use_run(s->scratch.used.ptr, r->exemplars[i].nodes, r->exemplars[i].len);
}

/* Behind the horizon a write id is known as long as its raw rows wait to be sealed: the new ones
 * would have the same keys. Pushes are at most minutes ahead of their arrival, so only slots from
 * about the horizon back can have such rows. Not every vector has a row (stage_fold.h), but every
 * row has the slot of a vector. */
static int find_raw(struct plan *p, const struct plan_series *r, bool *ret, struct err *e)
{
    struct store *s = p->s;
    struct member m = { p->tenant->number, p->scope->number, (uint16_t)r->ptype->number,
                        r->series->id };
    struct key k;

    *ret = false;
    for (size_t i = 0; !*ret && !r->series->reserved && i < r->in->len; i++) {
        uint32_t slot = r->in->vectors[i].slot;
        if (slot_to_ms(slot) > p->engine_ms - s->o.wid_horizon_ms + AHEAD_MS)
            break;
        if (!raw_counts_at(&s->raw, raw_bucket(slot)))
            continue;
        key_raw(&k, &m, slot, r->in->wid);
        int rc = kv_get(s->kv, NULL, KV_RAW, key_str(&k), &s->row, e);
        if (rc && rc != ERR_NOT_FOUND)
            return rc;
        *ret = !rc;
    }
    return 0;
}

/* Is the write id that of something stored, and not deleted since (tomb.h)? ERR_BUSY: it was, but
 * so lately that this may be a copy which was under way. */
static int find_wid(struct plan *p, const struct store_series *in, struct str type, bool *ret,
                    struct err *e)
{
    struct store *s = p->s;
    struct wid_arrival arrival = { p->tenant->number, in->wid, p->engine_ms };
    struct wid_row row;
    const struct tomb *by = NULL;

    int rc = wids_known(s->wids, &arrival, ret, &row, e);
    if (!rc && !*ret)
        return tombs_late_tenant(s, p->w->tenant, in->wid, p->engine_ms, e);
    if (rc || !tombs_newer_than(s, row.entry))
        return rc ? rc
                  : wids_check_print(s->wids, p->tenant->number, in->wid, &row, p->w->print, e);
    rc = stored_labels(p, &in->labels, e);
    struct tomb_push push = {
        .tenant = p->tenant->number,
        .labels = buf_str(&s->text),
        .profile_type = type,
        .first = in->vectors[0].slot,
        .last = in->vectors[in->len - 1].slot,
    };
    if (!rc)
        rc = tombs_forgot(s, &push, &row, &by, e);
    *ret = !by;
    if (rc)
        return rc;
    return by ? tombs_late(s, by, e)
              : wids_check_print(s->wids, p->tenant->number, in->wid, &row, p->w->print, e);
}

/* The service and profile type as retention wants to know it. */
static struct retain_of retain_of(const struct plan *p, const struct plan_series *r)
{
    const struct known_name *type = r->ptype, *activity = r->activity;
    bool fresh = activity->days.first > activity->days.last;
    uint64_t committed = atomic_load_explicit(&p->s->committed, memory_order_acquire);

    return (struct retain_of){
        .m = { .tenant = p->tenant->number,
               .scope = p->scope->number,
               .ptype = (uint16_t)type->number },
        .tenant = p->w->tenant,
        .service = p->w->service,
        .type = str_n(type->key + KEY_NAME_HEAD, type->key_len - KEY_NAME_HEAD),
        .fresh = fresh,
        .committed = !fresh && activity->seq <= committed,
    };
}

static int admit(struct plan *p, struct plan_series *r, struct err *e)
{
    struct retain_of of = retain_of(p, r);
    int rc = retain_admit(p->s, &of, r->in->vectors[0].slot, p->engine_ms, e);

    if (!rc && of.committed && r->in->len > 1 && !r->in->gauge)
        rc = floors_get(p->s, &of.m, &r->floors, e);
    return rc;
}

/* What is counted there is in memory from here on. */
static int plan_ledger(struct plan *p, struct plan_series *r, struct err *e)
{
    struct member m = { p->tenant->number, p->scope->number, (uint16_t)r->ptype->number, 0 };
    int rc = 0;

    if (r->activity->days.first > r->activity->days.last)
        rc = ledger_birth_plan(p->s, &m, &r->born, e);
    for (size_t i = 0; !rc && i < r->in->len; i++)
        if (!i ||
            ledger_bucket(r->in->vectors[i].slot) != ledger_bucket(r->in->vectors[i - 1].slot))
            rc = ledger_in_plan(p->s, &m, r->in->vectors[i].slot, e);
    return rc;
}

/* What its window says of how long pushes are. */
static int plan_spread(struct plan *p, struct plan_series *r, struct err *e)
{
    r->spread = (struct spread_push){
        .m = { p->tenant->number, p->scope->number, (uint16_t)r->ptype->number, 0 },
        .slot = r->in->vectors[0].slot,
        .slots = r->in->gauge ? 0 : r->in->spread,
    };
    return spread_plan(p->s->kv, r->activity, &r->spread, e);
}

static int plan_one(struct plan *p, struct plan_series *r, struct err *e)
{
    struct store *s = p->s;
    char text[1024];
    struct buf id = { .ptr = text, .cap = sizeof(text), .max = sizeof(text) };
    struct ptype t;
    bool known;

    if (ptype_parse(r->in->profile_type, &t, e)) /* its canonical form has five parts */
        return e->code;
    ptype_format(&t, &id);
    if (!buf_ok(&id))
        return err_set(e, ERR_INPUT, "profile type is over %zu bytes", sizeof(text));
    if (find_wid(p, r->in, buf_str(&id), &known, e))
        return e->code;
    if (known)
        return 0;
    if (names_ptype(s->names, p->tenant, buf_str(&id), r->in->gauge, &r->ptype, e) ||
        names_activity(s->names, p->tenant, p->scope->number, r->ptype->number, &r->activity, e) ||
        admit(p, r, e) || plan_ledger(p, r, e) || plan_spread(p, r, e) ||
        stored_labels(p, &r->in->labels, e))
        return e->code;
    struct series_want want = { s->names, p->tenant, p->scope->number, buf_str(&s->text) };
    if (series_get(s->series, &want, &r->series, e) || find_raw(p, r, &known, e))
        return e->code;
    if (known) {
        r->series = NULL;
        return 0;
    }
    use_nodes(s, r->in);
    p->fresh++;
    return 0;
}

static int plan_dict(struct plan *p, struct err *e)
{
    struct dict_id id = { p->tenant->number, p->scope->number, p->scope->extra };

    if (!p->fresh || p->scope->seq == NAMES_RESERVED)
        return 0;
    if (dict_cache_write(p->s->dicts, id, p->tenant->seed, &p->dict, e))
        return e->code;
    p->closes = p->dict && (dict_counts(p->dict).nodes > p->s->o.epoch_nodes_max ||
                            p->dict->string_bytes / DICT_NAME_BYTES > p->s->o.epoch_nodes_max);
    return 0;
}

/* The dictionary a session would be of. */
static struct dict *session_dict(const struct plan *p)
{
    return p->closes ? NULL : p->dict;
}

static int plan_told(struct plan *p, struct err *e)
{
    const struct dict_told *t = p->w->told;

    if (!t || !p->fresh)
        return 0;
    const struct dict_session *known = dict_session_find(session_dict(p), t);
    if (!dict_session_has(known, t))
        return err_set(e, ERR_NOT_FOUND, "the stacks it refers to are not known here");
    if (dict_session_cost(known, t) >
        dict_cap_left(&p->s->dict_cap, p->tenant->number, p->scope->number, p->engine_ms))
        return err_set(e, ERR_NOT_FOUND, "not all stacks of the session may be new today");
    return 0;
}

static int plan_groups(struct plan *p, struct err *e)
{
    if (!p->fresh)
        return 0;
    struct group_push push = { .tenant = p->tenant->number,
                               .tenant_name = p->tenant->name,
                               .scope = p->scope->number,
                               .fresh = p->scope->seq == NAMES_RESERVED,
                               .now = slot_of_ms(p->engine_ms) };
    return groups_scope(p->s->groups, &push, &p->groups, e);
}

static int plan_make(struct plan *p, struct err *e)
{
    const struct store_write *w = p->w;
    struct store *s = p->s;
    int rc = names_tenant(s->names, w->tenant, &p->tenant, e);

    if (!rc)
        rc = names_scope(s->names, p->tenant, w->service, &p->scope, e);
    dict_scratch_begin(&s->scratch, w->stacks);
    for (size_t i = 0; !rc && i < w->len; i++) {
        p->series[i].in = &w->series[i];
        rc = plan_one(p, &p->series[i], e);
    }
    if (!rc && p->fresh)
        rc = ledger_acks_plan(s, w, p->tenant->number, e);
    if (!rc)
        rc = plan_groups(p, e);
    if (!rc)
        rc = plan_dict(p, e);
    if (!rc)
        rc = plan_told(p, e);
    return rc;
}

/* What no row was put for: after a failure, or of series that shared a write id. */
static void forget_reserved(struct plan *p)
{
    for (size_t i = 0; i < p->w->len; i++) {
        struct series *r = p->series[i].series;
        if (!r || !r->reserved)
            continue;
        for (size_t j = i; j < p->w->len; j++)
            if (p->series[j].series == r)
                p->series[j].series = NULL;
        series_forget_reserved(p->s->series, r);
    }
}

/* ---- apply ---- */

static void begin_epoch(struct plan *p, struct store_batch *b, uint32_t epoch)
{
    struct dict_id id = { p->tenant->number, p->scope->number, epoch };

    p->dict = dict_cache_create(p->s->dicts, id, p->tenant->seed);
    p->dict->seq = b->seq;
    dict_emit_epoch(p->dict, false, b->kb);
}

static uint64_t count_overflow(const struct plan *p)
{
    const uint8_t *used = p->s->scratch.used.ptr;
    uint64_t n = 0;

    for (size_t i = 0; i < p->w->len; i++)
        for (size_t k = 0; p->series[i].series && k < p->w->series[i].len; k++)
            for (size_t j = 0; j < p->w->series[i].vectors[k].len; j++)
                n += used[p->w->series[i].vectors[k].nodes[j]] == DICT_OVER;
    return n;
}

static void intern(struct plan *p, struct store_result *ret)
{
    struct store *s = p->s;
    uint32_t tenant = p->tenant->number, scope = p->scope->number;
    uint32_t left = dict_cap_left(&s->dict_cap, tenant, scope, p->engine_ms);
    uint32_t before = dict_counts(p->dict).nodes;
    uint64_t bytes = p->dict->string_bytes;

    ret->learnt = p->w->told;
    if (p->w->told)
        dict_session_use(p->dict, dict_session_find(p->dict, p->w->told), p->w->told, &s->scratch);
    else if (p->w->stacks->nodes + p->w->stacks->string_data.len / DICT_NAME_BYTES <= left)
        dict_intern(p->dict, p->w->stacks, &s->scratch);
    else if (dict_intern_capped(p->dict, p->w->stacks, &s->scratch, left))
        ret->overflow = count_overflow(p);
    uint32_t after = dict_counts(p->dict).nodes;
    dict_cap_take(&s->dict_cap, tenant, scope,
                  after - before + (p->dict->string_bytes - bytes) / DICT_NAME_BYTES);
    atomic_fetch_add(&s->dict_nodes, after - before);
    atomic_fetch_add(&s->overflow, ret->overflow);
}

static void apply_dict(struct plan *p, struct store_batch *b, struct store_result *ret)
{
    struct store *s = p->s;

    if (!p->dict) {
        begin_epoch(p, b, p->scope->extra);
    } else if (p->closes) {
        dict_emit_epoch(p->dict, true, b->kb);
        dict_cache_close_epoch(s->dicts, p->dict);
        dict_unref(p->dict);
        names_set_epoch(s->names, p->scope, p->scope->extra + 1, b->seq, b->kb);
        begin_epoch(p, b, p->scope->extra);
        dict_cap_again(&s->dict_cap, p->tenant->number, p->scope->number);
    }
    intern(p, ret);
    dict_emit(p->dict, &s->scratch, b->kb);
    p->dict->seq = b->seq;
    stage_sort_make(&s->stage->order, s->scratch.node_map.ptr, s->scratch.used.ptr,
                    p->w->stacks->nodes, dict_counts(p->dict).nodes, stage_scratch_max(s));
}

/* Remembers a vector, which ends at byte `end` of the batch, for the hot sums. Sets r.at. */
static void note_hot(struct plan *p, struct hot_row r, size_t end, struct store_batch *b)
{
    if (!p->s->o.hot_bytes_max || end < r.len) /* the batch will be refused for its size */
        return;
    r.at = end - r.len;
    vec_push(&b->hot, r);
    if (r.slot >= groups_since(p->groups, GROUP_WHOLE)) {
        r.m.series = GID(GROUP_WHOLE, 0);
        vec_push(&b->hot, r);
    }
}

/* All that is kept of when a series had data knows each vector's time. */
static uint64_t touch(struct plan *p, const struct plan_series *r, uint32_t slot,
                      struct store_batch *b)
{
    uint16_t day = (uint16_t)(slot / DAY_SLOTS);

    series_touch(r->series, (uint16_t)r->ptype->number, day, b->seq, b->kb);
    names_touch(r->activity, day, b->seq, b->kb);
    return groups_assign(p->s->groups, p->groups, r->series, slot, b->seq, b->kb);
}

/* One raw row of n vectors. */
static void put_run(struct plan *p, const struct plan_series *r, const struct store_vector *v,
                    size_t n, struct store_batch *b)
{
    struct store *s = p->s;
    struct member m = { p->tenant->number, p->scope->number, (uint16_t)r->ptype->number,
                        r->series->id };
    struct key k;

    raw_row_begin(&s->row, wid_bucket(p->engine_ms), (uint32_t)r->rows);
    size_t head = s->row.len;
    stage_encode_run(s, p->dict, v, n, p->w->stacks->nodes, &s->row);
    key_raw(&k, &m, v->slot, r->in->wid);
    kv_batch_put(b->kb, KV_RAW, key_str(&k), buf_str(&s->row));
    struct str vector = str_sub(buf_str(&s->row), head, s->row.len);
    size_t end = kv_batch_bytes(b->kb);
    struct hot_row hot = { .m = m, .slot = v->slot, .len = (uint32_t)vector.len };
    hot.m.series = touch(p, r, v->slot, b);
    note_hot(p, hot, end, b);
    ledger_in_add(s, b, &m, v->slot, vector);
    for (size_t i = 1; i < n; i++)
        (void)touch(p, r, v[i].slot, b);
    raw_counts_add(&s->raw, raw_bucket(v->slot), 1);
    pipe_staged(s, b->seq, raw_bucket(v->slot));
    atomic_fetch_add_explicit(&s->raw_rows, 1, memory_order_relaxed);
}

/* False: another series of the same request had the same write id. */
static bool apply_series(struct plan *p, struct plan_series *r, struct store_batch *b,
                         struct store_result *ret)
{
    struct store *s = p->s;
    const struct store_vector *v = r->in->vectors;

    r->rows = stage_runs(&r->floors, p->groups, r->in);
    struct wid_row row = { .t = r->in->vectors[0].slot,
                           .rows = (uint32_t)r->rows,
                           .entry = atomic_load(&s->applied),
                           .print = p->w->print };
    struct wid_arrival arrival = { p->tenant->number, r->in->wid, p->engine_ms };

    if (!wids_add(s->wids, &arrival, &row, b->seq, b->kb))
        return false;
    struct retain_of of = retain_of(p, r);
    if (of.fresh)
        retain_begin(s, &of, p->engine_ms, b->kb);
    if (of.fresh && r->born)
        ledger_birth(s, &of.m, b->kb);
    names_emit(s->names, r->ptype, b->seq, b->kb);
    spread_note(r->activity, &r->spread, b->seq, b->kb);
    if (r->series->reserved)
        atomic_fetch_add(&s->series_count, 1);
    series_emit(s->series, s->names, p->tenant, r->series, b->seq, b->kb);
    for (size_t i = 0, n; i < r->in->len; i += n) {
        n = stage_run(&r->floors, p->groups, v + i, r->in->len - i);
        put_run(p, r, v + i, n, b);
    }
    exemplar_stage(s,
                   &(struct exemplar_stage){ .in = r->in,
                                             .m = { p->tenant->number, p->scope->number,
                                                    (uint16_t)r->ptype->number, r->series->id },
                                             .dict = p->dict,
                                             .encode = stage_encode,
                                             .engine_ms = p->engine_ms },
                   b->kb, ret);
    return true;
}

static void put_marks(struct store *s, int64_t engine_ms, struct store_batch *b)
{
    struct key v;

    if (raw_counts_low(&s->raw) < s->raw_low) {
        s->raw_low = raw_counts_low(&s->raw);
        key_u32(&v, s->raw_low);
        store_put_control(b->kb, CONTROL_RAW_LOW, &v);
    }
    if (wid_bucket(engine_ms) > s->write_id_high_saved) {
        s->write_id_high_saved = wid_bucket(engine_ms);
        key_u32(&v, s->write_id_high_saved);
        store_put_control(b->kb, CONTROL_WID_HIGH, &v);
    }
    if (engine_ms - s->clock_written_ms >= CLOCK_EVERY_MS)
        store_put_clock(s, engine_ms, b->kb);
}

static void apply(struct plan *p, struct store_batch *b, struct store_result *ret)
{
    struct store *s = p->s;

    *ret = (struct store_result){ .duplicates = (uint32_t)(p->w->len - p->fresh) };
    if (!p->fresh) {
        ledger_in_duplicates(s, p->tenant->number, ret->duplicates, NULL);
        return;
    }
    names_emit(s->names, p->scope, b->seq, b->kb);
    apply_dict(p, b, ret);
    for (size_t i = 0; i < p->w->len; i++) {
        if (!p->series[i].series)
            continue;
        if (!apply_series(p, &p->series[i], b, ret)) {
            ret->duplicates++;
            continue;
        }
        ret->stored++;
        ledger_acks_add(s, b, p->w, p->tenant->number, p->series[i].in->wid, p->engine_ms);
    }
    names_emit_tenant(s->names, p->tenant, b->seq, b->kb);
    ledger_in_duplicates(s, p->tenant->number, ret->duplicates, b);
    put_marks(s, p->engine_ms, b);
}

/* ---- the whole ---- */

static void trim(struct store *s)
{
    uint64_t committed = atomic_load_explicit(&s->committed, memory_order_acquire);

    store_share_names(s);
    wids_committed(s->wids, committed);
    ledger_trim(s, committed);
    series_cache_trim(s->series, committed);
    groups_trim(s->groups, committed);
    names_trim(s->names, committed);
    dict_cache_trim(s->dicts, committed);
    atomic_store_explicit(&s->names_bytes, names_bytes(s->names) + series_cache_bytes(s->series),
                          memory_order_relaxed);
}

void store_trim(struct store *s)
{
    if (store_read_only(s))
        return; /* perhaps without a database */
    stage_scratch_trim(s);
    trim(s);
}

static int plan_begin(struct plan *p, const struct store_batch *b, struct err *e)
{
    struct store *s = p->s;

    CHECK(b->s == s && b->seq == s->staged);
    trim(s);
    p->engine_ms = store_now(s);
    arena_reset(s->arena);
    p->series = ARENA_ARRAY(s->arena, struct plan_series, p->w->len + 1);
    CHECK(p->series);
    return plan_make(p, e);
}

static void plan_end(struct plan *p, const struct store_batch *b)
{
    struct store *s = p->s;

    s->batch_bytes = kv_batch_bytes(b->kb);
    stage_fold_trim(&s->stage->fold);
    stage_sort_end(&s->stage->order);
    stage_scratch_end(s);
    forget_reserved(p);
    dict_unref(p->dict);
}

int store_stage(struct store *s, struct store_batch *b, const struct store_write *w,
                struct store_result *ret, struct err *e)
{
    struct plan p = { .s = s, .w = w };

    if (store_check_writable(s, e) || store_write_check(w, e))
        return e->code;
    int rc = plan_begin(&p, b, e);
    if (!rc)
        apply(&p, b, ret);
    plan_end(&p, b);
    return rc;
}

/* ---- ahead of a request ---- */

unsigned store_ahead_parts(const struct store_write *w)
{
    size_t parts = w->told ? 0 : w->stacks->nodes / AHEAD_NODES;

    return parts > 1 ? (unsigned)MIN(parts, (size_t)AHEAD_PARTS_MAX) : 0;
}

/* `from`: what the parts before this one staged. */
static bool apply_ahead(struct plan *p, struct store_batch *b, size_t from, size_t to)
{
    struct store *s = p->s;
    struct stacks_view v = *p->w->stacks;
    uint32_t tenant = p->tenant->number, scope = p->scope->number;
    size_t cost = to - from + v.string_data.len / DICT_NAME_BYTES;

    v.nodes = to;
    if (!p->fresh || p->closes || cost > dict_cap_left(&s->dict_cap, tenant, scope, p->engine_ms))
        return false;
    names_emit(s->names, p->scope, b->seq, b->kb);
    if (!p->dict)
        begin_epoch(p, b, p->scope->extra);
    uint32_t before = dict_counts(p->dict).nodes;
    uint64_t bytes = p->dict->string_bytes;
    dict_intern(p->dict, &v, &s->scratch);
    uint32_t after = dict_counts(p->dict).nodes;
    dict_cap_take(&s->dict_cap, tenant, scope,
                  after - before + (p->dict->string_bytes - bytes) / DICT_NAME_BYTES);
    atomic_fetch_add(&s->dict_nodes, after - before);
    dict_emit(p->dict, &s->scratch, b->kb);
    p->dict->seq = b->seq;
    names_emit_tenant(s->names, p->tenant, b->seq, b->kb);
    return true;
}

bool store_stage_ahead(struct store *s, struct store_batch *b, const struct store_write *w,
                       unsigned i, unsigned n)
{
    struct plan p = { .s = s, .w = w };
    size_t nodes = w->stacks->nodes;
    struct err e;

    CHECK(i >= 1 && i <= n && !w->told);
    if (store_check_writable(s, &e) || store_write_check(w, &e))
        return false;
    bool done =
        plan_begin(&p, b, &e) == 0 && apply_ahead(&p, b, nodes * (i - 1) / n, nodes * i / n);
    plan_end(&p, b);
    return done;
}
