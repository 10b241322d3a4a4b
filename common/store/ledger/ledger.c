/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: rows of the ledger, and how it finds out that it is incomplete.
 *
 * A program that is older than the ledger stages and seals without writing it. Such a program may
 * have used the database between two runs of newer ones (a roll-back). It does write the clock: the
 * first batch with any content holds CONTROL_CLOCK, then one a minute. So CONTROL_LEDGER repeats
 * the clock, in the same batches. If the two differ when the store is opened, the ledger lacks some
 * changes, and a new generation begins: counters continue from their values, and the auditor finds
 * once, service by service, by how much they are wrong (row 58), and stores that with this
 * generation (row 59). A database without a ledger is handled the same way.
 */
#include "common/store/ledger/ledger_counts.h"

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/codec/fp.h"
#include "common/store/codec/vec.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/state/store_impl.h"

#define VERSION     1
#define CONTROL_LEN 21

/* ---- sums ---- */

void ledger_add(struct ledger_sum *to, const struct ledger_sum *more)
{
    to->rows += more->rows;
    to->writes += more->writes;
    to->total += more->total;
    to->fp = fp_add(to->fp, more->fp);
    to->saturated = to->saturated || more->saturated;
}

void ledger_sub(struct ledger_sum *from, const struct ledger_sum *less)
{
    from->rows -= less->rows;
    from->writes -= less->writes;
    from->total -= less->total;
    from->fp = fp_sub(from->fp, less->fp);
    from->saturated = from->saturated || less->saturated;
}

int ledger_of(struct str vector, struct ledger_sum *ret, struct err *e)
{
    struct vec_reader v;
    int rc = vec_peek(vector, &v, e);

    if (rc)
        return rc;
    *ret = (struct ledger_sum){ .rows = 1,
                                .writes = v.meta.writes,
                                .total = v.meta.total,
                                .fp = v.meta.saturated ? 0 : v.meta.fp,
                                .saturated = v.meta.saturated };
    return 0;
}

/* ---- rows ---- */

void ledger_sum_put(const struct ledger_sum *x, char out[LEDGER_SUM_LEN])
{
    out[0] = x->saturated;
    put_u64be(out + 1, x->rows);
    put_u64be(out + 9, x->writes);
    put_u64be(out + 17, x->total);
    put_u64be(out + 25, x->fp);
}

bool ledger_sum_read(const char row[LEDGER_SUM_LEN], struct ledger_sum *ret)
{
    *ret = (struct ledger_sum){ .saturated = row[0] != 0,
                                .rows = get_u64be(row + 1),
                                .writes = get_u64be(row + 9),
                                .total = get_u64be(row + 17),
                                .fp = get_u64be(row + 25) };
    return (row[0] == 0 || row[0] == 1) && ret->fp < FP_P;
}

static int wrong_row(struct str row, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "a row of the ledger (%s) of %zu bytes is not one of version %d",
                   what, row.len, VERSION);
}

void ledger_in_put(const struct ledger_sum *r, char out[LEDGER_IN_LEN])
{
    out[0] = VERSION;
    ledger_sum_put(r, out + 1);
}

int ledger_in_read(struct str row, struct ledger_sum *ret, struct err *e)
{
    if (row.len != LEDGER_IN_LEN || row.ptr[0] != VERSION || !ledger_sum_read(row.ptr + 1, ret))
        return wrong_row(row, "came in", e);
    return 0;
}

void ledger_out_put(const struct ledger_out *r, char out[LEDGER_OUT_LEN])
{
    out[0] = VERSION;
    out[1] = r->closed;
    ledger_sum_put(&r->sealed, out + 2);
    ledger_sum_put(&r->deleted_raw, out + 2 + LEDGER_SUM_LEN);
    ledger_sum_put(&r->deleted, out + 2 + (size_t)2 * LEDGER_SUM_LEN);
    ledger_sum_put(&r->expired, out + 2 + (size_t)3 * LEDGER_SUM_LEN);
}

