/* SPDX-License-Identifier: Apache-2.0
 *
 * place_leaders: chooses leaders so that nodes have equal work.
 *
 * A node's load is the rate of its copies, PLACE_LEADS for each byte where it leads and
 * PLACE_FOLLOWS where it does not.
 *
 * 1. The node with the highest load gives the lead of one of its shards to another member of that
 *    shard, if this member then has clearly less than the giver had.
 * 2. Where no member can take a lead like this, it goes to a member that first hands a smaller one
 *    on.
 * 3. A node that has far less than the mean, since it was away, takes leads from the nodes that
 *    have most.
 * 4. This ends when the highest load is near the mean, or nothing helps. Each hand-over lowers the
 *    highest load, or the number of nodes that have it.
 *
 * Why leads do not move back and forth: the search begins with the present leaders; a node gives
 * only when it is SLACK above the mean (takes, when it is twice that below), and a lead moves only
 * if its new node then has MARGIN less than its giver had. For the same shard to come back, the
 * loads of two nodes must change against each other by more than MARGIN; rates are slow means of
 * some half minute, and a lead that moved a moment ago stays (`stay`). Shards that no node has yet
 * cost nothing to turn around: there, and only there, leaders are made as even as can be.
 */
#include "common/cluster/place/place_impl.h"

#define SLACK(mean)  ((mean) / 20)
#define MARGIN(mean) ((mean) / 25)
#define EXTRA        (PLACE_LEADS - PLACE_FOLLOWS)

struct leaders {
    struct plan *p;
    uint32_t *able; /* by shard: bit k: the k-th of `got` could lead; owned */
    uint64_t *load; /* of nodes; owned */
    bool *stuck;    /* nodes with nothing to give; owned */
    uint64_t mean, limit, floor, margin;
};

static uint64_t weight(const struct leaders *l, uint32_t shard)
{
    return PLACE_IDLE_RATE + l->p->in->shards[shard].rate;
}

/* The k-th of `got` leads, in the plan. The first always does. */
static void lead_with(struct leaders *l, uint32_t shard, uint32_t k)
{
    uint32_t *got = plan_got(l->p, shard), node = got[k], bit = l->able[shard] >> k & 1;
    uint32_t above = l->able[shard] >> (k + 1) << (k + 1);

    l->able[shard] = above | (l->able[shard] & ((1u << k) - 1)) << 1 | bit;
    for (; k > 0; k--)
        got[k] = got[k - 1];
    got[0] = node;
}

static uint32_t able_of(const struct plan *p, uint32_t shard)
{
    const struct place_shard *s = &p->in->shards[shard];
    uint32_t able = 0;

    for (uint32_t k = 0; k < p->got_len[shard]; k++) {
        const struct place_node *n = p->nodes[plan_got(p, shard)[k]];
        bool may = !s->now;

        for (uint32_t i = 0; s->now && i < s->now->members.len; i++)
            if (s->able >> i & 1 && strcmp(s->now->members.names[i], n->name) == 0)
                may = true;
        able |= (uint32_t)(may && !n->away) << k;
    }
    return able;
}

static uint32_t leads_now(const struct plan *p, uint32_t shard)
{
    const struct repl_record *r = p->in->shards[shard].now;

    for (uint32_t k = 0; r && k < p->got_len[shard]; k++)
        if (strcmp(p->nodes[plan_got(p, shard)[k]]->name, r->leader) == 0)
            return k;
    return UINT32_MAX;
}

/* A shard whose leader is not among the wanted nodes gets the wanted node with the least load. */
static void choose_first(struct leaders *l, uint32_t shard)
{
    const struct plan *p = l->p;
    const uint32_t *got = plan_got(p, shard);
    uint32_t best = 0;

    for (uint32_t k = 1; k < p->got_len[shard]; k++) {
        bool can = l->able[shard] >> k & 1, best_can = l->able[shard] >> best & 1;

        if (can != best_can ? can : l->load[got[k]] < l->load[got[best]])
            best = k;
    }
    lead_with(l, shard, best);
}

