/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_fault: what befalls nodes, disks, clocks, the network and the coordination service. Mostly
 * one ingester at a time is away, sometimes two, seldom all: then writes must wait, and nothing
 * else.
 */
#include "common/base/hash.h"
#include "tests/lib/sim/sim_impl.h"

#define SKEW_MAX_MS 3900000 /* a little over an hour */

static struct node *any_ingester(struct world *w)
{
    return w->nodes[prng_below(&w->p, w->ingesters)];
}

/* Another one may go. */
static bool spare(struct world *w)
{
    size_t down = nodes_down(w);

    return down == 0 || (down == 1 && prng_below(&w->p, 5) == 0);
}

enum crash_how any_crash(struct world *w)
{
    uint64_t dice = prng_below(&w->p, 10);

    return dice < 4 ? CRASH_SLOW : dice < 8 ? CRASH_QUICK : CRASH_MOVES;
}

/* Power goes where a process was killed and is back, or is about to be: what the first life wrote
 * and did not sync is the second one's to sync. */
static void deed_cut(struct world *w, const struct deed *d)
{
    if (between_holds(w)) /* members of the shard that is watched run on */
        return;
    if (w->nodes[d->at]->state == NODE_UP)
        count(w)->restart_cuts++;
    deed_crash(w, d);
}

static void restart_then_cut(struct world *w, struct node *n)
{
    uint64_t back = prng_below(&w->p, 1000);

    n = node_crash(n, false, CRASH_QUICK);
    n->wake_ms = world_ms(w) + back;
    deed_in(w, back, deed_start, n->at, 0, 0);
    deed_in(w, back + 500 + prng_below(&w->p, 9000), deed_cut, n->at, 1, prng_below(&w->p, 3000));
}

static void crash(struct world *w)
{
    struct node *n = any_ingester(w);
    bool power = prng_chance(&w->p, 0.6);

    if (n->state != NODE_UP || !spare(w))
        return;
    if (nodes_down(w) == 0 && !w->forgot && !w->lost && ring_solid(w) && prng_chance(&w->p, 0.5)) {
        count(w)->databases_lost++; /* the logs are there: a snapshot brings the rest */
        w->forgot = n->disk.forget = true;
        if (power && hash_u64(world_ms(w)) % 2) { /* or each lost some of its rows */
            n->disk.forget = false;
            n->disk.holes = true;
        }
    }
    if (power)
        count(w)->power_cuts++;
    else
        count(w)->kills++;
    if (!power && prng_chance(&w->p, 0.4)) {
        restart_then_cut(w, n);
        return;
    }
    n = node_crash(n, power, any_crash(w));
    n->wake_ms = world_ms(w) + prng_below(&w->p, prng_chance(&w->p, 0.3) ? 1000 : 20000);
}

/* Some of its log is not what it was, found when it is read: at the next start at the latest. */
static void rot(struct world *w, struct node *n)
{
    uint32_t shard = (uint32_t)prng_below(&w->p, SIM_SHARDS);

    trace(w, "the log of shard %" PRIu32 " of %s rots", shard, n->name);
    if (prng_chance(&w->p, 0.5)) {
        n = node_crash(n, prng_chance(&w->p, 0.5), CRASH_QUICK);
        n->wake_ms = world_ms(w) + prng_below(&w->p, 5000);
        (void)sim_disk_rot(&n->disk, shard);
    } else if (sim_disk_rot(&n->disk, shard)) {
        deed_in(w, prng_below(&w->p, 6000), deed_crash, n->at, prng_below(&w->p, 2),
                prng_below(&w->p, 3000));
    }
}

/* It comes back under its name with a disk that knows nothing. */
static void wipe(struct world *w)
{
    struct node *n = any_ingester(w);

    if (n->state != NODE_UP || n->draining || w->lost || nodes_down(w) > 0 || w->whole ||
        !ring_solid(w))
        return;
    if (prng_chance(&w->p, 0.5)) {
        rot(w, n);
        return;
    }
    count(w)->disks_replaced++;
    n->wipe = true;
    n = node_crash(n, true, CRASH_SLOW);
    n->wake_ms = world_ms(w) + prng_below(&w->p, 5000);
}

static void deed_coord_back(struct world *w, const struct deed *d)
{
    (void)d;
    w->away = false;
    coord_site_away(w->site, false);
}

