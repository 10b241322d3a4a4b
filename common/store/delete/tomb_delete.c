/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_delete: store_delete: writes the log entry of a delete, with all that must be true as soon
 * as the entry exists.
 *
 * One batch holds everything: the log entry, the tomb, its masks, names, label sets and days, and
 * the unsealed rows with their write ids. A delete may take a second because of the unsealed rows:
 * it reads those that wait to be sealed one by one, and the caller is answered after that.
 *
 * If so many unsealed rows wait that they may not fit one batch, they are deleted first, some
 * hundred thousand at a time. Each part is a log entry without a tomb, and the caller calls again.
 * Queries in between see fewer and fewer of these rows; rows that are pushed in between are
 * deleted, too. If the caller stops halfway, the parts that were written stay deleted, no tomb says
 * that the delete was done, and a caller that repeats the delete continues it.
 *
 * A known request id is answered from the tomb that it made, also if nothing matched then: a caller
 * that tries again after a lost reply must not delete what was pushed in between.
 *
 * Thread: the shard's, and no staged write is uncommitted.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/delete/purge.h"
#include "common/store/delete/tenant_doc.h"
#include "common/store/delete/tomb_delete_impl.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ROW_MAX      (64 * MIB)
#define CHUNK_SERIES 4096
#define REST_BYTES   (128 * KIB) /* the tomb itself, the log, old tombs that go */

bool store_quiet(const struct store *s)
{
    return s->staged == atomic_load_explicit(&s->committed, memory_order_acquire);
}

/* ---- masks ---- */

static void make_masks(struct deleting *x)
{
    const struct tomb_plan *p = x->p;

    vec_for (i, &p->scopes) {
        const struct tomb_scope *scope = &p->scopes.ptr[i];
        struct mask m = {
            .entry = x->t->entry,
            .scope = scope->scope,
            .kind = p->kind,
            .from = p->from,
            .to = p->to,
            .types = p->types.ptr,
            .types_len = p->types.len,
            .series = scope->series.ptr,
            .series_len = scope->series.len,
        };
        vec_push(&x->masks, m);
    }
}

static void put_masks(struct deleting *x)
{
    struct key k;

    vec_for (i, &x->masks) {
        struct mask m = x->masks.ptr[i];
        size_t left = m.series_len;
        uint32_t chunk = 0;
        do {
            m.series_len = MIN(left, CHUNK_SERIES);
            mask_row_put(&m, &x->row);
            CHECK(buf_ok(&x->row));
            key_tomb_mask(&k, x->t->tenant, x->t->entry, m.scope, chunk++);
            kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&x->row));
            m.series = m.series ? m.series + m.series_len : NULL;
            left -= m.series_len;
        } while (left);
    }
}

/* ---- names and label sets ---- */

static void del_table(struct deleting *x, enum key_table table, uint32_t scope)
{
    struct key from, to;

    key_table(&from, table, x->p->tenant);
    put_u32be(from.b + from.len, scope);
    from.len += 4;
    to = from;
    key_end(&to);
    kv_batch_del_range(x->b, KV_META, key_str(&from), key_str(&to));
}

static int take_service(struct deleting *x, uint32_t scope, struct err *e)
{
    struct str name;
    struct buf key;
    uint32_t epoch;
    struct key k;

    key_scope(&k, x->p->tenant, scope);
    int rc = kv_get(x->s->kv, NULL, KV_META, key_str(&k), &x->row, e);
    if (!rc)
        rc = scope_row_read(buf_str(&x->row), &epoch, &name, e);
    if (rc)
        return err_wrap(e, "service %u", scope);
    buf_init(&key, MIB);
    CHECK(key_name(&key, KEY_SCOPE_NAME, x->p->tenant, name));
    kv_batch_del(x->b, KV_META, buf_str(&key));
    buf_deinit(&key);
    del_table(x, KEY_ACTIVE, scope);
    return 0;
}