static void begin(struct leaders *l)
{
    struct plan *p = l->p;
    uint32_t living = 0;
    bool fresh = true;
    uint64_t sum = 0;

    for (uint32_t s = 0; s < p->shards; s++)
        for (uint32_t k = 0; k < p->got_len[s]; k++)
            l->load[plan_got(p, s)[k]] += PLACE_FOLLOWS * weight(l, s);
    for (int known = 1; known >= 0; known--)
        for (uint32_t s = 0; s < p->shards; s++) {
            uint32_t k = leads_now(p, s);

            if (!p->got_len[s] || (k != UINT32_MAX) != known)
                continue;
            if (known) {
                lead_with(l, s, k);
                fresh = false;
            } else {
                choose_first(l, s);
            }
            l->load[plan_got(p, s)[0]] += EXTRA * weight(l, s);
        }
    for (uint32_t i = 0; i < p->n; i++) {
        sum += p->nodes[i]->away ? 0 : l->load[i];
        living += !p->nodes[i]->away;
    }
    l->mean = sum / MAX(living, 1u);
    l->limit = fresh ? l->mean : l->mean + SLACK(l->mean);
    l->floor = fresh ? l->mean : l->mean - 2 * SLACK(l->mean);
    l->margin = fresh ? 1 : MARGIN(l->mean);
}

/* ---- hand-overs ------------------------------------------------------------------------------ */

struct lead_move { /* the lead of a shard goes to the k-th of its nodes */
    uint32_t shard, k;
    uint32_t next, next_k; /* which hands its lead of `next` on; p->shards: it keeps all */
    uint64_t high;         /* of the loads that change, the highest then */
};

static void hand(struct leaders *l, uint32_t shard, uint32_t k)
{
    const uint32_t *got = plan_got(l->p, shard);

    l->load[got[0]] -= EXTRA * weight(l, shard);
    l->load[got[k]] += EXTRA * weight(l, shard);
    l->stuck[got[0]] = l->stuck[got[k]] = false;
    lead_with(l, shard, k);
}

static bool can_go(const struct leaders *l, uint32_t shard)
{
    return l->p->got_len[shard] > 1 && !l->p->in->shards[shard].stay;
}

static void look_direct(const struct leaders *l, uint32_t shard, struct lead_move *best)
{
    const uint32_t *got = plan_got(l->p, shard);
    uint64_t extra = EXTRA * weight(l, shard), before = l->load[got[0]];

    for (uint32_t k = 1; k < l->p->got_len[shard]; k++) {
        uint64_t after = l->load[got[k]] + extra;

        if (l->able[shard] >> k & 1 && after + l->margin <= before &&
            MAX(after, before - extra) < best->high)
            *best = (struct lead_move){ shard, k, l->p->shards, 0, MAX(after, before - extra) };
    }
}

/* `mid` takes the lead of a shard and gives that of another on. */
static void look_through(const struct leaders *l, uint32_t shard, uint32_t k,
                         struct lead_move *best)
{
    const struct plan *p = l->p;
    uint32_t from = plan_got(p, shard)[0], mid = plan_got(p, shard)[k];
    uint64_t extra = EXTRA * weight(l, shard), before = l->load[from];

    for (uint32_t t = 0; t < p->shards; t++) {
        const uint32_t *got = plan_got(p, t);

        if (!can_go(l, t) || got[0] != mid)
            continue;
        uint64_t on = EXTRA * weight(l, t), mid_after = l->load[mid] + extra - on;

        for (uint32_t i = 1; i < p->got_len[t]; i++) {
            uint64_t high = MAX(MAX(mid_after, before - extra), l->load[got[i]] + on);

            if (l->able[t] >> i & 1 && got[i] != from && high + l->margin <= before &&
                high < best->high)
                *best = (struct lead_move){ shard, k, t, i, high };
        }
    }
}

