/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_kept: the highest terms that logs here have promised, for a coordination service that
 * lost its data (common/cluster/rebuild/cluster_dump_merge.h). A record may be gone everywhere, as
 * when all processes ended before they had it in a file; that its leader asked for promises is in
 * the logs.
 *
 * While the service knows less than this node, replicas follow no leader of a later term than that
 * of the known record: the service may have named a leader by stale members. And replicas report to
 * other nodes what they know.
 *
 * It also lists logs that never began: a note of such a log would make it count as lost. That no
 * log of this node and shard was lost before is certain only to a process that saw the cluster
 * being made.
 */
#include "common/cluster/rebuild/cluster_dump.h"
#include "ingester/replicas/replicas_impl.h"

void replicas_kept(const struct replicas *rs, struct cluster_dump *k)
{
    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];

        if (!k->map || r->shard >= k->map->shards || !r->node)
            continue;
        if (!replica_now(r).silent)
            k->shards[r->shard].promised = replica_record_of(replica_now(r).term);
        else if (view_born(rs->view) && !r->spoke && !r->lost_rev)
            (void)name_set_add(&k->shards[r->shard].fresh, rs->self);
    }
}

bool replicas_known(void *cookie, uint32_t shard, struct repl_known *ret)
{
    const struct replicas *rs = cookie;
    const struct repl_record *rec = view_record(rs->view, shard, NULL);
    int64_t rev;

    if (!view_stranger(rs->view)[0])
        return false;
    *ret = (struct repl_known){ .term = 0 };
    if (!view_is_stale_bootstrap(rs->view) && view_ready(rs->view))
        *ret = (struct repl_known){ .term = rec ? rec->term : 0,
                                    .map = view_map(rs->view, &rev)->version };
    return true;
}

void replicas_promises_served(void *cookie, uint32_t shard, const struct repl_known *k)
{
    const struct replicas *rs = cookie;

    view_note_peer_state(rs->view, shard, k->term, k->map);
}
