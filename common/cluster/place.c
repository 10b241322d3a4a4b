/* SPDX-License-Identifier: Apache-2.0
 *
 * place: wanted replicas by rendezvous hashing with bounded loads, and steps towards them.
 *
 * Every pair of shard and node has a number (a hash of both; Thaler and Ravishankar 1998). A shard
 * wants the nodes with its highest numbers, but no node takes more than its share, rounded up
 * (Mirrokni, Thorup, Zadimoghaddam 2018), and no zone is taken twice for one shard while there is
 * another. Shards choose in rounds: first all of them their first replica, then all of them their
 * second, so that those with high numbers of shards do not find only what is left over.
 *
 * Zones are often of unequal size: a small zone's nodes carry more when every shard must have a
 * replica in it. So the share is a wish: a shard that finds no node below it takes the emptiest
 * its zones allow, and afterwards nodes above their share hand replicas over where that is allowed.
 *
 * Leaders: the members are a given by then; the first choice of a shard leads it, and then leaders
 * move within their shards as long as that brings two nodes' counts closer.
 *
 * The steps of one shard: learn -> member -> (leader elsewhere) -> remove. Each is one record that
 * record_may_follow lets through, and none begins before the one before is established.
 */
#include "common/cluster/place.h"

#include <stdlib.h>

#include "common/base/hash.h"
#include "common/base/mem.h"

#define PLACE_SEED UINT64_C(0x706c616365736565)

struct plan {
    const struct place_node **nodes; /* by name */
    uint32_t *zone;                  /* of each node */
    uint32_t n, zones, shards, replicas, limit;
    uint32_t *load; /* replicas on each node */
    uint32_t *lead; /* leaders on each node */
    uint64_t *hash; /* of each node's name */
    uint32_t *got;  /* shards * replicas */
    uint32_t *got_len;
};

/* ---- numbers --------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return strcmp((*(const struct place_node *const *)a)->name,
                  (*(const struct place_node *const *)b)->name);
}

static uint64_t number(const struct plan *p, uint64_t shard_hash, uint32_t node)
{
    return hash_u64(p->hash[node] ^ shard_hash);
}

static void make_zones(struct plan *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        const char *zone = p->nodes[i]->zone;
        uint32_t k = i;

        for (k = 0; k < i; k++)
            if (zone[0] && strcmp(p->nodes[k]->zone, zone) == 0)
                break;
        p->zone[i] = k < i ? p->zone[k] : p->zones++;
    }
}

/* ---- members --------------------------------------------------------------------------------- */

static uint32_t *got_of(const struct plan *p, uint32_t shard)
{
    return p->got + (size_t)shard * p->replicas;
}

/* May the shard take the node, in place of its replica `but` (n: in place of none)? Every zone is
 * used once before one is used twice. */
static bool may_take(const struct plan *p, uint32_t shard, uint32_t node, uint32_t but)
{
    const uint32_t *got = got_of(p, shard);
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

/* The highest number among those below the limit; else the one with the fewest replicas. */
static void choose(struct plan *p, uint32_t shard)
{
    uint64_t shard_hash = hash_u64(shard + PLACE_SEED), best = 0;
    uint32_t found = p->n, least = p->n;

    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t mine = number(p, shard_hash, i);

        if (p->load[i] < p->limit && (found == p->n || mine > best) &&
            may_take(p, shard, i, p->n)) {
            found = i;
            best = mine;
        }
        if ((least == p->n || p->load[i] < p->load[least]) && may_take(p, shard, i, p->n))
            least = i;
    }
    found = found < p->n ? found : least;
    CHECK(found < p->n);
    got_of(p, shard)[p->got_len[shard]++] = found;
    p->load[found]++;
}

/* A node with too many hands one of its replicas to the node with the fewest that may have it. */
static bool relieve(struct plan *p, uint32_t shard)
{
    uint32_t *got = got_of(p, shard);

    for (uint32_t k = 0; k < p->got_len[shard]; k++) {
        uint32_t from = got[k], to = p->n;

        if (p->load[from] <= p->limit)
            continue;
        for (uint32_t i = 0; i < p->n; i++)
            if (p->load[i] + 1 < p->load[from] && (to == p->n || p->load[i] < p->load[to]) &&
                may_take(p, shard, i, from))
                to = i;
        if (to == p->n)
            continue;
        got[k] = to;
        p->load[from]--;
        p->load[to]++;
        return true;
    }
    return false;
}

