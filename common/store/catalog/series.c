/* SPDX-License-Identifier: Apache-2.0
 *
 * series: from labels to id and ordinal.
 *
 *   id = hash(labels) ── free? ──> take it          read: meta 30, then labels in meta 31
 *            │ other labels
 *            └──> id + 1 ...                        so equal labels always end at the same id
 *
 * The map is keyed by id, not by labels: a look-up hashes the labels (which the id needs anyway)
 * and compares them with those of the entry. Entries in a batch that is not committed stay in
 * memory.
 *
 * An id is never free again, not even when its series is deleted: probing must not end early.
 *
 * Thread: the shard's.
 */
#include "common/store/catalog/series.h"

#include "common/base/hash.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/catalog/group.h"
#include "common/store/catalog/postings.h"

#define VERSION 1
#define ROW_MAX (1 * MIB)

struct series_cache {
    struct kv *kv; /* borrowed */
    uint64_t hash_mask;
    struct map_str *map; /* meta key of the id -> struct series */
    size_t bytes, bytes_max;
    struct buf row;
    struct arena *arena; /* for decoding labels of new ones */
};

struct series_cache *series_cache_new(struct kv *kv, size_t bytes_max, uint64_t hash_mask)
{
    struct series_cache *c = XNEW(struct series_cache);

    c->kv = kv;
    c->bytes_max = bytes_max;
    c->hash_mask = hash_mask;
    c->map = map_str_new();
    c->arena = arena_new(4 * MIB);
    buf_init(&c->row, ROW_MAX);
    return c;
}

static void series_free(struct series *s)
{
    vec_free(&s->types);
    vec_free(&s->pairs);
    vec_free(&s->groups);
    xfree((void *)(uintptr_t)s->labels.ptr);
    xfree(s);
}

static void free_map(struct series_cache *c)
{
    size_t pos = 0;
    struct str key;
    void *p;

    while (map_str_next(c->map, &pos, &key, &p)) {
        struct series *s = p;
        series_free(s);
    }
    map_str_free(c->map);
}

void series_cache_drop(struct series_cache *c)
{
    free_map(c);
    c->map = map_str_new();
    c->bytes = 0;
}

void series_cache_free(struct series_cache *c)
{
    if (!c)
        return;
    free_map(c);
    arena_free(c->arena);
    buf_deinit(&c->row);
    xfree(c);
}

static size_t series_bytes(const struct series *s)
{
    return sizeof(*s) + s->labels.len + 64;
}

static struct series *add(struct series_cache *c, const struct key *key, uint32_t tenant,
                          uint32_t scope, uint64_t id, struct str labels)
{
    struct series *s = XNEW(struct series);

    CHECK(key->len == sizeof(s->key));
    memcpy(s->key, key->b, sizeof(s->key));
    s->tenant = tenant;
    s->scope = scope;
    s->id = id;
    s->labels = str_n(xmemdup(labels.ptr, labels.len), labels.len);
    map_str_put(c->map, str_n(s->key, sizeof(s->key)), s);
    c->bytes += series_bytes(s);
    return s;
}

static void forget(struct series_cache *c, struct series *s)
{
    map_str_del(c->map, str_n(s->key, sizeof(s->key)));
    c->bytes -= series_bytes(s);
    series_free(s);
}

void series_forget_reserved(struct series_cache *c, struct series *s)
{
    if (s->reserved)
        forget(c, s);
}

/* ---- rows ---- */

int series_row_read(struct str row, struct series_row *ret, struct err *e)
{
    if (row.len < 14 || row.ptr[0] != VERSION)
        return err_set(e, ERR_CORRUPT, "series row of %zu bytes is not one of version %d", row.len,
                       VERSION);
    ret->scope = get_u32be(row.ptr + 1);
    ret->id = get_u64be(row.ptr + 5);
    ret->labels = str_sub(row, 13, row.len);
    return 0;
}

int series_type_read(struct str key, struct str row, struct series_type *ret, struct err *e)
{
    if (key.len != KEY_ORD_TYPE_LEN)
        return err_set(e, ERR_CORRUPT, "key of a series type has %zu bytes", key.len);
    ret->ptype = get_u16be(key.ptr + KEY_ORD_LEN);
    return days_read(row, &ret->days, e);
}

