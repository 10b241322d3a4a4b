/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "tests/lib/repl/repl_world_impl.h"

/* ---- the world is whole again ---- */

bool world_whole(void)
{
    uint64_t at = 0;
    bool lead = false;

    for (int i = 0; i < NODES; i++) {
        struct node *n = &w.nodes[i];
        if (!name_set_has(&w.rec.members, n->name))
            continue;
        struct replica_state s = replica_state(n->r);
        if (n->no_db || n->lost)
            return false;
        lead |= s.role == REPLICA_LEADING;
        if (s.record_term != w.rec.term || s.applied != s.last_index || (at && s.applied != at))
            return false;
        at = s.applied;
    }
    return lead && at;
}

void world_check_end(void)
{
    static bool there[1 << 16];
    const struct node *first = world_node(w.rec.members.names[0]);

    memset(there, 0, sizeof(there));
    for (uint64_t i = 1; i <= first->applied; i++) {
        uint64_t tag = first->db[i] % (1 << 16);
        if (tag && there[tag])
            world_broken("write %" PRIu64 " is there twice", tag);
        there[tag] = true;
        for (uint32_t k = 1; k < w.rec.members.len; k++)
            if (world_node(w.rec.members.names[k])->db[i] != first->db[i])
                world_broken("databases differ at %" PRIu64, i);
    }
    vec_for (i, &w.acked)
        if (!there[w.acked.ptr[i] % (1 << 16)])
            world_broken("write %" PRIu64 " was acked and is lost", w.acked.ptr[i]);
}

/* The service is away and marks no record any more: a record that keeps most of the previous
 * members works without the mark. */
bool world_does_unmarked(void)
{
    uint32_t both = 0;

    for (uint32_t i = 0; i < w.rec.prev_members.len; i++)
        both += name_set_has(&w.rec.members, w.rec.prev_members.names[i]);
    for (int i = 0; i < NODES; i++)
        if (w.nodes[i].lost) /* it needs the service to be copied again */
            return false;
    return w.rec.prev_members.len && both > w.rec.prev_members.len / 2;
}