static void choose_all(struct plan *p)
{
    bool again = true;

    for (uint32_t round = 0; round < p->replicas; round++)
        for (uint32_t s = 0; s < p->shards; s++)
            choose(p, s);
    /* Each hand-over brings two counts closer: it ends. */
    while (again) {
        again = false;
        for (uint32_t s = 0; s < p->shards; s++)
            again = relieve(p, s) || again;
    }
}

/* ---- leaders --------------------------------------------------------------------------------- */

static void lead_with(struct plan *p, uint32_t shard, uint32_t i)
{
    uint32_t *got = got_of(p, shard), was = got[0];

    got[0] = got[i];
    got[i] = was;
}

/* One leader moves from a node to the one with the fewest that it can reach by one shard. */
static bool even_out(struct plan *p)
{
    bool any = false;

    for (uint32_t s = 0; s < p->shards; s++) {
        uint32_t *got = got_of(p, s), best = 0;

        for (uint32_t i = 1; i < p->got_len[s]; i++)
            if (p->lead[got[i]] + 1 < p->lead[got[best]] + (best != 0))
                best = i;
        if (best == 0 || p->lead[got[best]] + 1 >= p->lead[got[0]])
            continue;
        p->lead[got[0]]--;
        p->lead[got[best]]++;
        lead_with(p, s, best);
        any = true;
    }
    return any;
}

static void choose_leaders(struct plan *p)
{
    for (uint32_t s = 0; s < p->shards; s++)
        p->lead[got_of(p, s)[0]]++;
    /* Each move brings two counts closer: it ends. */
    while (even_out(p))
        ;
}

void place_wanted(const struct place_node *nodes, size_t n, uint32_t shards, uint32_t replicas,
                  struct name_set *ret)
{
    struct plan p = { .n = (uint32_t)n, .shards = shards };

    CHECK(n > 0 && shards > 0 && replicas > 0 && replicas <= RECORD_SET_MAX);
    p.replicas = MIN(replicas, p.n);
    p.nodes = XNEW_ARRAY(const struct place_node *, n);
    p.zone = XNEW_ARRAY(uint32_t, n);
    p.load = XNEW_ARRAY(uint32_t, n);
    p.lead = XNEW_ARRAY(uint32_t, n);
    p.hash = XNEW_ARRAY(uint64_t, n);
    p.got = XNEW_ARRAY(uint32_t, (size_t)shards * p.replicas);
    p.got_len = XNEW_ARRAY(uint32_t, shards);
    for (size_t i = 0; i < n; i++)
        p.nodes[i] = &nodes[i];
    qsort(p.nodes, n, sizeof(*p.nodes), by_name);
    p.limit = (uint32_t)(((uint64_t)shards * p.replicas + n - 1) / n);
    for (size_t i = 0; i < n; i++)
        p.hash[i] = hash64(p.nodes[i]->name, strlen(p.nodes[i]->name), PLACE_SEED);
    make_zones(&p);
    choose_all(&p);
    choose_leaders(&p);
    for (uint32_t s = 0; s < shards; s++) {
        memset(&ret[s], 0, sizeof(ret[s]));
        for (uint32_t i = 0; i < p.got_len[s]; i++)
            CHECK(name_set_add(&ret[s], p.nodes[got_of(&p, s)[i]]->name));
    }
    xfree(p.nodes);
    xfree(p.zone);
    xfree(p.load);
    xfree(p.lead);
    xfree(p.hash);
    xfree(p.got);
    xfree(p.got_len);
}

/* ---- the next step --------------------------------------------------------------------------- */

static bool both(const struct place_facts *f, const char *name)
{
    return name_set_has(&f->live, name) && name_set_has(&f->synced, name);
}

/* Somebody who can lead when `name` goes: of the wanted ones first, in their order. */
static const char *other_leader(const struct repl_record *now, const struct name_set *wanted,
                                const struct place_facts *f, const char *name)
{
    for (uint32_t i = 0; i < wanted->len; i++)
        if (strcmp(wanted->names[i], name) != 0 && name_set_has(&now->members, wanted->names[i]) &&
            both(f, wanted->names[i]))
            return wanted->names[i];
    for (uint32_t i = 0; i < now->members.len; i++)
        if (strcmp(now->members.names[i], name) != 0 && both(f, now->members.names[i]))
            return now->members.names[i];
    return NULL;
}

