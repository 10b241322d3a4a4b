/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger_tenant: what the rows of the ledger say of a tenant, added up.
 *
 * A tenant's ledger is the sum over its rows of services and types, plus one row for services that
 * were deleted. Rows are walked in a view, so that the sums are those of one moment. Where a
 * section is counted from some later slot (after an upgrade), the earliest and latest of these are
 * reported with the sums.
 *
 * Thread: that of the query.
 */
#include "common/store/ledger/adjust.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/state/view.h"

static int add_row(struct store_view *v, struct ledger_tenant *t, enum key_table table,
                   struct str key, struct str value, struct err *e)
{
    struct ledger_sum in;
    struct ledger_out out;
    struct ledger_found found;
    struct ledger_adjust adjust = { 0 };
    struct member m;
    uint32_t bucket;
    bool past = false;
    int rc = 0;

    if (table == KEY_LEDGER_IN) {
        rc = ledger_in_read(value, &in, e);
        t->accepted += in.writes;
        t->raw += in.writes;
    } else if (table == KEY_LEDGER_OUT) {
        rc = ledger_out_read(value, &out, e);
        t->sealed += out.sealed.writes;
        t->raw -= out.sealed.writes + out.deleted_raw.writes;
        t->deleted += out.deleted.writes + out.deleted_raw.writes;
        t->expired += out.expired.writes;
    } else if (table == KEY_LEDGER_ACCEPTED) {
        rc = ledger_adjust_read(key, value, &adjust, &m, &bucket, e);
        if (!rc)
            rc = ledger_is_past(v->kv, v->snap, &m, bucket, &past, e);
        t->raw += past ? 0 : adjust.raw.writes;
        t->stored += adjust.raw.writes + adjust.levels.writes;
    } else {
        rc = ledger_found_read(value, &found, e);
        t->accepted += found.raw.writes + found.sealed.writes;
        t->sealed += found.sealed.writes;
        t->raw += found.raw.writes;
    }
    return rc;
}

/* Where a service and type is counted from. */
static int add_part(struct store_view *v, struct ledger_tenant *t, struct str key, struct err *e)
{
    struct ledger_whole w;
    struct member m = { 0 };
    bool found;

    if (key.len != KEY_ACTIVE_LEN)
        return err_set(e, ERR_CORRUPT, "activity key of %zu bytes", key.len);
    m.tenant = get_u32be(key.ptr + 1);
    m.scope = get_u32be(key.ptr + 5);
    m.ptype = (uint16_t)get_u16be(key.ptr + 9);
    if (ledger_get_whole(v->kv, v->snap, &m, &w, &found, e))
        return e->code;
    if (!found || w.generation != ledger_generation(v->s))
        t->adopting++;
    else
        t->since_ms = MAX(t->since_ms, w.since_ms);
    return 0;
}

static int add_table(struct store_view *v, uint32_t tenant, enum key_table table,
                     struct ledger_tenant *t, struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_table(&from, table, tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = table == KEY_ACTIVE ? add_part(v, t, kv_iter_key(it), e)
                                 : add_row(v, t, table, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int get_u64(struct store_view *v, const struct key *k, uint64_t *ret, struct err *e)
{
    char bytes[16];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    int rc = kv_get(v->kv, v->snap, KV_META, key_str(k), &row, e);

    *ret = 0;
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    return key_u64_read(buf_str(&row), ret)
               ? 0
               : err_set(e, ERR_CORRUPT, "a number of %zu bytes in the ledger", row.len);
}

int store_ledger(struct store_view *v, struct str tenant, struct ledger_tenant *ret, struct err *e)
{
    static const enum key_table tables[] = { KEY_ACTIVE, KEY_LEDGER_IN, KEY_LEDGER_OUT,
                                             KEY_LEDGER_FOUND, KEY_LEDGER_ACCEPTED };
    struct ledger_past past = { 0 };
    uint32_t number = 0;
    struct buf row;
    struct key k;

    *ret = (struct ledger_tenant){ 0 };
    buf_init(&row, MIB);
    int rc = key_tenant_name(&row, tenant)
                 ? 0
                 : err_set(e, ERR_NOT_FOUND, "a tenant's name of %zu bytes", tenant.len);
    struct buf value;
    buf_init(&value, KIB);
    if (!rc)
        rc = kv_get(v->kv, v->snap, KV_META, buf_str(&row), &value, e);
    if (!rc && !key_u32_read(buf_str(&value), &number))
        rc = err_set(e, ERR_CORRUPT, "the number of a tenant has %zu bytes", value.len);
    for (size_t i = 0; !rc && i < ARRAY_LEN(tables); i++)
        rc = add_table(v, number, tables[i], ret, e);
    if (!rc)
        rc = ledger_get_past(v->kv, v->snap, number, &past, e);
    key_table(&k, KEY_LEDGER_DUPLICATES, number);
    if (!rc)
        rc = get_u64(v, &k, &ret->duplicates, e);
    buf_deinit(&row);
    buf_deinit(&value);
    ret->accepted += past.accepted;
    ret->sealed += past.sealed;
    ret->expired += past.expired;
    ret->deleted += past.deleted;
    ret->stored += ret->accepted - ret->expired - ret->deleted; /* beside what was accepted */
    return rc;
}

int store_ledger_tenants(struct store_view *v,
                         int (*fn)(void *cookie, struct str tenant, struct err *e), void *cookie,
                         struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TENANT_NAME } }, to = from;
    int rc = 0;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = fn(cookie, str_sub(kv_iter_key(it), 1, kv_iter_key(it).len), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}
