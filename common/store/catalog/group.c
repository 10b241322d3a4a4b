/* SPDX-License-Identifier: Apache-2.0
 *
 * group: gives series their groups, as their pushes are staged.
 *
 *   plan    groups_scope   loads the service's row, its rules and their groups             may fail
 *   apply   groups_assign  labels of the series less what the rule drops ── known? ──> its ordinal
 *                                                                    └─ new: the next one
 * All groups of a service are in memory (some hundreds), so applying reads nothing and cannot fail,
 * and a request that fails has left nothing: numbers are given out when rows are put.
 *
 * Which rule holds when, and what it drops: group_rules.c. What is on disk: group_load.c.
 *
 * Thread: the shard's.
 */
#include "common/store/catalog/group_impl.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/names.h"
#include "common/store/catalog/series.h"

#define ROW_MAX     MIB
#define LABEL_ARENA (64 * MIB)

static struct group_drop drop_default(void *cookie, struct str tenant)
{
    const struct groups *g = cookie;

    (void)tenant;
    return (struct group_drop){ g->drop.ptr, g->drop.len };
}

struct groups *groups_new(struct kv *kv, const struct groups_opts *o)
{
    struct groups *g = XNEW(struct groups);

    g->kv = kv;
    g->o = *o;
    if (!o->drop) {
        struct str rest = STR(GROUP_DROP), name;
        bool more = true;
        while (str_next(&rest, ',', &more, &name))
            vec_push(&g->drop, name);
        g->o.drop = drop_default;
        g->o.cookie = g;
    }
    g->o.rule_max = o->rule_max ? o->rule_max : GROUPS_PER_RULE_MAX;
    g->o.whole_after = o->whole_after ? o->whole_after : GROUP_WHOLE_AFTER;
    g->scopes = map_str_new();
    g->arena = arena_new(LABEL_ARENA);
    buf_init(&g->row, ROW_MAX);
    buf_init(&g->kept, ROW_MAX);
    return g;
}

static void free_text(struct str s)
{
    xfree((void *)(uintptr_t)s.ptr);
}

static void rule_deinit(struct rule *r)
{
    vec_for (i, &r->names)
        free_text(r->names.ptr[i]);
    vec_for (i, &r->labels)
        free_text(r->labels.ptr[i]);
    vec_free(&r->names);
    vec_free(&r->flags);
    vec_free(&r->labels);
    map_str_free(r->groups);
}

static void scope_free(struct group_scope *s)
{
    vec_for (i, &s->rules)
        rule_deinit(&s->rules.ptr[i]);
    vec_free(&s->rules);
    xfree(s);
}

static void free_scopes(struct groups *g)
{
    size_t pos = 0;
    struct str key;
    void *p;

    while (map_str_next(g->scopes, &pos, &key, &p)) {
        struct group_scope *s = p;
        scope_free(s);
    }
    map_str_free(g->scopes);
}

void groups_drop(struct groups *g)
{
    free_scopes(g);
    g->scopes = map_str_new();
    g->bytes = 0;
}

void groups_free(struct groups *g)
{
    if (!g)
        return;
    free_scopes(g);
    arena_free(g->arena);
    vec_free(&g->drop);
    buf_deinit(&g->row);
    buf_deinit(&g->kept);
    xfree(g);
}

void groups_resize(struct groups *g, size_t bytes_max)
{
    g->o.bytes_max = bytes_max;
}

void groups_trim(struct groups *g, uint64_t committed)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (g->bytes <= g->o.bytes_max)
        return;
    struct map_str *kept = map_str_new();
    g->bytes = 0;
    while (map_str_next(g->scopes, &pos, &key, &p)) {
        struct group_scope *s = p;
        /* What is dirty but in no batch is derived again from the same configuration. */
        if (s->seq <= committed) {
            scope_free(s);
            continue;
        }
        map_str_put(kept, str_n(s->key, sizeof(s->key)), s);
        g->bytes += s->bytes;
    }
    map_str_free(g->scopes);
    g->scopes = kept;
}

/* ---- services ---- */

static struct group_scope *scope_new(uint32_t tenant, uint32_t scope, const struct key *k)
{
    struct group_scope *s = XNEW(struct group_scope);

