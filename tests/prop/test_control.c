/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole clusters of views, members, leads and controllers over a simulated coordination service:
 * nodes crash, restart, are cut off, join and drain; requests and answers are lost; the service
 * goes away, forgets its history, and is empty or an old backup for a while, in which nothing is
 * written to it. What must hold of all that: tests/lib/repl/control_world.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/cluster/map/map_edit.h"
#include "tests/lib/repl/control_world.h"

static uint64_t seed_of_run(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261122;

    if (given)
        (void)str_u64(str_c(given), &seed);
    return seed;
}

/* An operator's command, as embertreectl does it: swaps the map for the next version. True: it is
 * done, and was not so before. */
static bool drain(struct control_world *w, const char *name, enum map_state to)
{
    bool done = false;
    const struct map *m, *next;
    struct coord_key key = key_map(STR(CONTROL_PREFIX));
    struct buf b;
    struct err e;
    int64_t rev;
    struct str text = control_value(w, key, &rev);

    if (!rev || map_parse("map", text, false, &m, &e))
        return false;
    if (map_edit_state(m, name, to, &next, &e) == 0) {
        buf_init(&b, MIB);
        map_write(next, &b);
        coord_site_put(w->site, key_str(&key), buf_str(&b));
        buf_deinit(&b);
        map_unref(next);
        done = true;
    }
    map_unref(m);
    return done;
}

static uint32_t shards_on(struct control_world *w, const char *name)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < CONTROL_SHARDS; i++)
        n += name_set_has(&w->seen[i].members, name) || name_set_has(&w->seen[i].learners, name);
    return n;
}

static enum map_state state_of(struct control_world *w, const char *name, bool *ret_there)
{
    const struct map *m;
    struct err e;
    int64_t rev;
    struct str text = control_value(w, key_map(STR(CONTROL_PREFIX)), &rev);

    assert_int_equal(map_parse("map", text, false, &m, &e), 0);
    const struct map_node *n = map_node(m, name);
    enum map_state s = n ? n->state : MAP_LEFT;
    *ret_there = n != NULL;
    map_unref(m);
    return s;
}

static struct map_steps steps_of_big(struct control_world *w)
{
    struct map_steps steps = { .len = 0 };
    const struct map *m;
    struct err e;
    int64_t rev;
    struct str text = control_value(w, key_map(STR(CONTROL_PREFIX)), &rev);

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
    struct control_world w;