static void retire(struct deleting *x, uint32_t scope, uint64_t id, uint32_t ordinal)
{
    struct key k, v;

    key_series(&k, x->p->tenant, scope, id);
    key_u32(&v, SERIES_RETIRED);
    kv_batch_put(x->b, KV_META, key_str(&k), key_str(&v));
    key_ord(&k, x->p->tenant, ordinal);
    kv_batch_del(x->b, KV_META, key_str(&k));
    x->gone_series++; /* its groups are known until they are corrected: purge_of */
}

static void del_type(struct deleting *x, uint32_t ordinal, uint16_t ptype)
{
    struct key k;

    key_ord_type(&k, x->p->tenant, ordinal, ptype);
    kv_batch_del(x->b, KV_META, key_str(&k));
}

static void take_series(struct deleting *x)
{
    const struct tomb_plan *p = x->p;

    vec_for (i, &p->scopes) {
        const struct tomb_scope *scope = &p->scopes.ptr[i];
        vec_for (j, &scope->series)
            retire(x, scope->scope, scope->series.ptr[j], scope->ordinals.ptr[j]);
    }
    vec_for (i, &p->gone)
        del_type(x, p->gone.ptr[i].ordinal, p->gone.ptr[i].ptype);
}

/* Days are in runs of one series. */
static void take_days(struct deleting *x)
{
    char row[4];
    struct key k;
    uint32_t gone = 0;

    vec_for (i, &x->p->days) {
        const struct tomb_days *d = &x->p->days.ptr[i];
        gone = i && d[-1].ordinal == d->ordinal ? gone : 0;
        if (!d->gone) {
            put_u16be(row, d->days.first);
            put_u16be(row + 2, d->days.last);
            key_ord_type(&k, x->p->tenant, d->ordinal, d->ptype);
            kv_batch_put(x->b, KV_META, key_str(&k), str_n(row, sizeof(row)));
            continue;
        }
        del_type(x, d->ordinal, d->ptype);
        if (++gone == d->left)
            retire(x, d->scope, d->series, d->ordinal);
    }
}

static int take_names(struct deleting *x, struct err *e)
{
    struct buf key;
    int rc = 0;

    switch (x->p->kind) {
    case TOMB_TENANT:
        buf_init(&key, MIB);
        CHECK(key_tenant_name(&key, x->r->tenant));
        kv_batch_del(x->b, KV_META, buf_str(&key));
        buf_deinit(&key);
        break;
    case TOMB_SERVICES:
        for (size_t i = 0; !rc && i < x->p->scopes.len; i++)
            rc = take_service(x, x->p->scopes.ptr[i].scope, e);
        break;
    case TOMB_SERIES:
        take_series(x);
        break;
    case TOMB_RANGE:
        take_days(x);
        break;
    }
    return rc;
}

/* Whole services go from the ledger, of others what was not sealed yet. */
static int take_ledger(struct deleting *x, struct err *e)
{
    uint32_t tenant = x->p->tenant;
    struct ledger_past past;
    int rc = 0;

    if (x->p->kind == TOMB_TENANT)
        return ledger_drop(x->s, tenant, 0, &past, x->b, e);
    if (x->p->kind != TOMB_SERVICES)
        return ledger_outs_put(x->s, &x->outs, x->b, e);
    rc = ledger_get_past(x->s->kv, NULL, tenant, &past, e);
    for (size_t i = 0; !rc && i < x->p->scopes.len; i++)
        rc = ledger_drop(x->s, tenant, x->p->scopes.ptr[i].scope, &past, x->b, e);
    if (!rc)
        ledger_put_past(x->b, tenant, &past);
    return rc;
}

/* Everything of a tenant: what it keeps beside profiles, too; in this batch, so that who repeats
 * the request does not take what was written down since. */
static void take_docs(struct deleting *x)
{
    const struct tomb_request *r = x->r;

    if ((!r->selector || !r->selector->len) && !r->from_ms && !r->to_ms)
        docs_drop(r->tenant, x->b);
}

