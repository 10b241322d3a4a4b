/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_between: in one of five worlds the coordination service goes away between the two moments of
 * a lead: a record names it, and is not marked as established. It stays away for half a minute;
 * meanwhile one node may be down, and nothing else happens.
 *   a leader is named   by an operator who hands the shard over, or because its leader died, or
 *                       since members change
 *   nodes that know it  all; of the members only the new leader, or only the old one; some; none.
 *                       From then on no write reaches the service: the record is not established
 *   it is away          and nodes that do not know the record do not get it until it is back
 *
 * As long as a majority of members runs, writes and reads of the shard must be answered after
 * SOON_MS, while it is away, unless the leader is dead and the next one does not know the record,
 * or lacks entries that no log has any more. And all acked data must be there.
 *
 * Chance is its own, as in sim_forget.c.
 */
#include "common/base/json.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/map/map_pending.h"
#include "ingester/base/state.h"
#include "ingester/replicas/replicas_impl.h"
#include "tests/lib/sim/sim_impl.h"

#define BETWEEN_CHANCE 0.2
#define LOOK_MS        400
#define WAIT_MS        20000 /* for a record */
#define CHECK_MS       2000  /* all is well before, or nothing begins */
#define HEARD_MS       60    /* the news is on its way for at most a dozen */
#define SOON_MS        14000
#define LONG_MS        (SOON_MS + 16000)
#define EVEN           200 /* entries: all members are about as far */

bool between_holds(const struct world *w)
{
    return world_ms(w) < w->between.until_ms;
}

static struct prng *dice(struct world *w)
{
    return &w->between.p;
}

static bool held_record(const struct world *w, uint32_t shard, struct repl_record *ret)
{
    struct coord_key key = key_shard(STR(SIM_PREFIX), shard);
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));
    struct err e;

    return kv && record_parse(kv->value, ret, &e) == 0;
}

/* ---- it begins with all well ----------------------------------------------------------------- */

/* All members are about as far, so any majority of them will do. */
static bool even(struct world *w, const struct repl_record *rec, uint32_t shard)
{
    uint64_t least = UINT64_MAX, most = 0;

    for (uint32_t i = 0; i < rec->members.len; i++) {
        uint64_t at = oracle_applied(w, rec->members.names[i], shard);
        least = MIN(least, at);
        most = MAX(most, at);
    }
    return most - least < EVEN;
}

static bool all_up(struct world *w)
{
    for (size_t i = 0; i < SIM_NODES; i++) {
        const struct node *n = w->nodes[i];

        if (i >= w->ingesters && i < FIRST_DIST)
            continue;
        if (n->state == NODE_GONE)
            continue;
        if (n->state != NODE_UP || n->draining || n->wipe || n->disk.rot.path[0] ||
            !view_trusts(n->view))
            return false;
        if (n->has_disk && !sim_disk_sound(&n->disk))
            return false;
    }
    return list_empty(&w->dying);
}

/* A change of places that is announced while the service is away stops its service
 * (placement_guard.h). */
static bool places_rest(struct world *w)
{
    int64_t rev;
    const struct map *m = view_map(w->view, &rev);
    size_t pos = 0;
    struct map_whose who;

    return m && !map_pending_each(m, &pos, &who);
}

static bool well(struct world *w)
{
    if (w->away || w->whole || w->recovery || w->lost || !view_trusts(w->view) || !places_rest(w) ||
        !all_up(w) || !ring_solid(w))
        return false;
    for (uint32_t s = 0; s < SIM_SHARDS; s++)
        if (!even(w, record_of(w, s), s))
            return false;
    return true;
}

/* Chooses a service that is in this shard and in no other. */
static bool choose(struct world *w)
{
    struct sim_between *b = &w->between;
    uint32_t first = (uint32_t)prng_below(dice(w), SERVICES), shards[SIM_SHARDS];

    for (uint32_t i = 0; i < SERVICES; i++) {
        const struct service *s = &services[(first + i) % SERVICES];

        if (view_places(w->view, str_c(s->tenant), str_c(s->name), shards, SIM_SHARDS) != 1)
            continue;
        b->service = (first + i) % SERVICES;
        b->shard = shards[0];
        return true;
    }
    return false;
}

/* ---- the end --------------------------------------------------------------------------------- */

static void deed_look(struct world *w, const struct deed *d);

static void over(struct world *w)
{
    struct sim_between *b = &w->between;

    if (b->away) {
        w->away = false;
        coord_site_away(w->site, false);
    }
    fault_calm(w);
    nodes_heal(w);
    b->away = false;
    b->until_ms = w->aims.hold_until_ms = 0;
    deed_in(w, 4000, deed_look, 0, 0, 0);
}

static bool majority_runs(struct world *w, const struct name_set *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->len; i++)
        n += ingester_named(w, s->names[i]) != NULL;
    for (size_t i = 0; i < w->ingesters; i++) /* a copy that comes in may have filled one */
        if (w->nodes[i]->disk.full)
            return false;
    return n > s->len / 2;
}

