/* SPDX-License-Identifier: Apache-2.0
 *
 * group: gives series their groups, as their pushes are staged.
 *
 *   plan    groups_scope   loads the service's row, its rule and the groups of that rule   may fail
 *   apply   groups_assign  labels of the series less what the rule drops ── known? ──> its ordinal
 *                                                                    └─ new: the next one
 * All of a rule's groups are in memory (at most GROUPS_PER_RULE_MAX), so applying reads nothing and
 * cannot fail, and a request that fails has left nothing: numbers are given out when rows are put.
 *
 * A rule is what is configured and what had to be dropped beside it. It changes, and groups begin
 * anew, when the configuration does, or when its groups become too many: then the kept label with
 * the most values is dropped, too. Old groups stay what they were.
 *
 * What is staged may be lost by a power cut while a seal that came later survives (their batches
 * come from two threads, in any order). So a seal never looks at what is only staged:
 * groups_of_series. And the whole service becomes a group from a slot on behind all that was ever
 * staged, so that no sealed row behind it can have missed its roll-up.
 *
 * Thread: the shard's.
 */
#include "common/store/group.h"

#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/derived.h"
#include "common/store/names.h"
#include "common/store/series.h"

#define ROW_MAX     MIB
#define LABEL_ARENA (16 * MIB)
#define NODE2       120u /* slots of a node of level 2: a dimension begins with one */
static_assert(DAY_SLOTS % NODE2 == 0, "a day is whole nodes of level 2");

struct group_scope {
    uint32_t tenant, scope;
    char key[9]; /* of the row */
    struct group_service g;
    VEC(struct str) names; /* owned; of the rule in force */
    VEC(uint8_t) flags;
    struct group_drop seen_drop; /* the configuration it was compared with */
    struct map_str *groups;      /* labels -> ordinal + 1 */
    VEC(struct str) labels;      /* owned: keys of groups */
    uint32_t high;               /* no data in this slot or behind it */
    bool rule_dirty, dirty;      /* rows on disk are behind */
    uint64_t seq;
    size_t bytes;
};
struct groups {
    struct kv *kv;
    struct groups_opts o;
    struct map_str *scopes; /* key -> struct group_scope */
    size_t bytes;
    struct arena *arena; /* of one series' labels */
    struct buf row, kept;
    struct group_rule rule; /* room for reading and writing one */
};

static struct group_drop drop_default(void *cookie, struct str tenant)
{
    (void)cookie;
    (void)tenant;
    return (struct group_drop){ GROUP_DROP, GROUP_DROP_LEN };
}

struct groups *groups_new(struct kv *kv, const struct groups_opts *o)
{
    struct groups *g = XNEW(struct groups);