/* The power goes everywhere, and takes its time to be back. */
static void all_dark(struct world *w)
{
    count(w)->all_dark++;
    for (size_t i = FIRST_DIST; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_UP) {
            struct node *n = node_crash(w->nodes[i], false, any_crash(w));
            n->wake_ms = world_ms(w) + prng_below(&w->p, 3000);
        }
    w->away = true;
    coord_site_away(w->site, true);
    deed_in(w, prng_below(&w->p, 4000), deed_coord_back, 0, 0, 0);
}

static void blackout(struct world *w)
{
    bool again = prng_chance(&w->p, 0.4); /* all are killed, come back, and lose power then */

    count(w)->blackouts++;
    if (prng_chance(&w->p, 0.4))
        all_dark(w);
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP && again) {
            restart_then_cut(w, w->nodes[i]);
        } else if (w->nodes[i]->state == NODE_UP) {
            struct node *n = node_crash(w->nodes[i], true, any_crash(w));
            n->wake_ms = world_ms(w) + prng_below(&w->p, 3000);
        }
}

static void crash_other(struct world *w)
{
    struct node *n = w->nodes[FIRST_DIST + prng_below(&w->p, SIM_NODES - FIRST_DIST)];

    if (n->state != NODE_UP)
        return;
    count(w)->other_crashes++;
    if (prng_chance(&w->p, 0.3))
        node_end(n);
    else
        n = node_crash(n, false, any_crash(w));
    n->wake_ms = world_ms(w) + prng_below(&w->p, 3000);
}

/* Requests, or only their answers, do not come through between a caller and an ingester. */
static void one_way(struct world *w)
{
    struct node *asks = w->nodes[FIRST_DIST + prng_below(&w->p, SIM_NODES - FIRST_DIST)];
    struct node *answers = any_ingester(w);

    if (asks->state != NODE_UP || answers->state != NODE_UP)
        return;
    count(w)->one_way++;
    if (prng_chance(&w->p, 0.5))
        node_cut_to(asks, answers);
    else
        node_cut_to(answers, asks);
}

static void partition(struct world *w)
{
    static const unsigned shapes[] = { CUT_OUT | CUT_IN | CUT_COORD, CUT_OUT | CUT_IN, CUT_OUT,
                                       CUT_IN, CUT_COORD };
    bool other = prng_chance(&w->p, 0.2);
    struct node *n =
        other ? w->nodes[FIRST_DIST + prng_below(&w->p, SIM_NODES - FIRST_DIST)] : any_ingester(w);

    if (prng_chance(&w->p, 0.3)) {
        one_way(w);
        return;
    }
    if (n->state != NODE_UP || (!other && !spare(w)))
        return;
    count(w)->partitions++;
    node_cut(n, shapes[prng_below(&w->p, ARRAY_LEN(shapes))]);
}

static void skew(struct world *w)
{
    struct node *n = w->nodes[prng_below(&w->p, SIM_NODES)], *leader;
    int64_t by = (int64_t)prng_below(&w->p, 2 * SKEW_MAX_MS) - SKEW_MAX_MS;
    const struct repl_record *r = record_of(w, (uint32_t)prng_below(&w->p, SIM_SHARDS));

    if (w->forgetful)
        return;
    leader = r && prng_chance(&w->p, 0.3) ? ingester_named(w, r->leader) : NULL;
    n = leader ? leader : n;
    count(w)->skews++;
    w->skewed = true;
    n->clock.skew_ms = prng_chance(&w->p, 0.3) ? 0 : prng_chance(&w->p, 0.5) ? by : by / 1000;
}

static void disk(struct world *w)
{
    struct node *n = any_ingester(w);

    if (n->state != NODE_UP || !spare(w))
        return;
    switch (prng_below(&w->p, 5)) {
    case 0:
        sim_disk_fail_log(&n->disk);
        break;
    case 3:
        refuse_batch(w, n);
        break;
    case 1:
        sim_disk_fail_kv(&n->disk);
        break;
    case 2:
        count(w)->disks_slow++;
        n->disk.slow_ms = (uint32_t)(20 + prng_below(&w->p, 800));
        break;
    default:
        count(w)->disks_full++;
        n->disk.full = true;
        break;
    }
}

