/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_index: removes deleted series from the index.
 *
 *   labels     label rows of deleted services; those of single series are deleted by the batch of
 *              the delete itself
 *   postings   bits of dead ordinals. An ordinal without a label row is dead and stays dead, since
 *              an ordinal is assigned once: the dead ones of a tenant are all those below its next
 *              ordinal that have no label row
 *   pairs      label pairs whose postings are empty
 *   days       first and last day with data of services by type, computed from their series
 *   tables     all other rows of a tenant or service number, which is never used again
 *
 * The search runs while pushes are staged. What it found is checked again before it is changed, and
 * then no staged write is uncommitted.
 */
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/postings.h"
#include "common/store/delete/purge.h"
#include "common/store/dict/dict_rows.h"
#include "common/store/state/store_impl.h"
#include "common/store/store.h"

/* False: not quiet, and the step now asks for it. It counts what was so when the step began: what
 * the committer ends in the middle of it is newer than what the step has read. */
static bool be_quiet(struct purge_step *x)
{
    x->wants_quiet = !x->quiet;
    return !x->wants_quiet;
}

static void set_cursor(struct tomb *t, struct str key)
{
    buf_reset(&t->cursor);
    buf_add_str(&t->cursor, key);
}

/* Ends a walk: the next step begins where it stands. */
static int walked(struct purge_step *x, struct kv_iter *it, int rc, bool *ret_done, struct err *e)
{
    if (!rc)
        rc = kv_iter_status(it, e);
    if (!rc && kv_iter_valid(it))
        set_cursor(x->t, kv_iter_key(it));
    *ret_done = !rc && !kv_iter_valid(it);
    kv_iter_free(it);
    return rc;
}

/* An iterator over a meta table of the tenant, from the cursor on. */
static struct kv_iter *iterate(struct purge_step *x, enum key_table table)
{
    struct key from, to;

    key_table(&from, table, x->t->tenant);
    to = from;
    key_end(&to);
    return kv_iter_new(x->s->kv, NULL, KV_META,
                       x->t->cursor.len ? buf_str(&x->t->cursor) : key_str(&from), key_str(&to));
}

/* ---- labels ---- */

static int del_labels(struct purge_step *x, uint32_t ordinal, struct err *e)
{
    struct key from, to;

    key_ord(&from, x->t->tenant, ordinal);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).len == KEY_ORD_LEN)
            atomic_fetch_sub(&x->s->series_count, 1);
        purge_count(x, 1, kv_iter_key(it).len + kv_iter_value(it).len);
        kv_batch_del(x->b, KV_META, kv_iter_key(it));
    }
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int purge_labels(struct purge_step *x, bool *ret_done, struct err *e)
{
    struct kv_iter *it = iterate(x, KEY_SERIES);
    uint32_t ordinal;
    int rc = 0;

    for (; !rc && !x->full && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        bool dead = masks_dead(&x->t->masks, get_u32be(key.ptr + 5));
        if (dead && !key_u32_read(kv_iter_value(it), &ordinal))
            rc =
                err_set(e, ERR_CORRUPT, "ordinal of a series has %zu bytes", kv_iter_value(it).len);
        else if (dead && ordinal != SERIES_RETIRED)
            rc = del_labels(x, ordinal, e);
        else
            purge_count(x, 0, 0);
    }
    return walked(x, it, rc, ret_done, e);
}

/* ---- postings ---- */

