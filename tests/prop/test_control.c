/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole clusters of views, members, leads and controllers over a simulated coordination service:
 * nodes crash, restart, are cut off, join and drain; requests and answers are lost; the service
 * goes away and forgets its history. The replication between nodes is a model: whoever is named
 * leads, and learners catch up.
 *
 * At every moment each record that appears is one that may follow the one before. In the end, when
 * everything is well, every shard has its replicas in zones of their own, a leader that lives, and
 * nothing is left to be moved.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/cluster/controller.h"
#include "common/cluster/coord_sim.h"
#include "common/cluster/keyspace.h"
#include "common/cluster/lead.h"
#include "common/cluster/map_edit.h"

enum { NODES = 9, SHARDS = 12, REPLICAS = 3, TICK_MS = 200 };
#define PREFIX "/e"

struct node {
    struct world *w;
    char name[16], zone[8], addr[32];
    uint64_t id;
    struct coord *coord; /* NULL: down */
    struct view *view;
    struct member *member;
    struct lead *lead;
    struct controller *controller;
    bool cut, leaving;
    uint64_t last[SHARDS]; /* of its log; survives a crash */
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct prng prng;
    struct node nodes[NODES];
    struct timer *tick;
    uint64_t commit[SHARDS];
    struct repl_record seen[SHARDS];
    int64_t seen_rev[SHARDS], rev;
    uint64_t records;
    bool away;
    uint64_t rate; /* of one service, on each node */
};

static struct str value_of(struct world *w, struct coord_key key, int64_t *ret_rev)
{
    const struct coord_kv *kv = coord_site_get(w->site, key_str(&key));

    *ret_rev = kv ? kv->mod_rev : 0;
    return kv ? kv->value : STR_NULL;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void node_up(struct node *n)
{
    struct world *w = n->w;

    if (n->coord)
        return;
    n->coord = coord_sim_new(w->site);
    coord_sim_cut(n->coord, n->cut);
    n->view =
        view_new_coord(&(struct view_opts){ .loop = w->loop, .coord = n->coord, .prefix = PREFIX });
    n->member = member_new(&(struct member_opts){ .loop = w->loop,
                                                  .coord = n->coord,
                                                  .view = n->view,
                                                  .prefix = PREFIX,
                                                  .name = n->name,
                                                  .addr = n->addr,
                                                  .zone = n->zone,
                                                  .id = n->id,
                                                  .ttl_ms = 3000 });
    n->lead = lead_new(&(struct lead_opts){ .loop = w->loop,
                                            .coord = n->coord,
                                            .view = n->view,
                                            .member = n->member,
                                            .prefix = PREFIX,
                                            .seed = n->id });
    n->controller = controller_new(&(struct controller_opts){ .loop = w->loop,
                                                              .coord = n->coord,
                                                              .view = n->view,
                                                              .member = n->member,
                                                              .prefix = PREFIX,
                                                              .shards = SHARDS,
                                                              .replicas = REPLICAS,
                                                              .settle_ms = 2000,
                                                              .replace_ms = 20000,
                                                              .moves_max = 3,
                                                              .spread_bytes = 1000,
                                                              .spread_after_ms = 60000 });
}

static void node_down(struct node *n)
{
    if (!n->coord)
        return;
    controller_free(n->controller);
    lead_free(n->lead);
    member_free(n->member);
    view_free(n->view);
    coord_free(n->coord);
    n->coord = NULL;
    n->leaving = false;
}

static struct node *node_called(struct world *w, const char *name)
{
    int i = 0;

    while (i < NODES && strcmp(w->nodes[i].name, name) != 0)
        i++;
    CHECK(i < NODES);
    return &w->nodes[i];
}

static bool talks(struct world *w, const char *name)
{
    const struct node *n = node_called(w, name);

    return n->coord && !n->cut;
}

static bool majority_talks(struct world *w, const struct name_set *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->len; i++)
        n += talks(w, s->names[i]);
    return n > s->len / 2;
}

