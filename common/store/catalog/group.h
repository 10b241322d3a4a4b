/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: which series are added up together. Each series of a service belongs to one base group
 * (dimension 1) at a time: its labels without those that tell instances apart. Dimension 0 is the
 * whole service. Groups are made by the shard thread in the batch of the push that needs them, and
 * never change.
 *
 * What is dropped says a *rule*. A service has one after the other, each from a slot on that lies
 * behind all data it had when the rule was made: so the data of a series at one time are in one
 * group permanently, whenever they come (TREE.md, section 4).
 *
 *   group id   gid u64 = dimension u8 << 56 | ordinal u32       GID(1, 7) = 0100000000000007
 *
 *   50 tenant scope             service: version u8 = 1 | rules u32, numbered from 1 | next ordinal
 *                               of dimension 1 u32 | since u32 x 2, of dimensions 0, 1; ffffffff:
 *                               the dimension has no roll-ups
 *   50 tenant scope rule u32    rule: version u8 = 1 | since u32 | n varint | n x (flags u8, length
 *                               varint, name): label names it drops; "k8s.pod.*" drops all that
 *                               begin so. flags bit 0: a series of the rule had one; bit 1: not
 *                               configured, but dropped because there were too many groups (groups
 *                               made before keep it)
 *   51 tenant scope gid u64     group: version u8 = 1 | rule u32 | kept labels (label.h)
 *   53 tenant scope series u64  groups of a series: version u8 = 1 | n varint | n x (rule u32,
 *                               ordinal u32 of its base group), rules ascending
 *
 *   service under one rule with three groups, whole service from slot 37,500,000 on, base ones
 *   always:     01 | 00000001 | 00000003 | 023c3460 | 00000000
 *   rule that drops pod, which was seen, and instance, always:
 *               01 | 00000000 | 02 | 01 03 70 6f 64 | 00 08 69 6e 73 74 61 6e 63 65
 *   series in base group 2 by rule 1:       01 | 01 | 00000001 00000002
 */
#ifndef COMMON_STORE_CATALOG_GROUP_H
#define COMMON_STORE_CATALOG_GROUP_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/model/label.h"
#include "common/store/catalog/group_drop.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

#define GROUP_WHOLE         0u /* dimensions */
#define GROUP_BASE          1u
#define GROUP_DIMS          2u
#define GROUP_NEVER         UINT32_MAX
#define GROUP_WHOLE_AFTER   8   /* base groups a service has before the whole is one, too */
#define GROUPS_PER_RULE_MAX 256 /* then the most varied kept label is dropped, too */
#define GROUP_RULES_MAX     64  /* of a service; later changes of the configuration are ignored */
#define GROUP_NAMES_MAX     256 /* of a rule */
#define GROUP_NAME_MAX      256 /* bytes */

#define GROUP_SEEN   1u /* flags of a rule's names */
#define GROUP_VARIED 2u

#define GID(dim, ordinal) ((uint64_t)(dim) << 56 | (uint32_t)(ordinal))
#define GID_DIM(gid)      ((uint32_t)((gid) >> 56))
#define GID_ORDINAL(gid)  ((uint32_t)(gid))

/* What is dropped where nothing else is configured. */
#define GROUP_DROP                                                         \
    "pod,pod_name,instance,service_instance_id,service.instance.id,host,"  \
    "hostname,host_name,host.name,host_id,host.id,ip,pod_ip,container_id," \
    "container.id,k8s_pod_*,k8s.pod.*,pid,process_pid,process.pid,tid,"    \
    "thread,thread_id,thread_name,thread.id,thread.name,comm,cpu,"         \
    "session_id,__session_id__,span_id,span,trace_id,profile_id"

/* ---- rows, for readers too ---- */

