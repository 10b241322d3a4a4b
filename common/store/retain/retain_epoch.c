/* SPDX-License-Identifier: Apache-2.0
 *
 * retain_epoch: dictionaries of closed epochs that no row can name any more.
 *
 * A row names an epoch only if one of its pushes came while the epoch was open, and a push is at
 * most a day ahead of its arrival. So once an epoch is closed, its rows lie before the moment it
 * was found closed plus a margin, which is written down as its last slot; nodes, too, since their
 * base lies below the coarsest floor as a whole. When the coarsest floor of every profile type of
 * the service has passed that slot, nothing that is left names the epoch.
 *
 *   key  5d tenant scope epoch        value  last slot u32
 */
#include "common/model/slot.h"
#include "common/store/dict/dict_rows.h"
#include "common/store/retain/retain_state.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"

#define EPOCH_KEY_LEN 13
/* Pushes ahead of their time; exemplars, which are kept by another rule, come on top. */
#define MARGIN_MS (INT64_C(32) * 86400000)

/* The least coarsest floor of the types of a service. */
static int scope_floor(struct store *s, uint32_t tenant, uint32_t scope, uint32_t *ret,
                       struct err *e)
{
    struct member m = { .tenant = tenant, .scope = scope };
    struct key from, to;
    struct floors f;
    bool any = false;
    int rc = 0;

    key_active(&from, tenant, scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    *ret = UINT32_MAX;
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);

        if (key.len != KEY_ACTIVE_LEN)
            continue;
        m.ptype = (uint16_t)get_u16be(key.ptr + 9);
        rc = floors_load(s->kv, NULL, &m, &f, e);
        *ret = MIN(*ret, f.at[KEY_LEVELS - 1]);
        any = true;
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!any)
        *ret = 0;
    return rc;
}

struct old_epoch { /* a dictionary epoch that may be closed */
    uint32_t tenant, scope, number;
    struct dict_counts counts;
    struct key last; /* of the row with its last slot */
};

/* Deletes the dictionary and both rows of the epoch. */
static void drop(struct store *s, const struct old_epoch *x, struct kv_batch *b)
{
    struct key from, to;

    key_dict(&from, x->tenant, x->scope, x->number, DICT_STRINGS, 0);
    from.len = EPOCH_KEY_LEN;
    to = from;
    key_end(&to);
    kv_batch_del_range(b, KV_META, key_str(&from), key_str(&to));
    key_epoch(&from, x->tenant, x->scope, x->number);
    kv_batch_del(b, KV_META, key_str(&from));
    kv_batch_del(b, KV_META, key_str(&x->last));
    atomic_fetch_sub(&s->dict_nodes, x->counts.nodes - 1);
    s->retain->stats.epochs_dropped++;
}

static int look(struct store *s, struct str key, struct str value, struct kv_batch *b,
                struct err *e)
{
    struct old_epoch x = { .tenant = get_u32be(key.ptr + 1),
                           .scope = get_u32be(key.ptr + 5),
                           .number = get_u32be(key.ptr + 9) };
    uint32_t last, floor;
    char bytes[8];
    struct buf row = { .ptr = bytes, .cap = sizeof(bytes), .max = sizeof(bytes) };
    bool closed;

    if (dict_epoch_read(value, &closed, &x.counts, e))
        return e->code;
    if (!closed)
        return 0;
    key_epoch(&x.last, x.tenant, x.scope, x.number);
    x.last.b[0] = KEY_EPOCH_LAST;
    int rc = kv_get(s->kv, NULL, KV_META, key_str(&x.last), &row, e);
    if (rc == ERR_NOT_FOUND) {
        struct key v;

        key_u32(&v, slot_of_ms(s->retain->engine_ms + MARGIN_MS + (int64_t)s->o.exm.retention_ms));
        kv_batch_put(b, KV_META, key_str(&x.last), key_str(&v));
        return 0;
    }
    if (!rc && !key_u32_read(buf_str(&row), &last))
        rc = err_set(e, ERR_CORRUPT, "last slot of an epoch has %zu bytes", row.len);
    if (!rc)
        rc = scope_floor(s, x.tenant, x.scope, &floor, e);
    if (!rc && last < floor)
        drop(s, &x, b);
    return rc;
}

int retain_epoch_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e)
{
    struct retain *r = s->retain;
    struct key from = r->cursor, to = { .len = 1, .b = { KEY_EPOCH } };
    struct kv_batch *b;
    int rc = 0;

    if (!from.len)
        from = to;
    key_end(&to);
    b = kv_batch_new();
    struct kv_iter *it = kv_iter_new(s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it) && rows_max > 0; kv_iter_next(it), rows_max--) {
        struct str key = kv_iter_key(it);

        if (key.len != EPOCH_KEY_LEN) {
            rc = err_set(e, ERR_CORRUPT, "epoch key of %zu bytes", key.len);
            break;
        }
        memcpy(r->cursor.b, key.ptr, key.len);
        r->cursor.b[key.len] = 0;
        r->cursor.len = key.len + 1;
        rc = look(s, key, kv_iter_value(it), b, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    *ret_done = !rc && !kv_iter_valid(it);
    kv_iter_free(it);
    if (!rc && kv_batch_count(b))
        rc = store_write_batch(s, b, false, e);
    kv_batch_free(b);
    return rc;
}