static const char *const causes[] = { "handed over", "its leader died", "members change" };
static const char *const hearers[] = { "all", "the new leader", "the old leader", "some",
                                       "no node" };

static bool heard(struct world *w, const char *name, const struct repl_record *rec)
{
    struct node *n = ingester_named(w, name);
    const struct repl_record *its;
    int64_t rev;

    its = n ? view_record(n->view, w->between.shard, &rev) : NULL;
    return its && its->term >= rec->term;
}

static bool log_of(struct world *w, const char *name, struct replica_state *ret)
{
    struct node *n = ingester_named(w, name);
    const struct ingester *in = n ? n->self : NULL;
    const struct replica_of *r = in ? replica_find(in->replicas, w->between.shard) : NULL;

    if (!r || !r->node)
        return false;
    *ret = replica_now(r);
    return true;
}

/* What the log of the named leader lacks, the log of a member that runs and has the most still has.
 * Where none does, the named one can only name another (io.prefer), which takes the service. */
static bool others_have(struct world *w, const struct repl_record *rec)
{
    struct replica_state own, st;
    uint64_t most = 0, base = 0;

    if (!log_of(w, rec->leader, &own))
        return true;
    for (uint32_t i = 0; i < rec->members.len; i++) {
        if (!log_of(w, rec->members.names[i], &st) || st.last_index < most)
            continue;
        base = st.last_index > most ? st.base_index : MIN(base, st.base_index);
        most = st.last_index;
    }
    return base <= own.last_index;
}

/* The named leader knows it and can lead, or the previous leader continues. */
static bool can_be_led(struct world *w, const struct repl_record *rec)
{
    return heard(w, rec->leader, rec) ? others_have(w, rec)
                                      : ingester_named(w, w->between.old) != NULL;
}

/* What each ingester says of its replicas: what whoever looks for the reason begins with. */
static void trace_replicas(struct world *w)
{
    for (size_t i = 0; i < w->ingesters; i++) {
        const struct node *n = w->nodes[i];
        struct buf text;
        struct json j;

        if (n->state != NODE_UP || !n->self)
            continue;
        buf_init(&text, 1 << 20);
        json_init(&j, &text);
        json_obj(&j);
        n->role->ring(n->self, &j);
        json_obj_end(&j);
        trace(w, "%s: %.*s", n->name, (int)text.len, text.ptr);
        buf_deinit(&text);
    }
}

static void judge(struct world *w, const struct repl_record *rec)
{
    const struct sim_between *b = &w->between;

    count(w)->between_served += b->acked && b->read;
    if (!b->acked || !b->read)
        trace_replicas(w);
    if (!b->acked || !b->read)
        broke(w, "a shard is not served while the coordination service is away",
              "shard %" PRIu32 ", %s from %s to %s in term %" PRIu64 ", of which %s heard: %s%s%s",
              b->shard, causes[b->cause], b->old, rec->leader, rec->term, hearers[b->hears],
              b->acked ? "" : "no push", b->acked || b->read ? "" : ", ", b->read ? "" : "no read");
}

static void deed_over(struct world *w, const struct deed *d)
{
    struct repl_record rec;

    (void)d;
    if (held_record(w, w->between.shard, &rec) && majority_runs(w, &rec.members) &&
        (!rec.prev_members.len || majority_runs(w, &rec.prev_members)) && can_be_led(w, &rec))
        judge(w, &rec);
    over(w);
}

void between_acked(struct world *w, uint32_t service)
{
    struct sim_between *b = &w->between;

    if (b->away && service == b->service && world_ms(w) >= b->away_ms + SOON_MS)
        b->acked = true;
}

void between_read(struct world *w, uint32_t service)
{
    struct sim_between *b = &w->between;

    if (b->away && service == b->service && world_ms(w) >= b->away_ms + SOON_MS)
        b->read = true;
}

static void deed_ask(struct world *w, const struct deed *d)
{
    if (!w->between.away)
        return;
    push_by(w, w->between.service, 0);
    read_new(w, w->between.service);
    deed_in(w, 300 + prng_below(dice(w), 900), deed_ask, d->at, d->a, d->b);
}

/* ---- in between ------------------------------------------------------------------------------ */

static void deed_gone(struct world *w, const struct deed *d)
{
    struct sim_between *b = &w->between;

    (void)d;
    w->away = b->away = true;
    coord_site_away(w->site, true);
    b->away_ms = world_ms(w);
    b->until_ms = w->aims.hold_until_ms = world_ms(w) + LONG_MS + 2000;
    deed_ask(w, &(struct deed){ 0 });
    deed_in(w, LONG_MS, deed_over, 0, 0, 0);
}

static bool hears(struct world *w, const struct node *n, const struct repl_record *rec)
{
    bool member = n->has_disk;

    switch (w->between.hears) {
    case HEARS_ALL:
        return true;
    case HEARS_NEW:
        return member ? strcmp(n->name, rec->leader) == 0 : prng_chance(dice(w), 0.5);
    case HEARS_OLD:
        return member ? strcmp(n->name, w->between.old) == 0 : prng_chance(dice(w), 0.5);
    case HEARS_SOME:
        return prng_chance(dice(w), 0.5);
    case HEARS_NOBODY:
        return false;
    }
    return false;
}