struct group_service {
    uint32_t rules, next;
    uint32_t since[GROUP_DIMS];
};
struct group_rule {
    uint32_t number, since;
    struct str names[GROUP_NAMES_MAX]; /* borrowed from the row */
    uint8_t flags[GROUP_NAMES_MAX];
    size_t len;
};
struct group_row {
    uint32_t rule;
    struct str labels; /* canonical bytes */
};
void group_service_put(const struct group_service *g, struct buf *out); /* replaces *out */
NODISCARD int group_service_read(struct str row, struct group_service *ret, struct err *e);
void group_rule_put(const struct group_rule *r, struct buf *out);
NODISCARD int group_rule_read(struct str row, struct group_rule *ret, struct err *e);
void group_row_put(const struct group_row *g, struct buf *out);
NODISCARD int group_row_read(struct str row, struct group_row *ret, struct err *e);
struct group_of {
    uint32_t rule, ordinal;
};
void group_of_put(const struct group_of *g, size_t n, struct buf *out);
/* ret has room for GROUP_RULES_MAX. */
NODISCARD int group_of_read(struct str row, struct group_of *ret, size_t *ret_n, struct err *e);
bool group_name_drops(struct str name, struct str label);
/* Index of the name that drops this label, or -1: it is kept. */
int group_rule_drops(const struct group_rule *r, struct str label);
/* The row of a service from a snapshot (NULL: now); without one: no rules, nothing rolled up. */
NODISCARD int group_service_get(struct kv *kv, const struct kv_snap *snap, uint32_t tenant,
                                uint32_t scope, struct group_service *ret, struct err *e);

/* ---- giving out: shard thread ---- */

struct series;
struct group_scope; /* one service in memory */
struct groups;
struct groups_opts {
    group_drop_fn drop; /* NULL: GROUP_DROP */
    void *cookie;
    size_t bytes_max;               /* over it groups_trim forgets */
    uint32_t rule_max, whole_after; /* tests only; 0: as above */
};
struct groups *groups_new(struct kv *kv, const struct groups_opts *o);
void groups_free(struct groups *g);
/* The service of a push. */
struct group_push {
    uint32_t tenant;
    struct str tenant_name; /* chooses the labels that are dropped (group_drop_fn) */
    uint32_t scope;
    bool fresh;   /* the service itself is in no batch yet */
    uint32_t now; /* slot of engine time */
};
/* Loads the groups of the service that a push goes to, before any row of the push is written. If it
 * fails, nothing has changed. *ret is valid until groups_trim. */
NODISCARD int groups_scope(struct groups *g, const struct group_push *p, struct group_scope **ret,
                           struct err *e);
/* The same of a service that has committed data, for a seal. */
NODISCARD int groups_known(struct groups *g, uint32_t tenant, uint32_t scope,
                           struct group_scope **ret, struct err *e);
/* Data of the series in this slot are put into batch seq: it gets the base group for that time.
 * Rows only where that is news. Cannot fail. Returns the group's id. */
uint64_t groups_assign(struct groups *g, struct group_scope *s, struct series *r, uint32_t slot,
                       uint64_t seq, struct kv_batch *b);
/* First slot from which a dimension has roll-ups, or GROUP_NEVER. */
uint32_t groups_since(const struct group_scope *s, uint32_t dim);
/* Committed data of a series in a slot. */
struct group_data {
    const struct series *cached; /* the result of series_peek, may be NULL */
    uint64_t series;             /* id */
    uint32_t slot;
};
/* Finds the base group that the data belong to; *ret is 0 if they have none. */
NODISCARD int groups_of(struct groups *g, const struct group_scope *s, const struct group_data *d,
                        uint64_t *ret, struct err *e);
/* Does a rule begin inside (from, to)? Then members of a node there are no members of one group. */
bool groups_change(const struct group_scope *s, uint32_t from, uint32_t to);
/* Forgets what is on disk anyway, if there is much of it. */
void groups_trim(struct groups *g, uint64_t committed);
/* Another limit for groups_trim. */
void groups_resize(struct groups *g, size_t bytes_max);
/* Forgets all; nothing may be in a batch that is not committed. For deletes. */
void groups_drop(struct groups *g);

#endif
