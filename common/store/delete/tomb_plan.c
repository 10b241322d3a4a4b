/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_plan: what a delete means: which kind it is, which services, series and types it names, and
 * its real bounds. Reads a view and changes nothing, so a dry run is a plan that is thrown away.
 *
 *   no matchers, any time                      TENANT
 *   only service_name, any time                SERVICES
 *   other labels, any time, all types          SERIES
 *   a range of time, or some types             RANGE
 *
 * Days. A label query over a range of time compares the first and last day with data. A RANGE takes
 * the whole days at either end away; a series that has none left is deleted like one of SERIES.
 */
#include <stdlib.h>

#include "common/base/size.h"
#include "common/store/delete/purge.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/query/match.h"
#include "common/store/state/floors.h"
#include "common/store/state/store_impl.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

#define ARENA_MAX  (256 * MIB)
#define NAME_BYTES MIB
#define MINUTE     12 /* slots: the finest node that members and roll-ups share */

struct planner {
    struct tomb_plan *p;
    struct store_view *v;
    const struct tomb_request *r;
    struct match m;
    bool service_only, ranged, count_only;
    VEC(struct tomb_series) series;
    uint32_t day_first, day_last; /* whole days that go */
};
struct tomb_series {
    uint32_t scope, ordinal;
    uint64_t id;
};

/* ---- services ---- */

static int scope_selected(const struct planner *x, struct str name, struct err *e)
{
    const struct selector *s = x->r->selector;

    for (size_t i = 0; s && i < s->len; i++) {
        int yes = tomb_by_service(&s->matchers[i]) ? matcher_match(&s->matchers[i], name, e) : 1;
        if (yes <= 0)
            return yes;
    }
    return 1;
}

static int add_scope(struct planner *x, struct str key, struct str row, struct err *e)
{
    struct tomb_scope scope = { .all = true };
    struct str name;
    uint32_t epoch;

    if (key.len != 9)
        return err_set(e, ERR_CORRUPT, "key of a service has %zu bytes", key.len);
    scope.scope = get_u32be(key.ptr + 5);
    if (masks_dead(&x->m.masks, scope.scope))
        return 0;
    int rc = scope_row_read(row, &epoch, &name, e);
    int yes = rc ? 0 : scope_selected(x, name, e);
    if (yes > 0)
        vec_push(&x->p->scopes, scope);
    return yes < 0 ? e->code : rc;
}

static int find_scopes(struct planner *x, struct err *e)
{
    struct key from, to;
    int rc = 0;

    key_table(&from, KEY_SCOPE, x->p->tenant);
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it))
        rc = add_scope(x, kv_iter_key(it), kv_iter_value(it), e);
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* ---- bounds ---- */

/* Widens the range to the nodes of one (service, type) at its edges. */
static void snap_to(struct tomb_plan *p, const struct floors *f)
{
    uint32_t at[2] = { p->from, p->to - 1 };

    for (int i = 0; i < 2; i++) {
        uint32_t base = floors_base(f, false, at[i]);
        uint32_t width = base == FLOORS_GONE ? MINUTE : MAX(LEVELS[base].node, MINUTE);
        if (i == 0)
            p->from -= p->from % width;
        else if (p->to != UINT32_MAX && p->to % width)
            p->to += width - p->to % width;
    }
}