static void put_type(const struct series *s, const struct series_type *t, struct kv_batch *b)
{
    char row[4];
    struct key k;

    put_u16be(row, t->days.first);
    put_u16be(row + 2, t->days.last);
    key_ord_type(&k, s->tenant, s->ordinal, t->ptype);
    kv_batch_put(b, KV_META, key_str(&k), str_n(row, sizeof(row)));
}

/* ---- finding ---- */

static int load_groups(struct series_cache *c, struct series *s, struct err *e)
{
    struct group_of at[GROUP_RULES_MAX];
    struct key k;
    size_t n;

    key_group_of(&k, s->tenant, s->scope, s->id);
    int rc = kv_get(c->kv, NULL, KV_META, key_str(&k), &c->row, e);
    if (rc == ERR_NOT_FOUND)
        return 0;
    if (!rc)
        rc = group_of_read(buf_str(&c->row), at, &n, e);
    for (size_t i = 0; !rc && i < n; i++)
        vec_push(&s->groups, at[i]);
    return rc;
}

struct stored { /* a series on disk */
    uint32_t tenant, ordinal;
    const struct key *id_key; /* in meta */
};

static int load_rows(struct series_cache *c, struct kv_iter *it, const struct stored *of,
                     struct series **ret, struct err *e)
{
    struct series_row r;
    struct series_type t;

    if (!kv_iter_valid(it) || kv_iter_key(it).len != KEY_ORD_LEN) {
        int rc = kv_iter_status(it, e);
        return rc ? rc : err_set(e, ERR_CORRUPT, "series %u has no labels", of->ordinal);
    }
    if (series_row_read(kv_iter_value(it), &r, e))
        return e->code;
    struct series *s = add(c, of->id_key, of->tenant, r.scope, r.id, r.labels);
    s->ordinal = of->ordinal;
    int rc = 0;
    for (kv_iter_next(it); !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = series_type_read(kv_iter_key(it), kv_iter_value(it), &t, e);
        if (!rc)
            vec_push(&s->types, t);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    if (!rc)
        rc = load_groups(c, s, e);
    if (rc) {
        forget(c, s);
        return rc;
    }
    *ret = s;
    return 0;
}

/* The series with this id from disk, or *ret NULL if the id is free or, *ret_retired, deleted. */
static int load(struct series_cache *c, uint32_t tenant, const struct key *id_key,
                struct series **ret, bool *ret_retired, struct err *e)
{
    uint32_t ordinal;
    struct key from, to;
    int rc = kv_get(c->kv, NULL, KV_META, key_str(id_key), &c->row, e);

    *ret = NULL;
    *ret_retired = false;
    if (rc == ERR_NOT_FOUND)
        return 0;
    if (rc)
        return rc;
    if (!key_u32_read(buf_str(&c->row), &ordinal))
        return err_set(e, ERR_CORRUPT, "ordinal of a series has %zu bytes", c->row.len);
    *ret_retired = ordinal == SERIES_RETIRED;
    if (*ret_retired)
        return 0;
    key_ord(&from, tenant, ordinal);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(c->kv, NULL, KV_META, key_str(&from), key_str(&to));
    rc = load_rows(c, it, &(struct stored){ tenant, ordinal, id_key }, ret, e);
    kv_iter_free(it);
    return rc;
}

static int reserve(struct series_cache *c, const struct series_want *w, const struct key *key,
                   uint64_t id, struct series **ret, struct err *e)
{
    struct tenant *t = w->tenant;
    struct labels labels;
    struct known_name *pair;
    VEC(struct known_name *) pairs = { 0 };

    if (t->next_ordinal >= UINT32_MAX - 65536)
        return err_set(e, ERR_LIMIT, "tenant %.*s has no number left for another series",
                       STR_ARG(t->name));
    arena_reset(c->arena);
    int rc = labels_decode(w->labels, c->arena, &labels, e);
    for (size_t i = 0; !rc && i < labels.len; i++) {
        rc = names_pair(w->names, t, labels.ptr[i].name, labels.ptr[i].value, &pair, e);
        if (!rc)
            vec_push(&pairs, pair);
    }
    if (rc) {
        vec_free(&pairs);
        return rc;
    }
    struct series *s = add(c, key, t->number, w->scope, id, w->labels);
    s->reserved = true;
    s->pairs.ptr = pairs.ptr;
    s->pairs.len = pairs.len;
    s->pairs.cap = pairs.cap;
    *ret = s;
    return 0;
}

int series_get(struct series_cache *c, const struct series_want *w, struct series **ret,
               struct err *e)
{
    const struct tenant *t = w->tenant;
    uint64_t id = hash64(w->labels.ptr, w->labels.len, t->seed) & c->hash_mask;
    bool retired;
    struct key key;

