/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_disk: a node whose disk is full, fails or hangs lets other members lead.
 *
 * Nearly full: leaders learn it, and the lead of a shard is handed over to a member that has room
 * and nearly all of the log. Where no member has room, one leads nevertheless, and refuses writes
 * by the disk reserve, as a shard without copies does (rpc_write.c).
 *
 * Hanging (disk_watch.h): entries commit without us as long as a majority has them, but none is
 * applied here before our own fsync, so writes are not acked and reads not answered. Nothing fails,
 * and no lease ends. So all shards led here go to members that are up to date. A member is up to
 * date if it answered within a second, lacks few entries, and acks these: a member whose disk
 * hangs, too, still answers heartbeats. These members must be a majority without this node. If no
 * member can take up the lead, it stays here, and reads of applied rows are still answered. Where
 * the term is not established former members count as well, so such a term is not given away.
 *
 * The new leader asks for a promise. The loop steps down at once, though the record of the promise
 * is never synced, and writes that wait end with ERR_UNAVAILABLE.
 */
#include "common/obs/log.h"
#include "ingester/replicas/replicas_impl.h"

#define HEARD_TICKS 40   /* a second: the peer says what is so now */
#define NEARLY      1024 /* entries behind and yet fit to lead */

/* More room, then more of the log. */
static bool better(const struct replica_peer *p, const struct replica_peer *than)
{
    if (!than->name || p->no_room != than->no_room)
        return !than->name || than->no_room;
    return p->match > than->match;
}

static void give_room(struct replica_of *r)
{
    struct replica_state st = replica_now(r);
    struct replica_peer p, best = { 0 };
    struct view_node n;

    if (st.role != REPLICA_LEADING || r->rs->handing_over)
        return;
    for (size_t i = 0; repl_node_peer(r->node, i, &p); i++)
        if (p.member && !p.no_room && p.silent_ticks < HEARD_TICKS &&
            p.match + NEARLY >= st.last_index && view_node_find(r->rs->view, p.name, &n) &&
            n.live && better(&p, &best))
            best = p;
    if (best.name)
        replicas_give_lead(r->rs, r->shard, best.name,
                           "the disk of the leader before is nearly full");
}

/* It answers, its disk works, and it has nearly all of the log. */
static bool is_current(const struct replica_of *r, const struct replica_peer *p, uint64_t last)
{
    struct view_node n;

    return p->member && p->silent_ticks < HEARD_TICKS && p->stuck_ticks < HEARD_TICKS &&
           p->match + NEARLY >= last && view_node_find(r->rs->view, p->name, &n) && n.live;
}

static void give_hung(struct replica_of *r)
{
    const struct repl_record *rec = view_record(r->rs->view, r->shard, NULL);
    struct replica_state st = replica_now(r);
    struct replica_peer p, best = { 0 };
    uint32_t current = 0;

    if (!rec || !rec->established || !st.opened || r->rs->handing_over)
        return;
    for (size_t i = 0; repl_node_peer(r->node, i, &p); i++) {
        if (!is_current(r, &p, st.last_index))
            continue;
        current++;
        if (better(&p, &best))
            best = p;
    }
    if (2 * current <= rec->members.len || r->hung_term == rec->term)
        return;
    r->hung_term = rec->term;
    log_warn("the disk hangs: another member is to lead the shard", KV_U64("shard", r->shard),
             KV_U64("term", rec->term), KV_CSTR("to", best.name));
    replicas_give_lead(r->rs, r->shard, best.name, "the disk of the leader before hangs");
}

bool replicas_give_lead_away(struct replica_of *r, const char *why)
{
    struct replica_peer p, best = { 0 };
    struct view_node n;

    for (size_t i = 0; r->node && repl_node_peer(r->node, i, &p); i++)
        if (p.member && view_node_find(r->rs->view, p.name, &n) && n.live && better(&p, &best))
            best = p;
    if (!best.name || !r->rs->lead)
        return false;
    replicas_give_lead(r->rs, r->shard, best.name, why);
    return true;
}

void replicas_note_stalls(const struct replicas *rs, struct disk_watch *w)
{
    for (size_t i = 0; i < rs->len; i++) {
        const struct replica_of *r = rs->at[i];
        struct repl_stall s;

        if (!r->node)
            continue;
        s = repl_node_stall(r->node);
        disk_watch_note(w, "the replication log", r->shard, s.log_ms);
        disk_watch_note(w, "the database", r->shard, s.apply_ms);
    }
}

void replicas_look_at_disk(struct replicas *rs)
{
    bool hangs = disk_watch_hangs(rs->in->disk_watch);
    bool suspect = disk_watch_suspects(rs->in->disk_watch);
    uint64_t left, reserve;

    /* Somewhat before writes are refused, so that none has to be. */
    disk_room(rs->in->disk, &left, &reserve);
    rs->full = left < reserve + reserve / (rs->full ? 2 : 4);
    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];

        if (!r->node || r->at == AT_STOPPING)
            continue;
        repl_node_room(r->node, !rs->full && !suspect);
        if (hangs && replica_is_named(r))
            give_hung(r);
        else if (rs->full && r->at == AT_SERVING && replica_is_named(r))
            give_room(r);
    }
}
