/* SPDX-License-Identifier: Apache-2.0
 *
 * confirm: asked of every shard that any map up to now may have sent something of the service to:
 *
 *   the record is established, and its leader reports this same term, serves the shard and uses the
 *   map: then no leader of an earlier term commits any more, this leader refuses, and later leaders
 *   were named after the map was written
 *   the other members that live use the map, too. That is not needed while all nodes run this
 *   version; but an older node, or a node that cannot read the map, would lead and ignore the
 *   announcement
 *
 * Reports and records come through different watches, in any order. A node never returns to an
 * earlier map, so an old report is as good as a new one, except for its term, which is compared.
 */
#include "common/cluster/place/step_confirm.h"

#include <stdarg.h>
#include <stdio.h>

#include "common/base/mem.h"

static bool PRINTF(2, 3) no(struct confirmed *c, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(c->why, sizeof(c->why), fmt, args);
    va_end(args);
    return false;
}

static bool knows(const struct reports *r, const char *node, uint32_t shard, uint64_t version,
                  struct confirmed *c)
{
    const struct progress *p = reports_of(r, node);

    if (!p)
        return no(c, "%s (shard %" PRIu32 ") has not said yet which map it has", node, shard);
    if (!p->map)
        return no(c,
                  "%s (shard %" PRIu32
                  ") does not say which map it has: it runs an older version, or cannot keep a map",
                  node, shard);
    if (p->map < version)
        return no(c, "%s (shard %" PRIu32 ") has map %" PRIu64 ", not yet %" PRIu64, node, shard,
                  p->map, version);
    return true;
}

static bool look_at(const struct view *v, const struct reports *r, uint32_t shard, uint64_t version,
                    struct confirmed *c)
{
    const struct repl_record *rec = view_record(v, shard, NULL);
    const struct progress_shard *p;
    struct view_node n;

    if (!rec)
        return no(c, "shard %" PRIu32 " has no copies yet", shard);
    if (!rec->established)
        return no(c, "shard %" PRIu32 " has no leader yet that a majority of its members follows",
                  shard);
    if (!knows(r, rec->leader, shard, version, c))
        return false;
    p = reports_shard(r, rec->leader, shard);
    if (!p || !p->leads || p->term != rec->term || !p->newest_ms)
        return no(c, "%s does not serve shard %" PRIu32 ", which it leads, yet", rec->leader,
                  shard);
    for (uint32_t i = 0; i < rec->members.len; i++)
        if (view_node_find(v, rec->members.names[i], &n) && n.live &&
            !knows(r, rec->members.names[i], shard, version, c))
            return false;
    c->newest_ms = MAX(c->newest_ms, p->newest_ms);
    return true;
}

void step_confirm_check(const struct view *v, const struct reports *r, const struct map_whose *w,
                        uint64_t version, struct confirmed *ret)
{
    uint32_t *shards = XNEW_ARRAY(uint32_t, CLUSTER_SHARDS_MAX);
    int64_t rev;
    const struct map *m = view_map(v, &rev);
    size_t n = 0;

    *ret = (struct confirmed){ .all = true };
    if (w->service.len)
        n = map_places(m, w->tenant, w->service, shards, CLUSTER_SHARDS_MAX);
    else if (w->tenant.len)
        n = map_tenant_places(m, w->tenant, shards, CLUSTER_SHARDS_MAX);
    if (n == 0) {
        for (n = 0; n < m->shards; n++)
            shards[n] = (uint32_t)n;
    }
    for (size_t i = 0; i < n && ret->all; i++)
        ret->all = look_at(v, r, shards[i], version, ret);
    xfree(shards);
}