static int snap_scope(struct planner *x, uint32_t scope, struct err *e)
{
    struct floors f = { 0 };
    struct key from, to;
    int rc = 0;

    snap_to(x->p, &f);
    key_floors(&from, x->p->tenant, scope, 0);
    from.len -= 2;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(x->v->kv, x->v->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = floors_read(kv_iter_value(it), &f, e);
        if (!rc)
            snap_to(x->p, &f);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

static int find_bounds(struct planner *x, struct err *e)
{
    struct tomb_plan *p = x->p;
    uint32_t from, to;

    p->from = x->r->from_ms ? MIN(slot_of_ms(x->r->from_ms), KEY_SLOT_MAX) : 0;
    p->to = UINT32_MAX;
    if (x->r->to_ms)
        p->to = MIN(slot_of_ms(x->r->to_ms + SLOT_MS - 1), KEY_SLOT_MAX);
    if (!x->ranged)
        return 0;
    if (p->from >= p->to)
        return err_set(e, ERR_INPUT, "the range to delete is empty: `from` must be before `until`");
    do {
        from = p->from;
        to = p->to;
        vec_for (i, &p->scopes)
            if (snap_scope(x, p->scopes.ptr[i].scope, e))
                return e->code;
    } while (from != p->from || to != p->to);
    return 0;
}

/* ---- series ---- */

static int too_many(struct err *e)
{
    return err_set(e, ERR_LIMIT,
                   "the delete names more than %d series: split it by labels, or delete whole "
                   "services",
                   TOMB_SERIES_MAX);
}

static bool has_type(const struct planner *x, const struct match_series *s)
{
    for (size_t i = 0; i < s->len; i++)
        if (match_type_by_number(&x->m, s->types[i].ptype))
            return true;
    return false;
}

static int on_series(void *cookie, const struct match_series *s, struct err *e)
{
    struct planner *x = cookie;
    struct tomb_series one = { s->scope, s->ordinal, s->id };

    if (!has_type(x, s))
        return 0;
    if (x->series.len == TOMB_SERIES_MAX)
        return too_many(e);
    vec_push(&x->series, one);
    for (size_t i = 0; x->p->kind == TOMB_SERIES && i < s->len; i++)
        vec_push(&x->p->gone, ((struct tomb_type){ s->ordinal, s->types[i].ptype }));
    return 0;
}

static int by_id(const void *a, const void *b)
{
    const struct tomb_series *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Matched series, by service. */
static int find_series(struct planner *x, struct err *e)
{
    int rc = match_each(&x->m, NULL, on_series, x, e);
    struct tomb_plan *p = x->p;

    if (!rc && x->series.len)
        qsort(x->series.ptr, x->series.len, sizeof(*x->series.ptr), by_id);
    for (size_t i = 0; !rc && i < x->series.len; i++) {
        const struct tomb_series *s = &x->series.ptr[i];
        if (!p->scopes.len || p->scopes.ptr[p->scopes.len - 1].scope != s->scope)
            vec_push(&p->scopes, ((struct tomb_scope){ .scope = s->scope }));
        struct tomb_scope *scope = &p->scopes.ptr[p->scopes.len - 1];
        vec_push(&scope->series, s->id);
        vec_push(&scope->ordinals, s->ordinal);
    }
    p->series = x->series.len;
    return rc;
}

/* ---- days ---- */

/* Removes the deleted days at either end; false: no day remains. */
static bool clip(const struct planner *x, struct days *d)
{
    bool first = d->first >= x->day_first && d->first <= x->day_last;
    bool last = d->last >= x->day_first && d->last <= x->day_last;

    if (x->day_first > x->day_last || (!first && !last))
        return true;
    if (first && last)
        return false;
    if (first)
        d->first = (uint16_t)(x->day_last + 1);
    else
        d->last = (uint16_t)(x->day_first - 1);
    return true;
}

static int on_days(void *cookie, const struct match_series *s, struct err *e)
{
    struct planner *x = cookie;

    for (size_t i = 0; i < s->len; i++) {
        struct tomb_days d = { .scope = s->scope,
                               .ordinal = s->ordinal,
                               .series = s->id,
                               .ptype = s->types[i].ptype,
                               .days = s->types[i].days };
        if (x->p->by_type && !match_type_by_number(&x->m, d.ptype))
            continue;
        d.gone = !clip(x, &d.days);
        if (!d.gone && d.days.first == s->types[i].days.first &&
            d.days.last == s->types[i].days.last)
            continue;
        d.left = (uint32_t)s->len;
        if (x->p->days.len == 4 * TOMB_SERIES_MAX)
            return too_many(e);
        vec_push(&x->p->days, d);
    }
    return 0;
}

static int find_days(struct planner *x, struct err *e)
{
    struct tomb_plan *p = x->p;

    x->day_first = (uint32_t)(((uint64_t)p->from + DAY_SLOTS - 1) / DAY_SLOTS);
    x->day_last = UINT16_MAX;
    if (p->to != UINT32_MAX) {
        if (p->to / DAY_SLOTS == 0)
            return 0;
        x->day_last = p->to / DAY_SLOTS - 1;
    }
    return match_each(&x->m, NULL, on_days, x, e);
}

/* ---- the whole ---- */

static void classify(struct planner *x)
{
    const struct selector *s = x->r->selector;
    size_t n = s ? s->len : 0;

    x->ranged = x->r->from_ms || x->r->to_ms;
    x->service_only = true;
    for (size_t i = 0; i < n; i++) {
        bool type = tomb_by_type(&s->matchers[i]);
        x->p->by_type |= type;
        x->service_only &= type || tomb_by_service(&s->matchers[i]);
    }
    if (x->ranged || x->p->by_type)
        x->p->kind = TOMB_RANGE;
    else if (!n)
        x->p->kind = TOMB_TENANT;
    else
        x->p->kind = x->service_only ? TOMB_SERVICES : TOMB_SERIES;
}

static int plan(struct planner *x, struct err *e)
{
    struct tomb_plan *p = x->p;
    int rc = match_open(&x->m, x->v, x->r->tenant, x->r->selector, p->arena, e);

    if (rc || !x->m.found)
        return rc;
    classify(x);
    p->tenant = x->m.tenant;
    if (p->kind != TOMB_TENANT && !x->m.types.len)
        return 0;
    for (size_t i = 0; p->by_type && i < x->m.types.len; i++)
        vec_push(&p->types, x->m.types.ptr[i].number);
    if (x->service_only) {
        rc = find_scopes(x, e);
        p->series = roaring_bitmap_get_cardinality(x->m.ordinals);
    } else {
        rc = find_series(x, e);
    }
    p->found = p->kind == TOMB_TENANT || p->scopes.len;
    if (!rc)
        rc = find_bounds(x, e);
    if (!rc && p->kind == TOMB_RANGE)
        rc = find_days(x, e);
    return rc;
}

int tomb_plan_make(struct tomb_plan *p, struct store_view *v, const struct tomb_request *r,
                   struct err *e)
{
    struct planner x = { .p = p, .v = v, .r = r };

    *p = (struct tomb_plan){ .arena = arena_new(ARENA_MAX) };
    int rc = plan(&x, e);
    match_close(&x.m);
    vec_free(&x.series);
    return rc;
}

void tomb_plan_free(struct tomb_plan *p)
{
    vec_for (i, &p->scopes) {
        vec_free(&p->scopes.ptr[i].series);
        vec_free(&p->scopes.ptr[i].ordinals);
    }
    vec_free(&p->scopes);
    vec_free(&p->types);
    vec_free(&p->days);
    vec_free(&p->gone);
    arena_free(p->arena);
    p->arena = NULL;
}

/* ---- estimates ---- */

/* Adds the bytes in files of the keys of a tenant, or of one service (scope > 0), in one column
 * family. */
static int size_bucketed(struct store *s, const struct purge_cf *family, uint32_t tenant,
                         uint32_t scope, uint64_t *sum, struct err *e)
{
    struct purge_span span = { .cf = family->cf, .head = family->head };
    struct key from, to;
    int more = 1;

    while ((more = purge_next_span(s->kv, NULL, tenant, scope, &span, e)) > 0) {
        uint64_t n = 0;
        purge_span_keys(&span, tenant, scope, &from, &to);
        struct kv_range range = { key_str(&from), key_str(&to) };
        if (kv_sizes(s->kv, family->cf, &range, 1, &n, e))
            return e->code;
        *sum += n;
        purge_span_step(&span);
    }
    return more < 0 ? e->code : 0;
}

static int size_scope(struct store *s, uint32_t tenant, uint32_t scope, uint64_t *sum,
                      struct err *e)
{
    for (size_t i = 0; i < PURGE_CFS; i++)
        if (size_bucketed(s, &PURGE_CF[i], tenant, scope, sum, e))
            return e->code;
    return 0;
}

int tomb_plan_size(struct store *s, const struct tomb_plan *p, uint64_t *ret, struct err *e)
{
    *ret = 0;
    if (p->kind == TOMB_TENANT)
        return size_scope(s, p->tenant, 0, ret, e);
    vec_for (i, &p->scopes)
        if (size_scope(s, p->tenant, p->scopes.ptr[i].scope, ret, e))
            return e->code;
    return 0;
}

static int check_request(const struct tomb_request *r, struct err *e)
{
    if (!r->id.len || r->id.len > TOMB_ID_MAX)
        return err_set(e, ERR_INPUT, "the id of a delete has %zu bytes: want 1 to %d", r->id.len,
                       TOMB_ID_MAX);
    if (r->what.len > TOMB_WHAT_MAX)
        return err_set(e, ERR_LIMIT, "the selector of a delete has %zu bytes, at most %d",
                       r->what.len, TOMB_WHAT_MAX);
    if (!r->tenant.len || r->tenant.len > STORE_NAME_MAX)
        return err_set(e, ERR_INPUT, "name of the tenant has %zu bytes: want 1 to %d",
                       r->tenant.len, STORE_NAME_MAX);
    if (r->to_ms && r->from_ms >= r->to_ms)
        return err_set(e, ERR_INPUT, "the range to delete is empty: `from` must be before `until`");
    return 0;
}

int tomb_plan_of(struct store_view *v, const struct tomb_request *r, struct tomb_plan *p,
                 struct tomb_result *ret, struct err *e)
{
    *p = (struct tomb_plan){ 0 };
    *ret = (struct tomb_result){ 0 };
    if (check_request(r, e))
        return e->code;
    int rc = tomb_plan_make(p, v, r, e);
    if (!rc && p->found)
        rc = tomb_plan_size(v->s, p, &ret->bytes_estimate, e);
    ret->kind = p->kind;
    ret->services = p->scopes.len;
    ret->series = p->found ? p->series : 0;
    ret->from_ms = p->from ? slot_to_ms(p->from) : 0;
    ret->to_ms = p->to && p->to != UINT32_MAX ? slot_to_ms(p->to) : 0;
    return rc;
}

int store_delete_plan(struct store_view *v, const struct tomb_request *r, struct tomb_result *ret,
                      struct err *e)
{
    struct tomb_plan p;
    int rc = tomb_plan_of(v, r, &p, ret, e);

    tomb_plan_free(&p);
    return rc;
}
