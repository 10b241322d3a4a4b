/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_copy: what befalls a database that comes in as files (common/repl/README.md, "A copy"), in
 * the moment it does: either end crashes, they lose each other, the disk is full or fails.
 */
#include "tests/lib/sim/sim_impl.h"

#define SOON_MS 120 /* a copy seldom takes longer */

static void deed_apart(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at], *source = w->nodes[d->a];

    if (n->state != NODE_UP || source->state != NODE_UP || n == source)
        return;
    count(w)->copies_alone++;
    cut_pair(n, source);
}

static void deed_full(struct world *w, const struct deed *d)
{
    struct node *n = w->nodes[d->at];

    if (n->state != NODE_UP)
        return;
    count(w)->disks_full++;
    n->disk.full = true;
}

void copy_begins(void *cookie, uint32_t shard)
{
    struct node *n = cookie;
    struct world *w = n->w;
    const struct repl_record *rec = record_of(w, shard);
    const struct node *source = rec ? ingester_named(w, rec->leader) : NULL;
    uint64_t soon = prng_below(&w->p, SOON_MS), power = prng_below(&w->p, 2);

    trace(w, "a copy of shard %" PRIu32 " begins to come in to %s", shard, n->name);
    if (w->settling || !source || nodes_down(w) > 0)
        return;
    switch (prng_below(&w->p, 10)) {
    case 0:
    case 1:
        deed_in(w, soon, deed_crash, n->at, power, prng_below(&w->p, 3000));
        break;
    case 2:
        count(w)->copy_sources++;
        deed_in(w, soon, deed_crash, source->at, power, prng_below(&w->p, 3000));
        break;
    case 3:
        deed_in(w, soon, deed_apart, n->at, source->at, 0);
        break;
    case 4:
        deed_in(w, soon, deed_full, n->at, 0, 0);
        break;
    case 5:
    case 6:
        n->disk.fail_copy_in = 1 + prng_below(&w->p, 30);
        break;
    default:
        break;
    }
}