    control_open(&w, seed_of_run());
    for (int i = 0; i < 3; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    w.rate = 300; /* 900 of all together: still one shard's work */
    control_pass(&w, 60000);
    assert_int_equal(steps_of_big(&w).len, 0);
    w.rate = 1000;
    int64_t before = clock_wall_ms(&w.clock.clock);
    control_pass(&w, 60000);
    struct map_steps s = steps_of_big(&w);
    assert_int_equal(s.len, 2);
    assert_int_equal(s.at[0].n, 1);
    assert_int_equal(s.at[1].n, 4);
    assert_true(s.at[1].from_ms >= before + 60000);
    w.rate = 1400; /* five would do: at least twice as many, steps are few */
    control_pass(&w, 60000);
    w.rate = 1;
    control_pass(&w, 120000);
    s = steps_of_big(&w);
    assert_int_equal(s.len, 3);
    assert_int_equal(s.at[2].n, 8);
    w.rate = 100000; /* no more than there are */
    control_pass(&w, 60000);
    s = steps_of_big(&w);
    assert_int_equal(s.len, 4);
    assert_int_equal(s.at[3].n, CONTROL_SHARDS);
    control_close(&w);
}

/* 3 nodes, then 6, then 3 again by draining; in between a leader dies. */
static void test_grow_and_shrink(void **state)
{
    (void)state;
    struct control_world w;
    bool there;

    control_open(&w, seed_of_run());
    for (int i = 0; i < 3; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    for (uint32_t i = 0; i < CONTROL_SHARDS; i++)
        assert_int_equal(w.seen[i].term, 1);
    for (int i = 3; i < 6; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    for (int i = 0; i < 6; i++)
        assert_in_range(shards_on(&w, w.nodes[i].name), 5, 7);

    /* A crash: others lead within a few seconds, no replica moves before replace_ms. */
    control_node_down(&w.nodes[0]);
    control_pass(&w, 6000);
    for (uint32_t i = 0; i < CONTROL_SHARDS; i++) {
        assert_true(control_talks(&w, w.seen[i].leader));
        assert_true(w.seen[i].established);
    }
    assert_in_range(shards_on(&w, "node-0"), 5, 7);
    control_node_up(&w.nodes[0]);
    control_heal(&w);

    for (int i = 0; i < 3; i++)
        (void)drain(&w, w.nodes[i].name, MAP_DRAINING);
    control_heal(&w);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(shards_on(&w, w.nodes[i].name), 0);
        assert_int_equal(state_of(&w, w.nodes[i].name, &there), MAP_LEFT);
        control_node_down(&w.nodes[i]);
    }
    control_heal(&w);
    (void)state_of(&w, "node-0", &there);
    assert_false(there);
    print_message("%llu records\n", (unsigned long long)w.records);
    control_close(&w);
}

static void assert_left(struct control_world *w, const struct control_node *n)
{
    bool there;

    assert_int_equal(state_of(w, n->name, &there), MAP_LEFT);
    assert_true(there);
    assert_int_equal(shards_on(w, n->name), 0);
    assert_true(view_drained(n->view));
}

static void gone(struct control_world *w, struct control_node *n)
{
    bool there;

    control_node_down(n);
    control_heal(w);
    (void)state_of(w, n->name, &there);
    assert_false(there);
}

/* A drained node stays drained, whenever it comes back, until an operator undrains it. */
static void test_drained_stays(void **state)
{
    (void)state;
    struct control_world w;
    struct control_node *n = &w.nodes[4];

    control_open(&w, seed_of_run() + 5);
    for (int i = 0; i < 5; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    assert_true(drain(&w, n->name, MAP_DRAINING));
    control_heal(&w);
    assert_left(&w, n);
    control_node_down(n); /* at once: its lease still stands */
    control_node_up(n);
    control_heal(&w);
    assert_left(&w, n);
    for (int i = 0; i < 2; i++) { /* and when the map had forgotten it */
        gone(&w, n);
        control_node_up(n);
        control_heal(&w);
        assert_left(&w, n);
    }
    n->cut = true; /* its process lives, but no other node can see that */
    coord_sim_cut(n->coord, true);
    control_pass(&w, 10000);
    control_heal(&w);
    assert_left(&w, n);
    assert_true(drain(&w, n->name, MAP_ACTIVE));
    control_heal(&w);
    assert_false(view_drained(n->view));
    assert_true(shards_on(&w, n->name) > 0);
    control_node_down(n);
    control_node_up(n);
    control_heal(&w);
    assert_true(shards_on(&w, n->name) > 0);
    control_close(&w);
}

/* Drained while it was away, so that no process learned of it; and a name that comes with an empty
 * folder, which is a new node. */
static void test_drained_away(void **state)
{
    (void)state;
    struct control_world w;
    struct control_node *n = &w.nodes[4];

    control_open(&w, seed_of_run() + 6);
    for (int i = 0; i < 5; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    control_node_down(n);
    assert_true(drain(&w, n->name, MAP_DRAINING));
    gone(&w, n);
    control_node_up(n);
    control_heal(&w);
    assert_left(&w, n);
    gone(&w, n);
    buf_reset(&n->saved);
    n->id++;
    control_node_up(n);
    control_heal(&w);
    assert_false(view_drained(n->view));
    assert_true(shards_on(&w, n->name) > 0);
    control_close(&w);
}

/* A process that was cut off while it was drained and forgotten takes itself for one of the map,
 * and may register before it hears more: by what stands in the map then. */
static void test_drained_cut_off(void **state)
{
    (void)state;

    for (uint64_t i = 0; i < 12; i++) {
        struct control_world w;
        struct control_node *n = &w.nodes[4];
        bool there;

        control_open(&w, seed_of_run() + 40 + i);
        for (int k = 0; k < 5; k++)
            control_node_up(&w.nodes[k]);
        control_heal(&w);
        coord_site_faults(w.site, &(struct coord_faults){ 1, 5 + i * 30, 0, 0, false });
        n->cut = true;
        coord_sim_cut(n->coord, true);
        control_pass(&w, 100);
        assert_true(drain(&w, n->name, MAP_DRAINING));
        for (int s = 0; s < 60; s++) {
            control_pass(&w, 1000);
            (void)state_of(&w, n->name, &there);
            if (!there)
                break;
        }
        assert_false(there);
        assert_false(view_drained(n->view));
        n->cut = false;
        coord_sim_cut(n->coord, false);
        control_heal(&w);
        assert_left(&w, n);
        control_close(&w);
    }
}

/* A node that does not come back is replaced. */
static void test_replace(void **state)
{
    (void)state;
    struct control_world w;

    control_open(&w, seed_of_run() + 1);
    for (int i = 0; i < 6; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    control_node_down(&w.nodes[4]);
    control_pass(&w, 10000);
    assert_true(shards_on(&w, "node-4") > 0);
    control_pass(&w, 20000);
    control_heal(&w);
    assert_int_equal(shards_on(&w, "node-4"), 0);
    control_close(&w);
}

/* Without the service everything stays as it is; a controller that was cut off writes nothing. */
static void test_service_away(void **state)
{
    (void)state;
    struct control_world w;
    uint64_t records;

    control_open(&w, seed_of_run() + 2);
    for (int i = 0; i < 6; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    records = w.records;
    coord_site_away(w.site, true);
    control_pass(&w, 60000);
    assert_int_equal(w.records, records);
    for (int i = 0; i < 6; i++) {
        struct view_shard s;

        assert_true(view_shard(w.nodes[i].view, 0, &s));
        assert_true(view_age_ms(w.nodes[i].view) > 50000);
        assert_false(member_in(w.nodes[i].member));
    }
    control_heal(&w);
    /* Leases have their full time when it is back: no node lost a shard by that. */
    assert_int_equal(w.records, records);
    control_close(&w);
}

static uint64_t strangers(struct control_world *w)
{
    uint64_t n = 0;

    for (int i = 0; i < CONTROL_NODES; i++)
        n += w->nodes[i].coord && view_stranger(w->nodes[i].view)[0];
    return n;
}

/* An empty service in its place, then a backup made before a node was drained, each for long enough
 * to move everything; some nodes restart meanwhile. No process writes, none knows less than before,
 * and all continue when the right service is back. */
static void test_service_forgets(void **state)
{
    (void)state;
    struct coord_backup *old;
    struct view_shard s;
    struct control_world w;

    control_open(&w, seed_of_run() + 4);
    for (int i = 0; i < 5; i++)
        control_node_up(&w.nodes[i]);
    control_heal(&w);
    old = coord_site_backup(w.site);
    (void)drain(&w, w.nodes[4].name, MAP_DRAINING);
    control_heal(&w);
    for (int round = 0; round < 2; round++) {
        uint64_t records = w.records;

        control_put_in_place(&w, round ? old : NULL);
        control_pass(&w, 10000);
        int64_t rev = coord_site_rev(w.site); /* leases of the backup's time run out till then */
        assert_true(round || rev == 1);
        assert_int_equal(strangers(&w), 5);
        control_node_down(&w.nodes[1]);
        control_node_down(&w.nodes[2]);
        control_pass(&w, 1000);
        control_node_up(&w.nodes[1]);
        control_node_up(&w.nodes[2]);
        control_pass(&w, 60000);
        assert_int_equal(coord_site_rev(w.site), rev);
        assert_int_equal(strangers(&w), 5);
        for (int i = 0; i < 5; i++) {
            assert_false(member_in(w.nodes[i].member));
            assert_false(controller_acts(w.nodes[i].controller));
            assert_true(view_shard(w.nodes[i].view, 0, &s));
            assert_int_equal(s.term, w.seen[0].term);
        }
        control_bring_back(&w);
        control_pass(&w, 8000);
        assert_int_equal(strangers(&w), 0);
        assert_int_equal(w.records, records);
        control_heal(&w);
    }
    coord_backup_free(old);
    control_close(&w);
}

/* Two processes of one name: the second gets an error, and registers when the first is gone. */
static void test_two_of_a_name(void **state)
{
    (void)state;
    struct control_world w;

    control_open(&w, seed_of_run() + 3);
    (void)snprintf(w.nodes[1].name, sizeof(w.nodes[1].name), "node-0");
    (void)snprintf(w.nodes[1].addr, sizeof(w.nodes[1].addr), "mem://other");
    control_node_up(&w.nodes[0]);
    control_pass(&w, 2000);
    control_node_up(&w.nodes[1]);
    control_pass(&w, 8000);
    assert_true(member_in(w.nodes[0].member));
    assert_false(member_in(w.nodes[1].member));
    assert_non_null(strstr(member_why(w.nodes[1].member), "another node called node-0"));
    control_node_down(&w.nodes[0]);
    control_pass(&w, 8000);
    assert_true(member_in(w.nodes[1].member));
    /* The same node again, at once: its own old lease is no obstacle. */
    control_node_down(&w.nodes[1]);
    control_node_up(&w.nodes[1]);
    control_pass(&w, 500);
    assert_true(member_in(w.nodes[1].member));
    control_close(&w);
}

/* A process that knows no cluster takes an empty service for a new one's. */
static bool all_know(struct control_world *w)
{
    for (int i = 0; i < CONTROL_NODES; i++)
        if (w->nodes[i].coord && !view_ready(w->nodes[i].view))
            return false;
    return true;
}

/* Told to drain, while its folder knew of itself, and not taken back: the map never has it used
 * again, however it comes and goes. */
static void told(struct control_world *w, struct control_node *n, enum map_state to)
{
    char me[32];

    (void)snprintf(me, sizeof(me), "\\\"%s\\\"", n->name);
    if (drain(w, n->name, to))
        n->drained = to == MAP_DRAINING && str_contains(buf_str(&n->saved), str_c(me));
}

static void check_drained(struct control_world *w)
{
    bool there;

    for (int i = 0; i < CONTROL_NODES && !w->whole; i++)
        if (w->nodes[i].drained && state_of(w, w->nodes[i].name, &there) == MAP_ACTIVE)
            fail_msg("%s was drained, and is used", w->nodes[i].name);
}

static void random_event(struct control_world *w)
{
    struct control_node *n = &w->nodes[prng_below(&w->prng, CONTROL_NODES)];
    uint32_t down = 0;

    for (int i = 0; i < CONTROL_NODES; i++)
        down += !control_talks(w, w->nodes[i].name);
    switch (prng_below(&w->prng, 11)) {
    case 0:
    case 1:
        if (down < 4)
            control_node_down(n);
        break;
    case 2:
    case 3:
    case 4:
        if (!w->whole || n->saved.len) /* a node without a saved state believes anything */
            control_node_up(n);
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
        if (w->whole)
            break;
        told(w, n, prng_chance(&w->prng, 0.3) ? MAP_DRAINING : MAP_ACTIVE);
        break;
    case 9:
        if (w->whole)
            control_bring_back(w);
        else if (all_know(w) && prng_chance(&w->prng, 0.5))
            control_put_in_place(w, NULL);
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
        struct control_world w;

        control_open(&w, seed_of_run() + 100 + round);
        for (int i = 0; i < 5; i++)
            control_node_up(&w.nodes[i]);
        for (int i = 0; i < 120; i++) {
            control_pass(&w, prng_below(&w.prng, 4000));
            check_drained(&w);
            random_event(&w);
        }
        control_bring_back(&w);
        for (int i = 0; i < CONTROL_NODES; i++) {
            control_node_up(&w.nodes[i]);
            (void)drain(&w, w.nodes[i].name, MAP_ACTIVE);
        }
        w.away = false;
        control_heal(&w);
        /* Once more, since the last commands may have been overwritten by a controller's
         * version. */
        for (int i = 0; i < CONTROL_NODES; i++)
            (void)drain(&w, w.nodes[i].name, MAP_ACTIVE);
        control_heal(&w);
        print_message("%llu records\n", (unsigned long long)w.records);
        control_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grow_and_shrink), cmocka_unit_test(test_busy_services_are_spread),
        cmocka_unit_test(test_replace),         cmocka_unit_test(test_service_away),
        cmocka_unit_test(test_service_forgets), cmocka_unit_test(test_two_of_a_name),
        cmocka_unit_test(test_drained_stays),   cmocka_unit_test(test_drained_away),
        cmocka_unit_test(test_drained_cut_off), cmocka_unit_test(test_chaos),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
