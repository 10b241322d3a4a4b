/* SPDX-License-Identifier: Apache-2.0
 *
 * place_members: which nodes keep which shards, based on the present places.
 *
 *   1. keep: a node that has a shard keeps it. A shard on its way (members and learners, more than
 *      wanted) loses the copies it is better without.
 *   fill    a shard with too few chooses: of the nodes below their share the one with the highest
 *           number (a hash of shard and node: Thaler and Ravishankar 1998; with bounded loads:
 *           Mirrokni, Thorup, Zadimoghaddam 2018), so that what two nodes share differs from pair
 *           to pair, and what a dead node had goes to all others
 *   mend    two in a zone while another zone has none: one of them moves there
 *   even    nodes above their share give to those that have least, those below it take from those
 *           that have most; which shard, bytes decide
 *   bytes   a node that stores far more than others gives a shard away, or takes a smaller one for
 *           a larger one
 *
 * All by rendezvous would need no knowledge of where things are, and every join would move two to
 * five times its share, since limits that follow from the number of nodes move for all. From where
 * things are a join moves its share. The price: where a shard is depends on the cluster's past.
 *
 * Zones are often of unequal size: a small zone's nodes carry more when every shard must have a
 * replica in it. So the share is a wish: a shard that finds no node below it takes the emptiest its
 * zones allow. Moves for evenness of number bring two counts closer, each of them: that ends. So do
 * those for bytes, of which there are a few at a time.
 */
#include <stdlib.h>

#include "common/base/hash.h"
#include "common/cluster/place/place_impl.h"

#define PLACE_SEED  UINT64_C(0x706c616365736565)
#define BYTES_LEAST (UINT64_C(1) << 30) /* less above the mean is not worth the copying */
#define BYTES_MOVES 16                  /* for evenness of bytes in one plan */

struct zone {
    uint32_t first, nodes; /* in `order` */
    uint32_t least, most;  /* replicas of a node of it: its share, rounded down and up */
    uint64_t mean;         /* bytes of a node of it */
    bool fixed;
};
struct members {
    struct plan *p;
    struct zone *zones; /* this and the next ones are owned */
    uint32_t *order;    /* nodes by zone */
    uint64_t *hash;     /* of each node's name */
    uint32_t *count;    /* replicas on each node */
    uint64_t *stored;   /* bytes on each node, once all is where it is wanted */
};

static const struct zone *zone_of(const struct members *m, uint32_t node)
{
    return &m->zones[m->p->zone[node]];
}

static uint64_t number(const struct members *m, uint32_t shard, uint32_t node)
{
    return hash_mix(m->hash[node] ^ hash_u64(shard + PLACE_SEED), PLACE_SEED | 1);
}

/* ---- one shard ------------------------------------------------------------------------------- */

static void count_in(struct members *m, uint32_t shard, uint32_t node)
{
    m->count[node]++;
    m->stored[node] += plan_bytes(m->p, shard);
}

static void count_out(struct members *m, uint32_t shard, uint32_t node)
{
    m->count[node]--;
    m->stored[node] -= plan_bytes(m->p, shard);
}

static void add(struct members *m, uint32_t shard, uint32_t node)
{
    struct plan *p = m->p;

    CHECK(p->got_len[shard] < PLAN_SET);
    plan_got(p, shard)[p->got_len[shard]++] = node;
    count_in(m, shard, node);
}

static void drop(struct members *m, uint32_t shard, uint32_t k)
{
    uint32_t *got = plan_got(m->p, shard);

    count_out(m, shard, got[k]);
    m->p->got_len[shard]--;
    for (; k < m->p->got_len[shard]; k++)
        got[k] = got[k + 1];
}

static void move(struct members *m, uint32_t shard, uint32_t k, uint32_t to)
{
    uint32_t *got = plan_got(m->p, shard);

    count_out(m, shard, got[k]);
    got[k] = to;
    count_in(m, shard, to);
}

