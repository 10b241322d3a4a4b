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
 * Rules. Another configuration makes another rule, from a slot on that no data of the service has
 * reached and no clock. What is staged may be lost in a power cut that a later seal survives, for
 * their batches come from two threads; but committed data never lie where a rule (or the dimension
 * of the whole service) that is only staged begins. So memory tells the seal the truth about
 * committed rows, whatever is in flight. And a rule is on disk before a node in which it begins can
 * be due: it goes into the batch of the request that made it, whether that needs it or not.
 *
 * Too many groups: the rule in force drops the kept label with the most values, too, at once.
 * Groups that have it stay as they are, finer than they need be; a query by that label reads
 * members. So each label of the service costs at most another GROUPS_PER_RULE_MAX groups.
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
#define LABEL_ARENA (64 * MIB)
#define NODE2       120u /* slots of a node of level 2: a dimension begins with one */
static_assert(DAY_SLOTS % NODE2 == 0, "a day is whole nodes of level 2");

struct rule {
    uint32_t number, since;
    VEC(struct str) names; /* owned */
    VEC(uint8_t) flags;
    struct map_str *groups; /* kept labels -> ordinal + 1 */
    VEC(struct str) labels; /* owned: keys of groups */
    size_t full;            /* so many groups and it drops another label */
    bool dirty;             /* the row on disk is behind */
    bool fresh;             /* in no batch yet: it can still begin later */
};
struct group_scope {
    uint32_t tenant, scope;
    char key[9]; /* of the row */
    struct group_service g;
    VEC(struct rule) rules;
    bool compared; /* with this configuration */
    struct group_drop drop;
    uint32_t high; /* no data in this slot or behind it */
    bool dirty;
    uint64_t seq;
    size_t bytes;
};
struct groups {
    struct kv *kv;
    struct groups_opts o;
    struct map_str *scopes; /* key -> struct group_scope */
    size_t bytes;
    struct arena *arena; /* of labels */
    struct buf row, kept;
    struct group_rule rule; /* room for reading and writing one */
    VEC(struct str) drop;   /* where nothing is configured */
};

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

