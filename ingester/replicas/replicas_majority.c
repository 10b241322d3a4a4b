/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_majority: a leader that reaches no majority hands over its lead to another member.
 *
 * A node lives as long as its lease at the coordination service, and a live leader is not replaced
 * (common/cluster/node/lead.c). But the line to that service may work while those to the other
 * members are cut, or cut one way. Then no entry commits here, and the other members, which may be
 * a majority that sees each other, do not take over. So the leader itself notices that no majority
 * of members has answered for a while, and names another live member as leader. It chooses at
 * random, since it cannot know which members see each other. Where no member has a majority, the
 * lead moves slowly among them until one has. The same happens where the replica here cannot be
 * opened, and, sooner, where a node with a hanging disk was named leader by a node that did not
 * know of the disk.
 *
 * In a term that changed the members and is not established, the changed set may never have a
 * majority. Example: of three copies one is dead, and a fourth lost its data before it counted; two
 * of four answer. These two are a majority of the previous members, which must be asked anyway. So
 * first of all the change is undone (record_undo_member_change); the controller makes it again
 * later. Entries that were committed in that term are on a majority of the previous members as
 * well.
 *
 * A leader whose term is opened, not established yet, and answered by a majority stays: where one
 * of three is lost and another one needs a copy of the whole database first, that may take hours,
 * in which no other member could lead either.
 *
 * Nothing depends on all this for safety: these are records like others.
 */
#include "common/cluster/node/lead.h"
#include "common/obs/log.h"
#include "ingester/replicas/replicas_impl.h"

#define TICKS_A_SECOND 40 /* of the protocol */
#define SILENT_TICKS   (2 * TICKS_A_SECOND)
#define LEADING_MS     5000  /* alone for so long, after it led */
#define PREPARING_MS   10000 /* the same before: it may be busy with getting what it lacks */
#define HUNG_MS        2000  /* the same on a disk that hangs: its own promise is never stored */

static bool has_majority(const struct replica_of *r)
{
    struct replica_peer p;
    size_t members = 1, heard = 1;

    for (size_t i = 0; repl_node_peer(r->node, i, &p); i++)
        if (p.member) {
            members++;
            heard += p.silent_ticks < SILENT_TICKS;
        }
    return heard * 2 > members;
}

/* `opened`: a term that a majority answers in. */
static void pass_on(const struct replica_of *r, uint64_t term, bool opened)
{
    const char *to = lead_undo_member_change(r->rs->lead, r->shard);

    if (to) {
        log_warn("no majority of a shard's members answers, and they have just been changed: the "
                 "previous members are members again",
                 KV_U64("shard", r->shard), KV_U64("term", term), KV_CSTR("leader", to));
        return;
    }
    if (opened)
        return;
    to = lead_pass(r->rs->lead, r->shard,
                   r->node ? "no majority of the members answered the leader before"
                           : "the leader before could not open the shard");
    if (to && r->node)
        log_warn("no majority of a shard's members answers: another one is to lead",
                 KV_U64("shard", r->shard), KV_U64("term", term), KV_CSTR("to", to));
    else if (to)
        log_warn("a shard cannot be opened to lead it: another member is to lead",
                 KV_U64("shard", r->shard), KV_U64("term", term), KV_CSTR("to", to));
}

void replicas_lost_majority(struct replica_of *r)
{
    struct replica_state st = replica_now(r);
    const struct repl_record *rec = view_record(r->rs->view, r->shard, NULL);
    uint64_t now = replicas_now_ms(r->rs);
    bool leading = st.role == REPLICA_LEADING;

    if (!rec || !replica_is_named(r) || (leading && has_majority(r))) {
        r->alone_ms = 0;
        return;
    }
    if (!r->alone_ms || r->alone_term != rec->term ||
        (!leading && r->alone_last != st.last_index)) {
        r->alone_ms = now;
        r->alone_term = rec->term;
        r->alone_last = st.last_index;
        return;
    }
    bool hangs = disk_watch_hangs(r->rs->in->disk_watch);
    if (now - r->alone_ms < (leading ? LEADING_MS : hangs ? HUNG_MS : PREPARING_MS))
        return;
    r->alone_ms = now;
    if (st.lacks)
        log_error("a shard has no leader: entries that a majority had stored are on none of the "
                  "members that answer. The data folder of one of them was restored from an old "
                  "copy, or its disk lost writes. Start the member that is away; if its data are "
                  "lost for good, restore the shard from a backup",
                  KV_U64("shard", r->shard), KV_U64("committed", st.lacks),
                  KV_U64("last", st.last_index));
    pass_on(r, rec->term, st.opened && has_majority(r));
}