int ledger_out_read(struct str row, struct ledger_out *ret, struct err *e)
{
    if (row.len != LEDGER_OUT_LEN || row.ptr[0] != VERSION || (row.ptr[1] & ~1) ||
        !ledger_sum_read(row.ptr + 2, &ret->sealed) ||
        !ledger_sum_read(row.ptr + 2 + LEDGER_SUM_LEN, &ret->deleted_raw) ||
        !ledger_sum_read(row.ptr + 2 + (size_t)2 * LEDGER_SUM_LEN, &ret->deleted) ||
        !ledger_sum_read(row.ptr + 2 + (size_t)3 * LEDGER_SUM_LEN, &ret->expired))
        return wrong_row(row, "went on", e);
    ret->closed = row.ptr[1];
    return 0;
}

void ledger_found_put(const struct ledger_found *r, char out[LEDGER_FOUND_LEN])
{
    out[0] = VERSION;
    ledger_sum_put(&r->raw, out + 1);
    ledger_sum_put(&r->sealed, out + 1 + LEDGER_SUM_LEN);
}

int ledger_found_read(struct str row, struct ledger_found *ret, struct err *e)
{
    if (row.len != LEDGER_FOUND_LEN || row.ptr[0] != VERSION ||
        !ledger_sum_read(row.ptr + 1, &ret->raw) ||
        !ledger_sum_read(row.ptr + 1 + LEDGER_SUM_LEN, &ret->sealed))
        return wrong_row(row, "found", e);
    return 0;
}

void ledger_whole_put(const struct ledger_whole *w, char out[LEDGER_WHOLE_LEN])
{
    out[0] = VERSION;
    put_u32be(out + 1, w->generation);
    put_u64be(out + 5, (uint64_t)w->since_ms);
}

int ledger_whole_read(struct str row, struct ledger_whole *ret, struct err *e)
{
    if (row.len != LEDGER_WHOLE_LEN || row.ptr[0] != VERSION)
        return wrong_row(row, "complete", e);
    ret->generation = get_u32be(row.ptr + 1);
    ret->since_ms = (int64_t)get_u64be(row.ptr + 5);
    return 0;
}

void ledger_past_put(const struct ledger_past *r, char out[LEDGER_PAST_LEN])
{
    out[0] = VERSION;
    put_u64be(out + 1, r->accepted);
    put_u64be(out + 9, r->sealed);
    put_u64be(out + 17, r->expired);
    put_u64be(out + 25, r->deleted);
}

int ledger_past_read(struct str row, struct ledger_past *ret, struct err *e)
{
    if (row.len != LEDGER_PAST_LEN || row.ptr[0] != VERSION)
        return wrong_row(row, "past", e);
    *ret = (struct ledger_past){ .accepted = get_u64be(row.ptr + 1),
                                 .sealed = get_u64be(row.ptr + 9),
                                 .expired = get_u64be(row.ptr + 17),
                                 .deleted = get_u64be(row.ptr + 25) };
    return 0;
}

/* ---- keys ---- */

void ledger_part_key(struct key *k, enum key_table table, const struct member *m)
{
    k->b[0] = (char)table;
    put_u32be(k->b + 1, m->tenant);
    put_u32be(k->b + 5, m->scope);
    put_u16be(k->b + 9, m->ptype);
    k->len = LEDGER_PART_LEN;
}

void ledger_key(struct key *k, enum key_table table, const struct member *m, uint32_t bucket)
{
    ledger_part_key(k, table, m);
    put_u32be(k->b + LEDGER_PART_LEN, bucket);
    k->len = LEDGER_KEY_LEN;
}

bool ledger_key_read(struct str key, struct member *ret_m, uint32_t *ret_bucket)
{
    if (key.len != LEDGER_KEY_LEN)
        return false;
    *ret_m = (struct member){ .tenant = get_u32be(key.ptr + 1),
                              .scope = get_u32be(key.ptr + 5),
                              .ptype = (uint16_t)get_u16be(key.ptr + 9) };
    *ret_bucket = get_u32be(key.ptr + LEDGER_PART_LEN);
    return true;
}

/* ---- one row ---- */

#define GET_ROW_MAX 160

struct got {
    char bytes[GET_ROW_MAX];
    struct buf row;
};

/* 1: it is there, 0: it is not, -1. */
static int get_row(struct kv *kv, const struct kv_snap *snap, const struct key *k, struct got *g,
                   struct err *e)
{
    g->row = (struct buf){ .ptr = g->bytes, .cap = GET_ROW_MAX, .max = GET_ROW_MAX };
    int rc = kv_get(kv, snap, KV_META, key_str(k), &g->row, e);

