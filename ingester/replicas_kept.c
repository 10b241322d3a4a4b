/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_kept: the highest terms that logs here have promised, for a coordination service that
 * lost its data (common/cluster/kept_join.h). A record may be gone everywhere, as when all
 * processes ended before they had it in a file; that its leader asked for promises is in the logs.
 *
 * And which logs never began: a note that one has would have it taken for lost. That no log of this
 * node and shard was lost before is certain only to a process that saw the cluster being made.
 */
#include "common/cluster/kept.h"
#include "ingester/replicas_impl.h"

void replicas_kept(const struct replicas *rs, struct kept *k)
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
