/* SPDX-License-Identifier: Apache-2.0
 *
 * labels_query: store_labels: names, values, label sets and profile types.
 *
 * Three ways to an answer, cheapest first:
 *   services  what depends on service and type alone comes from one row per (service, type):
 *             profile types, service_name, the labels that follow from the type. The start page of
 *             every UI asks this, so it does not look at series at all.
 *   index     all names or all values ever, without matchers and time: a walk over label pairs.
 *   series    all else: each series that the selector means, with its labels and types.
 *
 * Time is compared by days, with the first and last day a series (or service) had data of a type.
 * These days do not change when data expire. Expired data are before the edge of all reads
 * (floors.h), which is stored per service and type. A series whose last day is before the day of
 * that edge is in no list. If any service has such an edge, lists without matchers and time
 * read series, too, since label pairs have no days.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/catalog/derived.h"
#include "common/store/query/match.h"
#include "common/store/state/floors.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define TEXT_MAX MIB

struct query {
    const struct store_labels_query *q;
    struct match m;
    struct arena *arena;
    uint32_t first_day, last_day;
    struct map_u64 edges;  /* scope << 16 | type -> the first day that is answered, where it is over
                           * first_day */
    struct map_str *seen;  /* canonical bytes or text, in the arena */
    VEC(struct str) found; /* the same, in order of finding */
    struct buf key;
};

static int full(struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "the answer does not fit the request's memory: set a limit or "
                   "ask for a shorter range");
}

static int add(struct query *x, struct str s, struct err *e)
{
    static char there;

    if (map_str_get(x->seen, s))
        return 0;
    struct str kept = arena_strdup(x->arena, s);
    if (!kept.ptr)
        return full(e);
    map_str_put(x->seen, kept, &there);
    vec_push(&x->found, kept);
    return 0;
}

/* ---- what a (labels, type) pair contributes ---- */

static struct str value_of(const struct labels *l, const struct match_type *t, struct str name)
{
    int d = derived_find(name);

    if (d < 0)
        return labels_get(l, name);
    if (d == DERIVED_SERVICE)
        return labels_get(l, SERVICE_LABEL);
    return derived_value((enum derived)d, t->id, &t->parts);
}

static int add_set(struct query *x, struct labels *set, struct err *e)
{
    buf_reset(&x->key);
    labels_encode(set, &x->key);
    return buf_ok(&x->key) ? add(x, buf_str(&x->key), e) : full(e);
}

static int add_projection(struct query *x, const struct labels *l, const struct match_type *t,
                          struct err *e)
{
    struct labels set = { 0 };
    int rc = 0;

    for (size_t i = 0; !rc && i < x->q->names_len; i++) {
        struct str value = value_of(l, t, x->q->names[i]);
        if (value.len)
            rc = labels_set(&set, x->arena, x->q->names[i], value, e);
    }
    return rc ? rc : add_set(x, &set, e);
}

/* All labels, those that follow from the type included. */
static int add_whole(struct query *x, const struct labels *l, const struct match_type *t,
                     struct err *e)
{
    struct labels set = { ARENA_ARRAY(x->arena, struct label, l->len + DERIVED_LABELS), 0 };

    if (!set.ptr)
        return full(e);
    for (size_t i = 0; i < l->len; i++)
        set.ptr[set.len++] = l->ptr[i];
    for (int d = 0; d < DERIVED_LABELS; d++) {
        struct str name = str_c(DERIVED_NAMES[d]), value = value_of(l, t, name);
        if (value.len)
            set.ptr[set.len++] = (struct label){ name, value };
    }
    int rc = labels_sort(&set, e);
    return rc ? rc : add_set(x, &set, e);
}

static int add_names(struct query *x, const struct labels *l, const struct match_type *t,
                     struct err *e)
{
    int rc = 0;

    for (size_t i = 0; !rc && i < l->len; i++)
        rc = add(x, l->ptr[i].name, e);
    for (int d = 0; !rc && d < DERIVED_LABELS; d++)
        if (value_of(l, t, str_c(DERIVED_NAMES[d])).len)
            rc = add(x, str_c(DERIVED_NAMES[d]), e);
    return rc;
}