    CHECK(k->len == sizeof(s->key));
    memcpy(s->key, k->b, sizeof(s->key));
    s->tenant = tenant;
    s->scope = scope;
    s->g = (struct group_service){ .since = { GROUP_NEVER, GROUP_NEVER } };
    s->bytes = sizeof(*s) + 256;
    return s;
}

/* Loads the rows of s and adds s to the scopes, which own it then; frees s on failure. A service
 * that has data but no row is older than groups: its groups begin behind its data. */
static int scope_load(struct groups *g, struct group_scope *s, bool fresh, struct group_scope **ret,
                      struct err *e)
{
    int rc = fresh ? 0 : group_load(g, s, e);

    if (rc) {
        scope_free(s);
        return rc;
    }
    if (!s->g.rules)
        s->g.since[GROUP_BASE] = s->high;
    map_str_put(g->scopes, str_n(s->key, sizeof(s->key)), s);
    g->bytes += s->bytes;
    *ret = s;
    return 0;
}

int groups_scope(struct groups *g, const struct group_push *p, struct group_scope **ret,
                 struct err *e)
{
    struct group_drop want = g->o.drop(g->o.cookie, p->tenant_name);
    struct key k;

    key_rule(&k, p->tenant, p->scope);
    *ret = map_str_get(g->scopes, key_str(&k));
    if (!*ret && scope_load(g, scope_new(p->tenant, p->scope, &k), p->fresh, ret, e))
        return e->code;
    struct group_scope *s = *ret;
    group_put_off(s, p->now);
    if (s->compared && s->drop.names == want.names && s->drop.len == want.len)
        return 0;
    if (!s->rules.len || (s->rules.len < GROUP_RULES_MAX &&
                          !group_as_configured(&s->rules.ptr[s->rules.len - 1], want)))
        group_configure(g, s, want, p->now);
    s->drop = want;
    s->compared = true;
    return 0;
}

int groups_known(struct groups *g, uint32_t tenant, uint32_t scope, struct group_scope **ret,
                 struct err *e)
{
    struct key k;

    key_rule(&k, tenant, scope);
    *ret = map_str_get(g->scopes, key_str(&k));
    return *ret ? 0 : scope_load(g, scope_new(tenant, scope, &k), false, ret, e);
}

uint32_t groups_since(const struct group_scope *s, uint32_t dim)
{
    return s->rules.len ? s->g.since[dim] : GROUP_NEVER;
}

/* ---- series ---- */

/* Canonical bytes of the labels that the rule keeps, into g->kept. */
static void keep(struct groups *g, struct rule *r, struct str labels)
{
    struct labels l;
    struct err e;
    size_t n = 0;

    arena_reset(g->arena);
    CHECK(!labels_decode(labels, g->arena, &l, &e)); /* we have encoded them */
    for (size_t i = 0; i < l.len; i++) {
        int drop = -1;
        if (!str_eq(l.ptr[i].name, SERVICE_LABEL))
            for (size_t j = 0; drop < 0 && j < r->names.len; j++)
                if (group_name_drops(r->names.ptr[j], l.ptr[i].name))
                    drop = (int)j;
        if (drop < 0) {
            l.ptr[n++] = l.ptr[i];
        } else if (!(r->flags.ptr[drop] & GROUP_SEEN)) {
            r->flags.ptr[drop] |= GROUP_SEEN;
            r->dirty = true;
        }
    }
    l.len = n;
    buf_reset(&g->kept);
    labels_encode(&l, &g->kept);
    CHECK(buf_ok(&g->kept));
}

static uint32_t new_group(struct groups *g, struct group_scope *s, struct rule *r,
                          struct kv_batch *b)
{
    struct group_row row = { r->number, buf_str(&g->kept) };
    uint32_t ordinal = s->g.next++;
    size_t before = s->bytes;
    struct key k;

    group_add_group(s, r, buf_str(&g->kept), ordinal);
    g->bytes += s->bytes - before;
    s->dirty = true;
    group_row_put(&row, &g->row);
    key_group(&k, s->tenant, s->scope, GID(GROUP_BASE, ordinal));
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
    if (r->labels.len > g->o.whole_after && s->g.since[GROUP_WHOLE] == GROUP_NEVER)
        s->g.since[GROUP_WHOLE] =
            MAX(s->g.since[GROUP_BASE], (s->high + GROUP_NODE2 - 1) / GROUP_NODE2 * GROUP_NODE2);
    return ordinal;
}