static bool zone_twice(const struct plan *p, uint32_t shard, uint32_t k)
{
    const uint32_t *got = plan_got(p, shard);

    for (uint32_t i = 0; i < p->got_len[shard]; i++)
        if (i != k && p->zone[got[i]] == p->zone[got[k]])
            return true;
    return false;
}

static uint32_t zones_of(const struct plan *p, uint32_t shard)
{
    const uint32_t *got = plan_got(p, shard);
    uint32_t zones = 0;

    for (uint32_t i = 0; i < p->got_len[shard]; i++) {
        bool seen = false;

        for (uint32_t k = 0; k < i; k++)
            seen = seen || p->zone[got[k]] == p->zone[got[i]];
        zones += !seen;
    }
    return zones;
}

/* May the shard take the node, in place of its replica `but` (n: in place of none)? Every zone is
 * used once before one is used twice. */
static bool may_take(const struct plan *p, uint32_t shard, uint32_t node, uint32_t but)
{
    const uint32_t *got = plan_got(p, shard);
    uint32_t zones = 0;
    bool in_zone = false;

    for (uint32_t i = 0; i < p->got_len[shard]; i++) {
        bool seen = false;

        if (got[i] == node)
            return false;
        if (got[i] == but)
            continue;
        for (uint32_t k = 0; k < i; k++)
            seen = seen || (got[k] != but && p->zone[got[k]] == p->zone[got[i]]);
        zones += !seen;
        in_zone = in_zone || p->zone[got[i]] == p->zone[node];
    }
    return !in_zone || zones == p->zones || (but < p->n && p->zone[but] == p->zone[node]);
}

static int64_t excess(const struct members *m, uint32_t node)
{
    return (int64_t)m->count[node] - zone_of(m, node)->most;
}

/* Does the shard have the zone, so that another comes first? */
static bool zone_is_taken(const struct plan *p, uint32_t shard, uint32_t zone)
{
    const uint32_t *got = plan_got(p, shard);

    for (uint32_t i = 0; i < p->got_len[shard]; i++)
        if (p->zone[got[i]] == zone)
            return true;
    return false;
}

/* The highest number among those with less than their share, in `up`: rounded up. p->n: none. */
static uint32_t highest(const struct members *m, uint32_t shard, bool up)
{
    const struct plan *p = m->p;
    uint64_t shard_hash = hash_u64(shard + PLACE_SEED), best = 0;
    bool zones_left = zones_of(p, shard) < p->zones;
    uint32_t found = p->n;

    for (uint32_t z = 0; z < p->zones; z++) {
        const struct zone *zone = &m->zones[z];
        uint32_t below = up ? zone->most : zone->least;

        if (zones_left && zone_is_taken(p, shard, z))
            continue;
        for (uint32_t i = zone->first; i < zone->first + zone->nodes; i++) {
            uint32_t node = m->order[i];
            uint64_t mine;

            if (m->count[node] >= below)
                continue;
            mine = hash_mix(m->hash[node] ^ shard_hash, PLACE_SEED | 1);
            if (mine >= best && may_take(p, shard, node, p->n)) {
                found = node;
                best = mine;
            }
        }
    }
    return found;
}

/* The one furthest below its share, or least above; of several that with the highest number. */
static uint32_t neediest(const struct members *m, uint32_t shard)
{
    const struct plan *p = m->p;
    uint32_t found = p->n;

    for (uint32_t i = 0; i < p->n; i++)
        if ((found == p->n || excess(m, i) < excess(m, found) ||
             (excess(m, i) == excess(m, found) && number(m, shard, i) > number(m, shard, found))) &&
            may_take(p, shard, i, p->n))
            found = i;
    return found;
}

/* Shards that no node has yet are placed by numbers, equal for all processes that know the nodes. A
 * gap goes to the node that leaves the least to even out afterwards. */
static uint32_t choose(const struct members *m, uint32_t shard)
{
    uint32_t found = m->p->n;

    if (!m->p->in->shards[shard].now)
        found = highest(m, shard, false);
    if (!m->p->in->shards[shard].now && found == m->p->n)
        found = highest(m, shard, true);
    return found < m->p->n ? found : neediest(m, shard);
}

/* ---- keep, fill, mend ------------------------------------------------------------------------ */

