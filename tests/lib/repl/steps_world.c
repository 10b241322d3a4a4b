/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/repl/steps_world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/coord/keyspace.h"
#include "common/model/slot.h"

#define PREFIX "/e"

static const char *const names[] = { "a", "b", "big" };

/* ---- nodes ----------------------------------------------------------------------------------- */

void sw_node_up(struct node *n)
{
    struct world *w = n->w;
    struct member_opts mo = { .loop = w->loop,
                              .prefix = PREFIX,
                              .name = n->name,
                              .addr = n->addr,
                              .zone = n->zone,
                              .id = n->id,
                              .ttl_ms = 3000 };
    struct lead_opts lo = { .loop = w->loop, .prefix = PREFIX, .seed = n->id };
    struct controller_opts co = { .loop = w->loop,
                                  .prefix = PREFIX,
                                  .shards = SHARDS,
                                  .replicas = REPLICAS,
                                  .settle_ms = 2000,
                                  .replace_ms = 900000,
                                  .moves_max = 3,
                                  .spread_after_ms = AFTER_MS,
                                  .life = n->id };

    n->coord = coord_sim_new(w->site);
    n->view =
        view_new_coord(&(struct view_opts){ .loop = w->loop, .coord = n->coord, .prefix = PREFIX });
    mo.coord = lo.coord = co.coord = n->coord;
    mo.view = lo.view = co.view = n->view;
    n->member = member_new(&mo);
    lo.member = co.member = n->member;
    n->lead = lead_new(&lo);
    n->controller = controller_new(&co);
}

void sw_node_down(struct node *n)
{
    controller_free(n->controller);
    lead_free(n->lead);
    member_free(n->member);
    view_free(n->view);
    coord_free(n->coord);
}

static struct node *node_called(struct world *w, const char *name)
{
    int i = 0;

    while (i < NODES && strcmp(w->nodes[i].name, name) != 0)
        i++;
    CHECK(i < NODES);
    return &w->nodes[i];
}

/* Do a majority of them, on the leader's side, promise the term, or have they? */
static bool follow(struct world *w, const struct node *leader, uint32_t shard, uint64_t term,
                   const struct name_set *set)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < set->len; i++) {
        const struct node *m = node_called(w, set->names[i]);

        n += m->cut == leader->cut && m->promised[shard] <= term;
    }
    return n > set->len / 2;
}

static bool leads(struct world *w, const struct node *n, uint32_t shard,
                  const struct repl_record *r)
{
    return r && strcmp(r->leader, n->name) == 0 && follow(w, n, shard, r->term, &r->members) &&
           (!r->prev_members.len || follow(w, n, shard, r->term, &r->prev_members));
}

/* Promises, and learns what those who promise have: all that was ever committed. */
static void lead_shard(struct world *w, struct node *n, uint32_t shard, const struct repl_record *r)
{
    const struct name_set *sets[] = { &r->members, &r->prev_members, &r->learners };
    struct node *near[3 * RECORD_SET_MAX];
    size_t len = 0;

    for (size_t k = 0; k < ARRAY_LEN(sets); k++)
        for (uint32_t i = 0; i < sets[k]->len; i++) {
            struct node *m = node_called(w, sets[k]->names[i]);

            if (m->cut != n->cut || m->promised[shard] > r->term)
                continue;
            m->promised[shard] = r->term;
            n->stored_ms[shard] = MAX(n->stored_ms[shard], m->stored_ms[shard]);
            near[len++] = m;
        }
    for (size_t i = 0; i < len; i++)
        near[i]->stored_ms[shard] = n->stored_ms[shard];
    n->newest_ms[shard] = MAX(n->newest_ms[shard], n->stored_ms[shard]);
    if (!r->established)
        lead_established(n->lead, shard, r->term);
}