/* ---- the tomb ---- */

static int keep_text(struct tomb *t, struct str s, struct str *ret, struct err *e)
{
    *ret = s.len ? arena_strdup(t->arena, s) : STR("");
    return ret->ptr ? 0 : err_set(e, ERR_LIMIT, "the delete's texts do not fit its memory");
}

static int make_tomb(struct deleting *x, struct err *e)
{
    const struct selector *sel = x->r->selector;
    struct tomb *t = x->t;
    size_t n = sel ? sel->len : 0;

    if (keep_text(t, x->r->id, &t->id, e) || keep_text(t, x->r->tenant, &t->name, e) ||
        keep_text(t, x->r->what, &t->what, e))
        return e->code;
    t->selector.matchers = ARENA_ARRAY(t->arena, struct matcher, n + 1);
    CHECK(t->selector.matchers);
    for (size_t i = 0; i < n; i++) {
        struct matcher *m = &t->selector.matchers[i];
        *m = (struct matcher){ .op = sel->matchers[i].op,
                               .unanchored = sel->matchers[i].unanchored };
        if (keep_text(t, sel->matchers[i].name, &m->name, e) ||
            keep_text(t, sel->matchers[i].value, &m->value, e))
            return e->code;
        t->selector.len = i + 1;
    }
    t->tenant = x->p->tenant;
    t->kind = x->p->kind ? x->p->kind : TOMB_SERVICES;
    t->state = x->p->found ? TOMB_PURGING : TOMB_DONE;
    t->from = x->p->from;
    t->to = x->p->to ? x->p->to : UINT32_MAX;
    t->services = x->p->scopes.len;
    t->series = x->p->found ? x->p->series : 0;
    return 0;
}

/* ---- limits, repeats ---- */

static struct tomb *find_id(const struct store *s, const struct tomb_request *r)
{
    vec_for (i, &s->tombs->at) {
        struct tomb *t = s->tombs->at.ptr[i];
        if (str_eq(t->name, r->tenant) && str_eq(t->id, r->id))
            return t;
    }
    return NULL;
}

static int answer_again(const struct tomb *t, const struct tomb_request *r, struct tomb_result *ret,
                        struct err *e)
{
    if (!str_eq(t->what, r->what))
        return err_set(e, ERR_INPUT, "the id %.*s was used for another delete: %.*s",
                       STR_ARG(r->id), STR_ARG(t->what));
    *ret = (struct tomb_result){
        .entry = t->entry,
        .repeated = true,
        .kind = t->kind,
        .services = t->services,
        .series = t->series,
        .raw_rows = t->raw_rows,
        .bytes_estimate = t->bytes,
        .from_ms = t->from ? slot_to_ms(t->from) : 0,
        .to_ms = t->to != UINT32_MAX ? slot_to_ms(t->to) : 0,
    };
    return 0;
}

/* Finished tombs over the number kept go, the oldest first, but for those a retry may need. */
static void drop_old(struct deleting *x)
{
    struct tombs *all = x->s->tombs;
    int64_t low = x->n.engine_ms - x->s->o.wid_horizon_ms;
    size_t over = all->at.len > TOMB_KEPT ? all->at.len - TOMB_KEPT : 0, kept = 0;
    struct key k;

    vec_for (i, &all->at) {
        struct tomb *t = all->at.ptr[i];
        if (!over || t->state != TOMB_DONE || t->created_ms >= low) {
            all->at.ptr[kept++] = t;
            continue;
        }
        over--;
        key_tomb(&k, KEY_TOMB, t->tenant, t->entry);
        kv_batch_del(x->b, KV_META, key_str(&k));
        key_tomb(&k, KEY_TOMB_AT, t->tenant, t->entry);
        kv_batch_del(x->b, KV_META, key_str(&k));
        tomb_free(t);
    }
    all->at.len = kept;
}

