/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_order: more faults of sim_aim.c, of what comes in another order than it was sent.
 *   a late frame          the leader reaches one follower only. One message with entries to this
 *                         follower is held back, while later ones are sent, acked to clients and
 *                         committed; it arrives the moment before the leader loses power
 *   a record is missed    the leader is cut off, with writes on their way; the shard is handed to
 *                         another node, which takes some, and then back to the first. The first
 *                         gets both records at once, and so only the newest
 *   a node sleeps         a leader or compactor, longer than its lease: its messages arrive when
 *                         others have its place, and so do messages to it (sim_fault.c)
 */
#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/repl/protocol/msg.h"
#include "common/rpc/rpc_frame.h"
#include "tests/lib/sim/sim_impl.h"

/* ---- a late frame ---------------------------------------------------------------------------- */

/* Is it an append to that shard, with entries? */
static bool is_append(struct str bytes, uint32_t shard)
{
    struct rpc_frame f;
    struct repl_msg m;
    enum rpc_drop why;
    struct err e;
    bool yes;

    if (rpc_frame_parse(bytes, RPC_FRAME_VERSION_MIN, RPC_FRAME_VERSION, &f, &why, &e) ||
        f.kind != RPC_REQUEST || f.method != RPC_REPL_APPEND || f.flags || f.total != f.body.len ||
        repl_msg_read(f.body, &m, &e))
        return false;
    yes = m.shard == shard && m.entries_len > 0;
    repl_msg_free(&m);
    return yes;
}

static uint64_t late_ms(void *cookie, const char *from, const char *to, struct str bytes)
{
    struct world *w = cookie;
    struct sim_aims *a = &w->aims;
    uint64_t now = world_ms(w);

    if (w->held.until_ms > now && (strcmp(from, w->nodes[w->held.at]->addr) == 0 ||
                                   strcmp(to, w->nodes[w->held.at]->addr) == 0))
        return w->held.until_ms - now;
    if (a->late.until_ms <= now || a->late.taken ||
        strcmp(from, w->nodes[a->late.from]->addr) != 0 ||
        strcmp(to, w->nodes[a->late.to]->addr) != 0 || !is_append(bytes, a->late.shard))
        return 0;
    a->late.taken = true;
    trace(w, "an append from %s to %s is late by %" PRIu64 " ms", w->nodes[a->late.from]->name,
          w->nodes[a->late.to]->name, a->late.until_ms - now);
    return a->late.until_ms - now;
}

/* Right after that frame: at is the leader, a the follower that got it, b the follower that lacks
 * all. */
static void deed_behind(struct world *w, const struct deed *d)
{
    struct node *leader = w->nodes[d->at], *lacks = w->nodes[d->b];
    bool taken = w->aims.late.taken;

    w->aims.late.until_ms = 0;
    if (!taken || leader->state != NODE_UP || w->nodes[d->a]->state != NODE_UP ||
        lacks->state != NODE_UP)
        return;
    count(w)->late_frames++;
    count(w)->power_cuts++;
    leader = node_crash(leader, true, CRASH_QUICK);
    leader->wake_ms = world_ms(w) + 9000 + prng_below(&w->p, 4000);
    lacks->away = 0;
    busy(w, 6000);
}

/* A message is held back from now on. */
static void deed_hold(struct world *w, const struct deed *d)
{
    uint64_t for_ms = 250 + prng_below(&w->p, 500);

    if (w->nodes[d->at]->state != NODE_UP || w->nodes[d->a]->state != NODE_UP)
        return;
    w->aims.late.from = d->at;
    w->aims.late.to = d->a;
    w->aims.late.taken = false;
    w->aims.late.until_ms = world_ms(w) + for_ms;
    deed_in(w, for_ms + 1, deed_behind, d->at, d->a, d->b);
}

void late_frame(struct world *w)
{
    uint32_t shard = (uint32_t)prng_below(&w->p, SIM_SHARDS);
    struct node *leader, *had, *lacks;

    if (!three(w, shard, &leader, &had, &lacks))
        return;
    cut_pair(leader, lacks);
    busy(w, 1600);
    w->aims.late.shard = shard;
    w->aims.hold_until_ms = world_ms(w) + 10000;
    deed_in(w, 300 + prng_below(&w->p, 500), deed_hold, leader->at, had->at, lacks->at);
}

/* ---- a record that is missed ----------------------------------------------------------------- */

#define ASK_MS   50
#define ASK_MOST 34 /* less than a lease in all: a node that is cut off still counts as alive */