static uint32_t find_group(struct groups *g, struct group_scope *s, struct rule *r,
                           struct str labels, struct kv_batch *b)
{
    for (int i = 0;; i++) {
        keep(g, r, labels);
        uintptr_t known = (uintptr_t)map_str_get(r->groups, buf_str(&g->kept));
        if (known)
            return (uint32_t)(known - 1);
        if (r->labels.len < r->full || i)
            return new_group(g, s, r, b);
        group_drop_more(g, s, r);
    }
}

static void put_rows(struct groups *g, struct group_scope *s, struct kv_batch *b)
{
    struct key k;

    vec_for (i, &s->rules) {
        struct rule *r = &s->rules.ptr[i];
        if (!r->dirty)
            continue;
        g->rule.since = r->since;
        g->rule.len = r->names.len;
        for (size_t j = 0; j < r->names.len; j++) {
            g->rule.names[j] = r->names.ptr[j];
            g->rule.flags[j] = r->flags.ptr[j];
        }
        group_rule_put(&g->rule, &g->row);
        key_rule_number(&k, s->tenant, s->scope, r->number);
        kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
        r->dirty = r->fresh = false;
    }
    if (s->dirty) {
        group_service_put(&s->g, &g->row);
        kv_batch_put(b, KV_META, str_n(s->key, sizeof(s->key)), buf_str(&g->row));
    }
    s->dirty = false;
}

static const struct group_of *of_rule(const struct group_of *at, size_t n, uint32_t rule)
{
    for (size_t i = n; i > 0; i--)
        if (at[i - 1].rule == rule)
            return &at[i - 1];
    return NULL;
}

static void add_of(struct groups *g, struct series *r, struct group_of of, struct kv_batch *b)
{
    struct key k;
    size_t at = r->groups.len;

    vec_push(&r->groups, of);
    for (; at && r->groups.ptr[at - 1].rule > of.rule; at--)
        r->groups.ptr[at] = r->groups.ptr[at - 1];
    r->groups.ptr[at] = of;
    group_of_put(r->groups.ptr, r->groups.len, &g->row);
    key_group_of(&k, r->tenant, r->scope, r->id);
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
}

uint64_t groups_assign(struct groups *g, struct group_scope *s, struct series *r, uint32_t slot,
                       uint64_t seq, struct kv_batch *b)
{
    struct rule *rule = group_rule_at(s, slot);

    CHECK(s->tenant == r->tenant && s->scope == r->scope);
    s->seq = seq;
    const struct group_of *known = of_rule(r->groups.ptr, r->groups.len, rule->number);
    if (known) {
        if (s->dirty)
            put_rows(g, s, b);
        s->high = MAX(s->high, slot + 1);
        return GID(GROUP_BASE, known->ordinal);
    }
    struct group_of of = { rule->number, find_group(g, s, rule, r->labels, b) };
    add_of(g, r, of, b);
    r->seq = seq;
    put_rows(g, s, b);
    s->high = MAX(s->high, slot + 1);
    return GID(GROUP_BASE, of.ordinal);
}

int groups_of(struct groups *g, const struct group_scope *s, const struct group_data *d,
              uint64_t *ret, struct err *e)
{
    struct group_of at[GROUP_RULES_MAX];
    const struct group_of *of = NULL;
    struct key k;
    size_t n;

    *ret = 0;
    if (!s->rules.len)
        return 0;
    uint32_t rule = group_rule_at(s, d->slot)->number;
    if (d->cached)
        of = of_rule(d->cached->groups.ptr, d->cached->groups.len, rule);
    if (!d->cached) {
        key_group_of(&k, s->tenant, s->scope, d->series);
        int rc = kv_get(g->kv, NULL, KV_META, key_str(&k), &g->row, e);
        if (rc)
            return rc == ERR_NOT_FOUND ? 0 : rc;
        if (group_of_read(buf_str(&g->row), at, &n, e))
            return e->code;
        of = of_rule(at, n, rule);
    }
    if (of)
        *ret = GID(GROUP_BASE, of->ordinal);
    return 0;
}