/* Ordinals that have labels, from where the last step ended. */
static int find_alive(struct purge_step *x, struct err *e)
{
    struct purge *p = x->s->tombs->purge;
    struct tenant_row r;
    struct key k, to;
    int rc = 0;

    if (!p->ordinals) {
        key_tenant(&k, x->t->tenant);
        rc = kv_get(x->s->kv, NULL, KV_META, key_str(&k), &p->row, e);
        if (!rc)
            rc = tenant_row_read(buf_str(&p->row), &r, e);
        if (rc)
            return rc;
        p->ordinals = r.next_ordinal;
    }
    key_ord(&k, x->t->tenant, p->alive_at);
    key_ord(&to, x->t->tenant, p->ordinals);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&k), key_str(&to));
    for (; !x->full && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.len != KEY_ORD_LEN)
            continue;
        p->alive_at = get_u32be(key.ptr + 5);
        roaring_bitmap_add(p->alive, p->alive_at++);
        purge_count(x, 0, 0);
    }
    rc = kv_iter_status(it, e);
    p->alive_ready = !rc && !kv_iter_valid(it);
    kv_iter_free(it);
    return rc;
}

static bool dead(const struct purge *p, uint32_t ordinal)
{
    return ordinal < p->ordinals && !roaring_bitmap_contains(p->alive, ordinal);
}

/* Returns the chunk without its dead ordinals, or NULL in *ret_bits if it has no dead ordinal. */
static int live_chunk(const struct purge *p, struct str value, roaring_bitmap_t **ret_bits,
                      struct err *e)
{
    roaring_bitmap_t *bits = roaring_bitmap_portable_deserialize_safe(value.ptr, value.len);

    *ret_bits = NULL;
    if (!bits)
        return err_set(e, ERR_CORRUPT, "postings of %zu bytes cannot be read", value.len);
    roaring_bitmap_t *known = roaring_bitmap_copy(bits);
    roaring_bitmap_remove_range(known, p->ordinals, UINT32_MAX);
    roaring_bitmap_andnot_inplace(known, p->alive);
    if (!roaring_bitmap_is_empty(known)) {
        roaring_bitmap_andnot_inplace(bits, known);
        *ret_bits = bits;
    } else {
        roaring_bitmap_free(bits);
    }
    roaring_bitmap_free(known);
    return 0;
}

static void put_chunk(struct purge_step *x, struct str key, roaring_bitmap_t *bits)
{
    size_t n = roaring_bitmap_portable_size_in_bytes(bits);

    if (roaring_bitmap_is_empty(bits)) {
        kv_batch_del(x->b, KV_META, key);
        return;
    }
    char *row = xmalloc(n);
    CHECK(roaring_bitmap_portable_serialize(bits, row) == n);
    kv_batch_put(x->b, KV_META, key, str_n(row, n));
    xfree(row);
}

static int on_posting(struct purge_step *x, struct str key, struct str value, struct err *e)
{
    const struct purge *p = x->s->tombs->purge;
    roaring_bitmap_t *bits = NULL;

    if (key.len == KEY_POST_TAIL_LEN) {
        if (dead(p, get_u32be(key.ptr + KEY_POST_TAIL_LEN - 4)) && be_quiet(x))
            kv_batch_del(x->b, KV_META, key);
    } else if (live_chunk(p, value, &bits, e)) {
        return e->code;
    } else if (bits) {
        if (be_quiet(x))
            put_chunk(x, key, bits);
        roaring_bitmap_free(bits);
    }
    purge_count(x, 0, 0);
    return 0;
}

int purge_postings(struct purge_step *x, bool *ret_done, struct err *e)
{
    int rc = 0;

    if (!x->s->tombs->purge->alive_ready)
        return find_alive(x, e);
    struct kv_iter *it = iterate(x, KEY_POST);
    for (; !rc && !x->full && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        rc = on_posting(x, key, kv_iter_value(it), e);
        if (x->wants_quiet)
            break;
    }
    return walked(x, it, rc, ret_done, e);
}

/* ---- pairs ---- */

