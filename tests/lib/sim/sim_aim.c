/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_aim: faults that wait for their moment. Chance alone seldom hits the few milliseconds in
 * which a mistake of a protocol shows; so what leads there is got ready, and strikes
 *
 *   after an ack         all disks but the leader's are slow; the power goes everywhere the moment
 *                        a push was acked, and the leader comes back late
 *   after a vote         an old leader keeps one friend, and a client; when a new leader is named,
 *                        the friend, which is just giving it its vote, loses power and comes back
 *   in a change          of members: the leader is cut off from all but the member that leaves
 *   a leader that blinks it loses power among its fsyncs and is back within its lease, while one
 *                        follower is not to be reached
 *   a disk is replaced   of the one member that has all the leader has, while the leader is cut
 *                        off; or the log of this member is damaged
 *   a late frame, a record that is missed: sim_order.c
 *   a place changes      while those who had it are cut off: sim_place.c
 *   a copy comes in      sim_copy.c, which needs no preparation
 *
 * Two of three worlds have a liking for one of them.
 *
 * Each is an ordinary fault, no worse than those of sim_fault.c: whatever was acked must be there.
 */
#include "common/base/mem.h"
#include "tests/lib/sim/sim_impl.h"

#define ARMED_MS 6000

static void deed_free(struct deed *d)
{
    list_del(&d->link);
    loop_timer_free(d->timer);
    xfree(d);
}

static void deed_run(void *cookie)
{
    struct deed *d = cookie;

    if (!d->w->settling && !d->w->ret->broken)
        d->fn(d->w, d);
    deed_free(d);
}

void deed_in(struct world *w, uint64_t ms, void (*fn)(struct world *w, const struct deed *d),
             size_t at, uint64_t a, uint64_t b)
{
    struct deed *d = XNEW(struct deed);

    *d = (struct deed){ .w = w, .fn = fn, .at = at, .a = a, .b = b };
    list_add_tail(&w->deeds, &d->link);
    d->timer = loop_timer_new(w->rpc.loop, deed_run, d);
    loop_timer_start(d->timer, ms, 0);
}

/* ---- names of nodes -------------------------------------------------------------------------- */

struct node *ingester_named(struct world *w, const char *name)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP && strcmp(w->nodes[i]->name, name) == 0)
            return w->nodes[i];
    return NULL;
}

const struct repl_record *record_of(struct world *w, uint32_t shard)
{
    int64_t rev;

    return view_record(w->view, shard, &rev);
}

/* Another member, the last to come forward where the leader is gone (lead.c); NULL: none runs. */
static struct node *last_member(struct world *w, const struct repl_record *rec,
                                const struct node *than)
{
    for (uint32_t i = rec->members.len; i-- > 0;) {
        struct node *m = ingester_named(w, rec->members.names[i]);
        if (m && m != than)
            return m;
    }
    return NULL;
}

static bool soon(const struct world *w, uint64_t until_ms)
{
    return until_ms && world_ms(w) < until_ms;
}

/* ---- what is done ---------------------------------------------------------------------------- */

void deed_start(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state == NODE_OFF)
        node_start(n);
}

void deed_crash(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP || n->draining)
        return;
    if (d->a)
        count(w)->power_cuts++;
    else
        count(w)->kills++;
    n = node_crash(n, d->a != 0, CRASH_QUICK);
    n->wake_ms = world_ms(w) + d->b + 3000; /* where the deed below comes to nothing */
    deed_in(w, d->b, deed_start, n->at, 0, 0);
}

static void deed_push(struct world *w, const struct deed *d)
{
    (void)d;
    push_new(w);
}

/* Services that are deleted are not the only ones that are read. */
static void deed_delete(struct world *w, const struct deed *d)
{
    (void)d;
    delete_new(w);
}

static void deed_read(struct world *w, const struct deed *d)
{
    (void)d;
    read_new(w, (uint32_t)prng_below(&w->p, SERVICES));
}

void busy(struct world *w, uint64_t for_ms)
{
    for (uint64_t at = 0; at < for_ms; at += 20 + prng_below(&w->p, 120))
        deed_in(w, at,
                prng_chance(&w->p, 0.7)   ? deed_push
                : prng_chance(&w->p, 0.9) ? deed_read
                                          : deed_delete,
                0, 0, 0);
}

