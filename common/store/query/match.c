/* SPDX-License-Identifier: Apache-2.0
 *
 * match: selectors against the label index.
 *
 * Matchers come in two kinds. Those of labels that follow from the profile type (derived.h) choose
 * among the tenant's types, of which there are few. The others choose series: each distinct value
 * of the label is matched once, and the postings of the values that match are united. A matcher
 * that also matches "" means series without the label, too: then the postings of the values that do
 * *not* match are taken away from all. Between matchers sets are intersected.
 */
#include "common/store/query/match.h"

#include "common/base/mem.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/postings.h"
#include "common/store/state/view.h"
#include "common/store/store.h"
#include "common/sys/pool.h"

#define NAME_MAX_BYTES MIB
#define SEEK_AFTER     8 /* rows to skip before a seek is cheaper */

bool match_days(int64_t start_ms, int64_t end_ms, uint32_t *ret_first, uint32_t *ret_last)
{
    *ret_first = 0;
    *ret_last = UINT32_MAX;
    if (!start_ms && !end_ms)
        return true;
    if (end_ms <= start_ms || end_ms <= SLOT_EPOCH_MS)
        return false;
    *ret_first = slot_of_ms(start_ms) / DAY_SLOTS;
    *ret_last = slot_of_ms(end_ms - 1) / DAY_SLOTS;
    return true;
}

/* ---- tenant and types ---- */

static int get_meta(struct match *m, struct str key, struct buf *row, struct err *e)
{
    return kv_get(m->v->kv, m->v->snap, KV_META, key, row, e);
}

