/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_accept: changes what the ledger expects of a service to what an audit found.
 *
 *   adopt    a service that is older than the ledger: its baseline (row 58), once, automatically
 *   accept   a difference that cannot be repaired: by an operator, who says why (row 74); the list
 *            of accepted differences shows it permanently
 *
 * A difference is reported until an operator accepts it: an alarm that ended by itself would not
 * make anyone look. Exactly the difference that the audit found is accepted, as sums of {writes,
 * values, F}, so the next write that is lost is a new difference. The sums are kept next to the
 * rows of the ledger and not in them. So those rows still say what happened, and a lost row that
 * comes back (repaired by the scrubber, or a disk that can be read again) is no difference either.
 *
 * Rows 74 stay when retention or a delete removes the data they are about. Then the counters of the
 * tenant include them as expired or deleted (ledger_out.c), and the list still shows them.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/check/ledger_walk.h"
#include "common/store/ledger/adjust.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"

#define PLACES_MAX 10000

/* ---- adopting: services that are older than the ledger ---- */

static void adopt_bucket(const struct ledger_part *p, const struct ledger_node *b,
                         struct kv_batch *kb)
{
    struct ledger_found found = b->found;
    struct ledger_sum raw = b->at[LEDGER_RAW], sealed = b->at[LEDGER_LEVELS];
    struct ledger_sum was_raw = ledger_want_raw(b), was_sealed = ledger_want_sealed(b);
    char row[LEDGER_FOUND_LEN];
    struct key k;