/* It is in the service, and on its way to whoever looks. */
static void named(struct world *w, const struct repl_record *rec)
{
    struct sim_between *b = &w->between;
    struct coord_faults f = coordination_calm(w);

    f.lose_request = 1;
    coord_site_faults(w->site, &f);
    count(w)->between++;
    trace(w, "between: shard %" PRIu32 " %s from %s to %s in term %" PRIu64 ", known to %s",
          b->shard, causes[b->cause], b->old, rec->leader, rec->term, hearers[b->hears]);
    for (size_t i = 0; i < SIM_NODES; i++)
        if (w->nodes[i]->state == NODE_UP && !hears(w, w->nodes[i], rec))
            node_cut(w->nodes[i], CUT_COORD);
    deed_in(w, 10 + prng_below(dice(w), HEARD_MS), deed_gone, 0, 0, 0);
}

/* Called each millisecond: within one no node can have received the record and answered. */
static void deed_wait(struct world *w, const struct deed *d)
{
    struct sim_between *b = &w->between;
    struct repl_record rec;

    for (uint32_t s = 0; s < SIM_SHARDS; s++) {
        if ((s != b->shard && b->cause != BETWEEN_MEMBERS) || !held_record(w, s, &rec) ||
            rec.term <= b->terms[s])
            continue;
        b->terms[s] = rec.term;
        if (rec.established || s != b->shard)
            continue;
        named(w, &rec);
        return;
    }
    if (!between_holds(w)) /* it never came */
        over(w);
    else
        deed_in(w, 1, deed_wait, d->at, 0, 0);
}

static void cause(struct world *w, struct node *leader, const struct node *other)
{
    switch (w->between.cause) {
    case BETWEEN_HANDED:
        hand_over(w, w->between.shard, other->name);
        break;
    case BETWEEN_DIED:
        count(w)->kills++;
        leader = node_crash(leader, prng_chance(dice(w), 0.5), CRASH_QUICK);
        leader->wake_ms = world_ms(w) + (prng_chance(dice(w), 0.5) ? 2 * LONG_MS : 6000);
        break;
    case BETWEEN_MEMBERS:
        if (!ring_drain(w))
            ring_join(w);
        break;
    }
}

/* An earlier push was acked, a read was answered. */
static void deed_begin(struct world *w, const struct deed *d)
{
    struct sim_between *b = &w->between;
    struct node *leader, *other, *third;

    (void)d;
    if (!well(w) || !choose(w) || !three(w, b->shard, &leader, &other, &third)) {
        over(w);
        return;
    }
    b->cause = (enum between_cause)(prng_chance(dice(w), 0.5)   ? BETWEEN_HANDED
                                    : prng_chance(dice(w), 0.5) ? BETWEEN_DIED
                                                                : BETWEEN_MEMBERS);
    b->hears = (enum between_hears)prng_below(dice(w), 5);
    memcpy(b->old, leader->name, sizeof(b->old));
    for (uint32_t s = 0; s < SIM_SHARDS; s++)
        b->terms[s] = record_of(w, s)->term;
    b->acked = b->read = false;
    b->until_ms = w->aims.hold_until_ms = world_ms(w) + WAIT_MS;
    cause(w, leader, prng_chance(dice(w), 0.5) ? other : third);
    deed_in(w, 1, deed_wait, 0, 0, 0);
}

/* From here on no other fault happens. */
static void deed_look(struct world *w, const struct deed *d)
{
    struct sim_between *b = &w->between;
    struct coord_faults f = coordination_calm(w);

    if (w->away || w->whole || w->recovery || w->lost || !all_run(w)) {
        deed_in(w, LOOK_MS, deed_look, d->at, 0, 0);
        return;
    }
    w->aims.ack_until_ms = w->aims.vote_until_ms = w->aims.change_until_ms = 0;
    w->aims.late.until_ms = w->aims.place.armed_until_ms = 0;
    fault_calm(w);
    coord_site_faults(w->site, &f);
    for (size_t i = 0; i < SIM_NODES; i++) {
        rpc_mem_slow(w->rpc.net, w->nodes[i]->addr, 0);
        if (w->nodes[i]->has_disk)
            sim_disk_calm(&w->nodes[i]->disk);
    }
    b->until_ms = w->aims.hold_until_ms = world_ms(w) + CHECK_MS + 1000;
    deed_in(w, CHECK_MS, deed_begin, 0, 0, 0);
}

void between_open(struct world *w)
{
    prng_init(dice(w), w->o.seed ^ 0xbe73);
    w->between.on = prng_chance(dice(w), BETWEEN_CHANCE);
    if (w->between.on)
        deed_in(w, 8000 + prng_below(dice(w), 9000), deed_look, 0, 0, 0);
}
