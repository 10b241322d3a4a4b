/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_aim: faults that wait for their moment. Chance alone seldom hits the few milliseconds in
 * which a mistake of a protocol shows; so what leads there is got ready, and strikes
 *
 *   after an ack         all disks but the leader's are slow; the power goes everywhere the moment
 *                        a push was acked, and the leader comes back late
 *   after a vote         an old leader keeps one friend, and a client; when a new one is named, the
 *                        friend, which is just giving it its voice, loses power and comes back
 *   in a change          of members: the leader is cut off from all but the member that leaves
 *   a leader that blinks it loses power among its fsyncs and is back within its lease, while one
 *                        follower is not to be reached
 *
 * Each is an ordinary fault, no worse than those of sim_fault.c: whatever was acked must be there.
 */
#include "common/base/mem.h"
#include "tests/lib/sim_impl.h"

#define ARMED_MS 6000

/* Something that befalls somebody at its time. */
struct deed {
    struct list link;
    struct world *w;
    struct timer *timer;
    void (*fn)(struct world *w, const struct deed *d);
    size_t at; /* of nodes[] */
    uint64_t a, b;
};

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

static void deed_in(struct world *w, uint64_t ms, void (*fn)(struct world *w, const struct deed *d),
                    size_t at, uint64_t a, uint64_t b)
{
    struct deed *d = XNEW(struct deed);

    *d = (struct deed){ .w = w, .fn = fn, .at = at, .a = a, .b = b };
    list_add_tail(&w->deeds, &d->link);
    d->timer = loop_timer_new(w->rpc.loop, deed_run, d);
    loop_timer_start(d->timer, ms, 0);
}

/* ---- who is who ------------------------------------------------------------------------------ */

static struct node *ingester_named(struct world *w, const char *name)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP && strcmp(w->nodes[i]->name, name) == 0)
            return w->nodes[i];
    return NULL;
}

static const struct repl_record *record_of(struct world *w, uint32_t shard)
{
    int64_t rev;

    return view_record(w->view, shard, &rev);
}

/* Another member that runs, or NULL. */
static struct node *other_member(struct world *w, const struct repl_record *rec,
                                 const struct node *than)
{
    uint32_t n = rec->members.len, from = (uint32_t)prng_below(&w->p, MAX(n, 1u));

    for (uint32_t i = 0; i < n; i++) {
        struct node *m = ingester_named(w, rec->members.names[(from + i) % n]);
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

static void deed_start(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state == NODE_OFF)
        node_start(n);
}

/* a: without power; b: it is back so much later. */
static void deed_crash(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP || n->draining)
        return;
    if (d->a)
        count(w)->power_cuts++;
    else
        count(w)->kills++;
    n = node_crash(n, d->a != 0, true);
    n->wake_ms = world_ms(w) + d->b + 3000; /* where the deed below comes to nothing */
    deed_in(w, d->b, deed_start, n->at, 0, 0);
}

static void deed_push(struct world *w, const struct deed *d)
{
    (void)d;
    push_new(w);
}

static void deed_read(struct world *w, const struct deed *d)
{
    (void)d;
    read_new(w, (uint32_t)prng_below(&w->p, SERVICES));
}

static void busy(struct world *w, uint64_t for_ms)
{
    for (uint64_t at = 0; at < for_ms; at += 20 + prng_below(&w->p, 120))
        deed_in(w, at, prng_chance(&w->p, 0.7) ? deed_push : deed_read, 0, 0, 0);
}

static void cut_pair(struct node *a, struct node *b)
{
    node_cut_to(a, b);
    node_cut_to(b, a);
}

/* A distributor or querier that does not hear what changes. */
static void deafen(struct world *w, size_t first, size_t n)
{
    struct node *node = w->nodes[first + prng_below(&w->p, n)];

    if (node->state == NODE_UP)
        node_cut(node, CUT_COORD);
}