static void keep_all(struct members *m, uint32_t shard, const struct name_set *names)
{
    const struct plan *p = m->p;

    for (uint32_t i = 0; i < names->len; i++) {
        uint32_t node = plan_find(p, names->names[i]);

        if (node < p->n)
            add(m, shard, node);
    }
}

/* Which of too many replicas to drop: of two in a zone one, of the fullest nodes one, the leader
 * late. If these rules do not decide, a member: a learner is there because it is wanted. */
static uint32_t too_many(const struct members *m, uint32_t shard)
{
    const struct plan *p = m->p;
    const uint32_t *got = plan_got(p, shard);
    uint32_t worst = 0, rank_worst = 0;

    for (uint32_t k = 0; k < p->got_len[shard]; k++) {
        bool leads = strcmp(p->nodes[got[k]]->name, p->in->shards[shard].now->leader) == 0;
        uint32_t rank = 1 + 2 * m->count[got[k]] - leads;

        rank += zone_twice(p, shard, k) ? 1u << 30 : 0;
        if (rank > rank_worst) {
            rank_worst = rank;
            worst = k;
        }
    }
    return worst;
}

static void keep(struct members *m)
{
    struct plan *p = m->p;

    for (uint32_t s = 0; s < p->shards; s++) {
        const struct repl_record *r = p->in->shards[s].now;

        if (!r)
            continue;
        keep_all(m, s, &r->members);
        keep_all(m, s, &r->learners);
    }
    for (uint32_t s = 0; s < p->shards; s++)
        while (p->got_len[s] > p->replicas)
            drop(m, s, too_many(m, s));
}

/* In rounds: first each shard gets one, then each the next. Otherwise shards with high numbers
 * would find only the nodes that are left over. */
static void fill(struct members *m)
{
    struct plan *p = m->p;

    for (uint32_t round = 0; round < p->replicas; round++)
        for (uint32_t s = 0; s < p->shards; s++)
            if (p->got_len[s] <= round) {
                uint32_t node = choose(m, s);

                CHECK(node < p->n);
                add(m, s, node);
            }
}

static void mend(struct members *m)
{
    struct plan *p = m->p;

    for (uint32_t s = 0; s < p->shards; s++)
        while (zones_of(p, s) < MIN(p->replicas, p->zones)) {
            uint32_t *got = plan_got(p, s), from = p->replicas;

            for (uint32_t k = 0; k < p->got_len[s]; k++)
                if (zone_twice(p, s, k) &&
                    (from == p->replicas || m->count[got[k]] > m->count[got[from]]))
                    from = k;
            uint32_t was = got[from], to;

            drop(m, s, from);
            to = choose(m, s); /* never a zone that it has, while there is another */
            CHECK(to < p->n && to != was);
            add(m, s, to);
        }
}

/* ---- even by number -------------------------------------------------------------------------- */

struct hand { /* a replica from one node to another */
    uint32_t shard, k, to;
    uint64_t gap, number;
    bool found;
};