/* What common/repl does, as a model: a leader with a majority commits, the others follow. */
static void replicate(struct world *w, struct node *n, uint32_t shard, const struct repl_record *r)
{
    bool mine = strcmp(r->leader, n->name) == 0;

    if (mine && !n->cut && majority_talks(w, &r->members) &&
        (!r->prev_members.len || majority_talks(w, &r->prev_members))) {
        w->commit[shard] += prng_below(&w->prng, 100);
        n->last[shard] = w->commit[shard];
        if (!r->established)
            lead_established(n->lead, shard, r->term);
    }
    if (!mine && !n->cut && talks(w, r->leader))
        n->last[shard] = MIN(w->commit[shard], n->last[shard] + 400 + prng_below(&w->prng, 2000));
}

static void node_tick(struct world *w, struct node *n)
{
    struct progress_shard all[SHARDS];
    struct progress_service busy = { STR("t"), STR("big"), w->rate };
    struct progress p = {
        .shards = all, .services = &busy, .services_len = w->rate > 0, .map = view_kept(n->view)
    };

    for (uint32_t i = 0; i < SHARDS; i++) {
        const struct repl_record *r = view_record(n->view, i, NULL);

        if (!r || (!name_set_has(&r->members, n->name) && !name_set_has(&r->learners, n->name)))
            continue;
        replicate(w, n, i, r);
        all[p.shards_len++] = (struct progress_shard){ .shard = i,
                                                       .term = r->term,
                                                       .last = n->last[i],
                                                       .commit = w->commit[i],
                                                       .leads = strcmp(r->leader, n->name) == 0,
                                                       .newest_ms = 1 };
    }
    member_report(n->member, &p);
}

static void on_tick(void *cookie)
{
    struct world *w = cookie;

    for (int i = 0; i < NODES; i++)
        if (w->nodes[i].coord)
            node_tick(w, &w->nodes[i]);
}

/* ---- what must hold always ------------------------------------------------------------------- */

static void check_records(struct world *w)
{
    if (coord_site_rev(w->site) == w->rev)
        return;
    w->rev = coord_site_rev(w->site);
    for (uint32_t i = 0; i < SHARDS; i++) {
        struct repl_record r;
        struct str text;
        struct err e;
        int64_t rev;

        text = value_of(w, key_shard(STR(PREFIX), i), &rev);
        if (rev == w->seen_rev[i])
            continue;
        assert_int_not_equal(rev, 0);
        if (record_parse(text, &r, &e))
            fail_msg("shard %u: %s", i, e.text);
        if (w->seen_rev[i] && record_may_follow(&w->seen[i], &r, &e))
            fail_msg("shard %u: %s", i, e.text);
        assert_true(r.members.len >= REPLICAS);
        w->seen[i] = r;
        w->seen_rev[i] = rev;
        w->records++;
    }
}

static void pass(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(&w->clock.clock) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end) {
        (void)loop_sim_step(w->loop);
        check_records(w);
    }
}

/* ---- and in the end -------------------------------------------------------------------------- */

static void print_state(struct world *w)
{
    struct buf b;
    struct json j;
    int one = 0;

    for (int i = 0; i < NODES; i++) {
        const struct node *n = &w->nodes[i];
        if (!n->coord)
            continue;
        print_message("%s zone %s: %s%s, moving %u, %s\n", n->name, n->zone,
                      member_in(n->member) ? "in" : member_why(n->member),
                      controller_acts(n->controller) ? ", acts" : "",
                      controller_moving(n->controller), controller_says(n->controller));
        one = i;
    }
    buf_init(&b, MIB);
    json_init(&j, &b);
    json_obj(&j);
    view_json(w->nodes[one].view, &j);
    json_obj_end(&j);
    print_message("%.*s\n", STR_ARG(buf_str(&b)));
    buf_deinit(&b);
}

static bool zones_differ(struct world *w, const struct name_set *s)
{
    for (uint32_t i = 0; i < s->len; i++)
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(node_called(w, s->names[i])->zone, node_called(w, s->names[k])->zone) == 0)
                return false;
    return true;
}

