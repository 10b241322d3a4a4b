/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_span: which (column family, level, bucket) hold rows of a tenant or a service: found by two
 * seeks for each bucket that exists, whatever stands in it, since bucket, tenant and service lead
 * all keys. So a whole service goes by some hundred range deletes, however many rows it has.
 */
#include "common/base/wr.h"
#include "common/store/delete/purge.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

const struct purge_cf PURGE_CF[] = {
    { KV_FINE, 1 }, { KV_COARSE, 1 }, { KV_RU, 1 }, { KV_TL, 1 }, { KV_FN, 1 }, { KV_EXM, 0 },
};
static_assert(ARRAY_LEN(PURGE_CF) == PURGE_CFS, "the header counts them");

static void prefix(const struct purge_span *at, uint32_t tenant, uint32_t scope, struct key *k)
{
    char *p = k->b;

    if (at->head)
        *p++ = (char)at->lead;
    put_u32be(p, at->bucket);
    put_u32be(p + 4, tenant);
    put_u32be(p + 8, scope);
    k->len = at->head + (scope ? 12 : 8);
}

void purge_span_keys(const struct purge_span *at, uint32_t tenant, uint32_t scope,
                     struct key *ret_from, struct key *ret_to)
{
    prefix(at, tenant, scope, ret_from);
    *ret_to = *ret_from;
    key_end(ret_to);
}

void purge_span_step(struct purge_span *at)
{
    if (++at->bucket)
        return;
    at->end = !at->head || at->lead == UINT8_MAX;
    at->lead++;
}

/* Moves *at to what the key says, which is behind it. */
static bool read_head(struct str key, struct purge_span *at)
{
    if (key.len < at->head + 12)
        return false;
    if (at->head)
        at->lead = (uint8_t)key.ptr[0];
    at->bucket = get_u32be(key.ptr + at->head);
    return true;
}

int purge_next_span(struct kv *kv, const struct kv_snap *snap, uint32_t tenant, uint32_t scope,
                    struct purge_span *at, struct err *e)
{
    struct kv_iter *it = NULL;
    struct key k;
    int found = 0;

    while (!at->end && !found) {
        prefix(at, tenant, scope, &k);
        if (!it)
            it = kv_iter_new(kv, snap, at->cf, key_str(&k), STR_NULL);
        else
            kv_iter_seek(it, key_str(&k));
        if (!kv_iter_valid(it))
            break;
        struct str key = kv_iter_key(it);
        struct purge_span there = *at;
        if (!read_head(key, &there)) {
            found = -1;
            (void)err_set(e, ERR_CORRUPT, "key of %zu bytes in column family %d", key.len,
                          (int)at->cf);
        } else if (there.lead != at->lead || there.bucket != at->bucket) {
            *at = there; /* perhaps before our tenant: look again from its place */
        } else if (str_starts(key, key_str(&k))) {
            found = 1;
        } else {
            purge_span_step(at);
        }
    }
    if (it && !found && kv_iter_status(it, e))
        found = -1;
    kv_iter_free(it);
    return found;
}

/* ---- the phase ---- */

int purge_drop_span(struct purge_step *x, uint32_t scope, const struct purge_span *span,
                    struct err *e)
{
    struct key from, to;
    uint64_t bytes;

    purge_span_keys(span, x->t->tenant, scope, &from, &to);
    struct kv_range range = { key_str(&from), key_str(&to) };
    if (kv_sizes(x->s->kv, span->cf, &range, 1, &bytes, e))
        return e->code;
    kv_batch_del_range(x->b, span->cf, key_str(&from), key_str(&to));
    purge_touch(x, span->cf, span->lead, span->bucket);
    purge_count(x, 1, bytes);
    return 0;
}

/* All of one service in one column family; of a tenant: scope 0. */
static int drop_cf(struct purge_step *x, uint32_t scope, const struct purge_cf *cf, struct err *e)
{
    struct purge_span span = { .cf = cf->cf, .head = cf->head };
    int more = 0, rc = 0;

    while (!rc && !x->full &&
           (more = purge_next_span(x->s->kv, NULL, x->t->tenant, scope, &span, e)) > 0) {
        rc = purge_drop_span(x, scope, &span, e);
        purge_span_step(&span);
    }
    return rc ? rc : more < 0 ? e->code : 0;
}

int purge_wids(struct purge_step *x, struct err *e)
{
    static const struct purge_cf wid = { KV_WID, 0 };

    return drop_cf(x, 0, &wid, e);
}

int purge_ranges(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    bool tenant = x->t->kind == TOMB_TENANT;
    size_t scopes = tenant ? 1 : m->at.len, all = scopes * PURGE_CFS;
    size_t at = x->t->cursor.len == 4 ? get_u32be(x->t->cursor.ptr) : 0;
    char bytes[4];
    int rc = 0;

    for (; !rc && !x->full && at < all; at += !rc && !x->full)
        rc = drop_cf(x, tenant ? 0 : m->at.ptr[at / PURGE_CFS].scope, &PURGE_CF[at % PURGE_CFS], e);
    put_u32be(bytes, (uint32_t)at);
    buf_reset(&x->t->cursor);
    buf_add(&x->t->cursor, bytes, sizeof(bytes));
    x->permille = all ? (uint32_t)(at * 1000 / all) : 1000;
    *ret_done = !rc && !x->full;
    return rc;
}