/* Learners are those who are wanted and live and are no members yet. */
static bool step_learn(const struct repl_record *now, const struct name_set *wanted,
                       const struct place_facts *f, struct place_step *ret)
{
    struct name_set want = { .len = 0 };

    for (uint32_t i = 0; i < wanted->len; i++) {
        const char *name = wanted->names[i];

        if (!name_set_has(&now->members, name) &&
            (name_set_has(&f->live, name) || name_set_has(&now->learners, name)))
            (void)name_set_add(&want, name);
    }
    if (name_set_eq(&want, &now->learners))
        return false;
    ret->kind = PLACE_LEARN;
    ret->to = *now;
    ret->to.learners = want;
    ret->name = want.len ? wanted->names[0] : now->leader;
    for (uint32_t i = 0; i < wanted->len; i++)
        if (name_set_has(&want, wanted->names[i]) &&
            !name_set_has(&now->learners, wanted->names[i]))
            ret->name = wanted->names[i];
    return true;
}

static bool step_member(const struct repl_record *now, const struct name_set *wanted,
                        const struct place_facts *f, struct place_step *ret)
{
    struct err e;

    /* One more than wanted at a time: a majority of many needs many. */
    if (now->members.len > wanted->len)
        return false;
    for (uint32_t i = 0; i < wanted->len; i++) {
        const char *name = wanted->names[i];

        if (!name_set_has(&now->learners, name) || !both(f, name))
            continue;
        if (record_next_add(now, name, &ret->to, &e))
            return false;
        ret->kind = PLACE_MEMBER;
        ret->name = name;
        return true;
    }
    return false;
}

/* Who goes first: one that lost its log, then one that is dead, then one that does not lead. */
static const char *to_remove(const struct repl_record *now, const struct name_set *wanted,
                             const struct place_facts *f)
{
    const char *found = NULL;

    for (uint32_t i = 0; i < now->members.len; i++)
        if (name_set_has(&f->lost, now->members.names[i]))
            return now->members.names[i];
    for (uint32_t i = 0; i < now->members.len; i++) {
        const char *name = now->members.names[i];

        if (name_set_has(wanted, name))
            continue;
        if (!name_set_has(&f->live, name))
            return name;
        if (!found || strcmp(found, now->leader) == 0)
            found = name;
    }
    return found;
}

static bool step_remove(const struct repl_record *now, const struct name_set *wanted,
                        const struct place_facts *f, struct place_step *ret)
{
    const char *name = to_remove(now, wanted, f), *leader = now->leader;
    uint32_t able = 0;
    struct err e;

    /* One without its log is no copy: without it there are no fewer. */
    if (!name ||
        (now->members.len <= MAX(wanted->len, f->replicas) && !name_set_has(&f->lost, name)))
        return false;
    /* Those who stay must be a majority among themselves that lives and knows everything. */
    for (uint32_t i = 0; i < now->members.len; i++)
        able += strcmp(now->members.names[i], name) != 0 && both(f, now->members.names[i]);
    if (able <= (now->members.len - 1) / 2)
        return false;
    if (strcmp(name, leader) == 0)
        leader = other_leader(now, wanted, f, name);
    if (!leader || record_next_remove(now, name, leader, &ret->to, &e))
        return false;
    ret->kind = PLACE_REMOVE;
    ret->name = name;
    return true;
}

static bool step_lead(const struct repl_record *now, const struct name_set *wanted,
                      const struct place_facts *f, struct place_step *ret)
{
    const char *name = wanted->len ? wanted->names[0] : now->leader;

    if (strcmp(name, now->leader) == 0 || !name_set_has(&now->members, name) || !both(f, name) ||
        name_set_has(&f->full, name))
        return false;
    record_next_leader(now, name, &ret->to);
    ret->kind = PLACE_LEAD;
    ret->name = name;
    return true;
}

void place_next(const struct repl_record *now, const struct name_set *wanted,
                const struct place_facts *facts, struct place_step *ret)
{
    ret->kind = PLACE_NOTHING;
    ret->name = NULL;
    if (!now->established)
        return;
    if (step_remove(now, wanted, facts, ret) || step_member(now, wanted, facts, ret) ||
        step_learn(now, wanted, facts, ret))
        return;
    /* Leaders move back only when all else is done: every move costs a moment. */
    if (name_set_eq(&now->members, wanted))
        (void)step_lead(now, wanted, facts, ret);
}