static int contribute(struct query *x, const struct labels *l, const struct match_type *t,
                      struct err *e)
{
    struct arena_mark mark = arena_mark(x->arena);
    size_t before = x->found.len;
    struct str value;
    int rc = 0;

    switch (x->q->kind) {
    case STORE_NAMES:
        return add_names(x, l, t, e);
    case STORE_VALUES:
        value = value_of(l, t, x->q->name);
        return value.len ? add(x, value, e) : 0;
    case STORE_TYPES:
        return add(x, t->id, e);
    case STORE_SETS:
        rc = x->q->names_len ? add_projection(x, l, t, e) : add_whole(x, l, t, e);
        if (x->found.len == before)
            arena_rewind(x->arena, mark);
        return rc;
    }
    CHECK(false);
}

/* ---- what has expired ---- */

static int add_edge(struct query *x, struct str key, uint32_t end, struct err *e)
{
    struct member m = { .tenant = x->m.tenant,
                        .scope = get_u32be(key.ptr + 5),
                        .ptype = get_u16be(key.ptr + 9) };
    struct floors f;

    if (end / DAY_SLOTS <= x->first_day) /* what is answered may begin before, never later */
        return 0;
    if (floors_load_read(x->m.v->kv, x->m.v->snap, &m, &f, e))
        return e->code;
    uint32_t day = floors_lowest(&f) / DAY_SLOTS;
    if (day > x->first_day)
        (void)map_u64_put(&x->edges, (uint64_t)m.scope << 16 | m.ptype, day);
    return 0;
}