    return rc == ERR_NOT_FOUND ? 0 : rc ? -1 : 1;
}

int ledger_get_in(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                  uint32_t bucket, struct ledger_sum *ret, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_sum){ 0 };
    ledger_key(&k, KEY_LEDGER_IN, m, bucket);
    int found = get_row(kv, snap, &k, &g, e);
    return found > 0 ? ledger_in_read(buf_str(&g.row), ret, e) : found ? e->code : 0;
}

int ledger_get_out(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                   uint32_t bucket, struct ledger_out *ret, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_out){ 0 };
    ledger_key(&k, KEY_LEDGER_OUT, m, bucket);
    int found = get_row(kv, snap, &k, &g, e);
    return found > 0 ? ledger_out_read(buf_str(&g.row), ret, e) : found ? e->code : 0;
}

int ledger_get_found(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                     uint32_t bucket, struct ledger_found *ret, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_found){ 0 };
    ledger_key(&k, KEY_LEDGER_FOUND, m, bucket);
    int found = get_row(kv, snap, &k, &g, e);
    return found > 0 ? ledger_found_read(buf_str(&g.row), ret, e) : found ? e->code : 0;
}

int ledger_get_whole(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                     struct ledger_whole *ret, bool *ret_found, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_whole){ 0 };
    ledger_part_key(&k, KEY_LEDGER_WHOLE, m);
    int found = get_row(kv, snap, &k, &g, e);
    *ret_found = found > 0;
    return found > 0 ? ledger_whole_read(buf_str(&g.row), ret, e) : found ? e->code : 0;
}

int ledger_get_past(struct kv *kv, const struct kv_snap *snap, uint32_t tenant,
                    struct ledger_past *ret, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_past){ 0 };
    key_table(&k, KEY_LEDGER_PAST, tenant);
    int found = get_row(kv, snap, &k, &g, e);
    return found > 0 ? ledger_past_read(buf_str(&g.row), ret, e) : found ? e->code : 0;
}

/* ---- by whom it is kept ---- */

struct ledger *ledger_new(void)
{
    struct ledger *l = XNEW(struct ledger);

    l->at = map_str_new();
    l->generation = 1;
    return l;
}

void ledger_free(struct ledger *l)
{
    if (!l)
        return;
    ledger_in_clear(l);
    map_str_free(l->at);
    xfree(l);
}

uint32_t ledger_generation(const struct store *s)
{
    return s->ledger->generation;
}

int ledger_control_get(struct kv *kv, const struct kv_snap *snap, struct ledger_control *ret,
                       bool *ret_found, struct err *e)
{
    struct got g;
    struct key k;

    *ret = (struct ledger_control){ 0 };
    key_control(&k, CONTROL_LEDGER);
    int found = get_row(kv, snap, &k, &g, e);
    *ret_found = found > 0;
    if (found <= 0)
        return found ? e->code : 0;
    if (g.row.len != CONTROL_LEN || g.row.ptr[0] != VERSION)
        return wrong_row(buf_str(&g.row), "control", e);
    ret->generation = get_u32be(g.row.ptr + 1);
    ret->since_ms = (int64_t)get_u64be(g.row.ptr + 5);
    ret->clock_ms = (int64_t)get_u64be(g.row.ptr + 13);
    return 0;
}

int ledger_open(struct store *s, int64_t clock_ms, struct err *e)
{
    struct ledger *l = s->ledger;
    struct ledger_control c;
    bool found;

    if (ledger_control_get(s->kv, NULL, &c, &found, e))
        return e->code;
    if (!found && clock_ms < 0) /* a new database: nothing was written yet */
        return 0;
    l->generation = found ? c.generation : 1;
    l->since_ms = c.since_ms;
    if (found && c.clock_ms == clock_ms)
        return 0;
    l->generation += found;
    l->since_ms = clock_ms;
    return 0;
}

void ledger_put_clock(struct store *s, int64_t engine_ms, struct kv_batch *b)
{
    const struct ledger *l = s->ledger;
    char row[CONTROL_LEN];
    struct key k;

    row[0] = VERSION;
    put_u32be(row + 1, l->generation);
    put_u64be(row + 5, (uint64_t)l->since_ms);
    put_u64be(row + 13, (uint64_t)engine_ms);
    key_control(&k, CONTROL_LEDGER);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}
