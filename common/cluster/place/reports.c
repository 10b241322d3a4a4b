/* SPDX-License-Identifier: Apache-2.0
 *
 * reports: a table of the last report of each node.
 *
 * The report is the value of the node's key in the coordination service (progress.h), parsed into
 * an arena of its own, which is freed with the next report. A node has few shards, so they are
 * searched one by one.
 */
#include "common/cluster/place/reports.h"

#include <stdio.h>
#include <stdlib.h>

#include "common/base/map.h"
#include "common/base/mem.h"

#define ARENA_MAX  (64 * MIB)
#define NODES_MOST (4 * MAP_NODES_MAX)
#define SLACK      256 /* entries a replica may be behind and count as up to date */

struct told {
    char name[NODE_NAME_MAX + 1];
    struct arena *arena; /* of `progress` */
    struct progress progress;
};
struct reports {
    struct map_str *nodes; /* name -> struct told, owned */
};

struct reports *reports_new(void)
{
    struct reports *r = XNEW(struct reports);

    r->nodes = map_str_new();
    return r;
}

static void told_free(struct told *t)
{
    if (t)
        arena_free(t->arena);
    xfree(t);
}

void reports_clear(struct reports *r)
{
    struct str name;
    void *t;

    for (size_t pos = 0; map_str_next(r->nodes, &pos, &name, &t);)
        told_free(t);
    map_str_free(r->nodes);
    r->nodes = map_str_new();
}

void reports_free(struct reports *r)
{
    if (!r)
        return;
    reports_clear(r);
    map_str_free(r->nodes);
    xfree(r);
}

void reports_forget(struct reports *r, const char *node)
{
    told_free(map_str_del(r->nodes, str_c(node)));
}

int reports_take(struct reports *r, const char *node, struct str text, struct err *e)
{
    struct told *t;
    int code;

    reports_forget(r, node);
    if (map_str_len(r->nodes) >= NODES_MOST)
        return err_set(e, ERR_LIMIT, "%zu nodes have told something", map_str_len(r->nodes));
    t = XNEW(struct told);
    (void)snprintf(t->name, sizeof(t->name), "%s", node);
    t->arena = arena_new(ARENA_MAX);
    code = progress_parse(text, t->arena, &t->progress, e);
    if (code)
        told_free(t);
    else
        (void)map_str_put(r->nodes, str_c(t->name), t);
    return code;
}

const struct progress *reports_next(const struct reports *r, size_t *pos)
{
    struct str name;
    void *t;

    return map_str_next(r->nodes, pos, &name, &t) ? &((struct told *)t)->progress : NULL;
}

const struct progress *reports_of(const struct reports *r, const char *node)
{
    const struct told *t = map_str_get(r->nodes, str_c(node));

    return t ? &t->progress : NULL;
}

const struct progress_shard *reports_shard(const struct reports *r, const char *node,
                                           uint32_t shard)
{
    const struct told *t = map_str_get(r->nodes, str_c(node));

    for (size_t i = 0; t && i < t->progress.shards_len; i++)
        if (t->progress.shards[i].shard == shard)
            return &t->progress.shards[i];
    return NULL;
}

bool reports_keeps_up(const struct progress_shard *p, uint64_t commit)
{
    return p && !p->lost && p->last + SLACK >= commit;
}

static int ascending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

static uint64_t median(uint64_t *all, size_t n)
{
    qsort(all, n, sizeof(*all), ascending);
    return n ? all[(n - 1) / 2] : 0;
}

void reports_place(const struct reports *r, const struct view *v, uint32_t shard,
                   struct place_shard *ret)
{
    uint64_t rates[RECORD_SET_MAX], bytes[RECORD_SET_MAX];
    const struct progress_shard *leader;
    size_t n = 0;

    *ret = (struct place_shard){ .now = view_record(v, shard, NULL) };
    if (!ret->now)
        return;
    leader = reports_shard(r, ret->now->leader, shard);
    for (uint32_t i = 0; i < ret->now->members.len; i++) {
        const char *name = ret->now->members.names[i];
        const struct progress_shard *p = reports_shard(r, name, shard);
        struct view_node node;

        if (!p)
            continue;
        rates[n] = p->rate;
        bytes[n++] = p->bytes;
        if (leader && leader->leads && !p->full && reports_keeps_up(p, leader->commit) &&
            view_node_find(v, name, &node) && node.live)
            ret->able |= 1u << i;
    }
    ret->rate = median(rates, n);
    ret->bytes = median(bytes, n);
}