    for (;; id++) {
        key_series(&key, t->number, w->scope, id);
        struct series *s = map_str_get(c->map, key_str(&key));
        if (!s) {
            int rc = load(c, t->number, &key, &s, &retired, e);
            if (rc)
                return rc;
            if (retired)
                continue;
            if (!s)
                return reserve(c, w, &key, id, ret, e);
        }
        if (str_eq(s->labels, w->labels)) {
            *ret = s;
            return 0;
        }
    }
}

struct series *series_peek(struct series_cache *c, uint32_t tenant, uint32_t scope, uint64_t id)
{
    struct key key;

    key_series(&key, tenant, scope, id);
    return map_str_get(c->map, key_str(&key));
}

/* ---- emitting ---- */

void series_emit(struct series_cache *c, struct names *names, struct tenant *t, struct series *s,
                 uint64_t seq, struct kv_batch *b)
{
    struct key k, v;

    if (!s->reserved)
        return;
    s->reserved = false;
    s->seq = seq;
    s->ordinal = t->next_ordinal++;
    t->dirty = true;
    key_u32(&v, s->ordinal);
    kv_batch_put(b, KV_META, str_n(s->key, sizeof(s->key)), key_str(&v));
    buf_reset(&c->row);
    wr_u8(&c->row, VERSION);
    wr_u32be(&c->row, s->scope);
    wr_u64be(&c->row, s->id);
    buf_add_str(&c->row, s->labels);
    CHECK(buf_ok(&c->row));
    key_ord(&k, s->tenant, s->ordinal);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&c->row));
    vec_for (i, &s->pairs) {
        names_emit(names, s->pairs.ptr[i], seq, b);
        postings_add(c->kv, s->tenant, s->pairs.ptr[i]->number, s->ordinal, b);
    }
    vec_free(&s->pairs);
}

void series_touch(struct series *s, uint16_t ptype, uint16_t day, uint64_t seq, struct kv_batch *b)
{
    struct series_type *t = NULL;

    CHECK(!s->reserved);
    vec_for (i, &s->types) {
        if (s->types.ptr[i].ptype == ptype)
            t = &s->types.ptr[i];
    }
    if (t && t->days.first <= day && day <= t->days.last)
        return;
    if (!t) {
        vec_push(&s->types, ((struct series_type){ ptype, DAYS_NONE }));
        t = &s->types.ptr[s->types.len - 1];
    }
    t->days = days_add(t->days, day);
    s->seq = seq;
    put_type(s, t, b);
}

size_t series_cache_bytes(const struct series_cache *c)
{
    return c->bytes;
}

void series_cache_resize(struct series_cache *c, size_t bytes_max)
{
    c->bytes_max = bytes_max;
}

void series_cache_trim(struct series_cache *c, uint64_t committed)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (c->bytes <= c->bytes_max)
        return;
    struct map_str *kept = map_str_new();
    c->bytes = 0;
    while (map_str_next(c->map, &pos, &key, &p)) {
        struct series *s = p;
        CHECK(!s->reserved);
        if (s->seq <= committed) {
            series_free(s);
            continue;
        }
        map_str_put(kept, str_n(s->key, sizeof(s->key)), s);
        c->bytes += series_bytes(s);
    }
    map_str_free(c->map);
    c->map = kept;
}