/* As `embertreectl cluster rebalance` does it. */
void hand_over(struct world *w, uint32_t shard, const char *to)
{
    struct coord_key key = key_shard(STR(SIM_PREFIX), shard);
    struct coord_compare cmp = { .key = key_str(&key) };
    const struct repl_record *now = view_record(w->view, shard, &cmp.rev);
    struct coord_change chg = { .key = cmp.key };
    struct repl_record next;
    struct buf text;

    /* A node does not write to a service that it does not trust. A node that was cut off before the
     * service was rebuilt would follow this write, and no other, until nodes have used the right
     * one for a while. */
    if (!now || !name_set_has(&now->members, to) || !view_trusts(w->view))
        return;
    record_next_leader(now, to, &next);
    buf_init(&text, RECORD_BYTES_MAX);
    record_write(&next, &text);
    chg.value = buf_str(&text);
    trace(w, "shard %" PRIu32 " is handed to %s", shard, to);
    coord_txn(w->coord, &(struct coord_txn){ .cmp = &cmp, .cmp_len = 1, .chg = &chg, .chg_len = 1 },
              NULL, NULL);
    buf_deinit(&text);
}

/* What it wrote for others comes through again. */
static void deed_reach(struct world *w, const struct deed *d)
{
    for (size_t i = 0; i < w->ingesters; i++)
        w->nodes[i]->away &= ~(1u << d->at);
    w->nodes[d->at]->away = 0;
    node_cut(w->nodes[d->at], 0); /* the network is as the nodes say */
}

static void deed_hear(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP)
        return;
    n->cut &= ~(unsigned)CUT_COORD;
    coord_sim_cut(n->coord, false);
    trace(w, "%s gets changes again", n->name);
    deed_in(w, 120 + prng_below(&w->p, 200), deed_reach, d->at, 0, 0);
}

/* Does another node lead by now? at: the old leader; a: the shard; b: how often it was asked. */
static void deed_back(struct world *w, const struct deed *d)
{
    uint32_t shard = (uint32_t)d->a;
    const struct repl_record *rec = record_of(w, shard);
    struct node *first = w->nodes[d->at];

    if (first->state != NODE_UP || !rec || d->b > ASK_MOST)
        return;
    if (strcmp(rec->leader, first->name) == 0 || !rec->established) {
        deed_in(w, ASK_MS, deed_back, d->at, d->a, d->b + 1);
        return;
    }
    if (d->b < ASK_MOST - 16) { /* it leads: some writes */
        deed_in(w, 400, deed_back, d->at, d->a, ASK_MOST - 2);
        return;
    }
    count(w)->missed_records++;
    hand_over(w, shard, first->name);
    deed_in(w, 40, deed_hear, first->at, 0, 0);
}

static void deed_away(struct world *w, const struct deed *d)
{
    uint32_t shard = (uint32_t)d->a;
    const struct repl_record *rec = record_of(w, shard);
    struct node *first = w->nodes[d->at];

    if (first->state != NODE_UP || !rec || strcmp(rec->leader, first->name) != 0)
        return;
    hand_over(w, shard, w->nodes[d->b]->name);
    deed_in(w, ASK_MS, deed_back, first->at, shard, 0);
}

void missed_record(struct world *w)
{
    uint32_t shard = (uint32_t)prng_below(&w->p, SIM_SHARDS);
    struct node *leader, *other, *third;

    if (!three(w, shard, &leader, &other, &third))
        return;
    node_cut(leader, CUT_COORD);
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != leader && w->nodes[i]->state == NODE_UP)
            cut_pair(leader, w->nodes[i]);
    deafen(w, FIRST_DIST, SIM_DISTS);
    busy(w, 5000);
    w->aims.hold_until_ms = world_ms(w) + 6000;
    deed_in(w, 100 + prng_below(&w->p, 400), deed_away, leader->at, shard, other->at);
}

/* ---- a node sleeps --------------------------------------------------------------------------- */

static void deed_awake(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP)
        return;
    n->cut &= ~(unsigned)CUT_COORD;
    coord_sim_cut(n->coord, false);
    trace(w, "%s is awake", n->name);
}

void hold(struct world *w)
{
    bool compactor = prng_chance(&w->p, 0.4);
    const struct repl_record *r = record_of(w, (uint32_t)prng_below(&w->p, SIM_SHARDS));
    struct node *n = compactor ? any_of(w, FIRST_COMPACT, SIM_COMPACTS)
                     : r       ? ingester_named(w, r->leader)
                               : NULL;
    uint64_t ms = 1000 + prng_below(&w->p, 9000);

    if (!n || w->held.until_ms > world_ms(w) || (!compactor && nodes_down(w) > 0))
        return;
    count(w)->held++;
    trace(w, "%s sleeps for %" PRIu64 " ms", n->name, ms);
    w->held.at = n->at;
    w->held.until_ms = world_ms(w) + ms;
    node_cut(n, CUT_COORD);
    deed_in(w, ms, deed_awake, n->at, 0, 0);
}

void order_open(struct world *w)
{
    rpc_mem_late(w->rpc.net, late_ms, w);
}

void order_close(struct world *w)
{
    rpc_mem_late(w->rpc.net, NULL, NULL);
}