/* Of the cold tier; relief ends it. */
void bucket_fault(struct world *w)
{
    struct sim_bucket_faults *f = sim_bucket_faults(w->bucket);

    count(w)->cold_faults++;
    switch (prng_below(&w->p, 3)) {
    case 0:
        f->away = true;
        break;
    case 1:
        f->slow_ms = (uint32_t)(20 + prng_below(&w->p, 3000));
        break;
    default:
        f->fails = 0.3 * prng_unit(&w->p);
        f->lost = 0.3 * prng_unit(&w->p);
        f->late = 0.3 * prng_unit(&w->p);
        break;
    }
}

void fault_calm(struct world *w)
{
    struct rpc_mem_faults f = {
        .delay_min_ms = 0, .delay_max_ms = 5, .lost = w->settling ? 0 : 0.002, .repeated = 0.002
    };

    rpc_mem_faults(w->rpc.net, &f);
    if (w->bucket)
        *sim_bucket_faults(w->bucket) = (struct sim_bucket_faults){ 0 };
}

static void storm(struct world *w)
{
    struct rpc_mem_faults f = { .delay_min_ms = 0,
                                .delay_max_ms = (uint32_t)(20 + prng_below(&w->p, 400)),
                                .lost = 0.05 * prng_unit(&w->p),
                                .repeated = 0.1 * prng_unit(&w->p),
                                .damaged = 0.002 * prng_unit(&w->p),
                                .late = 0.1 * prng_unit(&w->p),
                                .late_max_ms = 4000 };

    count(w)->storms++;
    rpc_mem_faults(w->rpc.net, &f);
}

static void coordination(struct world *w)
{
    struct coord_faults f = coordination_calm(w);

    switch (prng_below(&w->p, 4)) {
    case 0:
        w->away = !w->away;
        count(w)->coord_away += w->away;
        coord_site_away(w->site, w->away);
        return;
    case 1:
        coord_site_compact(w->site);
        return;
    case 2:
        f.delay_max_ms = 10 + prng_below(&w->p, 1500);
        f.lose_request = 0.2 * prng_unit(&w->p);
        f.lose_reply = 0.2 * prng_unit(&w->p);
        count(w)->coord_faults++;
        break;
    default:
        break;
    }
    coord_site_faults(w->site, &f);
}

static void relief(struct world *w)
{
    fault_calm(w);
    if (world_ms(w) < w->aims.hold_until_ms && !w->settling)
        return;
    nodes_heal(w);
    for (size_t i = 0; i < w->ingesters; i++) {
        w->nodes[i]->disk.full = w->nodes[i]->disk.hung = false;
        w->nodes[i]->disk.slow_ms = 0;
    }
}

static void wake(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];

        if (n->state == NODE_OFF && n->wake_ms && world_ms(w) >= n->wake_ms)
            node_start(n);
    }
}

void fault(struct world *w)
{
    uint64_t what = prng_below(&w->p, 100);

    wake(w);
    if (between_holds(w) || hang_holds(w))
        return;
    if (w->aims.mood < SIM_AIMS && prng_below(&w->p, 4) == 0)
        aim(w);
    else if (what < 2)
        blackout(w);
    else if (what < 14)
        crash(w);
    else if (what < 20)
        crash_other(w);
    else if (what < 32)
        partition(w);
    else if (what < 38)
        skew(w);
    else if (what < 44)
        disk(w);
    else if (what < 47)
        storm(w);
    else if (what < 50)
        hang(w);
    else if (what < 52)
        hold(w);
    else if (what < 60)
        coordination(w);
    else if (what < 68) {
        struct node *n = w->nodes[prng_below(&w->p, SIM_NODES)];
        uint32_t more = (uint32_t)prng_below(&w->p, 4) * 100;
        count(w)->slow_peers += more > 0;
        rpc_mem_slow(w->rpc.net, n->addr, more);
    } else if (what < 75)
        ring_change(w);
    else if (what < 77)
        wipe(w);
    else if (what < 85)
        aim(w);
    else if (what < 89 && w->bucket)
        bucket_fault(w);
    else
        relief(w);
}

void faults_end(struct world *w)
{
    struct coord_faults f = coordination_calm(w);

    w->away = false;
    forget_end(w);
    coord_site_away(w->site, false);
    coord_site_faults(w->site, &f);
    relief(w);
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];

        rpc_mem_slow(w->rpc.net, n->addr, 0);
        n->clock.skew_ms = 0;
        if (n->state == NODE_OFF && (!n->has_disk || i < w->ingesters))
            n->wake_ms = 1;
    }
    wake(w);
}
