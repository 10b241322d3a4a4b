/* SPDX-License-Identifier: Apache-2.0
 *
 * targets: finds what a query must read: series, or groups of series with the same roll-up.
 *
 * match.c gives the series of the selector one by one. Each gets the group of the answer that its
 * group_by labels name, and series of one service and type are kept next to each other, so that an
 * iterator reads them in one pass (scan.h). The number of groups is bounded by GROUPS_MAX, since
 * labels come from outside. targets_plan.c decides whether roll-ups answer the same.
 *
 * Thread: that of the query; everything lives in its arena or in `t`.
 */
#include "common/store/query/targets.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/catalog/derived.h"

#define GROUPS_MAX 1000000

/* ---- groups ---- */

static struct str group_value(const struct targets *t, const struct labels *l, struct str name)
{
    int d = derived_find(name);

    if (d < 0)
        return labels_get(l, name);
    if (d == DERIVED_SERVICE)
        return labels_get(l, SERVICE_LABEL);
    return derived_value((enum derived)d, t->type.id, &t->type.parts);
}

static int full(struct err *e)
{
    return err_set(e, ERR_LIMIT, "the groups of the answer do not fit the request's memory");
}

/* The group of a series: its values of the group_by labels that it has. */
static int find_group(struct targets *t, struct str labels, uint32_t *ret, struct err *e)
{
    struct labels l, group = { 0 };
    struct buf key;
    int rc = labels_decode(labels, t->arena, &l, e);

    for (size_t i = 0; !rc && i < t->group_by_len; i++) {
        struct str value = group_value(t, &l, t->group_by[i]);
        if (value.len)
            rc = labels_set(&group, t->arena, t->group_by[i], value, e);
    }
    if (rc)
        return rc;
    buf_init(&key, MIB);
    labels_encode(&group, &key);
    uintptr_t known = (uintptr_t)map_str_get(t->group_ids, buf_str(&key));
    if (!known) {
        struct str kept = arena_strdup(t->arena, buf_str(&key));
        rc = !kept.ptr || t->groups.len == GROUPS_MAX ? full(e)
                                                      : labels_decode(kept, t->arena, &group, e);
        if (!rc) {
            vec_push(&t->groups, group);
            known = t->groups.len;
            map_str_put(t->group_ids, kept, (void *)known);
        }
    }
    buf_deinit(&key);
    *ret = (uint32_t)known - 1;
    return rc;
}

/* Keeps what a new group needs; what only led to a known one is given back. */
int targets_group(struct targets *t, struct str labels, uint32_t *ret, struct err *e)
{
    struct arena_mark mark = arena_mark(t->arena);
    size_t before = t->groups.len;

    *ret = 0;
    if (!t->group_by_len)
        return 0;
    int rc = find_group(t, labels, ret, e);
    if (t->groups.len == before)
        arena_rewind(t->arena, mark);
    return rc;
}

/* ---- targets ---- */