    g->kv = kv;
    g->o = *o;
    g->o.drop = o->drop ? o->drop : drop_default;
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

static struct str own(struct str s)
{
    return str_n(xmemdup(s.ptr, s.len), s.len);
}

static void forget_groups(struct group_scope *s)
{
    vec_for (i, &s->labels)
        free_text(s->labels.ptr[i]);
    s->labels.len = 0;
    map_str_free(s->groups);
    s->groups = map_str_new();
}

static void scope_free(struct group_scope *s)
{
    vec_for (i, &s->names)
        free_text(s->names.ptr[i]);
    vec_for (i, &s->labels)
        free_text(s->labels.ptr[i]);
    vec_free(&s->names);
    vec_free(&s->flags);
    vec_free(&s->labels);
    map_str_free(s->groups);
    xfree(s);
}

void groups_free(struct groups *g)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (!g)
        return;
    while (map_str_next(g->scopes, &pos, &key, &p))
        scope_free(p);
    map_str_free(g->scopes);
    arena_free(g->arena);
    buf_deinit(&g->row);
    buf_deinit(&g->kept);
    xfree(g);
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

/* ---- loading ---- */

static void add_name(struct group_scope *s, struct str name, uint8_t flags)
{
    vec_push(&s->names, own(name));
    vec_push(&s->flags, flags);
    s->bytes += name.len + sizeof(name) + 1;
}

static void add_group(struct group_scope *s, struct str labels, uint32_t ordinal)
{
    struct str kept = own(labels);

    vec_push(&s->labels, kept);
    map_str_put(s->groups, kept, (void *)((uintptr_t)ordinal + 1));
    s->bytes += labels.len + 64;
}

static int load_rule(struct groups *g, struct group_scope *s, struct err *e)
{
    struct key k;

    key_rule_number(&k, s->tenant, s->scope, s->g.rule);
    int rc = kv_get(g->kv, NULL, KV_META, key_str(&k), &g->row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT, "grouping rule %u of service %u has no row", s->g.rule,
                       s->scope);
    if (!rc)
        rc = group_rule_read(buf_str(&g->row), &g->rule, e);
    for (size_t i = 0; !rc && i < g->rule.len; i++)
        add_name(s, g->rule.names[i], g->rule.flags[i]);
    return rc;
}

static int load_groups(struct groups *g, struct group_scope *s, struct err *e)
{
    struct group_row row;
    struct key from, to;
    int rc = 0;

    key_group(&from, s->tenant, s->scope, GID(GROUP_BASE, 0));
    key_group(&to, s->tenant, s->scope, GID(GROUP_BASE + 1, 0));
    struct kv_iter *it = kv_iter_new(g->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = group_row_read(kv_iter_value(it), &row, e);
        if (!rc && row.rule == s->g.rule)
            add_group(s, row.labels, get_u32be(kv_iter_key(it).ptr + kv_iter_key(it).len - 4));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* The first slot of the day after the last one that had data, as far as committed. */
static int load_high(struct groups *g, struct group_scope *s, struct err *e)
{
    struct key from, to;
    struct days d;
    int rc = 0;

    key_table(&from, KEY_ACTIVE, s->tenant);
    put_u32be(from.b + from.len, s->scope);
    from.len += 4;
    to = from;
    key_end(&to);
    struct kv_iter *it = kv_iter_new(g->kv, NULL, KV_META, key_str(&from), key_str(&to));
    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        rc = days_read(kv_iter_value(it), &d, e);
        if (!rc && d.first <= d.last)
            s->high = MAX(s->high, ((uint32_t)d.last + 1) * DAY_SLOTS);
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

/* What is on disk; `high` must be set already. */
static int load(struct groups *g, struct group_scope *s, struct err *e)
{
    if (group_service_get(g->kv, NULL, s->tenant, s->scope, &s->g, e))
        return e->code;
    if (!s->g.rule)
        return 0;
    return load_rule(g, s, e) ? e->code : load_groups(g, s, e);
}

/* ---- rules ---- */

static int find_name(const struct group_scope *s, struct str name)
{
    vec_for (i, &s->names) {
        if (str_eq(s->names.ptr[i], name))
            return (int)i;
    }
    return -1;
}

static void next_rule(struct group_scope *s)
{
    s->g.rule++;
    forget_groups(s);
    vec_for (i, &s->flags)
        s->flags.ptr[i] &= (uint8_t)~GROUP_SEEN;
    s->rule_dirty = s->dirty = true;
}

static bool can_drop(struct str name)
{
    return name.len && name.len <= GROUP_NAME_MAX && !str_eq(name, SERVICE_LABEL);
}

/* Is the rule in force what is configured, beside what had to be dropped? */
static bool as_configured(const struct group_scope *s, struct group_drop want)
{
    size_t have = 0, wanted = 0;

    vec_for (i, &s->flags)
        have += !(s->flags.ptr[i] & GROUP_VARIED);
    for (size_t i = 0; i < want.len && wanted < GROUP_NAMES_MAX / 2; i++) {
        if (!can_drop(want.names[i]))
            continue;
        wanted++;
        int at = find_name(s, want.names[i]);
        if (at < 0 || (s->flags.ptr[at] & GROUP_VARIED))
            return false;
    }
    return have == wanted;
}

/* Half of the names may be configured, the rest is for what turns out to vary. */
static void configure(struct group_scope *s, struct group_drop want)
{
    size_t kept = 0;

    vec_for (i, &s->names) {
        if (!(s->flags.ptr[i] & GROUP_VARIED)) {
            free_text(s->names.ptr[i]);
            continue;
        }
        s->names.ptr[kept] = s->names.ptr[i];
        s->flags.ptr[kept++] = s->flags.ptr[i];
    }
    s->names.len = s->flags.len = kept;
    size_t n = 0;
    for (size_t i = 0; i < want.len && n < GROUP_NAMES_MAX / 2; i++) {
        if (!can_drop(want.names[i]))
            continue;
        n++;
        int at = find_name(s, want.names[i]);
        if (at >= 0)
            s->flags.ptr[at] &= (uint8_t)~GROUP_VARIED;
        else
            add_name(s, want.names[i], 0);
    }
    next_rule(s);
}

/* The kept label with the most values among the groups; one that is absent has one, too. */
struct varied {
    struct str name, value;
};

static int by_name_value(const void *a, const void *b)
{
    const struct varied *x = a, *y = b;
    int d = str_cmp(x->name, y->name);
    return d ? d : str_cmp(x->value, y->value);
}

static struct str most_varied(struct groups *g, const struct group_scope *s)
{
    VEC(struct varied) all = { 0 };
    struct str best = STR("*");
    size_t most = 0;
    struct labels l;
    struct err e;

    arena_reset(g->arena);
    vec_for (i, &s->labels) {
        CHECK(!labels_decode(s->labels.ptr[i], g->arena, &l, &e));
        for (size_t j = 0; j < l.len; j++)
            vec_push(&all, ((struct varied){ l.ptr[j].name, l.ptr[j].value }));
    }
    if (all.len)
        qsort(all.ptr, all.len, sizeof(*all.ptr), by_name_value);
    for (size_t i = 0, end; i < all.len; i = end) {
        size_t values = 1;
        for (end = i + 1; end < all.len && str_eq(all.ptr[end].name, all.ptr[i].name); end++)
            values += !str_eq(all.ptr[end].value, all.ptr[end - 1].value);
        values += end - i < s->labels.len;
        if (values > most && can_drop(all.ptr[i].name)) {
            most = values;
            best = all.ptr[i].name;
        }
    }
    vec_free(&all);
    return s->names.len + 1 < GROUP_NAMES_MAX ? best : STR("*");
}

/* There are too many groups. "*" drops everything but the service. */
static void drop_more(struct groups *g, struct group_scope *s)
{
    struct str name = own(most_varied(g, s));

    if (find_name(s, name) < 0)
        add_name(s, name, GROUP_VARIED);
    free_text(name);
    next_rule(s);
}

/* ---- services ---- */

static struct group_scope *scope_new(uint32_t tenant, uint32_t scope, const struct key *k)
{
    struct group_scope *s = XNEW(struct group_scope);

    CHECK(k->len == sizeof(s->key));
    memcpy(s->key, k->b, sizeof(s->key));
    s->tenant = tenant;
    s->scope = scope;
    s->groups = map_str_new();
    s->g = (struct group_service){ .since = { GROUP_NEVER, GROUP_NEVER } };
    s->bytes = sizeof(*s) + 256;
    return s;
}

/* A service that has data but no row is older than groups: they begin behind its data. */
static int scope_load(struct groups *g, uint32_t tenant, uint32_t scope, bool fresh,
                      const struct key *k, struct group_scope **ret, struct err *e)
{
    struct group_scope *s = scope_new(tenant, scope, k);
    int rc = fresh ? 0 : load_high(g, s, e);

    if (!rc && !fresh)
        rc = load(g, s, e);
    if (rc) {
        scope_free(s);
        return rc;
    }
    if (!s->g.rule)
        s->g.since[GROUP_BASE] = s->high;
    map_str_put(g->scopes, str_n(s->key, sizeof(s->key)), s);
    g->bytes += s->bytes;
    *ret = s;
    return 0;
}

int groups_scope(struct groups *g, uint32_t tenant, struct str tenant_name, uint32_t scope,
                 bool fresh, struct group_scope **ret, struct err *e)
{
    struct group_drop want = g->o.drop(g->o.cookie, tenant_name);
    struct key k;

    key_rule(&k, tenant, scope);
    *ret = map_str_get(g->scopes, key_str(&k));
    if (!*ret && scope_load(g, tenant, scope, fresh, &k, ret, e))
        return e->code;
    struct group_scope *s = *ret;
    if (s->g.rule && s->seen_drop.names == want.names && s->seen_drop.len == want.len)
        return 0;
    if (!s->g.rule || !as_configured(s, want))
        configure(s, want);
    s->seen_drop = want;
    return 0;
}

void groups_touch(struct group_scope *s, uint32_t slot, uint64_t seq)
{
    s->high = MAX(s->high, slot + 1);
    s->seq = seq;
}

/* ---- series ---- */

/* Canonical bytes of the labels that the rule keeps, into g->kept. */
static void keep(struct groups *g, struct group_scope *s, struct str labels)
{
    struct labels l;
    struct err e;
    size_t n = 0;

    arena_reset(g->arena);
    CHECK(!labels_decode(labels, g->arena, &l, &e)); /* we have encoded them */
    for (size_t i = 0; i < l.len; i++) {
        int drop = -1;
        for (size_t j = 0; drop < 0 && j < s->names.len; j++)
            if (group_name_drops(s->names.ptr[j], l.ptr[i].name) &&
                !str_eq(l.ptr[i].name, SERVICE_LABEL))
                drop = (int)j;
        if (drop < 0) {
            l.ptr[n++] = l.ptr[i];
        } else if (!(s->flags.ptr[drop] & GROUP_SEEN)) {
            s->flags.ptr[drop] |= GROUP_SEEN;
            s->rule_dirty = true;
        }
    }
    l.len = n;
    buf_reset(&g->kept);
    labels_encode(&l, &g->kept);
    CHECK(buf_ok(&g->kept));
}

static uint32_t new_group(struct groups *g, struct group_scope *s, struct kv_batch *b)
{
    struct group_row row = { s->g.rule, buf_str(&g->kept) };
    uint32_t ordinal = s->g.next++;
    size_t before = s->bytes;
    struct key k;

    add_group(s, buf_str(&g->kept), ordinal);
    g->bytes += s->bytes - before;
    s->dirty = true;
    group_row_put(&row, &g->row);
    key_group(&k, s->tenant, s->scope, GID(GROUP_BASE, ordinal));
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
    if (s->labels.len > g->o.whole_after && s->g.since[GROUP_WHOLE] == GROUP_NEVER)
        s->g.since[GROUP_WHOLE] =
            MAX(s->g.since[GROUP_BASE], (s->high + NODE2 - 1) / NODE2 * NODE2);
    return ordinal;
}

static void put_rows(struct groups *g, struct group_scope *s, struct kv_batch *b)
{
    struct key k;

    if (s->rule_dirty) {
        g->rule.len = s->names.len;
        for (size_t i = 0; i < s->names.len; i++) {
            g->rule.names[i] = s->names.ptr[i];
            g->rule.flags[i] = s->flags.ptr[i];
        }
        group_rule_put(&g->rule, &g->row);
        key_rule_number(&k, s->tenant, s->scope, s->g.rule);
        kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
    }
    if (s->dirty) {
        group_service_put(&s->g, &g->row);
        kv_batch_put(b, KV_META, str_n(s->key, sizeof(s->key)), buf_str(&g->row));
    }
    s->rule_dirty = s->dirty = false;
}

static uint32_t find_group(struct groups *g, struct group_scope *s, struct str labels,
                           struct kv_batch *b)
{
    for (;;) {
        keep(g, s, labels);
        uintptr_t known = (uintptr_t)map_str_get(s->groups, buf_str(&g->kept));
        if (known)
            return (uint32_t)(known - 1);
        if (s->labels.len < g->o.rule_max)
            return new_group(g, s, b);
        put_rows(g, s, b); /* groups of the rule that ends may be in this batch */
        drop_more(g, s);
    }
}

void groups_assign(struct groups *g, struct group_scope *s, struct series *r, uint64_t seq,
                   struct kv_batch *b)
{
    struct key k, v;

    CHECK(s->tenant == r->tenant && s->scope == r->scope && s->g.rule);
    s->seq = seq;
    if (r->group_rule == s->g.rule)
        return;
    r->gid = GID(GROUP_BASE, find_group(g, s, r->labels, b));
    r->group_rule = s->g.rule;
    r->group_seq = r->seq = seq;
    group_of_put(r->group_rule, GID_ORDINAL(r->gid), &v);
    key_group_of(&k, r->tenant, r->scope, r->id);
    kv_batch_put(b, KV_META, key_str(&k), key_str(&v));
    put_rows(g, s, b);
}

int groups_of_series(struct kv *kv, const struct series *cached, uint64_t committed,
                     uint32_t tenant, uint32_t scope, uint64_t series, uint64_t *ret, struct err *e)
{
    uint32_t rule, ordinal;
    struct buf row;
    struct key k;

    *ret = 0;
    if (cached && cached->group_rule && cached->group_seq <= committed) {
        *ret = cached->gid;
        return 0;
    }
    buf_init(&row, KIB);
    key_group_of(&k, tenant, scope, series);
    int rc = kv_get(kv, NULL, KV_META, key_str(&k), &row, e);
    if (!rc)
        rc = group_of_read(buf_str(&row), &rule, &ordinal, e);
    if (!rc)
        *ret = GID(GROUP_BASE, ordinal);
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}