void cut_pair(struct node *a, struct node *b)
{
    node_cut_to(a, b);
    node_cut_to(b, a);
}

/* A distributor or querier that does not hear what changes. */
void deafen(struct world *w, size_t first, size_t n)
{
    struct node *node = w->nodes[first + prng_below(&w->p, n)];

    if (node->state == NODE_UP)
        node_cut(node, CUT_COORD);
}

/* The leader still serves clients that do not know another leader. */
static void isolate(struct world *w, struct node *leader, const struct node *friend)
{
    count(w)->isolated++;
    node_cut(leader, CUT_COORD);
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != leader && w->nodes[i] != friend && w->nodes[i]->state == NODE_UP)
            cut_pair(leader, w->nodes[i]);
    deafen(w, FIRST_DIST, SIM_DISTS);
    deafen(w, FIRST_QUERIER, SIM_QUERIERS);
    w->aims.hold_until_ms = world_ms(w) + 6000 + prng_below(&w->p, 5000);
    busy(w, w->aims.hold_until_ms - world_ms(w));
}

/* ---- after an ack ---------------------------------------------------------------------------- */

static void slow_disks(struct world *w, const struct node *but)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != but)
            w->nodes[i]->disk.slow_ms = (uint32_t)(100 + prng_below(&w->p, 700));
}

static void ready_for_ack(struct world *w)
{
    const struct repl_record *rec = record_of(w, (uint32_t)prng_below(&w->p, SIM_SHARDS));
    struct node *leader = rec ? ingester_named(w, rec->leader) : NULL;

    if (!leader)
        return;
    slow_disks(w, leader);
    w->aims.hold_until_ms = w->aims.ack_until_ms = world_ms(w) + ARMED_MS;
    busy(w, 2000);
}

static void deed_dark(struct world *w, const struct deed *d)
{
    count(w)->blackouts++;
    count(w)->aimed_acks++;
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP) {
            struct node *n = node_crash(w->nodes[i], true, CRASH_QUICK);
            n->wake_ms = world_ms(w) + (i == d->at ? d->a : prng_below(&w->p, 600));
        }
}

void aim_acked(struct world *w, uint32_t service)
{
    uint32_t shards[SIM_SHARDS];
    const struct repl_record *rec;
    struct node *leader;
    size_t n;

    if (!soon(w, w->aims.ack_until_ms) || w->settling)
        return;
    n = view_places(w->view, str_c(services[service].tenant), str_c(services[service].name), shards,
                    SIM_SHARDS);
    rec = n ? record_of(w, shards[prng_below(&w->p, MIN(n, (size_t)SIM_SHARDS))]) : NULL;
    leader = rec ? ingester_named(w, rec->leader) : NULL;
    if (!leader)
        return;
    w->aims.ack_until_ms = 0;
    deed_in(w, 0, deed_dark, leader->at, prng_chance(&w->p, 0.7) ? 15000 : 500, 0);
}

/* ---- after a vote, in a change of members ---------------------------------------------------- */

static void ready_for_vote(struct world *w)
{
    uint32_t shard = (uint32_t)prng_below(&w->p, SIM_SHARDS);
    const struct repl_record *rec = record_of(w, shard);
    struct node *leader = rec ? ingester_named(w, rec->leader) : NULL;
    struct node *friend = leader ? last_member(w, rec, leader) : NULL;

    if (!friend)
        return;
    if (prng_chance(&w->p, 0.3)) {
        isolate(w, leader, NULL);
        return;
    }
    for (size_t i = 0; i < w->ingesters; i++) /* the new leader begins late */
        if (w->nodes[i] != leader && w->nodes[i] != friend)
            w->nodes[i]->disk.slow_ms = (uint32_t)(100 + prng_below(&w->p, 400));
    isolate(w, leader, NULL); /* nor the friend: the new leader must lack nothing */
    w->aims.friend = friend->at;
    w->aims.leader = leader->at;
    w->aims.shard = shard;
    w->aims.vote_until_ms = w->aims.hold_until_ms;
}

static void ready_for_change(struct world *w)
{
    w->aims.change_until_ms = world_ms(w) + 3 * ARMED_MS;
    if (prng_chance(&w->p, 0.4))
        ring_lose(w);
    else
        ring_change(w);
}