    if (b->out.closed)
        return;
    ledger_add(&was_raw, &b->adjust.raw);
    ledger_add(&was_sealed, &b->adjust.levels);
    ledger_sub(&raw, &was_raw);
    ledger_sub(&sealed, &was_sealed);
    sealed.rows = 0; /* of levels they say nothing */
    ledger_add(&found.raw, &raw);
    ledger_add(&found.sealed, &sealed);
    ledger_found_put(&found, row);
    ledger_key(&k, KEY_LEDGER_FOUND, &p->m, b->number);
    kv_batch_put(kb, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

/* Floors that moved since may have closed a bucket. */
static int adopt_part(struct store *s, const struct ledger_audit *a, const struct ledger_part *p,
                      struct kv_batch *kb, struct err *e)
{
    struct ledger_whole w = { a->generation, MAX(a->v->engine_ms, 1) };
    char row[LEDGER_WHOLE_LEN];
    struct floors now;
    struct key k;

    if (floors_load(s->kv, NULL, &p->m, &now, e))
        return e->code;
    if (memcmp(&now, &p->floors, sizeof(now)) != 0)
        return 0;
    vec_for (i, &p->buckets)
        adopt_bucket(p, &p->buckets.ptr[i], kb);
    ledger_whole_put(&w, row);
    ledger_part_key(&k, KEY_LEDGER_WHOLE, &p->m);
    kv_batch_put(kb, KV_META, key_str(&k), str_n(row, sizeof(row)));
    return 0;
}

int store_ledger_adopt(struct store *s, const struct ledger_audit *a, struct err *e)
{
    uint32_t tenant = a->result.tenant, scope = a->result.scope;
    int rc = store_check_writable(s, e);

    if (rc)
        return rc;
    if (a->generation != ledger_generation(s) || tombs_pending_on(s, tenant, scope) ||
        tombs_newer_than(s, a->v->hot.applied))
        return 0;
    struct kv_batch *kb = kv_batch_new();
    for (size_t i = 0; !rc && i < a->parts.len; i++)
        if (!a->parts.ptr[i].counted)
            rc = adopt_part(s, a, &a->parts.ptr[i], kb, e);
    if (!rc && kv_batch_count(kb)) {
        store_put_clock(s, store_now(s), kb); /* and of whom these rows are */
        rc = store_write_batch(s, kb, true, e);
    }
    kv_batch_free(kb);
    return rc;
}

/* ---- accepting ---- */

/* Returns by how much one place differs; zeros: not at all. */
static struct ledger_sum off(const struct ledger_node *b, enum ledger_where where)
{
    struct ledger_sum want = ledger_want(b, where), found = b->at[where];

    if (ledger_same(&want, &found, where == LEDGER_RAW))
        return (struct ledger_sum){ 0 };
    ledger_sub(&found, &want);
    if (where != LEDGER_RAW)
        found.rows = 0; /* of levels they say nothing */
    return found;
}

static bool is_off(const struct ledger_sum *x)
{
    return x->rows || x->writes || x->total || x->fp;
}

static void count(struct ledger_accepted *x, uint64_t writes)
{
    int64_t more = (int64_t)writes;

    if (more < 0)
        x->lost += (uint64_t)-more;
    else
        x->doubled += (uint64_t)more;
}

static void put_text(struct str s, struct buf *row)
{
    (void)wr_u16be(row, (uint16_t)s.len);
    (void)buf_add_str(row, s);
}

/* Finds a free key: if two differences are accepted in one millisecond, the second one is stored
 * under the next millisecond. */
static int free_key(struct store *s, const struct ledger_accepted *x, struct key *ret,
                    struct err *e)
{
    struct buf row;
    int rc = 0;

    buf_init(&row, 4 * KIB);
    ledger_key(ret, KEY_LEDGER_ACCEPTED, &x->m, x->bucket);
    ret->len += 8;
    for (int64_t at = x->at_ms; !rc; at++) {
        put_u64be(ret->b + LEDGER_KEY_LEN, (uint64_t)at);
        buf_reset(&row);
        rc = kv_get(s->kv, NULL, KV_META, key_str(ret), &row, e);
    }
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static int put_row(struct store *s, const struct ledger_accepted *x, struct kv_batch *kb,
                   struct err *e)
{
    char sums[3 * LEDGER_SUM_LEN];
    struct buf row;
    struct key k;

    if (free_key(s, x, &k, e))
        return e->code;
    ledger_sum_put(&x->raw, sums);
    ledger_sum_put(&x->levels, sums + LEDGER_SUM_LEN);
    ledger_sum_put(&x->base, sums + (size_t)2 * LEDGER_SUM_LEN);
    buf_init(&row, 4 * KIB);
    (void)wr_u8(&row, LEDGER_ACCEPTED_VERSION);
    (void)wr_u64be(&row, x->lost);
    (void)wr_u64be(&row, x->doubled);
    (void)buf_add_str(&row, str_n(sums, sizeof(sums)));
    put_text(x->who, &row);
    put_text(x->reason, &row);
    CHECK(buf_ok(&row));
    kv_batch_put(kb, KV_META, key_str(&k), buf_str(&row));
    buf_deinit(&row);
    return 0;
}

struct accepting { /* one call of store_ledger_accept */
    struct store *s;
    struct kv_batch *kb;
    size_t rows;                /* put into the batch */
    struct ledger_accepted row; /* the next one: time, who and reason are those of the call */
};

/* Puts a row into the batch if the bucket differs. */
static int accept_bucket(struct accepting *to, const struct ledger_audit *a, const struct member *m,
                         const struct ledger_node *b, struct err *e)
{
    struct ledger_accepted *x = &to->row;
    bool sealed = !b->out.closed && !b->away;

    x->m = *m;
    x->bucket = b->number;
    x->lost = x->doubled = 0;
    x->levels = x->base = (struct ledger_sum){ 0 };
    x->raw = off(b, LEDGER_RAW);
    if (sealed)
        x->levels = off(b, LEDGER_LEVELS);
    if (sealed && a->result.deep)
        x->base = off(b, LEDGER_BASE);
    if (!is_off(&x->raw) && !is_off(&x->levels) && !is_off(&x->base))
        return 0;
    count(x, x->raw.writes);
    count(x, is_off(&x->levels) ? x->levels.writes : x->base.writes);
    to->rows++;
    return put_row(to->s, x, to->kb, e);
}

/* ERR_BUSY if rows were deleted or expired since the walk. Writes and seals since then are fine:
 * they change both sides of the comparison. */
static int check_same(struct store *s, const struct ledger_audit *a, struct err *e)
{
    struct floors now;

    if (a->generation != ledger_generation(s) ||
        tombs_pending_on(s, a->result.tenant, a->result.scope) ||
        tombs_newer_than(s, a->v->hot.applied))
        return err_set(e, ERR_BUSY, "data were deleted during the audit: try again");
    vec_for (i, &a->parts) {
        if (floors_load(s->kv, NULL, &a->parts.ptr[i].m, &now, e))
            return e->code;
        if (memcmp(&now, &a->parts.ptr[i].floors, sizeof(now)) != 0)
            return err_set(e, ERR_BUSY, "data expired during the audit: try again");
    }
    return 0;
}

static int accept_service(struct accepting *to, const struct ledger_audit *a, struct err *e)
{
    int rc = a->result.difference ? check_same(to->s, a, e) : 0;

    for (size_t i = 0; !rc && a->result.difference && i < a->parts.len; i++) {
        const struct ledger_part *p = &a->parts.ptr[i];
        for (size_t k = 0; !rc && p->counted && k < p->buckets.len; k++)
            rc = accept_bucket(to, a, &p->m, &p->buckets.ptr[k], e);
    }
    if (!rc && to->rows > PLACES_MAX)
        rc = err_set(e, ERR_LIMIT, "over %d places differ: accept them service by service",
                     PLACES_MAX);
    return rc;
}

int store_ledger_accept(struct store *s, const struct ledger_accept *x, size_t *ret_rows,
                        struct err *e)
{
    struct accepting to = {
        .s = s,
        .row = { .at_ms = MAX(store_now(s), 1), .who = x->who, .reason = x->reason },
    };
    int rc = store_check_writable(s, e);

    if (!rc && (!x->who.len || x->who.len > LEDGER_WHO_MAX))
        rc = err_set(e, ERR_INPUT, "who accepts it? 1 to %d bytes", LEDGER_WHO_MAX);
    if (!rc && (!x->reason.len || x->reason.len > LEDGER_REASON_MAX))
        rc = err_set(e, ERR_INPUT, "why is it accepted? 1 to %d bytes", LEDGER_REASON_MAX);
    if (rc)
        return rc;
    to.kb = kv_batch_new();
    for (size_t i = 0; !rc && i < x->audits_len; i++)
        rc = accept_service(&to, x->audits[i], e);
    if (!rc && to.rows) {
        store_put_clock(s, store_now(s), to.kb); /* and of whom these rows are */
        rc = store_write_batch(s, to.kb, true, e);
    }
    kv_batch_free(to.kb);
    if (!rc)
        *ret_rows = to.rows;
    return rc;
}

/* ---- the list ---- */

static int with_name(struct store_view *v, struct ledger_accepted *x, struct buf *row,
                     struct err *e)
{
    uint32_t epoch;
    struct key k;

    buf_reset(row);
    key_scope(&k, x->m.tenant, x->m.scope);
    int rc = kv_get(v->kv, v->snap, KV_META, key_str(&k), row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    return rc ? rc : scope_row_read(buf_str(row), &epoch, &x->service, e);
}

int store_ledger_accepted(struct store_view *v, struct str tenant,
                          int (*fn)(void *cookie, const struct ledger_accepted *x, struct err *e),
                          void *cookie, struct err *e)
{
    uint32_t number;
    struct key from, to;
    struct buf row;
    int rc = ledger_tenant_number(v, tenant, &number, e);

    if (rc || !number)
        return rc;
    key_table(&from, KEY_LEDGER_ACCEPTED, number);
    to = from;
    key_end(&to);
    buf_init(&row, MIB);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct ledger_accepted x;
        rc = ledger_accepted_read(kv_iter_key(it), kv_iter_value(it), &x, e);
        if (!rc)
            rc = with_name(v, &x, &row, e);
        if (!rc)
            rc = fn(cookie, &x, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_deinit(&row);
    return rc;
}
