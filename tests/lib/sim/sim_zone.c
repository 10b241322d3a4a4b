/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_zone: in three of ten worlds ingesters stand in three zones, of which one loses power at one
 * moment, with a distributor and a querier in it: sometimes while another zone's node is being
 * emptied. Its nodes are back in a while; or never, where each shard has enough copies in the other
 * two. In the end each shard is in as many zones as there are, again.
 */
#include "common/base/mem.h"
#include "tests/lib/sim/sim_impl.h"

#define DARK_MS 20000

static bool in_zone(size_t at, uint32_t zone)
{
    return at % SIM_ZONES == zone;
}

/* Most of them have the shard's rows, and are elsewhere. */
static bool enough(struct world *w, uint32_t shard, const struct name_set *s, uint32_t zone)
{
    uint32_t solid = 0;

    for (uint32_t i = 0; i < s->len; i++) {
        const struct node *n = ingester_named(w, s->names[i]);
        solid += n && !n->wipe && !n->disk.rot.path[0] && !in_zone(n->at, zone) &&
                 oracle_applied(w, n->name, shard);
    }
    return !s->len || solid > s->len / 2;
}

/* Nothing is lost if the zone never comes back, and there are nodes for three copies without it. */
static bool spares(struct world *w, uint32_t zone)
{
    size_t others = 0;

    for (size_t i = 0; i < w->ingesters; i++)
        others += w->nodes[i]->state == NODE_UP && !w->nodes[i]->draining && !in_zone(i, zone);
    if (others < 3 || w->lost || w->whole)
        return false;
    if (w->o.mutant == SIM_ZONES_LIE) /* assumes that copies are in three zones */
        return ring_solid(w);
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        const struct repl_record *r = record_of(w, s);

        if (!r || !enough(w, s, &r->members, zone) ||
            (!r->established && !enough(w, s, &r->prev_members, zone)))
            return false;
    }
    return true;
}

/* a: the zone; b: for good, if it may be. */
static void deed_zone(struct world *w, const struct deed *d)
{
    uint32_t zone = (uint32_t)d->a;
    bool gone = d->b && spares(w, zone);

    count(w)->zones_dark++;
    count(w)->zones_lost += gone;
    trace(w, "zone %" PRIu32 " is dark%s", zone, gone ? " for good" : "");
    for (size_t i = 0; i < SIM_NODES; i++) {
        struct node *n = w->nodes[i];
        bool ingester = i < w->ingesters;

        if (n->state != NODE_UP || !in_zone(i, zone) || i >= FIRST_COMPACT)
            continue;
        if (ingester && gone)
            w->lost |= 1u << i;
        n = node_crash(n, ingester, ingester && gone ? CRASH_SLOW : any_crash(w));
        if (!ingester || !gone)
            n->wake_ms = world_ms(w) + prng_below(&w->p, DARK_MS);
    }
    busy(w, 3000);
}

void zone_dark(struct world *w)
{
    if (!w->zones || !all_run(w))
        return;
    w->aims.hold_until_ms = world_ms(w) + DARK_MS / 2;
    if (prng_chance(&w->p, 0.5))
        (void)ring_drain(w);
    deed_in(w, 1000 + prng_below(&w->p, 4000), deed_zone, 0, prng_below(&w->p, SIM_ZONES),
            prng_below(&w->p, 2));
}

bool zones_right(struct world *w)
{
    uint32_t all = 0, most;

    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->state == NODE_UP && !w->nodes[i]->draining)
            all |= 1u << i % SIM_ZONES;
    most = (uint32_t)__builtin_popcount(all);
    for (uint32_t s = 0; s < SIM_SHARDS && w->zones; s++) {
        const struct repl_record *r = record_of(w, s);
        uint32_t have = 0;

        for (uint32_t i = 0; r && i < r->members.len; i++) {
            const struct node *n = ingester_named(w, r->members.names[i]);
            have |= n ? 1u << n->at % SIM_ZONES : 0;
        }
        if ((uint32_t)__builtin_popcount(have) < most)
            return false;
    }
    return true;
}
