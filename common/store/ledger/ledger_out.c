/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_out: counts how accepted data leave the unsealed rows and the store: sealed, deleted,
 * expired.
 *
 * Each step reads the row it changes, adds, and puts it into its own batch, which also changes the
 * data. A step writes its batch before the next one begins, so the row that it read is current.
 *
 * A delete is counted where the base rows are: unsealed rows by the batch of the delete itself,
 * sealed rows at their base level, when they are purged. Rows above the base are sums of the same
 * data. If a whole service is deleted, its rows of the ledger are deleted, too, and their sums are
 * added to the row `past` of the tenant.
 *
 * Retention expires whole buckets (the floor of the coarsest level is always between two), so no
 * data have to be read: all that was sealed and not deleted is expired. If retention is so late
 * that buckets below the wanted floor lose their fine rows before coarse ones are built, these
 * buckets are closed early and no longer audited.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/codec/raw.h"
#include "common/store/ledger/adjust.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/state/store_impl.h"

static void put_out(struct kv_batch *b, const struct member *m, uint32_t bucket,
                    const struct ledger_out *r)
{
    char row[LEDGER_OUT_LEN];
    struct key k;

    ledger_out_put(r, row);
    ledger_key(&k, KEY_LEDGER_OUT, m, bucket);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

static void put_past(struct kv_batch *b, uint32_t tenant, const struct ledger_past *p)
{
    char row[LEDGER_PAST_LEN];
    struct key k;

    ledger_past_put(p, row);
    key_table(&k, KEY_LEDGER_PAST, tenant);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

/* ---- seals ---- */

struct sealed_bucket { /* rows of a seal in one bucket of the ledger */
    struct member m;   /* series unused */
    uint32_t bucket;
    struct ledger_sum sealed;
    struct ledger_sum gone; /* those of them that were below the coarsest floor already */
};

static int seal_bucket(struct store *s, const struct sealed_bucket *x, struct kv_batch *b,
                       struct err *e)
{
    struct ledger_out out;

    if (ledger_get_out(s->kv, NULL, &x->m, x->bucket, &out, e))
        return e->code;
    ledger_add(&out.sealed, &x->sealed);
    ledger_add(&out.expired, out.closed ? &x->sealed : &x->gone);
    put_out(b, &x->m, x->bucket, &out);
    return 0;
}

static int by_slot(const void *a, const void *b)
{
    const struct seal_row *x = *(const struct seal_row *const *)a;
    const struct seal_row *y = *(const struct seal_row *const *)b;

    return x->t < y->t ? -1 : x->t > y->t;
}

int ledger_sealed(struct store *s, const struct seal_row *rows, size_t n, const struct floors *f,
                  struct kv_batch *b, struct err *e)
{
    const struct seal_row **at = XNEW_ARRAY(const struct seal_row *, n);
    uint32_t low = f->at[KEY_LEVELS - 1];
    bool sorted = true;
    int rc = 0;

    for (size_t i = 0; i < n; i++) {
        at[i] = &rows[i];
        sorted = sorted && ledger_bucket(rows[i].t) == ledger_bucket(rows[0].t);
    }
    if (!sorted)
        qsort(at, n, sizeof(*at), by_slot);
    for (size_t i = 0; !rc && i < n;) {
        struct sealed_bucket x = { .m = rows[0].m, .bucket = ledger_bucket(at[i]->t) };

        for (; !rc && i < n && ledger_bucket(at[i]->t) == x.bucket; i++) {
            struct ledger_sum one;
            rc = ledger_of(at[i]->vector, &one, e);
            if (rc)
                break;
            ledger_add(&x.sealed, &one);
            if (at[i]->t < low)
                ledger_add(&x.gone, &one);
        }
        if (!rc)
            rc = seal_bucket(s, &x, b, e);
    }
    xfree(at);
    return rc;
}

/* ---- deletes ---- */

static bool is_of(const struct ledger_gone *g, const struct member *m, uint32_t bucket)
{
    return g->bucket == bucket && g->m.tenant == m->tenant && g->m.scope == m->scope &&
           g->m.ptype == m->ptype;
}

int ledger_outs_add(struct ledger_outs *o, const struct member *m, uint32_t slot, bool raw,
                    struct str vector, struct err *e)
{
    uint32_t bucket = ledger_bucket(slot);
    struct ledger_sum one;
    size_t i = o->at.len;

    if (ledger_of(vector, &one, e))
        return e->code;
    if (o->last < i && is_of(&o->at.ptr[o->last], m, bucket))
        i = o->last + 1;
    else
        while (i > 0 && !is_of(&o->at.ptr[i - 1], m, bucket))
            i--;
    if (i == 0) {
        vec_push(&o->at, ((struct ledger_gone){ .m = *m, .bucket = bucket }));
        i = o->at.len;
    }
    struct ledger_gone *g = &o->at.ptr[i - 1];
    o->last = i - 1;
    ledger_add(raw ? &g->raw : &g->sealed, &one);
    return 0;
}

int ledger_outs_put(struct store *s, const struct ledger_outs *o, struct kv_batch *b, struct err *e)
{
    vec_for (i, &o->at) {
        const struct ledger_gone *g = &o->at.ptr[i];
        struct ledger_out out;

        if (ledger_get_out(s->kv, NULL, &g->m, g->bucket, &out, e))
            return e->code;
        ledger_add(&out.deleted_raw, &g->raw);
        if (!out.closed)
            ledger_add(&out.deleted, &g->sealed);
        put_out(b, &g->m, g->bucket, &out);
    }
    return 0;
}

void ledger_outs_deinit(struct ledger_outs *o)
{
    vec_free(&o->at);
}

int ledger_purged(struct store *s, struct ledger_outs *o, struct str key, struct str value,
                  struct err *e)
{
    struct member m;
    struct floors f;
    uint32_t level, t;

    if (!key_member_read(key, &level, &m, &t))
        return err_set(e, ERR_CORRUPT, "key of a sealed row has %zu bytes", key.len);
    if (floors_get(s, &m, &f, e))
        return e->code;
    return floors_base(&f, false, t) == level ? ledger_outs_add(o, &m, t, false, value, e) : 0;
}

/* ---- all of something ---- */

/* Adds a row of a table that is deleted to the past. */
static int take_row(struct ledger_past *p, enum key_table table, struct str value, struct err *e)
{
    struct ledger_sum in;
    struct ledger_out out;
    struct ledger_found found;

    if (table == KEY_LEDGER_IN) {
        if (ledger_in_read(value, &in, e))
            return e->code;
        p->accepted += in.writes;
        p->deleted += in.writes;
    } else if (table == KEY_LEDGER_OUT) {
        if (ledger_out_read(value, &out, e))
            return e->code;
        p->sealed += out.sealed.writes;
        p->expired += out.expired.writes;
        p->deleted -= out.expired.writes; /* all that did not expire is deleted now */
    } else if (table == KEY_LEDGER_FOUND) {
        if (ledger_found_read(value, &found, e))
            return e->code;
        p->accepted += found.raw.writes + found.sealed.writes;
        p->sealed += found.sealed.writes;
        p->deleted += found.raw.writes + found.sealed.writes;
    }
    return 0;
}

/* Adds an accepted difference of a service that is deleted to the deleted writes of the tenant,
 * unless its bucket was added to the past before (bury). The row itself stays: accepted differences
 * are listed permanently. */
static int take_accepted(struct store *s, struct str key, struct str value, struct ledger_past *p,
                         struct err *e)
{
    struct ledger_adjust x = { 0 };
    struct member m;
    uint32_t bucket;
    bool past;

    if (ledger_adjust_read(key, value, &x, &m, &bucket, e) ||
        ledger_is_past(s->kv, NULL, &m, bucket, &past, e))
        return e->code;
    if (!past)
        p->deleted += x.raw.writes + x.levels.writes;
    return 0;
}

struct ledger_owner { /* whose rows go */
    uint32_t tenant;
    uint32_t scope; /* 0: all services of the tenant; their counters are not summed up */
};

static int drop_table(struct store *s, enum key_table table, const struct ledger_owner *of,
                      struct ledger_past *p, struct kv_batch *b, struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_table(&from, table, of->tenant);
    if (of->scope) {
        put_u32be(from.b + from.len, of->scope);
        from.len += 4;
    }
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    bool any = kv_iter_valid(it);
    bool kept = table == KEY_LEDGER_ACCEPTED && of->scope;
    for (; !rc && of->scope && kv_iter_valid(it); kv_iter_next(it))
        rc = kept ? take_accepted(s, kv_iter_key(it), kv_iter_value(it), p, e)
                  : take_row(p, table, kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc && any && !kept)
        kv_batch_del_range(b, KV_META, key_str(&from), key_str(&to));
    return rc;
}

int ledger_drop(struct store *s, uint32_t tenant, uint32_t scope, struct ledger_past *p,
                struct kv_batch *b, struct err *e)
{
    static const enum key_table tables[] = { KEY_LEDGER_ACCEPTED, KEY_LEDGER_IN, KEY_LEDGER_OUT,
                                             KEY_LEDGER_FOUND, KEY_LEDGER_WHOLE };
    const struct ledger_owner of = { tenant, scope };
    int rc = 0;

    for (size_t i = 0; !rc && i < ARRAY_LEN(tables); i++)
        rc = drop_table(s, tables[i], &of, p, b, e);
    return rc;
}

void ledger_put_past(struct kv_batch *b, uint32_t tenant, const struct ledger_past *p)
{
    put_past(b, tenant, p);
}

/* ---- retention ---- */

static void close_bucket(struct ledger_out *out, const struct ledger_found *found,
                         const struct ledger_adjust *adjust)
{
    if (out->closed)
        return;
    out->closed = true;
    out->expired = out->sealed;
    ledger_add(&out->expired, &found->sealed);
    ledger_add(&out->expired, &adjust->levels);
    ledger_sub(&out->expired, &out->deleted);
}

struct expired { /* a bucket below the floors: its rows */
    struct member m;
    uint32_t bucket;
    struct ledger_out out;
    struct ledger_found found;
    struct ledger_adjust adjust;
};

/* Moves the counters of a closed bucket to the past, if it has no unsealed rows either. */
static int bury(struct store *s, const struct expired *x, struct ledger_past *p, struct kv_batch *b,
                bool *ret_done, struct err *e)
{
    static const enum key_table tables[] = { KEY_LEDGER_IN, KEY_LEDGER_OUT, KEY_LEDGER_FOUND };
    struct ledger_sum in;
    struct key k;

    *ret_done = false;
    if (!ledger_in_settled(s, &x->m, x->bucket))
        return 0;
    if (ledger_get_in(s->kv, NULL, &x->m, x->bucket, &in, e))
        return e->code;
    if (in.rows + x->found.raw.rows + x->adjust.raw.rows !=
        x->out.sealed.rows + x->out.deleted_raw.rows)
        return 0;
    p->accepted += in.writes + x->found.raw.writes + x->found.sealed.writes;
    p->sealed += x->out.sealed.writes + x->found.sealed.writes;
    p->expired += x->out.expired.writes;
    p->deleted += x->out.deleted.writes + x->out.deleted_raw.writes;
    for (size_t i = 0; i < ARRAY_LEN(tables); i++) {
        ledger_key(&k, tables[i], &x->m, x->bucket);
        kv_batch_del(b, KV_META, key_str(&k));
    }
    *ret_done = true;
    return 0;
}

/* Closes the bucket of the row of KEY_LEDGER_OUT at the iterator. A bucket that was closed before
 * and is below bucket `gone` is moved to the past. */
static int expire_row(struct store *s, const struct kv_iter *it, uint32_t gone,
                      struct ledger_past *p, struct kv_batch *b, struct err *e)
{
    struct str key = kv_iter_key(it);
    struct expired x;
    bool done = false;

    if (!ledger_key_read(key, &x.m, &x.bucket))
        return err_set(e, ERR_CORRUPT, "a key of the ledger has %zu bytes", key.len);
    if (ledger_out_read(kv_iter_value(it), &x.out, e) ||
        ledger_get_found(s->kv, NULL, &x.m, x.bucket, &x.found, e) ||
        ledger_get_adjust(s->kv, NULL, &x.m, x.bucket, &x.adjust, e))
        return e->code;
    bool was = x.out.closed;
    close_bucket(&x.out, &x.found, &x.adjust);
    if (was && x.bucket < gone && bury(s, &x, p, b, &done, e))
        return e->code;
    if (!was && !done)
        put_out(b, &x.m, x.bucket, &x.out);
    return 0;
}

int ledger_expire(struct store *s, const struct member *m, const struct floors *to, uint32_t wanted,
                  struct kv_batch *b, struct err *e)
{
    uint32_t low = to->at[KEY_LEVELS - 1], end = ledger_bucket(MAX(low, wanted));
    struct ledger_past p, before;
    struct key from, last;
    int rc = ledger_get_past(s->kv, NULL, m->tenant, &p, e);

    if (rc)
        return rc;
    before = p;
    ledger_key(&from, KEY_LEDGER_OUT, m, 0);
    ledger_key(&last, KEY_LEDGER_OUT, m, end);
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&last));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = expire_row(s, it, ledger_bucket(low), &p, b, e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc && memcmp(&p, &before, sizeof(p)) != 0)
        put_past(b, m->tenant, &p);
    return rc;
}