/* NULL: all is well. */
static const char *what_is_wrong(struct world *w)
{
    uint32_t acting = 0, leads[NODES] = { 0 }, up = 0;

    for (int i = 0; i < NODES; i++) {
        struct node *n = &w->nodes[i];
        if (!n->coord)
            continue;
        up++;
        if (!member_in(n->member))
            return "a node is not in";
        acting += controller_acts(n->controller);
        if (controller_moving(n->controller))
            return "shards are on their way";
    }
    if (acting != 1)
        return "not one controller";
    for (uint32_t s = 0; s < SHARDS; s++) {
        const struct repl_record *r = &w->seen[s];
        if (!w->seen_rev[s] || !r->established)
            return "a term is not established";
        if (r->members.len != REPLICAS || r->learners.len)
            return "not the right number of replicas";
        if (!talks(w, r->leader))
            return "a leader is gone";
        if (up >= 6 && !zones_differ(w, &r->members))
            return "two replicas in a zone";
        leads[node_called(w, r->leader) - w->nodes]++;
    }
    for (int i = 0; i < NODES; i++)
        if (leads[i] > (SHARDS + up - 1) / up + 2)
            return "leaders are not spread";
    return NULL;
}

static void heal(struct world *w)
{
    const char *wrong = NULL;

    coord_site_faults(w->site, &(struct coord_faults){ 1, 5, 0, 0, false });
    coord_site_away(w->site, false);
    for (int i = 0; i < NODES; i++) {
        w->nodes[i].cut = false;
        if (w->nodes[i].coord)
            coord_sim_cut(w->nodes[i].coord, false);
    }
    for (int i = 0; i < 240; i++) {
        pass(w, 1000);
        wrong = what_is_wrong(w);
        if (!wrong && i > 30)
            return;
    }
    print_state(w);
    fail_msg("after four minutes of peace: %s", wrong);
}

/* ---- worlds ---------------------------------------------------------------------------------- */

static void world_open(struct world *w, uint64_t seed)
{
    *w = (struct world){ .rev = 0 };
    print_message("seed %llu\n", (unsigned long long)seed);
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
    }
    w->tick = loop_timer_new(w->loop, on_tick, w);
    loop_timer_start(w->tick, TICK_MS, TICK_MS);
}

static void world_close(struct world *w)
{
    for (int i = 0; i < NODES; i++)
        node_down(&w->nodes[i]);
    loop_timer_free(w->tick);
    coord_site_free(w->site);
    loop_free(w->loop);
}

static uint64_t seed_of_run(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261122;

    if (given)
        (void)str_u64(str_c(given), &seed);
    return seed;
}

/* Somebody's command, as embertreectl does it: swaps the map for the next version. */
static void drain(struct world *w, const char *name, enum map_state to)
{
    const struct map *m, *next;
    struct coord_key key = key_map(STR(PREFIX));
    struct buf b;
    struct err e;
    int64_t rev;
    struct str text = value_of(w, key, &rev);

    if (!rev || map_parse("map", text, false, &m, &e))
        return;
    if (map_edit_state(m, name, to, &next, &e) == 0) {
        buf_init(&b, MIB);
        map_write(next, &b);
        coord_site_put(w->site, key_str(&key), buf_str(&b));
        buf_deinit(&b);
        map_unref(next);
    }
    map_unref(m);
}

static uint32_t shards_on(struct world *w, const char *name)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < SHARDS; i++)
        n += name_set_has(&w->seen[i].members, name) || name_set_has(&w->seen[i].learners, name);
    return n;
}

static enum map_state state_of(struct world *w, const char *name, bool *ret_there)
{
    const struct map *m;
    struct err e;
    int64_t rev;
    struct str text = value_of(w, key_map(STR(PREFIX)), &rev);

    assert_int_equal(map_parse("map", text, false, &m, &e), 0);
    const struct map_node *n = map_node(m, name);
    enum map_state s = n ? n->state : MAP_LEFT;
    *ret_there = n != NULL;
    map_unref(m);
    return s;
}

static struct map_steps steps_of_big(struct world *w)
{
    struct map_steps steps = { .len = 0 };
    const struct map *m;
    struct err e;
    int64_t rev;
    struct str text = value_of(w, key_map(STR(PREFIX)), &rev);