/* As ingester/replicas/step_abort.c does it. */
static void doubt(struct world *w, struct node *n)
{
    char name[NODE_NAME_MAX + 1] = { 0 };
    const struct map_pending *next;
    const struct map *m;
    struct map_whose who;
    struct err e;
    int64_t rev;

    m = view_map(n->view, &rev);
    if (view_age_ms(n->view) < AWAY_MS || !m || !map_pending_announced(m, &who))
        return;
    next = &map_whose_steps(m, &who)->next;
    if (!next->by.len || next->version == n->gave_up)
        return;
    memcpy(name, next->by.ptr, (size_t)str_find(next->by, ' '));
    const struct node *by = node_called(w, name);
    if (w->mutant != GIVES_UP_ALONE &&
        (by->cut != n->cut || controller_step_abort(by->controller, next->by, next->version, &e)))
        return;
    n->gone_ms = MAX(n->gone_ms, next->from_ms);
    n->gave_up = next->version;
    w->given_up++;
}

/* What a write is checked against; a reference. */
static const struct map *map_checked(const struct node *n)
{
    struct map_whose who;
    const struct map *m, *rest;
    struct err e;
    int64_t rev;

    m = view_map(n->view, &rev);
    if (m && map_pending_announced(m, &who) &&
        map_whose_steps(m, &who)->next.version == n->gave_up) {
        assert_int_equal(map_pending_ignore(m, &who, &rest, &e), 0);
        return rest;
    }
    return m ? map_ref(m) : NULL;
}

static void node_tick(struct world *w, struct node *n)
{
    struct progress_shard all[SHARDS];
    struct progress p = { .shards = all, .map = view_kept(n->view) };

    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = view_record(n->view, i, NULL);
        bool leading = leads(w, n, i, r);

        if (!r || !name_set_has(&r->members, n->name))
            continue;
        if (leading)
            lead_shard(w, n, i, r);
        all[p.shards_len++] = (struct progress_shard){
            .shard = i,
            .term = n->promised[i],
            .leads = leading,
            .newest_ms = !leading ? 0
                         : w->mutant == CONFIRMS_ALWAYS
                             ? 1
                             : MAX(MAX(n->newest_ms[i], n->gone_ms), INT64_C(1)),
        };
    }
    member_report(n->member, &p);
    doubt(w, n);
}

static void on_tick(void *cookie)
{
    struct world *w = cookie;

    for (int i = 0; i < NODES; i++)
        node_tick(w, &w->nodes[i]);
}

void sw_pass(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&w->clock.clock) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end)
        (void)loop_sim_step(w->loop);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

int64_t sw_wall(const struct world *w)
{
    return clock_wall_ms(&w->clock.clock);
}

void sw_push(struct world *w, struct push *p)
{
    const struct dist *d = &w->dists[prng_below(&w->prng, DISTS)];
    int64_t now = sw_wall(w) + d->ahead_ms;

    *p = (struct push){
        .service = str_c(names[prng_below(&w->prng, ARRAY_LEN(names))]),
        .series = prng_u64(&w->prng),
        .when_ms = now + FUTURE_MS - (int64_t)prng_below(&w->prng, FUTURE_MS + 90000),
    };
}

/* True: it was committed. */
static bool commit(struct world *w, struct node *n, uint32_t shard, int64_t when_ms)
{
    const struct repl_record *r = view_record(n->view, shard, NULL);

    if (!leads(w, n, shard, r))
        return false;
    n->stored_ms[shard] = MAX(n->stored_ms[shard], when_ms);
    lead_shard(w, n, shard, r);
    return true;
}

void sw_attempt(struct world *w, struct push *p, const struct dist *d)
{
    int64_t rev, slot_ms = slot_to_ms(slot_leaf(slot_of_ms(p->when_ms)));
    const struct map *its = view_map(d->view, &rev), *map;
    struct view_shard s;
    struct node *n;

    if (!its || p->when_ms > sw_wall(w) + d->ahead_ms + FUTURE_MS)
        return;
    uint32_t shard = map_shard(its, STR("t"), p->service, p->series, slot_ms);
    if (!view_shard(d->view, shard, &s))
        return;
    n = node_called(w, s.leader);
    map = map_checked(n);
    n->newest_ms[shard] = MAX(n->newest_ms[shard], slot_ms);
    bool refused = !map || map_outdates(map, STR("t"), p->service, its->version, slot_ms);
    map_unref(map);
    if (refused) {
        w->refused++;
        return;
    }
    if (!commit(w, n, shard, slot_ms))
        return;
    w->acked++;
    w->cut_acked += n->cut;
    w->doubled += (p->stored & ~(1u << shard)) != 0;
    p->stored |= 1u << shard;
}