/* One tenant's leave room for those of others. */
static int check_limits(const struct store *s, struct str tenant, struct err *e)
{
    const struct tombs *all = s->tombs;
    size_t pending = 0, kept = 0;

    vec_for (i, &all->at) {
        const struct tomb *t = all->at.ptr[i];
        if (!str_eq(t->name, tenant))
            continue;
        pending += t->state == TOMB_PURGING;
        kept++;
    }
    if (pending >= TOMB_PENDING_MAX || all->pending >= TOMB_TENANTS * TOMB_PENDING_MAX)
        return err_set(e, ERR_BUSY, "%zu deletes wait to be purged: try again later",
                       pending >= TOMB_PENDING_MAX ? pending : all->pending);
    if (kept >= 4 * TOMB_KEPT || all->at.len >= TOMB_TENANTS * 4 * TOMB_KEPT)
        return err_set(e, ERR_BUSY,
                       "%zu deletes in the time retries are recognised for: put several into one, "
                       "or try again later",
                       kept >= 4 * TOMB_KEPT ? kept : all->at.len);
    return 0;
}

/* ---- the batch ---- */

/* Under the lock of writers, before anyone sees the new state. */
static void on_written(void *cookie)
{
    struct deleting *x = cookie;
    struct store *s = x->s;
    uint32_t known = 0;

    vec_for (i, &s->raw.at)
        known = MAX(known, (s->raw.at.ptr[i].bucket + 1) * RAW_BUCKET_SLOTS);
    s->published_applied = x->n.n;
    for (size_t i = 0; x->n.rows && i < x->p->scopes.len; i++)
        hot_block(s->hot, x->p->tenant, x->p->scopes.ptr[i].scope, known);
}

static void forget_caches(struct deleting *x)
{
    struct store *s = x->s;

    names_drop(s->names);
    series_cache_drop(s->series);
    groups_drop(s->groups);
    if (x->p->kind == TOMB_TENANT)
        dict_cache_drop(s->dicts, x->p->tenant, 0);
    for (size_t i = 0; x->p->kind == TOMB_SERVICES && i < x->p->scopes.len; i++)
        dict_cache_drop(s->dicts, x->p->tenant, x->p->scopes.ptr[i].scope);
}

/* A batch that is refused for its size would end all writing. Without the unsealed rows it may fit:
 * they go first. */
static int too_large(struct deleting *x, struct err *e)
{
    size_t max = kv_batch_max(x->s->kv) / MIB;

    x->split = x->n.rows > 0;
    return err_set(e, ERR_LIMIT,
                   "the series that match are more than fit %zu MiB: split the delete by labels",
                   max);
}

/* The batch with the entry of the log, which becomes true for all. */
static int write_entry(struct deleting *x, struct err *e)
{
    struct store *s = x->s;

    vec_for (i, &x->raw)
        raw_counts_sub(&s->raw, x->raw.ptr[i].bucket, x->raw.ptr[i].rows);
    seal_put_log(s, &x->n, x->b);
    int rc = store_write_then(s, x->b, true, on_written, x, e);
    if (rc)
        return rc;
    atomic_store(&s->applied, x->n.n);
    atomic_fetch_sub(&s->raw_rows, x->n.rows);
    ledger_forget(s);
    return 0;
}

/* Unsealed rows alone, as many as fit. */
static int write_part(struct deleting *x, struct err *e)
{
    int rc = tomb_take_wids(x, e);

    if (!rc)
        rc = ledger_outs_put(x->s, &x->outs, x->b, e);
    return rc ? rc : write_entry(x, e);
}

static int write_all(struct deleting *x, struct err *e)
{
    struct store *s = x->s;
    struct tomb *t = x->t;
    struct key k;

    t->raw_rows = x->r->raw_rows + x->n.rows;
    t->created_ms = x->n.engine_ms;
    put_masks(x);
    take_docs(x);
    if (kv_batch_bytes(x->b) + REST_BYTES > kv_batch_max(s->kv))
        return too_large(x, e);
    drop_old(x);
    tomb_row_put(t, &x->row);
    key_tomb(&k, KEY_TOMB, t->tenant, t->entry);
    kv_batch_put(x->b, KV_META, key_str(&k), buf_str(&x->row));
    int rc = write_entry(x, e);
    if (rc)
        return rc;
    atomic_fetch_sub(&s->series_count, x->gone_series);
    forget_caches(x);
    return 0;
}