/* A new leader is named: the friend of the old one votes now. */
static void strike_vote(struct world *w, const struct repl_record *rec)
{
    struct node *n = w->nodes[w->aims.friend];

    if (n->state != NODE_UP || strcmp(n->name, rec->leader) == 0 ||
        !name_set_has(&rec->members, n->name))
        return;
    w->aims.vote_until_ms = 0;
    count(w)->aimed_votes++;
    trace(w, "vote of %s for %s", n->name, rec->leader);
    deed_in(w, 3 + prng_below(&w->p, 30), deed_crash, n->at, prng_below(&w->p, 2),
            prng_below(&w->p, 30));
    w->nodes[w->aims.leader]->away &=
        ~(1u << n->at); /* from now on: the other way when n is back */
    for (uint64_t ms = 30; ms < 300; ms += 10)
        deed_in(w, ms, deed_push, 0, 0, 0);
}

static void strike_change(struct world *w, const struct repl_record *rec)
{
    struct node *leader = ingester_named(w, rec->leader), *leaver = NULL;

    for (uint32_t i = 0; i < rec->prev_members.len && !leaver; i++)
        if (!name_set_has(&rec->members, rec->prev_members.names[i]))
            leaver = ingester_named(w, rec->prev_members.names[i]);
    if (!leader || nodes_down(w) > 0)
        return;
    w->aims.change_until_ms = 0;
    count(w)->aimed_changes++;
    if (leaver && leaver != leader)
        leaver->disk.slow_ms = (uint32_t)(100 + prng_below(&w->p, 400));
    isolate(w, leader, leaver);
}

static void on_view(void *cookie)
{
    struct world *w = cookie;

    if (!w->settling)
        place_seen(w);
    for (uint32_t s = 0; s < SIM_SHARDS && !w->settling; s++) {
        const struct repl_record *rec = record_of(w, s);

        if (!rec || rec->term <= w->aims.terms[s])
            continue;
        w->aims.terms[s] = rec->term;
        if (soon(w, w->aims.vote_until_ms) && s == w->aims.shard)
            strike_vote(w, rec);
        else if (soon(w, w->aims.change_until_ms) && rec->prev_members.len && !rec->established)
            strike_change(w, rec);
    }
}

/* ---- a leader that blinks -------------------------------------------------------------------- */

/* at: the leader; a: the member that had all from it and is unreachable now; b: the other. */
static void deed_blink(struct world *w, const struct deed *d)
{
    struct node *leader = w->nodes[d->at], *had = w->nodes[d->a], *lacks = w->nodes[d->b];

    if (leader->state != NODE_UP || had->state != NODE_UP || lacks->state != NODE_UP)
        return;
    if (world_ms(w) < w->aims.once_until_ms &&
        (!leader->disk.unsynced || leader->disk.unsynced != w->aims.unsynced)) {
        w->aims.unsynced = leader->disk.unsynced; /* what it wrote is with others and not synced */
        deed_in(w, 12, deed_blink, d->at, d->a, d->b);
        return;
    }
    count(w)->blinks++;
    trace(w, "blink of %s, %s had, %s lacks", leader->name, had->name, lacks->name);
    count(w)->power_cuts++;
    for (size_t i = FIRST_DIST; i < FIRST_QUERIER; i++) /* what was under way is not tried again */
        if (w->nodes[i]->state == NODE_UP) {
            (void)node_crash(w->nodes[i], false, CRASH_QUICK);
            deed_in(w, prng_below(&w->p, 200), deed_start, i, 0, 0);
        }
    leader = node_crash(leader, true, CRASH_QUICK);
    leader->wake_ms = world_ms(w) + 3000;
    deed_in(w, prng_below(&w->p, 200), deed_start, leader->at, 0, 0);
    lacks->away = 0;
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != had)
            cut_pair(had, w->nodes[i]);
    busy(w, 1500);
}

bool three(struct world *w, uint32_t shard, struct node **leader, struct node **had,
           struct node **lacks)
{
    const struct repl_record *rec = record_of(w, shard);

