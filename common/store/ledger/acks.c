/* SPDX-License-Identifier: Apache-2.0
 *
 * acks: rows of acks.h: read, looked up, dropped. Staging writes them (ledger_in.c).
 */
#include "common/store/ledger/acks.h"

#include "common/base/mem.h"
#include "common/store/ledger/ledger_mem.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/state/wid.h"

#define DROP_ROWS 512
#define DROP_MS   60000

int ledger_tenant_number(struct store_view *v, struct str tenant, uint32_t *ret, struct err *e)
{
    struct buf key, value;
    int rc = 0;

    *ret = 0;
    buf_init(&key, MIB);
    buf_init(&value, KIB);
    if (key_tenant_name(&key, tenant))
        rc = kv_get(v->kv, v->snap, KV_META, buf_str(&key), &value, e);
    if (rc == ERR_NOT_FOUND)
        rc = 0;
    else if (!rc && !key_u32_read(buf_str(&value), ret))
        rc = err_set(e, ERR_CORRUPT, "the number of a tenant has %zu bytes", value.len);
    buf_deinit(&key);
    buf_deinit(&value);
    return rc;
}

int store_acks(struct store_view *v, uint64_t distributor, uint32_t epoch, struct str tenant,
               struct acks *ret, struct err *e)
{
    char bytes[64];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    struct ledger_acks got;
    uint32_t number;
    struct key k;

    *ret = (struct acks){ 0 };
    if (ledger_tenant_number(v, tenant, &number, e))
        return e->code;
    ledger_acks_key(&k, distributor, epoch, number);
    int rc = number ? kv_get(v->kv, v->snap, KV_META, key_str(&k), &row, e) : ERR_NOT_FOUND;
    if (rc == ERR_NOT_FOUND)
        return 0;
    if (!rc)
        rc = ledger_acks_read(buf_str(&row), &got, e);
    if (!rc)
        *ret = got.sum;
    return rc;
}

int store_acks_known(struct store_view *v, struct str tenant, const uint8_t wid[16], bool *ret,
                     struct err *e)
{
    uint32_t number, high = wid_bucket(v->engine_ms) + 1;
    uint32_t hours = v->s->o.wid_horizon_ms / (uint32_t)WID_BUCKET_MS + 2;
    struct buf row;
    int rc = ledger_tenant_number(v, tenant, &number, e);

    *ret = false;
    buf_init(&row, KIB);
    for (uint32_t i = 0; !rc && number && !*ret && i < hours && i <= high; i++) {
        struct key k;

        key_wid(&k, high - i, number, wid);
        rc = kv_get(v->kv, v->snap, KV_WID, key_str(&k), &row, e);
        *ret = !rc;
        rc = rc == ERR_NOT_FOUND ? 0 : rc;
    }
    buf_deinit(&row);
    return rc;
}

int store_acks_deleted(struct store_view *v, int64_t *ret_ms, struct err *e)
{
    struct key from = { .len = 1, .b = { KEY_TOMB } }, to = from;
    int rc = 0;

    *ret_ms = 0;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct tomb *t = tomb_new();
        rc = tomb_row_read(kv_iter_key(it), kv_iter_value(it), t, e);
        if (!rc)
            *ret_ms = MAX(*ret_ms, t->created_ms);
        tomb_free(t);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* ---- dropping ---- */

int store_acks_drop(struct store *s, bool *ret_more, struct err *e)
{
    struct ledger *l = s->ledger;
    struct key from = { .len = 1, .b = { (char)KEY_ACKS } }, to = from;
    struct kv_batch *b = kv_batch_new();
    int64_t now = store_now(s);
    size_t rows = 0;
    int rc = store_check_writable(s, e);

    key_end(&to);
    if (l->drop.len)
        from = l->drop;
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it) && rows < DROP_ROWS; kv_iter_next(it), rows++) {
        struct ledger_acks got;
        rc = ledger_acks_read(kv_iter_value(it), &got, e);
        if (!rc && got.last_ms < now - ACKS_KEPT_MS)
            kv_batch_del(b, KV_META, kv_iter_key(it));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    *ret_more = !rc && kv_iter_valid(it);
    l->drop.len = 0;
    if (*ret_more) {
        l->drop.len = MIN(kv_iter_key(it).len, sizeof(l->drop.b));
        memcpy(l->drop.b, kv_iter_key(it).ptr, l->drop.len);
    }
    kv_iter_free(it);
    if (!rc && kv_batch_count(b))
        rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    l->drop_after_ms = clock_mono_ms(s->o.clock) + DROP_MS;
    return rc;
}

uint64_t store_acks_drop_ms(struct store *s)
{
    uint64_t next = s->ledger->drop_after_ms, now = clock_mono_ms(s->o.clock);

    if (s->ledger->drop.len)
        return 0;
    return next > now ? next - now : 0;
}
