/* SPDX-License-Identifier: Apache-2.0
 *
 * group_rules: what a service's groups are made by, and from when on.
 *
 * Rules. Another configuration makes another rule, from a slot on that no data of the service has
 * reached and no clock. What is staged may be lost in a power cut that a later seal survives, for
 * their batches come from two threads; but committed data never lie where a rule (or the dimension
 * of the whole service) that is only staged begins. So memory tells the seal the truth about
 * committed rows, whatever is in flight. And a rule is on disk before a node in which it begins can
 * be due: it goes into the batch of the request that made it, whether that needs it or not.
 *
 * Too many groups: the rule in force drops the kept label with the most values, too, at once.
 * Groups that have it are unchanged, finer than they need be; a query by that label reads
 * members. So each label of the service costs at most another GROUPS_PER_RULE_MAX groups.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/store/catalog/derived.h"
#include "common/store/catalog/group_impl.h"

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
bool group_as_configured(const struct rule *r, struct group_drop want)
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
    uint32_t from = MIN(MAX(s->high, now), KEY_SLOT_MAX - GROUP_NODE2);

    return (from + GROUP_NODE2 - 1) / GROUP_NODE2 * GROUP_NODE2;
}

/* Half of a rule's names may be configured, the rest is for what turns out to vary. */
void group_configure(struct groups *g, struct group_scope *s, struct group_drop want, uint32_t now)
{
    uint32_t since = s->rules.len ? rule_since(s, now) : 0;
    struct rule *r = group_add_rule(g, s, (uint32_t)s->rules.len + 1, since);
    size_t n = 0;

    for (size_t i = 0; i < want.len && n < GROUP_NAMES_MAX / 2; i++) {
        if (!can_drop(want.names[i]))
            continue;
        n++;
        if (find_name(r, want.names[i]) < 0)
            group_add_name(s, r, want.names[i], 0);
    }
    s->g.rules = (uint32_t)s->rules.len;
    r->dirty = r->fresh = s->dirty = true;
}

/* A request that failed wrote no rule. Meanwhile nodes may have been built without it. */
void group_put_off(struct group_scope *s, uint32_t now)
{
    for (size_t i = 1; i < s->rules.len; i++)
        if (s->rules.ptr[i].fresh)
            s->rules.ptr[i].since = MAX(s->rules.ptr[i].since, rule_since(s, now));
}

/* The rule for data of a slot: the newest rule that has begun. */
struct rule *group_rule_at(const struct group_scope *s, uint32_t slot)
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

/* The kept label with the most values among the groups; an absent label counts as one value. */
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
void group_drop_more(struct groups *g, struct group_scope *s, struct rule *r)
{
    struct str name = most_varied(g, r);

    if (find_name(r, name) < 0)
        group_add_name(s, r, name, GROUP_VARIED);
    r->full += g->o.rule_max;
    r->dirty = true;
}