static uint64_t apart(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* How far the shard is from what an average one would have to be so that the two nodes end with
 * the same bytes when they have the same number. */
static uint64_t gap_of(const struct members *m, uint32_t shard, uint32_t from, uint32_t to)
{
    uint64_t more = m->stored[from] > m->stored[to] ? m->stored[from] - m->stored[to] : 0;

    return apart(plan_bytes(m->p, shard), more / (m->count[from] - m->count[to]));
}

static void look_for_taker(const struct members *m, uint32_t shard, uint32_t k, uint32_t from,
                           struct hand *best)
{
    const struct plan *p = m->p;

    for (uint32_t to = 0; to < p->n; to++) {
        struct hand h = { shard, k, to, 0, 0, true };

        if (m->count[to] + 2 > m->count[from] ||
            (m->count[from] <= zone_of(m, from)->most && m->count[to] >= zone_of(m, to)->least) ||
            (best->found && m->count[to] > m->count[best->to]) || !may_take(p, shard, to, from))
            continue;
        h.gap = gap_of(m, shard, from, to);
        h.number = number(m, shard, to);
        if (!best->found || m->count[to] < m->count[best->to] || h.gap < best->gap ||
            (h.gap == best->gap && h.number > best->number))
            *best = h;
    }
}

static bool give(struct members *m, uint32_t from)
{
    struct plan *p = m->p;
    struct hand best = { .found = false };

    for (uint32_t s = 0; s < p->shards; s++)
        for (uint32_t k = 0; k < p->got_len[s]; k++)
            if (plan_got(p, s)[k] == from)
                look_for_taker(m, s, k, from, &best);
    if (best.found)
        move(m, best.shard, best.k, best.to);
    return best.found;
}

static bool somebody_lacks(const struct members *m)
{
    for (uint32_t i = 0; i < m->p->n; i++)
        if (m->count[i] < zone_of(m, i)->least)
            return true;
    return false;
}

/* The one furthest above its share that was not found to have nothing to give. */
static uint32_t fullest(const struct members *m, const bool *done)
{
    uint32_t found = m->p->n;

    for (uint32_t i = 0; i < m->p->n; i++)
        if (!done[i] && (found == m->p->n || excess(m, i) > excess(m, found)))
            found = i;
    return found;
}

static void even_number(struct members *m)
{
    bool *done = XNEW_ARRAY(bool, m->p->n), any = true;

    while (any) {
        any = false;
        memset(done, 0, m->p->n * sizeof(*done));
        for (uint32_t from; (from = fullest(m, done)) < m->p->n;) {
            if (m->count[from] <= zone_of(m, from)->most && !somebody_lacks(m))
                break;
            done[from] = !give(m, from);
            any = any || !done[from];
        }
    }
    xfree(done);
}

/* ---- even by bytes --------------------------------------------------------------------------- */

struct swap {
    uint32_t shard, k, to;
    uint32_t back, back_k; /* what comes for it; p->shards: nothing */
    uint64_t gain;
};

static void try_swap(const struct members *m, uint32_t from, struct swap s, struct swap *best)
{
    uint64_t out = plan_bytes(m->p, s.shard), in = 0, mean = zone_of(m, from)->mean;
    uint64_t there = zone_of(m, s.to)->mean;

    if (s.back < m->p->shards)
        in = plan_bytes(m->p, s.back);
    if (out < in + mean / 32 || m->stored[s.to] + out - in > there + there * 3 / 16 ||
        m->stored[from] + in < out + mean - mean / 8)
        return;
    s.gain = out - in;
    if (s.gain > best->gain)
        *best = s;
}

static void look_for_swap(const struct members *m, uint32_t from, uint32_t shard, uint32_t k,
                          struct swap *best)
{
    const struct plan *p = m->p;

    for (uint32_t t = 0; t < p->shards; t++)
        for (uint32_t i = 0; i < p->got_len[t]; i++) {
            uint32_t to = plan_got(p, t)[i];

            if (t == shard || plan_bytes(p, t) >= plan_bytes(p, shard) ||
                m->stored[to] > zone_of(m, to)->mean || to == from ||
                !may_take(p, shard, to, from) || !may_take(p, t, from, to))
                continue;
            try_swap(m, from, (struct swap){ shard, k, to, t, i, 0 }, best);
        }
    for (uint32_t to = 0; to < p->n; to++)
        if (m->count[to] <= zone_of(m, to)->most && m->count[from] >= zone_of(m, from)->least &&
            m->stored[to] < zone_of(m, to)->mean && to != from && may_take(p, shard, to, from))
            try_swap(m, from, (struct swap){ shard, k, to, p->shards, 0, 0 }, best);
}

/* Relieves a node whose bytes are a quarter above the mean. False: no move of its copies helps. */
static bool relieve(struct members *m, uint32_t from)
{
    struct plan *p = m->p;
    struct swap best = { .gain = 0 };

    for (uint32_t s = 0; s < p->shards; s++)
        for (uint32_t k = 0; k < p->got_len[s]; k++)
            if (plan_got(p, s)[k] == from)
                look_for_swap(m, from, s, k, &best);
    if (!best.gain)
        return false;
    move(m, best.shard, best.k, best.to);
    if (best.back < p->shards)
        move(m, best.back, best.back_k, from);
    return true;
}

static uint64_t above(const struct members *m, uint32_t node)
{
    uint64_t mean = zone_of(m, node)->mean, limit = mean + MAX(mean / 4, BYTES_LEAST);

    return m->stored[node] > limit ? m->stored[node] - mean : 0;
}

static void even_bytes(struct members *m)
{
    bool *done = XNEW_ARRAY(bool, m->p->n);

    for (uint32_t moves = 0; moves < BYTES_MOVES;) {
        uint32_t from = m->p->n;

        for (uint32_t i = 0; i < m->p->n; i++)
            if (!done[i] && above(m, i) && (from == m->p->n || above(m, i) > above(m, from)))
                from = i;
        if (from == m->p->n)
            break;
        if (relieve(m, from))
            moves++;
        else
            done[from] = true;
    }
    xfree(done);
}

/* ---- shares ---------------------------------------------------------------------------------- */

static void sort_by_zone(struct members *m)
{
    const struct plan *p = m->p;
    uint32_t at = 0;

    for (uint32_t i = 0; i < p->n; i++)
        m->zones[p->zone[i]].nodes++;
    for (uint32_t z = 0; z < p->zones; z++) {
        m->zones[z].first = at;
        at += m->zones[z].nodes;
        m->zones[z].nodes = 0;
    }
    for (uint32_t i = 0; i < p->n; i++) {
        struct zone *z = &m->zones[p->zone[i]];

        m->order[z->first + z->nodes++] = i;
    }
}

/* Nodes have equal shares but for zones: where there are enough of them, none gets more than one
 * copy of a shard, where there are fewer, none gets less. */
static void share_out(struct members *m)
{
    const struct plan *p = m->p;
    uint64_t all = (uint64_t)p->shards * p->replicas, bytes = 0, left = all;
    uint32_t nodes = p->n;
    bool again = true;

    while (again) {
        again = false;
        for (uint32_t z = 0; z < p->zones; z++) {
            struct zone *zone = &m->zones[z];
            uint64_t here = zone->fixed ? 0 : left * zone->nodes, one = (uint64_t)p->shards * nodes;

            if (zone->fixed || (p->zones >= p->replicas ? here <= one : here >= one))
                continue;
            zone->fixed = again = true;
            zone->least = p->shards / zone->nodes;
            zone->most = (p->shards + zone->nodes - 1) / zone->nodes;
            left -= p->shards;
            nodes -= zone->nodes;
        }
    }
    for (uint32_t s = 0; s < p->shards; s++)
        bytes += plan_bytes(p, s) * p->replicas;
    for (uint32_t z = 0; z < p->zones; z++) {
        struct zone *zone = &m->zones[z];

        if (!zone->fixed) {
            zone->least = (uint32_t)(left / nodes);
            zone->most = (uint32_t)((left + nodes - 1) / nodes);
        }
        /* An average copy's bytes, times the number of its copies. */
        zone->mean =
            zone->fixed ? bytes / all * p->shards / zone->nodes : bytes / all * left / nodes;
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

void plan_members(struct plan *p)
{
    struct members m = { .p = p };

    m.zones = XNEW_ARRAY(struct zone, p->zones);
    m.order = XNEW_ARRAY(uint32_t, p->n);
    m.hash = XNEW_ARRAY(uint64_t, p->n);
    m.count = XNEW_ARRAY(uint32_t, p->n);
    m.stored = XNEW_ARRAY(uint64_t, p->n);
    for (uint32_t i = 0; i < p->n; i++)
        m.hash[i] = hash64(p->nodes[i]->name, strlen(p->nodes[i]->name), PLACE_SEED);
    sort_by_zone(&m);
    share_out(&m);
    keep(&m);
    fill(&m);
    mend(&m);
    even_number(&m);
    even_bytes(&m);
    xfree(m.zones);
    xfree(m.order);
    xfree(m.hash);
    xfree(m.count);
    xfree(m.stored);
}