static int has_postings(struct purge_step *x, uint32_t pair, bool *ret, struct err *e)
{
    struct key from, to;

    key_post_pair(&from, x->t->tenant, pair);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    *ret = kv_iter_valid(it);
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int on_pair(struct purge_step *x, struct str key, struct str value, bool *ret_gone,
                   struct err *e)
{
    uint32_t pair;
    bool used;

    if (!key_u32_read(value, &pair))
        return err_set(e, ERR_CORRUPT, "number of a label pair has %zu bytes", value.len);
    if (has_postings(x, pair, &used, e))
        return e->code;
    if (!used && be_quiet(x)) {
        kv_batch_del(x->b, KV_META, key);
        *ret_gone = true;
    }
    purge_count(x, 0, 0);
    return 0;
}

int purge_pairs(struct purge_step *x, bool *ret_done, struct err *e)
{
    struct kv_iter *it = iterate(x, KEY_PAIR);
    bool gone = false;
    int rc = 0;

    for (; !rc && !x->full && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        rc = on_pair(x, key, kv_iter_value(it), &gone, e);
        if (x->wants_quiet)
            break;
    }
    rc = walked(x, it, rc, ret_done, e);
    if (gone)
        names_drop(x->s->names);
    return rc;
}

/* ---- days ---- */

static struct days *days_of(struct purge *p, uint32_t scope, uint16_t ptype)
{
    vec_for (i, &p->days)
        if (p->days.ptr[i].scope == scope && p->days.ptr[i].ptype == ptype)
            return &p->days.ptr[i].days;
    vec_push(&p->days, ((struct purge_days){ scope, ptype, DAYS_NONE }));
    return &p->days.ptr[p->days.len - 1].days;
}

static int add_series_days(struct purge_step *x, struct kv_iter *types, uint32_t scope,
                           uint32_t ordinal, struct err *e)
{
    struct series_type t;
    struct key k;

    key_ord(&k, x->t->tenant, ordinal);
    kv_iter_seek(types, key_str(&k));
    for (; kv_iter_valid(types) && str_starts(kv_iter_key(types), key_str(&k));
         kv_iter_next(types)) {
        if (kv_iter_key(types).len == KEY_ORD_LEN)
            continue;
        if (series_type_read(kv_iter_key(types), kv_iter_value(types), &t, e))
            return e->code;
        struct days *d = days_of(x->s->tombs->purge, scope, t.ptype);
        *d = days_add(days_add(*d, t.days.first), t.days.last);
    }
    return kv_iter_status(types, e);
}

static int add_scope_days(struct purge_step *x, uint32_t scope, struct err *e)
{
    struct key from, to, table, table_end;
    uint32_t ordinal;
    int rc = 0;

    key_series(&from, x->t->tenant, scope, 0);
    key_series(&to, x->t->tenant, scope, UINT64_MAX);
    key_table(&table, KEY_ORD, x->t->tenant);
    table_end = table;
    key_end(&table_end);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    struct kv_iter *types =
        kv_iter_new(x->s->kv, NULL, KV_META, key_str(&table), key_str(&table_end));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (!key_u32_read(kv_iter_value(it), &ordinal))
            rc =
                err_set(e, ERR_CORRUPT, "ordinal of a series has %zu bytes", kv_iter_value(it).len);
        else if (ordinal != SERIES_RETIRED)
            rc = add_series_days(x, types, scope, ordinal, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    kv_iter_free(types);
    return rc;
}

/* Writes the days of each type as the series of the service say; deletes the rows of types that no
 * series has. */
static int put_scope_days(struct purge_step *x, uint32_t scope, struct err *e)
{
    struct purge *p = x->s->tombs->purge;
    struct key from, to;
    char row[4];

    key_active(&from, x->t->tenant, scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.len != KEY_ACTIVE_LEN)
            continue;
        const struct days *d = days_of(p, scope, get_u16be(key.ptr + 9));
        put_u16be(row, d->first);
        put_u16be(row + 2, d->last);
        if (d->first > d->last)
            kv_batch_del(x->b, KV_META, key);
        else
            kv_batch_put(x->b, KV_META, key, str_n(row, sizeof(row)));
    }
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* Has a later delete rows of the service that are not purged? Days say where rows stand, too: rules
 * and dimensions of groups begin behind them. So they shrink with the last of the deletes. */
static bool masked_later(const struct purge_step *x, uint32_t scope)
{
    const struct tombs *all = x->s->tombs;

    vec_for (i, &all->at) {
        const struct tomb *t = all->at.ptr[i];
        if (t == x->t || t->tenant != x->t->tenant || t->state != TOMB_PURGING)
            continue;
        for (size_t j = 0; j < t->masks.at.len; j++)
            if (t->masks.at.ptr[j].scope == scope)
                return true;
    }
    return false;
}

int purge_days(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    size_t i = purge_mask_at(x->t);

    if (i < m->at.len && !be_quiet(x))
        return 0;
    if (i < m->at.len) {
        uint32_t scope = m->at.ptr[i].scope;
        if (!masked_later(x, scope)) {
            if (add_scope_days(x, scope, e) || put_scope_days(x, scope, e))
                return e->code;
            names_drop(x->s->names);
        }
        while (i < m->at.len && m->at.ptr[i].scope == scope)
            i++;
        purge_set_mask(x->t, i);
        x->full = true;
    }
    *ret_done = i >= m->at.len;
    return 0;
}

/* ---- tables ---- */

static void del_prefix(struct purge_step *x, const struct key *from)
{
    struct key to = *from;

    key_end(&to);
    kv_batch_del_range(x->b, KV_META, key_str(from), key_str(&to));
}

/* Nodes of the dictionaries below the prefix are no longer counted. */
static int uncount_nodes(struct purge_step *x, const struct key *from, struct err *e)
{
    struct dict_counts n;
    struct key to = *from;
    bool closed;
    int rc = 0;

    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->s->kv, NULL, KV_META, key_str(from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = dict_epoch_read(kv_iter_value(it), &closed, &n, e);
        if (!rc)
            atomic_fetch_sub(&x->s->dict_nodes, n.nodes - 1);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int del_scope_tables(struct purge_step *x, uint32_t scope, struct err *e)
{
    static const uint8_t tables[] = { KEY_SCOPE, KEY_EPOCH, KEY_DICT, KEY_ACTIVE, KEY_SERIES };
    struct key k;

    for (unsigned table = 0; table <= 0x5f; table++) {
        bool ours = table >= 0x50 || memchr(tables, (int)table, sizeof(tables));
        if (!ours)
            continue;
        key_table(&k, (enum key_table)table, x->t->tenant);
        put_u32be(k.b + k.len, scope);
        k.len += 4;
        if (table == KEY_EPOCH && uncount_nodes(x, &k, e))
            return e->code;
        del_prefix(x, &k);
    }
    purge_look_full(x);
    return 0;
}

static int del_tenant_tables(struct purge_step *x, struct err *e)
{
    struct key k;

    for (unsigned table = KEY_TENANT; table <= 0x7f; table++) {
        if ((table >= 0x40 && table < 0x50) || (table >= 0x60 && table < 0x70))
            continue; /* the log; deletes themselves */
        key_table(&k, (enum key_table)table, x->t->tenant);
        if (table == KEY_EPOCH && uncount_nodes(x, &k, e))
            return e->code;
        del_prefix(x, &k);
    }
    return 0;
}

int purge_tables(struct purge_step *x, bool *ret_done, struct err *e)
{
    const struct masks *m = &x->t->masks;
    size_t i = purge_mask_at(x->t);
    int rc = 0;

    if (x->t->kind == TOMB_TENANT) {
        rc = del_tenant_tables(x, e);
        *ret_done = !rc;
        return rc;
    }
    for (; !rc && !x->full && i < m->at.len; i++)
        rc = del_scope_tables(x, m->at.ptr[i].scope, e);
    purge_set_mask(x->t, i);
    *ret_done = !rc && i == m->at.len;
    return rc;
}