static int enter(struct deleting *x, struct err *e)
{
    struct tombs *all = x->s->tombs;
    int rc = 0;

    if (x->p->found && x->p->kind != TOMB_TENANT)
        make_masks(x);
    if (x->p->found)
        rc = tomb_take_raw(x, e);
    if (!rc && x->part && x->n.rows)
        return write_part(x, e);
    x->part = false;
    if (!rc)
        rc = tomb_take_wids(x, e);
    if (!rc && x->p->found)
        rc = take_names(x, e);
    if (!rc && x->p->found)
        rc = take_ledger(x, e);
    if (!rc)
        rc = write_all(x, e);
    if (rc)
        return rc;
    vec_push(&all->at, x->t);
    all->last = x->t->entry;
    tomb_guard(x->s, x->t, false);
    all->deletes++;
    all->idle = false;
    if (x->t->state != TOMB_PURGING)
        return 0;
    all->pending++;
    all->ranges += x->t->kind == TOMB_RANGE;
    rc = tomb_load_masks(x->s, x->t, e);
    x->t = NULL;
    return rc;
}

/* Makes and writes one entry for x->r, as x->p plans it. The caller sets s, r, p and part; after
 * the call only `split` may be read. */
static int make_entry(struct deleting *x, struct tomb_result *ret, struct err *e)
{
    x->t = tomb_new();
    x->b = kv_batch_new();
    x->n = (struct seal_entry){
        .n = atomic_load(&x->s->applied) + 1,
        .engine_ms = store_now(x->s),
        .tomb = true,
    };
    x->t->entry = x->n.n;
    buf_init(&x->row, ROW_MAX);
    int rc = make_tomb(x, e);
    struct tomb *made = x->t;
    if (!rc)
        rc = enter(x, e);
    ret->more = !rc && x->part;
    if (ret->more) {
        ret->raw_rows = x->n.rows;
    } else if (!rc) {
        ret->entry = made->entry;
        ret->kind = made->kind;
        ret->raw_rows = made->raw_rows;
        x->t = NULL;
    }
    if (x->t && (rc || ret->more))
        tomb_free(x->t);
    vec_free(&x->masks);
    vec_free(&x->wids);
    vec_free(&x->raw);
    ledger_outs_deinit(&x->outs);
    buf_deinit(&x->row);
    kv_batch_free(x->b);
    return rc;
}

int store_delete(struct store *s, const struct tomb_request *r, struct tomb_result *ret,
                 struct err *e)
{
    struct tomb_plan p;

    *ret = (struct tomb_result){ 0 };
    if (store_check_writable(s, e))
        return e->code;
    CHECK(store_quiet(s)); /* behind that: what was staged for a group that failed never is */
    const struct tomb *before = find_id(s, r);
    if (before)
        return answer_again(before, r, ret, e);
    if (check_limits(s, r->tenant, e))
        return e->code;
    wids_committed(s->wids, atomic_load(&s->committed));
    struct store_view *v = store_view_get(s);
    int rc = tomb_plan_of(v, r, &p, ret, e);
    if (!rc) {
        struct deleting x = { .s = s, .r = r, .p = &p, .part = tomb_raw_many(s) };
        rc = make_entry(&x, ret, e);
        if (rc && x.split) {
            x = (struct deleting){ .s = s, .r = r, .p = &p, .part = true };
            rc = make_entry(&x, ret, e);
        }
    }
    tomb_plan_free(&p);
    store_view_put(v);
    return rc ? err_wrap(e, "delete") : 0;
}