static int load_edges(struct query *x, struct err *e)
{
    struct key from, to;
    uint32_t end;
    int rc = 0;

    key_table(&from, KEY_FLOORS_END, x->m.tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it =
        kv_iter_new(x->m.v->kv, x->m.v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).len != KEY_ACTIVE_LEN || !key_u32_read(kv_iter_value(it), &end))
            rc = err_set(e, ERR_CORRUPT, "the end of retention of a service cannot be read");
        else
            rc = add_edge(x, kv_iter_key(it), end, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* Does the range have a day of which something may be answered? */
static bool is_active(const struct query *x, uint32_t scope, uint16_t ptype, struct days days)
{
    uint32_t edge = map_u64_get(&x->edges, (uint64_t)scope << 16 | ptype);
    uint32_t first = edge == MAP_U64_EMPTY ? x->first_day : edge;

    return first <= x->last_day && match_active(days, first, x->last_day);
}

/* ---- by service ---- */

static bool service_name(struct str name)
{
    int d = derived_find(name);
    return d >= 0 || str_eq(name, SERVICE_LABEL);
}

/* Does the answer depend on service and type alone? */
static bool by_service(const struct store_labels_query *q)
{
    for (size_t i = 0; q->selector && i < q->selector->len; i++)
        if (!service_name(q->selector->matchers[i].name))
            return false;
    switch (q->kind) {
    case STORE_NAMES:
        return false;
    case STORE_VALUES:
        return service_name(q->name);
    case STORE_TYPES:
        return true;
    case STORE_SETS:
        for (size_t i = 0; i < q->names_len; i++)
            if (!service_name(q->names[i]))
                return false;
        return q->names_len > 0;
    }
    CHECK(false);
}

/* 1, 0, or -1. */
static int service_allowed(const struct query *x, struct str service, struct err *e)
{
    const struct selector *s = x->q->selector;

    for (size_t i = 0; s && i < s->len; i++) {
        struct str name = s->matchers[i].name;
        if (!str_eq(name, SERVICE_LABEL) && derived_find(name) != DERIVED_SERVICE)
            continue;
        int yes = matcher_match(&s->matchers[i], service, e);
        if (yes <= 0)
            return yes;
    }
    return 1;
}

/* The service's name into x->key; *ret_yes: the selector allows it. */
static int read_service(struct query *x, uint32_t scope, struct buf *row, bool *ret_yes,
                        struct err *e)
{
    struct str name = STR_NULL;
    uint32_t epoch;
    struct key k;

    key_scope(&k, x->m.tenant, scope);
    int rc = kv_get(x->m.v->kv, x->m.v->snap, KV_META, key_str(&k), row, e);
    if (rc == ERR_NOT_FOUND)
        rc = err_set(e, ERR_CORRUPT, "service %u of tenant %u has no row", scope, x->m.tenant);
    if (!rc)
        rc = scope_row_read(buf_str(row), &epoch, &name, e);
    if (rc)
        return rc;
    int yes = service_allowed(x, name, e);
    *ret_yes = yes > 0;
    return yes < 0 ? e->code : 0;
}

struct service_at { /* the service that the walk has reached */
    uint32_t scope; /* 0: none yet */
    bool allowed;   /* by the selector */
    struct buf row;
};

static int on_activity(struct query *x, struct str key, struct str value, struct service_at *at,
                       struct err *e)
{
    struct days days;

    if (key.len != KEY_ACTIVE_LEN)
        return err_set(e, ERR_CORRUPT, "key of a service's activity has %zu bytes", key.len);
    if (get_u32be(key.ptr + 5) != at->scope) {
        at->scope = get_u32be(key.ptr + 5);
        if (read_service(x, at->scope, &at->row, &at->allowed, e))
            return e->code;
    }
    const struct match_type *t = match_type_by_number(&x->m, get_u16be(key.ptr + 9));
    if (days_read(value, &days, e))
        return e->code;
    if (!t || !at->allowed || !is_active(x, at->scope, t->number, days))
        return 0;
    struct label label = { SERVICE_LABEL, str_sub(buf_str(&at->row), 5, at->row.len) };
    struct labels l = { &label, 1 };
    return contribute(x, &l, t, e);
}

static int walk_services(struct query *x, struct err *e)
{
    struct service_at at = { 0 };
    struct key from, to;
    int rc = 0;

    key_table(&from, KEY_ACTIVE, x->m.tenant);
    to = from;
    key_end(&to);
    buf_init(&at.row, TEXT_MAX);
    struct kv_iter *it =
        kv_iter_new(x->m.v->kv, x->m.v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = on_activity(x, kv_iter_key(it), kv_iter_value(it), &at, e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_deinit(&at.row);
    return rc;
}

/* ---- by index ---- */

static bool by_index(const struct query *x)
{
    const struct store_labels_query *q = x->q;

    return (!q->selector || !q->selector->len) && !q->start_ms && !q->end_ms && !x->edges.len &&
           (q->kind == STORE_NAMES || q->kind == STORE_VALUES);
}

/* Names: one seek per name. Values of one name: a run. */
static int walk_pairs(struct query *x, struct err *e)
{
    bool names = x->q->kind == STORE_NAMES;
    struct buf from, to, name;
    struct str value;
    struct key k;
    int rc = 0;

    buf_init(&from, TEXT_MAX);
    buf_init(&to, TEXT_MAX);
    buf_init(&name, TEXT_MAX);
    key_table(&k, KEY_PAIR, x->m.tenant);
    bool ok =
        names ? buf_add_str(&from, key_str(&k)) : key_pair_name(&from, x->m.tenant, x->q->name);
    key_end(&k);
    ok = ok && buf_add_str(&to, names ? key_str(&k) : buf_str(&from));
    if (ok && !names)
        to.ptr[to.len - 1]++; /* the end mark 01 becomes 02 */
    struct kv_iter *it =
        kv_iter_new(x->m.v->kv, x->m.v->snap, KV_META, buf_str(&from), buf_str(&to));
    while (ok && !rc && kv_iter_valid(it)) {
        if (!key_pair_read(kv_iter_key(it), &name, &value)) {
            rc = err_set(e, ERR_CORRUPT, "key of a label pair cannot be read");
        } else if (names) {
            rc = add(x, buf_str(&name), e);
            ok = key_pair_name(&from, x->m.tenant, buf_str(&name));
            from.ptr[from.len - 1]++;
            kv_iter_seek(it, buf_str(&from));
        } else {
            rc = value.len ? add(x, value, e) : 0;
            kv_iter_next(it);
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    buf_deinit(&from);
    buf_deinit(&to);
    buf_deinit(&name);
    return rc;
}

/* The labels that follow from types have no pairs: those of types that any service has data of, for
 * deletes leave types behind. */
static int add_derived_names(struct query *x, struct err *e)
{
    const struct labels none = { 0 };
    VEC(bool) done = { 0 };
    struct key from, to;
    int rc = 0;

    vec_for (i, &x->m.types)
        vec_push(&done, false);
    key_table(&from, KEY_ACTIVE, x->m.tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it =
        kv_iter_new(x->m.v->kv, x->m.v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        if (kv_iter_key(it).len != KEY_ACTIVE_LEN)
            continue;
        const struct match_type *t =
            match_type_by_number(&x->m, get_u16be(kv_iter_key(it).ptr + 9));
        if (!t || done.ptr[t - x->m.types.ptr])
            continue;
        done.ptr[t - x->m.types.ptr] = true;
        rc = add_names(x, &none, t, e);
        if (!rc)
            rc = add(x, str_c(DERIVED_NAMES[DERIVED_SERVICE]), e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    vec_free(&done);
    return rc;
}

/* ---- by series ---- */

static int on_series(void *cookie, const struct match_series *s, struct err *e)
{
    struct query *x = cookie;
    struct arena_mark mark = arena_mark(x->arena);
    size_t before = x->found.len;
    struct labels l;
    int rc = labels_decode(s->labels, x->arena, &l, e);

    for (size_t i = 0; !rc && i < s->len; i++) {
        const struct match_type *t = match_type_by_number(&x->m, s->types[i].ptype);
        if (t && is_active(x, s->scope, t->number, s->types[i].days))
            rc = contribute(x, &l, t, e);
    }
    if (x->found.len == before)
        arena_rewind(x->arena, mark);
    return rc;
}

/* ---- the query ---- */

static int by_text(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static int finish(struct query *x, struct store_labels *ret, struct err *e)
{
    size_t n = x->found.len;
    struct labels set;

    if (n)
        qsort(x->found.ptr, n, sizeof(*x->found.ptr), by_text);
    ret->truncated = x->q->limit && n > x->q->limit;
    if (ret->truncated)
        n = x->q->limit;
    for (size_t i = 0; i < n; i++) {
        if (x->q->kind != STORE_SETS) {
            vec_push(&ret->values, x->found.ptr[i]);
            continue;
        }
        int rc = labels_decode(x->found.ptr[i], x->arena, &set, e);
        if (rc)
            return rc;
        vec_push(&ret->sets, set);
    }
    return 0;
}

static int run(struct query *x, struct store_view *v, struct err *e)
{
    const struct store_labels_query *q = x->q;
    int rc = match_open(&x->m, v, q->tenant, q->selector, x->arena, e);

    if (rc || !x->m.found || !x->m.types.len ||
        !match_days(q->start_ms, q->end_ms, &x->first_day, &x->last_day))
        return rc;
    if (load_edges(x, e))
        return e->code;
    /* Pairs and days of services still know what deletes took from their series. */
    bool masked = x->m.masks.at.len > 0;
    if (!masked && by_service(q))
        return walk_services(x, e);
    if (masked || !by_index(x))
        return match_each(&x->m, NULL, on_series, x, e);
    rc = walk_pairs(x, e);
    if (!rc && q->kind == STORE_NAMES)
        rc = add_derived_names(x, e);
    return rc;
}

void store_labels_deinit(struct store_labels *l)
{
    vec_free(&l->values);
    vec_free(&l->sets);
}

int store_labels(struct store_view *v, const struct store_labels_query *q, struct arena *a,
                 struct store_labels *ret, struct err *e)
{
    struct query x = { .q = q, .arena = a, .seen = map_str_new() };

    *ret = (struct store_labels){ 0 };
    buf_init(&x.key, TEXT_MAX);
    map_u64_init(&x.edges);
    int rc = run(&x, v, e);
    if (!rc)
        rc = finish(&x, ret, e);
    if (rc)
        store_labels_deinit(ret);
    match_close(&x.m);
    map_u64_deinit(&x.edges);
    map_str_free(x.seen);
    vec_free(&x.found);
    buf_deinit(&x.key);
    return rc;
}
