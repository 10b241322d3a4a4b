/* SPDX-License-Identifier: Apache-2.0
 *
 * targets_plan: groups of series instead of series, service by service.
 *
 *   no label is matched or grouped by         the whole service, from its `since` on;
 *                                             before that
 *   none that a rule dropped from a series    base groups with the right labels, from their `since`
 *                                             on; before that, and
 *   else                                      series
 *
 * A label that a rule drops but no series of the rule ever had is absent from all members, as a
 * selector that asks for it sees them. So the labels of a group tell for all its members whether
 * they match, and reading all groups that match, and nothing else, is exact.
 *
 * Series are looked up only where they are read: a service of ten thousand costs its groups.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/group.h"
#include "common/store/query/targets.h"
#include "common/store/state/view.h"
#include "common/store/store.h"

struct plan {
    struct targets *t;
    const struct store_query *q;
    struct kv *kv;
    const struct kv_snap *snap;
    uint32_t from, to; /* slots */
    struct group_rule *rule;
    struct buf row;
};

static bool is_label(struct str name)
{
    return derived_find(name) < 0 && !match_is_service(name);
}

/* Does the query look at labels beside the service? */
static bool uses_labels(const struct plan *p)
{
    const struct selector *s = p->t->match.selector;

    for (size_t i = 0; i < s->len; i++)
        if (is_label(s->matchers[i].name))
            return true;
    for (size_t i = 0; i < p->t->group_by_len; i++)
        if (is_label(p->t->group_by[i]))
            return true;
    return false;
}

static bool dropped(const struct group_rule *r, struct str name)
{
    int at = is_label(name) ? group_rule_drops(r, name) : -1;

    return at >= 0 && (r->flags[at] & GROUP_SEEN);
}

/* Do groups of this rule keep all that the query looks at? */
static bool keeps_all(const struct plan *p, const struct group_rule *r)
{
    const struct selector *s = p->t->match.selector;

    for (size_t i = 0; i < s->len; i++)
        if (dropped(r, s->matchers[i].name))
            return false;
    for (size_t i = 0; i < p->t->group_by_len; i++)
        if (dropped(r, p->t->group_by[i]))
            return false;
    return true;
}

static int check_rules(struct plan *p, uint32_t scope, uint32_t rules, bool *ret, struct err *e)
{
    struct key k;

    *ret = true;
    for (uint32_t i = 1; *ret && i <= rules; i++) {
        key_rule_number(&k, p->t->match.tenant, scope, i);
        int rc = kv_get(p->kv, p->snap, KV_META, key_str(&k), &p->row, e);
        if (rc == ERR_NOT_FOUND)
            return err_set(e, ERR_CORRUPT, "grouping rule %u of service %u has no row", i, scope);
        if (!rc)
            rc = group_rule_read(buf_str(&p->row), p->rule, e);
        if (rc)
            return rc;
        *ret = keeps_all(p, p->rule);
    }
    return 0;
}

/* ---- base groups ---- */

/* 1, 0, -1 */
static int group_matches(const struct plan *p, const struct labels *l, struct err *e)
{
    const struct selector *s = p->t->match.selector;

    for (size_t i = 0; i < s->len; i++) {
        if (!is_label(s->matchers[i].name))
            continue;
        int yes = matcher_match(&s->matchers[i], labels_get(l, s->matchers[i].name), e);
        if (yes <= 0)
            return yes;
    }
    return 1;
}

/* The target, if the group matches. */
static int add_group(struct plan *p, struct target_span *span, uint64_t gid, struct str labels,
                     struct err *e)
{
    struct arena_mark mark = arena_mark(p->t->arena);
    struct target at = { .scope = span->scope, .id = gid };
    struct labels l;

    if (labels_decode(labels, p->t->arena, &l, e))
        return e->code;
    int yes = group_matches(p, &l, e);
    arena_rewind(p->t->arena, mark);
    if (yes <= 0) {
        span->all = false;
        return yes < 0 ? e->code : 0;
    }
    if (targets_group(p->t, labels, &at.group, e))
        return e->code;
    vec_push(&p->t->at, at);
    span->len++;
    return 0;
}