static int on_series(void *cookie, const struct match_series *s, struct err *e)
{
    struct targets *t = cookie;
    struct target at = { .scope = s->scope, .id = s->id };

    for (size_t i = 0; i < s->len; i++) {
        if (s->types[i].ptype != t->type.number ||
            !match_active(s->types[i].days, t->first_day, t->last_day))
            continue;
        int rc = targets_group(t, s->labels, &at.group, e);
        if (!rc)
            vec_push(&t->at, at);
        return rc;
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct target *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* The type asked for, in its form of five parts; found if the tenant has it and it is allowed. */
static int find_type(struct targets *t, struct str id, struct err *e)
{
    char text[1024];
    struct buf five = { .ptr = text, .cap = sizeof(text), .max = sizeof(text) };
    struct ptype parts;

    if (ptype_parse(id, &parts, e))
        return err_wrap(e, "profile type");
    ptype_format(&parts, &five);
    const struct match_type *type =
        buf_ok(&five) ? match_type_by_id(&t->match, buf_str(&five)) : NULL;
    t->found = type != NULL;
    t->type.gauge = ptype_is_gauge(&parts);
    if (type)
        t->type = *type;
    return 0;
}

int targets_begin(struct targets *t, struct store_view *v, const struct targets_query *q,
                  bool *ret_any, struct err *e)
{
    *t = (struct targets){
        .group_by = q->group_by,
        .group_by_len = q->group_by_len,
        .arena = q->arena,
        .group_ids = map_str_new(),
        .selector = q->q->selector,
    };
    *ret_any = false;
    int rc = match_open_types(&t->match, v, q->q->tenant, q->q->selector, q->arena, e);
    if (!rc)
        rc = find_type(t, q->q->profile_type, e);
    if (rc || !t->found || !match_days(q->start_ms, q->end_ms, &t->first_day, &t->last_day))
        return rc;
    if (!q->group_by_len)
        vec_push(&t->groups, ((struct labels){ 0 }));
    *ret_any = true;
    return 0;
}

int targets_series(struct targets *t, const struct store_query *q, struct err *e)
{
    size_t first = t->at.len;
    int rc = match_each(&t->match, q->cancel, on_series, t, e);

    if (!rc && t->at.len > first)
        qsort(t->at.ptr + first, t->at.len - first, sizeof(*t->at.ptr), by_key);
    return rc;
}

int targets_open(struct targets *t, struct store_view *v, const struct targets_query *q,
                 struct err *e)
{
    bool any;
    int rc = targets_begin(t, v, q, &any, e);

    if (!rc && any)
        rc = match_open_series(&t->match, e);
    return rc || !any ? rc : targets_series(t, q->q, e);
}

void targets_close(struct targets *t)
{
    match_close(&t->match);
    map_str_free(t->group_ids);
    vec_free(&t->at);
    vec_free(&t->groups);
    vec_free(&t->ids);
    vec_free(&t->spans);
    vec_free(&t->services);
}

bool targets_next(struct targets *t, const struct store_query *q, size_t *at, struct scan *ret)
{
    if (*at >= t->at.len)
        return false;
    uint32_t scope = t->at.ptr[*at].scope;
    t->ids.len = 0;
    for (; *at < t->at.len && t->at.ptr[*at].scope == scope; ++*at)
        vec_push(&t->ids, t->at.ptr[*at].id);
    *ret = (struct scan){
        .v = t->match.v,
        .tenant = t->match.tenant,
        .scope = scope,
        .ptype = t->type.number,
        .series = t->ids.ptr,
        .len = t->ids.len,
        .cancel = q->cancel,
    };
    return true;
}

bool targets_part(struct targets *t, const struct store_query *q, size_t i,
                  struct targets_part *ret)
{
    if (i >= t->spans.len)
        return false;
    const struct target_span *s = &t->spans.ptr[i];
    t->ids.len = 0;
    for (size_t j = 0; j < s->len; j++)
        vec_push(&t->ids, t->at.ptr[s->first + j].id);
    *ret = (struct targets_part){
        .scan = {
            .v = t->match.v,
            .tenant = t->match.tenant,
            .scope = s->scope,
            .ptype = t->type.number,
            .series = t->ids.ptr,
            .len = t->ids.len,
            .cancel = q->cancel,
        },
        .base = s->first,
        .group = s->group,
        .all = s->all,
        .since = s->since,
        .until = s->until,
    };
    return true;
}

struct rollup_read targets_groups(const struct scan *c, rollup_fn fn, hot_fn hot, void *cookie)
{
    return (struct rollup_read){
        .v = c->v,
        .tenant = c->tenant,
        .scope = c->scope,
        .ptype = c->ptype,
        .gids = c->series,
        .len = c->len,
        .fn = fn,
        .hot = hot,
        .cookie = cookie,
        .cancel = c->cancel,
    };
}
