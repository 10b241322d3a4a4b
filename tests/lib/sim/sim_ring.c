/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_ring: nodes come, are emptied and go, one by one or three at once, and are lost with their
 * disks. One is lost for good only while all shards have all their copies, and not another one
 * before the records have forgotten it (a zone: sim_zone.c).
 */
#include "common/base/mem.h"
#include "common/cluster/view/node_state.h"
#include "tests/lib/sim/sim_impl.h"

static size_t running(const struct world *w)
{
    size_t n = 0;

    for (size_t i = 0; i < w->ingesters; i++)
        n += w->nodes[i]->state == NODE_UP && !w->nodes[i]->draining;
    return n;
}

static bool named(const struct repl_record *r, const char *name)
{
    return name_set_has(&r->members, name) || name_set_has(&r->learners, name) ||
           name_set_has(&r->prev_members, name);
}

/* All shards have three members, and nothing is on its way. */
bool ring_whole(struct world *w)
{
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        int64_t rev;
        const struct repl_record *r = view_record(w->view, s, &rev);

        if (!r || !r->established || r->learners.len || r->members.len < 3)
            return false;
    }
    return true;
}

/* And each of them has its database: none is a new disk that still stands for an old one, or will
 * be one as soon as its former process has ended. */
bool ring_solid(struct world *w)
{
    if (!ring_whole(w))
        return false;
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->wipe || (w->nodes[i]->state != NODE_GONE && w->nodes[i]->disk.rot.path[0]))
            return false;
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        int64_t rev;
        const struct repl_record *r = view_record(w->view, s, &rev);

        for (uint32_t i = 0; i < r->members.len; i++)
            if (!oracle_applied(w, r->members.names[i], s))
                return false;
    }
    return true;
}

static bool forgotten(struct world *w, const char *name)
{
    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        int64_t rev;
        const struct repl_record *r = view_record(w->view, s, &rev);

        if (!r || named(r, name))
            return false;
    }
    return true;
}

void ring_join(struct world *w)
{
    /* Enough of those that know nothing would begin a cluster of their own in an empty service. */
    if (w->ingesters == SIM_INGESTERS || w->whole)
        return;
    count(w)->joins++;
    node_start(w->nodes[w->ingesters++]);
}

struct asked {
    struct world *w;
    size_t at;
};

/* Where the answer does not say whether it was done, the operator asks again, and treats the node
 * as leaving until the answer is known. */
static void on_drain_asked(void *cookie, const struct err *e)
{
    struct asked *a = cookie;

    a->w->flying--;
    bool refused = e && (e->code == ERR_NOT_FOUND || e->code == ERR_CONFLICT);
    a->w->nodes[a->at]->draining = refused ? 0 : e ? DRAIN_NOT_KNOWN : 2;
    xfree(a);
}

/* People change the map by a request to a node, which refuses it while it does not believe the
 * coordination service (common/role/admin/cluster_reply.h). */
bool ring_followed(const struct world *w)
{
    return !w->whole && !view_stranger(w->view)[0];
}

static void ask_drain(struct world *w, struct node *n)
{
    struct asked *a;

    if (!ring_followed(w))
        return;
    a = XNEW(struct asked);
    trace(w, "%s is to be drained", n->name);
    n->draining = 1;
    w->flying++;
    *a = (struct asked){ w, n->at };
    node_state_set(w->coord, SIM_PREFIX, n->name, MAP_DRAINING, on_drain_asked, a);
}

bool ring_drain(struct world *w)
{
    struct node *n = w->nodes[prng_below(&w->p, w->ingesters)];

    if (n->state != NODE_UP || n->draining || running(w) < 4 || !ring_followed(w))
        return false;
    count(w)->drains++;
    ask_drain(w, n);
    return true;
}

void ring_lose(struct world *w)
{
    struct node *n = w->nodes[prng_below(&w->p, w->ingesters)];

    if (n->state != NODE_UP || n->draining || w->lost || nodes_down(w) > 0 || !ring_solid(w) ||
        running(w) < 4)
        return;
    count(w)->lost_for_good++;
    w->lost = 1u << n->at;
    (void)node_crash(n, true, CRASH_SLOW);
}

/* Three more at once, or three less. */
static void resize(struct world *w)
{
    count(w)->resized++;
    if (running(w) >= 6)
        for (size_t i = 0; i < 3; i++)
            (void)ring_drain(w);
    else
        for (size_t i = 0; i < 3; i++)
            ring_join(w);
    if (w->bucket)
        bucket_fault(w);
}

void ring_change(struct world *w)
{
    if (w->zones && prng_chance(&w->p, 0.5)) {
        zone_dark(w);
        return;
    }
    switch (prng_below(&w->p, 5)) {
    case 0:
        ring_join(w);
        break;
    case 1:
        (void)ring_drain(w);
        break;
    case 2:
        ring_lose(w);
        break;
    case 3:
        if (prng_chance(&w->p, 0.3))
            resize(w);
        break;
    default:
        if (running(w) < 4)
            ring_join(w);
        break;
    }
}

/* A log that was damaged and has gone speaks no more for its node: it is no member, and learns. */
static void rot_step(struct world *w, struct node *n)
{
    const struct repl_record *rec = record_of(w, n->disk.rot.shard);

    if (n->disk.rot.path[0] && n->disk.rot.aside && rec && !name_set_has(&rec->members, n->name) &&
        !name_set_has(&rec->prev_members, n->name))
        n->disk.rot.path[0] = 0;
}

/* Ends nodes that were emptied; removes nodes that were lost. */
void ring_step(struct world *w)
{
    for (size_t i = 0; i < w->ingesters; i++) {
        struct node *n = w->nodes[i];
        struct view_node vn;

        rot_step(w, n);
        if (n->state == NODE_OFF && w->lost >> i & 1)
            n->state = NODE_GONE;
        if (n->draining == DRAIN_NOT_KNOWN)
            ask_drain(w, n);
        if (!n->draining && n->state == NODE_UP && view_node_find(w->view, n->name, &vn) &&
            vn.state == MAP_LEFT)
            n->draining = 2; /* no such node, it was said; and then the map was an older one */
        if (n->draining != 2)
            continue;
        if (n->state == NODE_OFF && n->left) {
            n->state = NODE_GONE;
            n->draining = 3;
        } else if (n->state == NODE_UP && view_node_find(w->view, n->name, &vn) && vn.live &&
                   vn.state == MAP_ACTIVE) {
            ask_drain(w, n); /* it left before its folder knew the cluster, was forgotten, and
                              * joined again; or the view is old: then this changes nothing */
        } else if (n->state == NODE_UP && view_node_find(w->view, n->name, &vn) &&
                   vn.state == MAP_LEFT && forgotten(w, n->name)) {
            count(w)->left++;
            n->left = true;
            node_end(n);
        }
    }
    for (size_t i = 0; i < w->ingesters && w->lost; i++)
        if (w->nodes[i]->state == NODE_GONE && forgotten(w, w->nodes[i]->name))
            w->lost &= ~(1u << i);
}

bool ring_quiet(struct world *w)
{
    for (size_t i = 0; i < w->ingesters; i++)
        if (w->nodes[i]->draining == 1 || w->nodes[i]->draining == DRAIN_NOT_KNOWN ||
            (w->nodes[i]->draining == 2 && w->nodes[i]->state != NODE_GONE))
            return false;
    return !w->lost && ring_whole(w) && zones_right(w);
}