static int add_base(struct plan *p, uint32_t scope, uint32_t since, uint32_t until, struct err *e)
{
    struct target_span span = { .scope = scope,
                                .since = since,
                                .until = until,
                                .group = true,
                                .all = true,
                                .first = p->t->at.len };
    struct group_row row;
    struct key from, to;
    int rc = 0;

    key_group(&from, p->t->match.tenant, scope, GID(GROUP_BASE, 0));
    key_group(&to, p->t->match.tenant, scope, GID(GROUP_BASE + 1, 0));
    struct kv_iter *it = kv_iter_new(p->kv, p->snap, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        rc = group_row_read(kv_iter_value(it), &row, e);
        if (!rc)
            rc = add_group(p, &span, get_u64be(key.ptr + key.len - 8), row.labels, e);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    if (!rc && span.len)
        vec_push(&p->t->spans, span);
    return rc;
}

static int add_whole(struct plan *p, uint32_t scope, struct str name, uint32_t since, struct err *e)
{
    struct target at = { .scope = scope, .id = GID(GROUP_WHOLE, 0) };
    struct target_span span = { .scope = scope,
                                .since = since,
                                .until = UINT32_MAX,
                                .group = true,
                                .all = true,
                                .first = p->t->at.len,
                                .len = 1 };
    struct label label = { SERVICE_LABEL, name };
    struct labels labels = { &label, 1 };

    buf_reset(&p->row);
    labels_encode(&labels, &p->row);
    int rc = targets_group(p->t, buf_str(&p->row), &at.group, e);
    if (rc)
        return rc;
    vec_push(&p->t->at, at);
    vec_push(&p->t->spans, span);
    return 0;
}

/* ---- services ---- */

/* Has the service data of the type on these days? */
static int active(struct plan *p, uint32_t scope, bool *ret, struct err *e)
{
    struct days d;
    struct key k;

    key_active(&k, p->t->match.tenant, scope, p->t->type.number);
    int rc = kv_get(p->kv, p->snap, KV_META, key_str(&k), &p->row, e);
    *ret = false;
    if (rc)
        return rc == ERR_NOT_FOUND ? 0 : rc;
    rc = days_read(buf_str(&p->row), &d, e);
    *ret = !rc && match_active(d, p->t->first_day, p->t->last_day);
    return rc;
}

static int add_members(struct plan *p, uint32_t scope, struct str name, uint32_t until,
                       struct err *e)
{
    struct target_service s = { scope, until, arena_strdup(p->t->arena, name) };

    if (!s.name.ptr)
        return err_set(e, ERR_LIMIT, "the services of the query do not fit the request's memory");
    vec_push(&p->t->services, s);
    return 0;
}

static int on_service(void *cookie, uint32_t scope, struct str name, struct err *e)
{
    struct plan *p = cookie;
    struct group_service g = { 0 };
    bool any, keep = false;

    int rc = active(p, scope, &any, e);
    if (rc || !any || masks_dead(&p->t->match.masks, scope))
        return rc;
    if (!p->q->members && !masks_members(&p->t->match.masks, scope))
        rc = group_service_get(p->kv, p->snap, p->t->match.tenant, scope, &g, e);
    if (!rc && g.rules)
        rc = check_rules(p, scope, g.rules, &keep, e);
    if (rc)
        return rc;
    uint32_t base = keep ? g.since[GROUP_BASE] : GROUP_NEVER;
    uint32_t whole = keep && !uses_labels(p) ? g.since[GROUP_WHOLE] : GROUP_NEVER;
    whole = MAX(whole, base);
    if (whole < p->to && add_whole(p, scope, name, whole, e))
        return e->code;
    if (base < whole && base < p->to && whole > p->from && add_base(p, scope, base, whole, e))
        return e->code;
    return base > p->from ? add_members(p, scope, name, base, e) : 0;
}

/* ---- series ---- */

static const struct target_service *find_service(const struct targets *t, uint32_t scope)
{
    size_t low = 0, high = t->services.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->services.ptr[mid].scope < scope)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->services.len && t->services.ptr[low].scope == scope ? &t->services.ptr[low]
                                                                        : NULL;
}

static int by_scope(const void *a, const void *b)
{
    const struct target_service *x = a, *y = b;

    return x->scope < y->scope ? -1 : x->scope > y->scope;
}

static int by_span(const void *a, const void *b)
{
    const struct target_span *x = a, *y = b;

    if (x->scope != y->scope)
        return x->scope < y->scope ? -1 : 1;
    return x->since < y->since ? -1 : x->since > y->since;
}

/* Spans of the series, which stand from `first` on in order of scope. */
static void add_spans(struct targets *t, size_t first)
{
    for (size_t i = first, end; i < t->at.len; i = end) {
        uint32_t scope = t->at.ptr[i].scope;
        for (end = i + 1; end < t->at.len && t->at.ptr[end].scope == scope;)
            end++;
        const struct target_service *s = find_service(t, scope);
        if (s)
            vec_push(&t->spans,
                     ((struct target_span){
                         .scope = scope, .until = s->until, .first = i, .len = end - i }));
    }
}

/* `fewer`: some services are read by groups alone. */
static int add_series(struct plan *p, bool fewer, struct err *e)
{
    struct targets *t = p->t;
    size_t first = t->at.len;
    int rc = match_open_series(&t->match, e);

    if (!rc && fewer) {
        struct str *names = ARENA_ARRAY(t->arena, struct str, t->services.len);
        if (!names)
            return err_set(e, ERR_LIMIT, "the services do not fit the request's memory");
        vec_for (i, &t->services)
            names[i] = t->services.ptr[i].name;
        rc = match_only_services(&t->match, names, t->services.len, e);
    }
    if (!rc)
        rc = targets_series(t, p->q, e);
    if (rc)
        return rc;
    qsort(t->services.ptr, t->services.len, sizeof(*t->services.ptr), by_scope);
    add_spans(t, first);
    return 0;
}

int targets_plan(struct targets *t, struct store_view *v, const struct targets_query *q,
                 struct err *e)
{
    struct plan p = { .t = t,
                      .q = q->q,
                      .kv = v->kv,
                      .snap = v->snap,
                      .from = slot_of_ms(q->start_ms),
                      .to = slot_of_ms(q->end_ms - 1) + 1 };
    bool any;
    int rc = targets_begin(t, v, q, &any, e);

    if (rc || !any)
        return rc;
    p.rule = XNEW(struct group_rule);
    buf_init(&p.row, MIB);
    rc = match_services(&t->match, on_service, &p, e);
    if (!rc && t->services.len)
        rc = add_series(&p, t->spans.len > 0, e);
    if (!rc && t->spans.len)
        qsort(t->spans.ptr, t->spans.len, sizeof(*t->spans.ptr), by_span);
    buf_deinit(&p.row);
    xfree(p.rule);
    return rc;
}