    assert_int_equal(map_parse("map", text, false, &m, &e), 0);
    const struct map_service *v = map_service(m, STR("t"), STR("big"));
    if (v)
        steps = v->steps;
    map_unref(m);
    return steps;
}

/* A busy service is spread, for profiles of later on, as far as its rate wants; never back. */
static void test_busy_services_are_spread(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, seed_of_run());
    for (int i = 0; i < 3; i++)
        node_up(&w.nodes[i]);
    heal(&w);
    w.rate = 300; /* 900 of all together: still one shard's work */
    pass(&w, 60000);
    assert_int_equal(steps_of_big(&w).len, 0);
    w.rate = 1000;
    int64_t before = clock_wall_ms(&w.clock.clock);
    pass(&w, 60000);
    struct map_steps s = steps_of_big(&w);
    assert_int_equal(s.len, 2);
    assert_int_equal(s.at[0].n, 1);
    assert_int_equal(s.at[1].n, 4);
    assert_true(s.at[1].from_ms >= before + 60000);
    w.rate = 1400; /* five would do: at least twice as many, steps are few */
    pass(&w, 60000);
    w.rate = 1;
    pass(&w, 120000);
    s = steps_of_big(&w);
    assert_int_equal(s.len, 3);
    assert_int_equal(s.at[2].n, 8);
    w.rate = 100000; /* no more than there are */
    pass(&w, 60000);
    s = steps_of_big(&w);
    assert_int_equal(s.len, 4);
    assert_int_equal(s.at[3].n, SHARDS);
    world_close(&w);
}

/* 3 nodes, then 6, then 3 again by draining; in between a leader dies. */
static void test_grow_and_shrink(void **state)
{
    (void)state;
    struct world w;
    bool there;

    world_open(&w, seed_of_run());
    for (int i = 0; i < 3; i++)
        node_up(&w.nodes[i]);
    heal(&w);
    for (uint32_t i = 0; i < SHARDS; i++)
        assert_int_equal(w.seen[i].term, 1);
    for (int i = 3; i < 6; i++)
        node_up(&w.nodes[i]);
    heal(&w);
    for (int i = 0; i < 6; i++)
        assert_in_range(shards_on(&w, w.nodes[i].name), 5, 7);

    /* A crash: others lead within a few seconds, no replica moves before replace_ms. */
    node_down(&w.nodes[0]);
    pass(&w, 6000);
    for (uint32_t i = 0; i < SHARDS; i++) {
        assert_true(talks(&w, w.seen[i].leader));
        assert_true(w.seen[i].established);
    }
    assert_in_range(shards_on(&w, "node-0"), 5, 7);
    node_up(&w.nodes[0]);
    heal(&w);

    for (int i = 0; i < 3; i++)
        drain(&w, w.nodes[i].name, MAP_DRAINING);
    heal(&w);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(shards_on(&w, w.nodes[i].name), 0);
        assert_int_equal(state_of(&w, w.nodes[i].name, &there), MAP_LEFT);
        node_down(&w.nodes[i]);
    }
    heal(&w);
    (void)state_of(&w, "node-0", &there);
    assert_false(there);
    print_message("%llu records\n", (unsigned long long)w.records);
    world_close(&w);
}

/* A node that does not come back is replaced. */
static void test_replace(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, seed_of_run() + 1);
    for (int i = 0; i < 6; i++)
        node_up(&w.nodes[i]);
    heal(&w);
    node_down(&w.nodes[4]);
    pass(&w, 10000);
    assert_true(shards_on(&w, "node-4") > 0);
    pass(&w, 20000);
    heal(&w);
    assert_int_equal(shards_on(&w, "node-4"), 0);
    world_close(&w);
}

