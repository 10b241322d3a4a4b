/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_place: one more fault of sim_aim.c, of a service that comes to have another place.
 *
 * A request asks for two shards for the service (common/cluster/README.md, "A step in three
 * moves"). Before that, as the step is announced, or as it is valid, these are cut off together
 * from all other nodes and from the coordination: the leader of its old place, one more member,
 * which is a majority, a distributor and a querier; or only the distributor and the querier, and
 * from the coordination alone. Clients push samples of that time through this distributor, do not
 * wait for its answer, and send them again through the other one.
 *
 * A push that the cut-off nodes take must not be stored elsewhere when it is sent again, and a
 * query that asks them must not miss what others took.
 */
#include "common/base/mem.h"
#include "common/cluster/map/map_pending.h"
#include "common/cluster/view/map_change.h"
#include "tests/lib/sim/sim_impl.h"

#define WAIT_MS    15000 /* for the moment */
#define WORK_MS    14000 /* where it is not known when the step would be */
#define BEHIND_MS  4500  /* its time */
#define FAR_MS     30000
#define KEPT       3 /* services that are not deleted come first */
#define FEW_OTHERS 2 /* the new place works without the nodes that are cut off */

static struct map_whose whose(uint32_t service)
{
    return (struct map_whose){ str_c(services[service].tenant), str_c(services[service].name) };
}

/* ---- the request ----------------------------------------------------------------------------- */

struct wish {
    struct world *w;
    uint32_t service;
};

/* The mutant makes a step of it at once, and asks no node. */
static int on_edit(void *cookie, const struct map *m, const struct map **ret, struct err *e)
{
    const struct wish *wish = cookie;
    struct map_whose who = whose(wish->service);
    const struct map *wanted, *told;
    int code = map_pending_request(m, &who, 2, &wanted, e);

    if (code || wish->w->o.mutant != SIM_UNCONFIRMED) {
        *ret = code ? NULL : wanted;
        return code == ERR_CONFLICT ? 0 : code;
    }
    code = map_pending_announce(wanted, &who, world_wall_ms(wish->w) + 4000, STR_NULL, &told, e);
    map_unref(wanted);
    if (code)
        return code;
    code = map_pending_commit(told, &who, ret, e);
    map_unref(told);
    return code;
}

static void on_wanted(void *cookie, const struct err *e)
{
    struct wish *wish = cookie;

    (void)e;
    wish->w->flying--;
    xfree(wish);
}

void place_want(struct world *w, uint32_t service)
{
    struct wish *wish = XNEW(struct wish);

    *wish = (struct wish){ w, service };
    w->flying++;
    trace(w, "%s is to have two shards", services[wish->service].name);
    map_change(&(struct map_change_opts){ .coord = w->coord,
                                          .prefix = SIM_PREFIX,
                                          .edit = on_edit,
                                          .done = on_wanted,
                                          .cookie = wish });
}

static void deed_want(struct world *w, const struct deed *d)
{
    if (ring_followed(w))
        place_want(w, (uint32_t)d->a);
}

/* ---- nodes to cut off ------------------------------------------------------------------------ */

static const struct map_steps *steps_of(struct world *w, uint32_t service)
{
    int64_t rev;
    const struct map *m = view_map(w->view, &rev);
    struct map_whose who = whose(service);

    return m ? map_whose_steps(m, &who) : NULL;
}

bool place_is_two(struct world *w, uint32_t service)
{
    const struct map_steps *s = steps_of(w, service);

    return s && s->len && map_step_at(s, INT64_MAX, 1) > 1;
}

static bool among(const struct sim_place *a, size_t node)
{
    return node == a->dist || node == a->querier ||
           (a->moment != PLACE_DEAF && (node == a->leader || node == a->friend));
}

static void cut_group(struct world *w)
{
    const struct sim_place *a = &w->aims.place;

    for (size_t i = 0; i < SIM_NODES; i++) {
        if (!among(a, i) || w->nodes[i]->state != NODE_UP)
            continue;
        node_cut(w->nodes[i], CUT_COORD);
        for (size_t k = 0; k < SIM_NODES && a->moment != PLACE_DEAF; k++)
            if (!among(a, k) && w->nodes[k]->state == NODE_UP)
                cut_pair(w->nodes[i], w->nodes[k]);
    }
}

/* It continues until the step's time is over, if that time is known and comes. */
static void until_behind(struct world *w)
{
    struct sim_place *a = &w->aims.place;
    int64_t now = world_wall_ms(w);

    if (a->from_ms > now && a->from_ms < now + FAR_MS)
        a->until_ms = world_ms(w) + (uint64_t)(a->from_ms - now) + BEHIND_MS;
    w->aims.hold_until_ms = a->until_ms + BEHIND_MS;
}

/* Clients of that distributor, and of any querier. */
static void deed_work(struct world *w, const struct deed *d)
{
    struct sim_place *a = &w->aims.place;
    int64_t now = world_wall_ms(w);

    if (world_ms(w) >= a->until_ms)
        return;
    if (a->from_ms && now >= a->from_ms) {
        count(w)->places_late++;
        if (!a->late_until_ms)
            a->late_until_ms = a->until_ms = world_ms(w) + BEHIND_MS;
    }
    push_by(w, a->service, a->dist);
    if (prng_chance(&w->p, 0.3))
        read_new(w, a->service);
    deed_in(w, 60 + prng_below(&w->p, 300), deed_work, d->at, d->a, d->b);
}

static void deed_cut(struct world *w, const struct deed *d)
{
    struct sim_place *a = &w->aims.place;

    count(w)->places_cut++;
    trace(w, "a place is cut, moment %d: %s", (int)a->moment, services[a->service].name);
    cut_group(w);
    a->until_ms = world_ms(w) + WORK_MS;
    until_behind(w);
    deed_work(w, d);
}

/* The map of all nodes that are not cut off. */
void place_seen(struct world *w)
{
    struct sim_place *a = &w->aims.place;
    const struct map_steps *s;
    bool valid;

    if (!a->armed_until_ms || world_ms(w) >= a->armed_until_ms)
        return;
    s = steps_of(w, a->service);
    valid = place_is_two(w, a->service);
    if (!valid && !(s && s->next.from_ms))
        return;
    a->from_ms = valid ? s->at[s->len - 1].from_ms : s->next.from_ms;
    if (a->until_ms > world_ms(w))
        until_behind(w);
    if (a->struck || (a->moment == PLACE_VALID && !valid))
        return;
    a->struck = true;
    deed_in(w, prng_below(&w->p, 12), deed_cut, 0, 0, 0);
}

/* ---- it is got ready ------------------------------------------------------------------------- */

/* A friend of the leader without whom and which the other shard has a majority. */
static struct node *friend_of(struct world *w, const struct repl_record *old,
                              const struct repl_record *other, const struct node *leader)
{
    for (uint32_t i = 0; i < old->members.len; i++) {
        struct node *f = ingester_named(w, old->members.names[i]);
        uint32_t others = 0;

        for (uint32_t k = 0; k < other->members.len; k++) {
            const struct node *n = ingester_named(w, other->members.names[k]);
            others += n && n != f && n != leader;
        }
        if (f && f != leader && old->members.len <= 3 && others >= FEW_OTHERS)
            return f;
    }
    return NULL;
}

/* Chooses a service that has one place and no pending change. */
static bool choose(struct world *w, struct sim_place *a, uint32_t *ret_shard)
{
    uint32_t first = (uint32_t)prng_below(&w->p, KEPT), shards[SIM_SHARDS];

    for (uint32_t i = 0; i < KEPT; i++) {
        const struct service *s = &services[(first + i) % KEPT];

        if (view_places(w->view, str_c(s->tenant), str_c(s->name), shards, SIM_SHARDS) != 1)
            continue;
        a->service = (first + i) % KEPT;
        *ret_shard = shards[0];
        return true;
    }
    return false;
}

void moved_place(struct world *w)
{
    static const enum place_moment moments[] = { PLACE_FIRST, PLACE_FIRST, PLACE_ANNOUNCED,
                                                 PLACE_VALID, PLACE_DEAF,  PLACE_DEAF };
    struct sim_place *a = &w->aims.place;
    uint32_t shard;
    const struct repl_record *old, *other;
    struct node *leader, *friend, *dist, *querier;

    *a = (struct sim_place){ .moment = moments[prng_below(&w->p, ARRAY_LEN(moments))] };
    dist = any_of(w, FIRST_DIST, SIM_DISTS);
    querier = any_of(w, FIRST_QUERIER, SIM_QUERIERS);
    if (!dist || !querier || !choose(w, a, &shard))
        return;
    old = record_of(w, shard);
    other = record_of(w, (shard + 1) % SIM_SHARDS);
    leader = old ? ingester_named(w, old->leader) : NULL;
    friend = leader && other ? friend_of(w, old, other, leader) : NULL;
    if (!friend) {
        ring_join(w); /* next time there may be one */
        return;
    }
    for (size_t i = 0; i < SIM_NODES; i++)
        w->nodes[i]->clock.skew_ms = 0; /* or the step's time is not in this world */
    a->leader = leader->at;
    a->friend = friend->at;
    a->dist = dist->at;
    a->querier = querier->at;
    a->armed_until_ms = world_ms(w) + WAIT_MS + WORK_MS;
    w->aims.hold_until_ms = world_ms(w) + WAIT_MS;
    if (a->moment == PLACE_FIRST || a->moment == PLACE_DEAF) {
        a->struck = true;
        deed_in(w, 0, deed_cut, 0, 0, 0);
    }
    deed_in(w, prng_below(&w->p, 1500), deed_want, 0, a->service, 0);
}