static struct str own(struct str s)
{
    return str_n(xmemdup(s.ptr, s.len), s.len);
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

static struct rule *add_rule(struct groups *g, struct group_scope *s, uint32_t number,
                             uint32_t since)
{
    struct rule r = {
        .number = number, .since = since, .groups = map_str_new(), .full = g->o.rule_max
    };

    vec_push(&s->rules, r);
    s->bytes += sizeof(r) + 64;
    return &s->rules.ptr[s->rules.len - 1];
}

static void add_name(struct group_scope *s, struct rule *r, struct str name, uint8_t flags)
{
    vec_push(&r->names, own(name));
    vec_push(&r->flags, flags);
    s->bytes += name.len + sizeof(name) + 1;
}

static void add_group(struct group_scope *s, struct rule *r, struct str labels, uint32_t ordinal)
{
    struct str kept = own(labels);

    vec_push(&r->labels, kept);
    map_str_put(r->groups, kept, (void *)((uintptr_t)ordinal + 1));
    s->bytes += labels.len + 64;
}

static int load_rule(struct groups *g, struct group_scope *s, uint32_t number, struct err *e)
{
    struct key k;

    key_rule_number(&k, s->tenant, s->scope, number);
    int rc = kv_get(g->kv, NULL, KV_META, key_str(&k), &g->row, e);
    if (rc == ERR_NOT_FOUND)
        return err_set(e, ERR_CORRUPT, "grouping rule %u of service %u has no row", number,
                       s->scope);
    if (!rc)
        rc = group_rule_read(buf_str(&g->row), &g->rule, e);
    if (rc)
        return rc;
    struct rule *r = add_rule(g, s, number, g->rule.since);
    for (size_t i = 0; i < g->rule.len; i++)
        add_name(s, r, g->rule.names[i], g->rule.flags[i]);
    return 0;
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
        struct str key = kv_iter_key(it);
        rc = group_row_read(kv_iter_value(it), &row, e);
        if (!rc && (row.rule < 1 || row.rule > s->rules.len))
            rc = err_set(e, ERR_CORRUPT, "a group of rule %u; service %u has %zu", row.rule,
                         s->scope, s->rules.len);
        if (!rc)
            add_group(s, &s->rules.ptr[row.rule - 1], row.labels, get_u32be(key.ptr + key.len - 4));
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    vec_for (i, &s->rules) {
        struct rule *r = &s->rules.ptr[i];
        while (r->labels.len >= r->full)
            r->full += g->o.rule_max;
    }
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

/* What is on disk. */
static int load(struct groups *g, struct group_scope *s, struct err *e)
{
    if (load_high(g, s, e) || group_service_get(g->kv, NULL, s->tenant, s->scope, &s->g, e))
        return e->code;
    for (uint32_t i = 1; i <= s->g.rules; i++)
        if (load_rule(g, s, i, e))
            return e->code;
    return load_groups(g, s, e);
}

/* ---- rules ---- */

static int find_name(const struct rule *r, struct str name)
{
    vec_for (i, &r->names) {
        if (str_eq(r->names.ptr[i], name))
            return (int)i;
    }
    return -1;
}

static bool can_drop(struct str name)
{
    return name.len && name.len <= GROUP_NAME_MAX && !str_eq(name, SERVICE_LABEL);
}

/* Does the rule drop what is configured, beside what it had to? */
static bool as_configured(const struct rule *r, struct group_drop want)
{
    size_t have = 0, wanted = 0;

    vec_for (i, &r->flags)
        have += !(r->flags.ptr[i] & GROUP_VARIED);
    for (size_t i = 0; i < want.len && wanted < GROUP_NAMES_MAX / 2; i++) {
        if (!can_drop(want.names[i]))
            continue;
        wanted++;
        int at = find_name(r, want.names[i]);
        if (at < 0 || (r->flags.ptr[at] & GROUP_VARIED))
            return false;
    }
    return have == wanted;
}

/* Where a rule can begin: behind all data and every node that may have been built. */
static uint32_t rule_since(const struct group_scope *s, uint32_t now)
{
    uint32_t from = MIN(MAX(s->high, now), KEY_SLOT_MAX - NODE2);

    return (from + NODE2 - 1) / NODE2 * NODE2;
}

/* Half of a rule's names may be configured, the rest is for what turns out to vary. */
static void configure(struct groups *g, struct group_scope *s, struct group_drop want, uint32_t now)
{
    uint32_t since = s->rules.len ? rule_since(s, now) : 0;
    struct rule *r = add_rule(g, s, (uint32_t)s->rules.len + 1, since);
    size_t n = 0;

    for (size_t i = 0; i < want.len && n < GROUP_NAMES_MAX / 2; i++) {
        if (!can_drop(want.names[i]))
            continue;
        n++;
        if (find_name(r, want.names[i]) < 0)
            add_name(s, r, want.names[i], 0);
    }
    s->g.rules = (uint32_t)s->rules.len;
    r->dirty = r->fresh = s->dirty = true;
}

/* A request that failed wrote no rule. Meanwhile nodes may have been built without it. */
static void put_off(struct group_scope *s, uint32_t now)
{
    for (size_t i = 1; i < s->rules.len; i++)
        if (s->rules.ptr[i].fresh)
            s->rules.ptr[i].since = MAX(s->rules.ptr[i].since, rule_since(s, now));
}

/* The rule for data of a slot: the last one that has begun. */
static struct rule *rule_at(const struct group_scope *s, uint32_t slot)
{
    for (size_t i = s->rules.len; i > 1; i--)
        if (s->rules.ptr[i - 1].since <= slot)
            return &s->rules.ptr[i - 1];
    CHECK(s->rules.len);
    return &s->rules.ptr[0];
}

bool groups_change(const struct group_scope *s, uint32_t from, uint32_t to)
{
    vec_for (i, &s->rules) {
        if (s->rules.ptr[i].since > from && s->rules.ptr[i].since < to)
            return true;
    }
    return false;
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

static struct str most_varied(struct groups *g, const struct rule *r)
{
    VEC(struct varied) all = { 0 };
    struct str best = STR("*");
    size_t most = 0;
    struct labels l;
    struct err e;

    arena_reset(g->arena);
    vec_for (i, &r->labels) {
        if (labels_decode(r->labels.ptr[i], g->arena, &l, &e))
            break; /* the arena is full: those will do */
        for (size_t j = 0; j < l.len; j++)
            vec_push(&all, ((struct varied){ l.ptr[j].name, l.ptr[j].value }));
    }
    if (all.len)
        qsort(all.ptr, all.len, sizeof(*all.ptr), by_name_value);
    for (size_t i = 0, end; i < all.len; i = end) {
        size_t values = 1;
        for (end = i + 1; end < all.len && str_eq(all.ptr[end].name, all.ptr[i].name); end++)
            values += !str_eq(all.ptr[end].value, all.ptr[end - 1].value);
        values += end - i < r->labels.len;
        if (values > most && can_drop(all.ptr[i].name) && find_name(r, all.ptr[i].name) < 0) {
            most = values;
            best = all.ptr[i].name;
        }
    }
    vec_free(&all);
    return r->names.len + 1 < GROUP_NAMES_MAX ? best : STR("*");
}

/* There are too many groups. "*" drops everything but the service. */
static void drop_more(struct groups *g, struct group_scope *s, struct rule *r)
{
    struct str name = most_varied(g, r);

    if (find_name(r, name) < 0)
        add_name(s, r, name, GROUP_VARIED);
    r->full += g->o.rule_max;
    r->dirty = true;
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

/* A service that has data but no row is older than groups: they begin behind its data. */
static int scope_load(struct groups *g, uint32_t tenant, uint32_t scope, bool fresh,
                      const struct key *k, struct group_scope **ret, struct err *e)
{
    struct group_scope *s = scope_new(tenant, scope, k);
    int rc = fresh ? 0 : load(g, s, e);

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

int groups_scope(struct groups *g, uint32_t tenant, struct str tenant_name, uint32_t scope,
                 bool fresh, uint32_t now, struct group_scope **ret, struct err *e)
{
    struct group_drop want = g->o.drop(g->o.cookie, tenant_name);
    struct key k;

    key_rule(&k, tenant, scope);
    *ret = map_str_get(g->scopes, key_str(&k));
    if (!*ret && scope_load(g, tenant, scope, fresh, &k, ret, e))
        return e->code;
    struct group_scope *s = *ret;
    put_off(s, now);
    if (s->compared && s->drop.names == want.names && s->drop.len == want.len)
        return 0;
    if (!s->rules.len ||
        (s->rules.len < GROUP_RULES_MAX && !as_configured(&s->rules.ptr[s->rules.len - 1], want)))
        configure(g, s, want, now);
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
    return *ret ? 0 : scope_load(g, tenant, scope, false, &k, ret, e);
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

    add_group(s, r, buf_str(&g->kept), ordinal);
    g->bytes += s->bytes - before;
    s->dirty = true;
    group_row_put(&row, &g->row);
    key_group(&k, s->tenant, s->scope, GID(GROUP_BASE, ordinal));
    kv_batch_put(b, KV_META, key_str(&k), buf_str(&g->row));
    if (r->labels.len > g->o.whole_after && s->g.since[GROUP_WHOLE] == GROUP_NEVER)
        s->g.since[GROUP_WHOLE] =
            MAX(s->g.since[GROUP_BASE], (s->high + NODE2 - 1) / NODE2 * NODE2);
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
        drop_more(g, s, r);
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
    struct rule *rule = rule_at(s, slot);

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

int groups_of(struct groups *g, const struct group_scope *s, const struct series *cached,
              uint64_t series, uint32_t slot, uint64_t *ret, struct err *e)
{
    struct group_of at[GROUP_RULES_MAX];
    const struct group_of *of = NULL;
    struct key k;
    size_t n;

    *ret = 0;
    if (!s->rules.len)
        return 0;
    uint32_t rule = rule_at(s, slot)->number;
    if (cached)
        of = of_rule(cached->groups.ptr, cached->groups.len, rule);
    if (!cached) {
        key_group_of(&k, s->tenant, s->scope, series);
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
