/* SPDX-License-Identifier: Apache-2.0
 *
 * group_load: rules and groups of one service, read from disk when the shard first needs them.
 *
 * Three kinds of rows make a scope in memory: the service's row names its newest rule, each rule
 * has a row, and each group has one. A scope is loaded whole or not at all, so that group.c never
 * sees a group without its rule. Strings are copied, since rows live no longer than the iterator.
 * The day of the last data is found by one seek, which tells when groups may be counted again.
 *
 * Thread: the shard's.
 */
#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/catalog/group_impl.h"
#include "common/store/catalog/names.h"

static struct str own(struct str s)
{
    return str_n(xmemdup(s.ptr, s.len), s.len);
}

struct rule *group_add_rule(struct groups *g, struct group_scope *s, uint32_t number,
                            uint32_t since)
{
    struct rule r = {
        .number = number, .since = since, .groups = map_str_new(), .full = g->o.rule_max
    };

    vec_push(&s->rules, r);
    s->bytes += sizeof(r) + 64;
    return &s->rules.ptr[s->rules.len - 1];
}

void group_add_name(struct group_scope *s, struct rule *r, struct str name, uint8_t flags)
{
    vec_push(&r->names, own(name));
    vec_push(&r->flags, flags);
    s->bytes += name.len + sizeof(name) + 1;
}

void group_add_group(struct group_scope *s, struct rule *r, struct str labels, uint32_t ordinal)
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
    struct rule *r = group_add_rule(g, s, number, g->rule.since);
    for (size_t i = 0; i < g->rule.len; i++)
        group_add_name(s, r, g->rule.names[i], g->rule.flags[i]);
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
            group_add_group(s, &s->rules.ptr[row.rule - 1], row.labels,
                            get_u32be(key.ptr + key.len - 4));
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

/* The first slot of the day after the last day with data, as far as committed. */
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
int group_load(struct groups *g, struct group_scope *s, struct err *e)
{
    if (load_high(g, s, e) || group_service_get(g->kv, NULL, s->tenant, s->scope, &s->g, e))
        return e->code;
    for (uint32_t i = 1; i <= s->g.rules; i++)
        if (load_rule(g, s, i, e))
            return e->code;
    return load_groups(g, s, e);
}