/* The leader goes on for those who have not heard of another one. */
static void isolate(struct world *w, struct node *leader, const struct node *friend)
{
    count(w)->isolated++;
    node_cut(leader, CUT_COORD);
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != leader && w->nodes[i] != friend && w->nodes[i]->state == NODE_UP)
            cut_pair(leader, w->nodes[i]);
    deafen(w, FIRST_DIST, SIM_DISTS);
    deafen(w, FIRST_QUERIER, SIM_QUERIERS);
    w->aims.hold_until_ms = world_ms(w) + 5000 + prng_below(&w->p, 6000);
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
    w->aims.ack_until_ms = world_ms(w) + ARMED_MS;
    busy(w, 2000);
}

static void deed_dark(struct world *w, const struct deed *d)
{
    count(w)->blackouts++;
    count(w)->aimed_acks++;
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP) {
            struct node *n = node_crash(w->nodes[i], true, true);
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
    const struct repl_record *rec = record_of(w, (uint32_t)prng_below(&w->p, SIM_SHARDS));
    struct node *leader = rec ? ingester_named(w, rec->leader) : NULL;
    struct node *friend = leader ? other_member(w, rec, leader) : NULL;

    if (!friend || nodes_down(w) > 0)
        return;
    if (prng_chance(&w->p, 0.4))
        friend = NULL;
    isolate(w, leader, friend);
    if (friend)
        w->aims.vote_until_ms = w->aims.hold_until_ms;
}

static void ready_for_change(struct world *w)
{
    w->aims.change_until_ms = world_ms(w) + 3 * ARMED_MS;
    ring_change(w);
}

/* A new leader is named: who is friends with the old one votes now. */
static void strike_vote(struct world *w, const struct repl_record *rec)
{
    for (uint32_t i = 0; i < rec->members.len; i++) {
        struct node *n = ingester_named(w, rec->members.names[i]);
        if (!n || n->cut || n->away || strcmp(n->name, rec->leader) == 0)
            continue;
        w->aims.vote_until_ms = 0;
        count(w)->aimed_votes++;
        deed_in(w, prng_below(&w->p, 40), deed_crash, n->at, prng_below(&w->p, 2),
                prng_below(&w->p, 200));
        return;
    }
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

    for (uint32_t s = 0; s < SIM_SHARDS && !w->settling; s++) {
        const struct repl_record *rec = record_of(w, s);

        if (!rec || rec->term <= w->aims.terms[s])
            continue;
        w->aims.terms[s] = rec->term;
        if (soon(w, w->aims.vote_until_ms))
            strike_vote(w, rec);
        else if (soon(w, w->aims.change_until_ms) && rec->prev_members.len && !rec->established)
            strike_change(w, rec);
    }
}

/* ---- a leader that blinks -------------------------------------------------------------------- */

/* Nobody of the others reaches it, nor hears it. */
static void deed_silence(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP)
        return;
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i] != n && w->nodes[i]->state == NODE_UP)
            cut_pair(n, w->nodes[i]);
}

static void blink(struct world *w)
{
    const struct repl_record *rec = record_of(w, (uint32_t)prng_below(&w->p, SIM_SHARDS));
    struct node *leader = rec ? ingester_named(w, rec->leader) : NULL;
    struct node *follower = leader ? other_member(w, rec, leader) : NULL;

    if (!follower || nodes_down(w) > 0)
        return;
    count(w)->blinks++;
    leader->disk.slow_ms = (uint32_t)(100 + prng_below(&w->p, 400));
    busy(w, 1500);
    w->aims.hold_until_ms = world_ms(w) + 4000;
    deed_in(w, 300 + prng_below(&w->p, 900), deed_crash, leader->at, 1, prng_below(&w->p, 300));
    if (prng_chance(&w->p, 0.7))
        deed_in(w, 300 + prng_below(&w->p, 900), deed_silence, follower->at, 1, 0);
}

/* ---- all of them ----------------------------------------------------------------------------- */

void aim(struct world *w)
{
    switch (prng_below(&w->p, 4)) {
    case 0:
        ready_for_ack(w);
        break;
    case 1:
        ready_for_vote(w);
        break;
    case 2:
        ready_for_change(w);
        break;
    default:
        blink(w);
        break;
    }
}

void aims_open(struct world *w)
{
    list_init(&w->deeds);
    view_watch(w->view, on_view, w);
}

void aims_close(struct world *w)
{
    view_unwatch(w->view, on_view, w);
    list_for (it, &w->deeds)
        deed_free(container_of(it, struct deed, link));
}
