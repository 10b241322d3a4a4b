/* SPDX-License-Identifier: Apache-2.0
 *
 * group_impl.h: a service with its rules and groups in memory, as group*.c share it.
 */
#ifndef COMMON_STORE_CATALOG_GROUP_IMPL_H
#define COMMON_STORE_CATALOG_GROUP_IMPL_H

#include "common/base/map.h"
#include "common/store/catalog/group.h"

#define GROUP_NODE2 120u /* slots of a node of level 2: a dimension begins with one */
static_assert(DAY_SLOTS % GROUP_NODE2 == 0, "a day is whole nodes of level 2");

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

/* ---- on disk: group_load.c ---- */

struct rule *group_add_rule(struct groups *g, struct group_scope *s, uint32_t number,
                            uint32_t since);
void group_add_name(struct group_scope *s, struct rule *r, struct str name, uint8_t flags);
void group_add_group(struct group_scope *s, struct rule *r, struct str labels, uint32_t ordinal);
NODISCARD int group_load(struct groups *g, struct group_scope *s, struct err *e);

/* ---- rules: group_rules.c ---- */

/* Does the rule drop what is configured, beside what it had to? */
bool group_as_configured(const struct rule *r, struct group_drop want);
/* A rule of what is configured; `now`: slot of engine time. */
void group_configure(struct groups *g, struct group_scope *s, struct group_drop want, uint32_t now);
/* Rules that are in no batch yet begin at `now` at the earliest. */
void group_put_off(struct group_scope *s, uint32_t now);
/* The rule for data of a slot: the newest rule that has begun. */
struct rule *group_rule_at(const struct group_scope *s, uint32_t slot);
/* There are too many groups: the rule drops another label, or all. */
void group_drop_more(struct groups *g, struct group_scope *s, struct rule *r);

#endif