/* ---- the service ---------------------------------------------------------------------------- */

const struct map *sw_map(struct world *w)
{
    struct coord_key key = key_map(STR(PREFIX));
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));
    const struct map *m = NULL;
    struct err e;

    if (kv)
        assert_int_equal(map_parse("map", kv->value, false, &m, &e), 0);
    return m;
}

void sw_put_map(struct world *w, const struct map *m)
{
    struct coord_key key = key_map(STR(PREFIX));
    struct buf b;

    buf_init(&b, MIB);
    map_write(m, &b);
    coord_site_put(w->site, key_str(&key), buf_str(&b));
    buf_deinit(&b);
}

void sw_cut(struct world *w, bool some)
{
    uint32_t mask = some ? (uint32_t)prng_u64(&w->prng) : 0;

    for (uint32_t i = 0; i < NODES; i++) {
        w->nodes[i].cut = mask >> i & 1;
        coord_sim_cut(w->nodes[i].coord, w->nodes[i].cut);
    }
    for (uint32_t i = 0; i < DISTS; i++) {
        w->dists[i].cut = mask >> (16 + i) & 1;
        coord_sim_cut(w->dists[i].coord, w->dists[i].cut);
    }
}

void sw_open(struct world *w, uint64_t seed, enum mutant mutant)
{
    *w = (struct world){ .mutant = mutant };
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    prng_init(&w->prng, seed);
    w->site = coord_site_new(w->loop, seed);
    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    for (int i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];

        n->w = w;
        n->id = seed * 100 + (uint64_t)i + 1;
        (void)snprintf(n->name, sizeof(n->name), "node-%d", i);
        (void)snprintf(n->zone, sizeof(n->zone), "z%d", i % 3);
        (void)snprintf(n->addr, sizeof(n->addr), "mem://%d", i);
        sw_node_up(n);
    }
    for (int i = 0; i < DISTS; i++) {
        struct dist *d = &w->dists[i];

        d->coord = coord_sim_new(w->site);
        d->view = view_new_coord(
            &(struct view_opts){ .loop = w->loop, .coord = d->coord, .prefix = PREFIX });
        if (seed % 2)
            d->ahead_ms = (int64_t)prng_below(&w->prng, 2 * HOUR_MS) - HOUR_MS;
    }
    w->tick = loop_timer_new(w->loop, on_tick, w);
    loop_timer_start(w->tick, TICK_MS, TICK_MS);
    sw_pass(w, 10000);
    for (size_t i = 0; i < PUSHES; i++)
        sw_push(w, &w->pushes[i]);
}

void sw_close(struct world *w)
{
    for (int i = 0; i < NODES; i++)
        sw_node_down(&w->nodes[i]);
    for (int i = 0; i < DISTS; i++) {
        view_free(w->dists[i].view);
        coord_free(w->dists[i].coord);
    }
    loop_timer_free(w->tick);
    coord_site_free(w->site);
    loop_free(w->loop);
}

/* When all is well again, what was wanted comes. */
void sw_settle(struct world *w)
{
    bool waits = true;

    sw_cut(w, false);
    coord_site_away(w->site, false);
    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    for (int i = 0; i < 240 && waits; i++) {
        const struct map *m;
        struct map_whose who;
        size_t pos = 0;

        sw_pass(w, 1000);
        m = sw_map(w);
        waits = !m || map_pending_each(m, &pos, &who);
        map_unref(m);
    }
    if (!waits)
        return;
    for (int i = 0; i < NODES; i++)
        print_message("%s: %s\n", w->nodes[i].name, controller_says(w->nodes[i].controller));
    fail_msg("after four minutes of peace something is still wanted");
}