static int find_tenant(struct match *m, struct str name, struct err *e)
{
    struct tenant_row r;
    struct buf key, row;
    struct key k;

    buf_init(&key, NAME_MAX_BYTES);
    buf_init(&row, NAME_MAX_BYTES);
    int rc = key_tenant_name(&key, name) ? get_meta(m, buf_str(&key), &row, e) : ERR_NOT_FOUND;
    if (!rc && !key_u32_read(buf_str(&row), &m->tenant))
        rc = err_set(e, ERR_CORRUPT, "number of a tenant has %zu bytes", row.len);
    if (!rc) {
        key_tenant(&k, m->tenant);
        rc = get_meta(m, key_str(&k), &row, e);
        if (!rc)
            rc = tenant_row_read(buf_str(&row), &r, e);
        else if (rc == ERR_NOT_FOUND)
            rc = err_set(e, ERR_CORRUPT, "tenant %u has no row", m->tenant);
        m->found = !rc;
        m->next_ordinal = rc ? 0 : r.next_ordinal;
    }
    buf_deinit(&key);
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* 1, 0, or -1: do the derived matchers allow this type? */
static int type_allowed(const struct selector *s, const struct match_type *t, struct err *e)
{
    for (size_t i = 0; i < s->len; i++) {
        int d = derived_find(s->matchers[i].name);
        if (d < 0 || d == DERIVED_SERVICE)
            continue;
        int yes =
            matcher_match(&s->matchers[i], derived_value((enum derived)d, t->id, &t->parts), e);
        if (yes <= 0)
            return yes;
    }
    return 1;
}

static int add_type(struct match *m, const struct selector *s, struct str key, struct str value,
                    struct err *e)
{
    struct match_type t;
    struct str id;

    if (key.len != 7)
        return err_set(e, ERR_CORRUPT, "key of a profile type has %zu bytes", key.len);
    t.number = get_u16be(key.ptr + 5);
    if (ptype_row_read(value, &t.gauge, &id, e))
        return e->code;
    t.id = arena_strdup(m->arena, id);
    if (!t.id.ptr)
        return err_set(e, ERR_LIMIT, "profile types do not fit the request's memory");
    if (ptype_parse(t.id, &t.parts, e))
        return e->code;
    int yes = type_allowed(s, &t, e);
    if (yes > 0)
        vec_push(&m->types, t);
    return yes < 0 ? e->code : 0;
}

static int find_types(struct match *m, const struct selector *s, struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_table(&from, KEY_PTYPE, m->tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(m->v->kv, m->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = add_type(m, s, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

const struct match_type *match_type_by_id(const struct match *m, struct str id)
{
    vec_for (i, &m->types) {
        if (str_eq(m->types.ptr[i].id, id))
            return &m->types.ptr[i];
    }
    return NULL;
}

const struct match_type *match_type_by_number(const struct match *m, uint16_t number)
{
    size_t low = 0, high = m->types.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (m->types.ptr[mid].number < number)
            low = mid + 1;
        else
            high = mid;
    }
    return low < m->types.len && m->types.ptr[low].number == number ? &m->types.ptr[low] : NULL;
}

/* ---- series ---- */

static int add_pair(struct match *m, struct str pair, roaring_bitmap_t *to, struct err *e)
{
    uint32_t number;

    if (!key_u32_read(pair, &number))
        return err_set(e, ERR_CORRUPT, "number of a label pair has %zu bytes", pair.len);
    return postings_read(m->v->kv, m->v->snap, m->tenant, number, to, e);
}

/* Postings of one value, if there are any. */
static int add_value(struct match *m, struct str name, struct str value, roaring_bitmap_t *to,
                     struct err *e)
{
    struct buf key, row;

    buf_init(&key, NAME_MAX_BYTES);
    buf_init(&row, KIB);
    int rc = key_pair(&key, m->tenant, name, value) ? get_meta(m, buf_str(&key), &row, e)
                                                    : ERR_NOT_FOUND;
    if (!rc)
        rc = add_pair(m, buf_str(&row), to, e);
    buf_deinit(&key);
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

/* Postings of all values that match (or, with `invert`, do not). */
static int add_matching(struct match *m, const struct matcher *matcher, struct str name,
                        bool invert, roaring_bitmap_t *to, struct err *e)
{
    struct buf from, to_key;
    int rc = 0;

    buf_init(&from, NAME_MAX_BYTES);
    buf_init(&to_key, NAME_MAX_BYTES);
    if (!key_pair_name(&from, m->tenant, name))
        goto out; /* longer than any that is stored */
    buf_add_str(&to_key, buf_str(&from));
    to_key.ptr[to_key.len - 1]++; /* the end mark 01 becomes 02 */
    struct kv_iter *it =
        kv_iter_new(m->v->kv, m->v->snap, KV_META, buf_str(&from), buf_str(&to_key));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str value = str_sub(kv_iter_key(it), from.len, kv_iter_key(it).len);
        int yes = matcher_match(matcher, value, e);
        if (yes < 0)
            rc = e->code;
        else if ((yes > 0) != invert)
            rc = add_pair(m, kv_iter_value(it), to, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
out:
    buf_deinit(&from);
    buf_deinit(&to_key);
    return rc;
}

/* m->ordinals AND what the matcher allows. */
static int narrow(struct match *m, const struct matcher *matcher, struct err *e)
{
    struct str name =
        derived_find(matcher->name) == DERIVED_SERVICE ? SERVICE_LABEL : matcher->name;
    bool one = matcher->value.len && (matcher->op == MATCH_EQ || matcher->op == MATCH_NE);
    roaring_bitmap_t *set = roaring_bitmap_create();
    int empty = matcher_match(matcher, STR_NULL, e), rc = 0;

    if (empty < 0)
        rc = e->code;
    else if (one)
        rc = add_value(m, name, matcher->value, set, e);
    else
        rc = add_matching(m, matcher, name, empty, set, e);
    if (!rc && empty)
        roaring_bitmap_andnot_inplace(m->ordinals, set);
    else if (!rc)
        roaring_bitmap_and_inplace(m->ordinals, set);
    roaring_bitmap_free(set);
    return rc;
}

static int find_series(struct match *m, const struct selector *s, struct err *e)
{
    roaring_bitmap_add_range(m->ordinals, 0, m->next_ordinal);
    for (size_t i = 0; i < s->len; i++) {
        int d = derived_find(s->matchers[i].name);
        if (d >= 0 && d != DERIVED_SERVICE)
            continue;
        if (roaring_bitmap_is_empty(m->ordinals))
            break;
        int rc = narrow(m, &s->matchers[i], e);
        if (rc)
            return rc;
    }
    return 0;
}

int match_open_types(struct match *m, struct store_view *v, struct str tenant,
                     const struct selector *selector, struct arena *arena, struct err *e)
{
    static const struct selector all;

    *m = (struct match){ .v = v, .arena = arena, .ordinals = roaring_bitmap_create() };
    m->selector = selector ? selector : &all;
    int rc = find_tenant(m, tenant, e);
    if (!rc && m->found)
        rc = masks_load(&m->masks, v->kv, v->snap, m->tenant, e);
    if (!rc && m->found)
        rc = find_types(m, m->selector, e);
    return rc;
}

int match_open_series(struct match *m, struct err *e)
{
    return m->found && m->types.len ? find_series(m, m->selector, e) : 0;
}

int match_open(struct match *m, struct store_view *v, struct str tenant,
               const struct selector *selector, struct arena *arena, struct err *e)
{
    int rc = match_open_types(m, v, tenant, selector, arena, e);

    return rc ? rc : match_open_series(m, e);
}

void match_close(struct match *m)
{
    vec_free(&m->types);
    masks_deinit(&m->masks);
    if (m->ordinals)
        roaring_bitmap_free(m->ordinals);
    m->ordinals = NULL;
}

/* ---- services ---- */

bool match_is_service(struct str name)
{
    return str_eq(name, SERVICE_LABEL) || derived_find(name) == DERIVED_SERVICE;
}

/* 1, 0, or -1: do the matchers of the service's name allow it? */
static int service_allowed(const struct match *m, struct str name, struct err *e)
{
    for (size_t i = 0; i < m->selector->len; i++) {
        if (!match_is_service(m->selector->matchers[i].name))
            continue;
        int yes = matcher_match(&m->selector->matchers[i], name, e);
        if (yes <= 0)
            return yes;
    }
    return 1;
}

static int give_service(struct match *m, uint32_t scope, struct str name, match_service_fn fn,
                        void *cookie, struct err *e)
{
    int yes = service_allowed(m, name, e);

    if (yes <= 0)
        return yes < 0 ? e->code : 0;
    return fn(cookie, scope, name, e);
}

static int one_service(struct match *m, struct str name, match_service_fn fn, void *cookie,
                       struct err *e)
{
    uint32_t scope;
    struct buf key, row;

    buf_init(&key, NAME_MAX_BYTES);
    buf_init(&row, KIB);
    int rc = key_name(&key, KEY_SCOPE_NAME, m->tenant, name) ? get_meta(m, buf_str(&key), &row, e)
                                                             : ERR_NOT_FOUND;
    if (!rc && !key_u32_read(buf_str(&row), &scope))
        rc = err_set(e, ERR_CORRUPT, "number of a service has %zu bytes", row.len);
    if (!rc)
        rc = give_service(m, scope, name, fn, cookie, e);
    else if (rc == ERR_NOT_FOUND)
        rc = 0;
    buf_deinit(&key);
    buf_deinit(&row);
    return rc;
}

static int all_services(struct match *m, match_service_fn fn, void *cookie, struct err *e)
{
    struct key from, to;
    struct str name;
    uint32_t epoch;
    int rc = 0;

    key_table(&from, KEY_SCOPE, m->tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(m->v->kv, m->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        rc = scope_row_read(kv_iter_value(it), &epoch, &name, e);
        if (!rc)
            rc = give_service(m, get_u32be(key.ptr + key.len - 4), name, fn, cookie, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int match_services(struct match *m, match_service_fn fn, void *cookie, struct err *e)
{
    if (!m->found)
        return 0;
    for (size_t i = 0; i < m->selector->len; i++) {
        const struct matcher *x = &m->selector->matchers[i];
        if (x->op == MATCH_EQ && match_is_service(x->name))
            return one_service(m, x->value, fn, cookie, e);
    }
    return all_services(m, fn, cookie, e);
}

int match_only_services(struct match *m, const struct str *names, size_t n, struct err *e)
{
    roaring_bitmap_t *set = roaring_bitmap_create();
    int rc = 0;

    for (size_t i = 0; !rc && i < n; i++)
        rc = add_value(m, SERVICE_LABEL, names[i], set, e);
    if (!rc)
        roaring_bitmap_and_inplace(m->ordinals, set);
    roaring_bitmap_free(set);
    return rc;
}

/* ---- rows of series ---- */

struct each {
    struct match *m;
    struct kv_iter *it;
    struct buf labels;
    VEC(struct series_type) types;
};

static uint32_t key_ordinal(struct str key)
{
    return key.len >= KEY_ORD_LEN ? get_u32be(key.ptr + 5) : 0;
}

/* Moves to the first row of the ordinal; false if it has none. */
static bool seek_ordinal(struct each *x, uint32_t ordinal)
{
    struct key k;

    for (int i = 0; i < SEEK_AFTER; i++, kv_iter_next(x->it)) {
        if (!kv_iter_valid(x->it))
            return false;
        if (key_ordinal(kv_iter_key(x->it)) >= ordinal)
            return key_ordinal(kv_iter_key(x->it)) == ordinal;
    }
    key_ord(&k, x->m->tenant, ordinal);
    kv_iter_seek(x->it, key_str(&k));
    return kv_iter_valid(x->it) && key_ordinal(kv_iter_key(x->it)) == ordinal;
}

/* The rows of the ordinal the iterator stands on, and a call of fn. */
static int read_series(struct each *x, uint32_t ordinal, match_fn fn, void *cookie, struct err *e)
{
    struct match_series s = { .ordinal = ordinal };
    struct series_row r;
    struct series_type t;

    if (kv_iter_key(x->it).len != KEY_ORD_LEN)
        return err_set(e, ERR_CORRUPT, "series %u has no labels", ordinal);
    if (series_row_read(kv_iter_value(x->it), &r, e))
        return e->code;
    buf_reset(&x->labels);
    buf_add_str(&x->labels, r.labels);
    x->types.len = 0;
    for (kv_iter_next(x->it); kv_iter_valid(x->it); kv_iter_next(x->it)) {
        if (key_ordinal(kv_iter_key(x->it)) != ordinal)
            break;
        if (series_type_read(kv_iter_key(x->it), kv_iter_value(x->it), &t, e))
            return e->code;
        vec_push(&x->types, t);
    }
    if (masks_dead(&x->m->masks, r.scope))
        return 0;
    s.scope = r.scope;
    s.id = r.id;
    s.labels = buf_str(&x->labels);
    s.types = x->types.ptr;
    s.len = x->types.len;
    return fn(cookie, &s, e);
}

int match_each(struct match *m, const atomic_bool *cancel, match_fn fn, void *cookie, struct err *e)
{
    struct each x = { .m = m };
    roaring_uint32_iterator_t at;
    struct key from, to;
    int rc = 0;

    if (!m->found || roaring_bitmap_is_empty(m->ordinals))
        return 0;
    key_ord(&from, m->tenant, roaring_bitmap_minimum(m->ordinals));
    key_table(&to, KEY_ORD, m->tenant);
    key_end(&to);
    buf_init(&x.labels, NAME_MAX_BYTES);
    x.it = kv_iter_new(m->v->kv, m->v->snap, KV_META, key_str(&from), key_str(&to));
    roaring_init_iterator(m->ordinals, &at);
    for (; !rc && at.has_value; roaring_advance_uint32_iterator(&at)) {
        rc = store_check_canceled(cancel, e);
        if (!rc && seek_ordinal(&x, at.current_value))
            rc = read_series(&x, at.current_value, fn, cookie, e);
    }
    if (!rc)
        rc = kv_iter_status(x.it, e);
    kv_iter_free(x.it);
    buf_deinit(&x.labels);
    vec_free(&x.types);
    return rc;
}
