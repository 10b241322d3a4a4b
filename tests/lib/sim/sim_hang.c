/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_hang: the disk of a leader neither finishes nor fails anything. Nothing else befalls the
 * world for nine seconds, in which clients push and read: by then another member leads, without a
 * lease that ended. Later the disk answers again, or its node crashes, or all faults end.
 */
#include "tests/lib/sim/sim_impl.h"

#define CALM_MS  3000 /* nodes that were away are back by then */
#define MOVED_MS 9000 /* ingester.disk_timeout is five seconds */

static void deed_answers(struct world *w, const struct deed *d)
{
    w->nodes[d->at]->disk.hung = false;
}

/* a: the shard. That the lead stays may have other reasons: the coordination service is slow, or
 * empty, since something was under way. So it is counted, and must have moved in some worlds. */
static void deed_moved(struct world *w, const struct deed *d)
{
    const struct repl_record *rec = record_of(w, (uint32_t)d->a);
    const struct node *n = w->nodes[d->at];

    if (rec && n->state == NODE_UP && n->disk.hung && strcmp(rec->leader, n->name) != 0)
        count(w)->hung_moved++;
}

static void deed_hang(struct world *w, const struct deed *d)
{
    uint32_t shard = (uint32_t)d->a;
    const struct repl_record *rec = record_of(w, shard);
    struct node *n = rec ? ingester_named(w, rec->leader) : NULL;

    if (!n || n->state != NODE_UP || n->draining || w->lost || nodes_down(w) > 0 || w->away ||
        !ring_whole(w))
        return;
    trace(w, "the disk of %s hangs", n->name);
    count(w)->disks_hung++;
    n->disk.hung = true;
    w->hang_until_ms = world_ms(w) + MOVED_MS;
    busy(w, MOVED_MS);
    deed_in(w, MOVED_MS, deed_moved, n->at, shard, 0);
    deed_in(w, MOVED_MS + prng_below(&w->p, 15000), deed_answers, n->at, 0, 0);
}

void hang(struct world *w)
{
    if (w->away || !all_run(w))
        return;
    fault_calm(w);
    struct coord_faults f = coordination_calm(w);
    coord_site_faults(w->site, &f);
    w->hang_until_ms = world_ms(w) + CALM_MS;
    deed_in(w, CALM_MS, deed_hang, 0, prng_below(&w->p, SIM_SHARDS), 0);
}

bool hang_holds(const struct world *w)
{
    return world_ms(w) < w->hang_until_ms;
}