/* How many hand-overs; 0: nothing helps this node. */
static uint32_t turn_one(struct leaders *l, uint32_t from, uint32_t max)
{
    const struct plan *p = l->p;
    struct lead_move best = { .high = UINT64_MAX };

    for (uint32_t s = 0; s < p->shards; s++)
        if (plan_got(p, s)[0] == from && can_go(l, s))
            look_direct(l, s, &best);
    for (uint32_t s = 0; s < p->shards && best.high == UINT64_MAX && max > 1; s++)
        for (uint32_t k = 1; plan_got(p, s)[0] == from && can_go(l, s) && k < p->got_len[s]; k++)
            if (l->able[s] >> k & 1)
                look_through(l, s, k, &best);
    if (best.high == UINT64_MAX)
        return 0;
    if (best.next < p->shards)
        hand(l, best.next, best.next_k);
    hand(l, best.shard, best.k);
    return best.next < p->shards ? 2 : 1;
}

/* The node with the highest load above the limit, or with the lowest below the floor. */
static uint32_t extreme(const struct leaders *l, bool high)
{
    uint32_t found = l->p->n;

    for (uint32_t i = 0; i < l->p->n; i++) {
        if (l->stuck[i] || l->p->nodes[i]->away ||
            (high ? l->load[i] <= l->limit : l->load[i] >= l->floor))
            continue;
        if (found == l->p->n || (high ? l->load[i] > l->load[found] : l->load[i] < l->load[found]))
            found = i;
    }
    return found;
}

/* A node with little load takes a lead from the busiest node that still has more than it then. */
static uint32_t take_one(struct leaders *l, uint32_t to)
{
    const struct plan *p = l->p;
    uint64_t high = 0;
    uint32_t shard = 0, at = 0;

    for (uint32_t s = 0; s < p->shards; s++) {
        const uint32_t *got = plan_got(p, s);
        uint64_t after = l->load[to] + EXTRA * weight(l, s);

        for (uint32_t k = 1; can_go(l, s) && k < p->got_len[s]; k++)
            if (got[k] == to && l->able[s] >> k & 1 && after + l->margin <= l->load[got[0]] &&
                l->load[got[0]] > high) {
                high = l->load[got[0]];
                shard = s;
                at = k;
            }
    }
    if (high)
        hand(l, shard, at);
    return high != 0;
}

static uint32_t pass(struct leaders *l, bool high, uint32_t max)
{
    uint32_t done = 0;

    memset(l->stuck, 0, l->p->n * sizeof(*l->stuck));
    while (done < max) {
        uint32_t node = extreme(l, high), turned;

        if (node == l->p->n)
            break;
        turned = high ? turn_one(l, node, max - done) : take_one(l, node);
        l->stuck[node] = turned == 0;
        done += turned;
    }
    return done;
}

static void even_out(struct leaders *l, uint32_t max)
{
    uint32_t turned = 1;

    /* It ends by itself (above); that it ends soon is bounded here. */
    for (max = MIN(max, 4 * l->p->shards); turned && max; max -= turned) {
        turned = pass(l, true, max);
        turned += pass(l, false, max - turned);
    }
}

uint32_t plan_leaders(struct plan *p, uint32_t max)
{
    struct leaders l = { .p = p };
    uint32_t changed = 0;

    l.able = XNEW_ARRAY(uint32_t, p->shards);
    l.load = XNEW_ARRAY(uint64_t, p->n);
    l.stuck = XNEW_ARRAY(bool, p->n);
    for (uint32_t s = 0; s < p->shards; s++)
        l.able[s] = able_of(p, s);
    begin(&l);
    even_out(&l, max);
    for (uint32_t s = 0; s < p->shards; s++)
        changed += leads_now(p, s) != 0 && leads_now(p, s) != UINT32_MAX;
    xfree(l.able);
    xfree(l.load);
    xfree(l.stuck);
    return changed;
}