    *leader = rec ? ingester_named(w, rec->leader) : NULL;
    *had = *lacks = NULL;
    for (uint32_t i = 0; *leader && rec->members.len == 3 && i < 3; i++) {
        struct node *n = ingester_named(w, rec->members.names[i]);
        if (!n || n == *leader)
            continue;
        if (!*had)
            *had = n;
        else
            *lacks = n;
    }
    return *lacks != NULL;
}

static void blink(struct world *w)
{
    struct node *leader, *had, *lacks;

    if (!three(w, (uint32_t)prng_below(&w->p, SIM_SHARDS), &leader, &had, &lacks))
        return;
    leader->disk.slow_ms = (uint32_t)(100 + prng_below(&w->p, 300));
    cut_pair(leader, lacks);
    busy(w, 1200);
    w->aims.once_until_ms = world_ms(w) + 1200;
    w->aims.hold_until_ms = world_ms(w) + 4500;
    deed_in(w, 300 + prng_below(&w->p, 700), deed_blink, leader->at, had->at, lacks->at);
}

/* ---- a disk that is replaced ----------------------------------------------------------------- */

/* at: the leader, alone from now on; a: gets an empty disk; b: lacks what only those two have. */
static void deed_replace(struct world *w, const struct deed *d)
{
    struct node *leader = w->nodes[d->at], *had = w->nodes[d->a], *lacks = w->nodes[d->b];
    bool rots;

    if (leader->state != NODE_UP || had->state != NODE_UP || lacks->state != NODE_UP ||
        had->draining || w->lost || w->whole || !ring_solid(w))
        return;
    had->wipe = prng_chance(&w->p, 0.6) && w->o.mutant != SIM_ROT_TORN;
    count(w)->disks_replaced += had->wipe;
    rots = !had->wipe;
    had = node_crash(had, true, CRASH_QUICK);
    if (rots)
        (void)sim_disk_rot(&had->disk, w->aims.shard);
    had->wake_ms = world_ms(w) + 3000;
    deed_in(w, prng_below(&w->p, 500), deed_start, had->at, 0, 0);
    lacks->away = 0;
    node_cut(leader, CUT_IN | CUT_OUT | CUT_COORD);
    busy(w, 4000);
}

static void replace(struct world *w)
{
    struct node *leader, *had, *lacks;

    w->aims.shard = (uint32_t)prng_below(&w->p, SIM_SHARDS);
    if (!three(w, w->aims.shard, &leader, &had, &lacks))
        return;
    cut_pair(leader, lacks);
    busy(w, 1500);
    w->aims.hold_until_ms = world_ms(w) + 8000;
    deed_in(w, 600 + prng_below(&w->p, 700), deed_replace, leader->at, had->at, lacks->at);
}

/* ---- all of them ----------------------------------------------------------------------------- */

static void deed_aim(struct world *w, const struct deed *d)
{
    static void (*const aims[SIM_AIMS])(struct world *) = {
        ready_for_ack, ready_for_vote, ready_for_change, blink,
        replace,       late_frame,     missed_record,    moved_place,
    };

    (void)d;
    aims[w->aims.mood < SIM_AIMS ? w->aims.mood : prng_below(&w->p, SIM_AIMS)](w);
}

/* Begins with all that runs and hears each other: or the moment never comes. */
bool all_run(struct world *w)
{
    if (world_ms(w) < w->aims.hold_until_ms)
        return false;
    nodes_heal(w);
    for (size_t i = 0; i < SIM_NODES; i++) {
        w->nodes[i]->disk.full = false;
        w->nodes[i]->disk.slow_ms = 0;
        if (w->nodes[i]->state == NODE_OFF && w->nodes[i]->wake_ms)
            node_start(w->nodes[i]);
    }
    return true;
}

void aim(struct world *w)
{
    if (!all_run(w))
        return;
    w->aims.hold_until_ms = world_ms(w) + 3000;
    deed_in(w, 1000 + prng_below(&w->p, 2000), deed_aim, 0, 0, 0);
}

void aims_open(struct world *w)
{
    list_init(&w->deeds);
    order_open(w);
    forget_open(w);
    between_open(w);
    view_watch(w->view, on_view, w);
}

void aims_close(struct world *w)
{
    view_unwatch(w->view, on_view, w);
    order_close(w);
    list_for (it, &w->deeds)
        deed_free(container_of(it, struct deed, link));
}