/* Without the service everything stays as it is; a controller that was cut off writes nothing. */
static void test_service_away(void **state)
{
    (void)state;
    struct world w;
    uint64_t records;

    world_open(&w, seed_of_run() + 2);
    for (int i = 0; i < 6; i++)
        node_up(&w.nodes[i]);
    heal(&w);
    records = w.records;
    coord_site_away(w.site, true);
    pass(&w, 60000);
    assert_int_equal(w.records, records);
    for (int i = 0; i < 6; i++) {
        struct view_shard s;

        assert_true(view_shard(w.nodes[i].view, 0, &s));
        assert_true(view_age_ms(w.nodes[i].view) > 50000);
        assert_false(member_in(w.nodes[i].member));
    }
    heal(&w);
    /* Leases begin anew when it is back: nobody lost a shard by that. */
    assert_int_equal(w.records, records);
    world_close(&w);
}

/* Two processes of one name: the second is told, and gets in when the first is gone. */
static void test_two_of_a_name(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, seed_of_run() + 3);
    (void)snprintf(w.nodes[1].name, sizeof(w.nodes[1].name), "node-0");
    (void)snprintf(w.nodes[1].addr, sizeof(w.nodes[1].addr), "mem://other");
    node_up(&w.nodes[0]);
    pass(&w, 2000);
    node_up(&w.nodes[1]);
    pass(&w, 8000);
    assert_true(member_in(w.nodes[0].member));
    assert_false(member_in(w.nodes[1].member));
    assert_non_null(strstr(member_why(w.nodes[1].member), "another node called node-0"));
    node_down(&w.nodes[0]);
    pass(&w, 8000);
    assert_true(member_in(w.nodes[1].member));
    /* The same node again, at once: its own old lease is no obstacle. */
    node_down(&w.nodes[1]);
    node_up(&w.nodes[1]);
    pass(&w, 500);
    assert_true(member_in(w.nodes[1].member));
    world_close(&w);
}

static void random_event(struct world *w)
{
    struct node *n = &w->nodes[prng_below(&w->prng, NODES)];
    uint32_t down = 0;

    for (int i = 0; i < NODES; i++)
        down += !talks(w, w->nodes[i].name);
    switch (prng_below(&w->prng, 10)) {
    case 0:
    case 1:
        if (down < 4)
            node_down(n);
        break;
    case 2:
    case 3:
    case 4:
        node_up(n);
        break;
    case 5:
        n->cut = down < 4 && !n->cut;
        if (n->coord)
            coord_sim_cut(n->coord, n->cut);
        break;
    case 6:
        coord_site_compact(w->site);
        break;
    case 7:
        w->away = !w->away && prng_chance(&w->prng, 0.5);
        coord_site_away(w->site, w->away);
        break;
    case 8:
        drain(w, n->name, prng_chance(&w->prng, 0.3) ? MAP_DRAINING : MAP_ACTIVE);
        break;
    default:
        coord_site_faults(w->site, &(struct coord_faults){ 1, 1 + prng_below(&w->prng, 500),
                                                           prng_unit(&w->prng) * 0.3,
                                                           prng_unit(&w->prng) * 0.3, false });
        break;
    }
}

static void test_chaos(void **state)
{
    (void)state;
    const char *rounds = getenv("ROUNDS");
    uint64_t n = 6;

    if (rounds)
        (void)str_u64(str_c(rounds), &n);
    for (uint64_t round = 0; round < n; round++) {
        struct world w;

        world_open(&w, seed_of_run() + 100 + round);
        for (int i = 0; i < 5; i++)
            node_up(&w.nodes[i]);
        for (int i = 0; i < 120; i++) {
            pass(&w, prng_below(&w.prng, 4000));
            random_event(&w);
        }
        for (int i = 0; i < NODES; i++) {
            node_up(&w.nodes[i]);
            drain(&w, w.nodes[i].name, MAP_ACTIVE);
        }
        w.away = false;
        heal(&w);
        /* Once more, since the last commands may have been overwritten by a controller's
         * version. */
        for (int i = 0; i < NODES; i++)
            drain(&w, w.nodes[i].name, MAP_ACTIVE);
        heal(&w);
        print_message("%llu records\n", (unsigned long long)w.records);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow_and_shrink), cmocka_unit_test(test_busy_services_are_spread),
        cmocka_unit_test(test_replace),         cmocka_unit_test(test_service_away),
        cmocka_unit_test(test_two_of_a_name),   cmocka_unit_test(test_chaos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
