/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_alone: a leader that hears of no majority lets another member lead.
 *
 * A node lives as long as the coordination service hears of it, and a leader that lives is not
 * replaced (common/cluster/lead.c). But the line to that service may be whole while those to the
 * other members are cut, or cut one way: then nothing commits here, and among the others, who may
 * be a majority that sees each other, nobody comes forward. So the leader itself notices that no
 * majority of members has answered for a while, and names another that lives: one after the other,
 * by the term, since it cannot know who sees whom. Where nobody has a majority, the lead goes
 * round, slowly, until somebody does. Nothing depends on it for safety: it is a record like others.
 */
#include "common/obs/log.h"
#include "ingester/replicas_impl.h"

#define TICKS_A_SECOND 40 /* of the protocol */
#define SILENT_TICKS   (2 * TICKS_A_SECOND)
#define LEADING_MS     5000  /* alone for so long, after it led */
#define PREPARING_MS   10000 /* the same before: it may be busy with getting what it lacks */

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

/* The n-th of the other members that live, counted round. */
static const char *other(const struct replica_of *r, uint64_t n)
{
    const char *live[REPLICAS_MAX];
    struct replica_peer p;
    struct view_node node;
    size_t len = 0;

    for (size_t i = 0; repl_node_peer(r->node, i, &p); i++)
        if (p.member && len < REPLICAS_MAX && view_node_find(r->rs->view, p.name, &node) &&
            node.live)
            live[len++] = p.name;
    return len ? live[n % len] : NULL;
}

void cluster_alone(struct replica_of *r)
{
    struct replica_state st = replica_now(r);
    uint64_t now = replicas_now_ms(r->rs);
    bool leading = st.role == REPLICA_LEADING;
    const char *to;

    if (!r->node || !replica_is_named(r) || (leading && has_majority(r))) {
        r->alone_ms = 0;
        return;
    }
    if (!r->alone_ms || r->alone_term != st.record_term ||
        (!leading && r->alone_last != st.last_index)) {
        r->alone_ms = now;
        r->alone_term = st.record_term;
        r->alone_last = st.last_index;
        return;
    }
    if (now - r->alone_ms < (leading ? LEADING_MS : PREPARING_MS))
        return;
    r->alone_ms = now;
    to = other(r, st.record_term);
    if (!to)
        return;
    log_warn("no majority of a shard's members answers: another one is to lead",
             KV_U64("shard", r->shard), KV_U64("term", st.record_term), KV_CSTR("to", to));
    cluster_give(r->rs, r->shard, to);
}
