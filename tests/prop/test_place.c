/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement from nothing as properties (balance, zones), and walks from any placement to any other
 * in single steps that record_may_follow lets through and that never lose a majority. Placement
 * from where things are: test_rebalance.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/cluster/place/place.h"
#include "tests/lib/repl/place_zones.h"

enum { NODES_MAX = 64 };

struct fleet {
    struct place_node nodes[NODES_MAX];
    char names[NODES_MAX][16], zones[NODES_MAX][16];
    size_t n;
};

static uint64_t seed_of_run(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261122;

    if (given)
        (void)str_u64(str_c(given), &seed);
    print_message("seed %llu\n", (unsigned long long)seed);
    return seed;
}

static void fleet_add(struct fleet *f, unsigned number, int zone)
{
    CHECK(f->n < NODES_MAX);
    (void)snprintf(f->names[f->n], sizeof(f->names[0]), "node-%u", number);
    f->zones[f->n][0] = '\0';
    if (zone >= 0)
        (void)snprintf(f->zones[f->n], sizeof(f->zones[0]), "zone-%d", zone);
    f->nodes[f->n] = (struct place_node){ f->names[f->n], f->zones[f->n], false };
    f->n++;
}

static size_t index_of(const struct fleet *f, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->names[i], name) == 0)
            return i;
    fail_msg("%s is not a node", name);
    return 0;
}

static struct name_set *place(const struct fleet *f, uint32_t shards, uint32_t replicas)
{
    struct name_set *ret = XNEW_ARRAY(struct name_set, shards);

    place_fresh(f->nodes, f->n, shards, replicas, ret);
    return ret;
}

static void check_balance(const struct fleet *f, const struct name_set *all, uint32_t shards,
                          uint32_t replicas, uint32_t slack, uint32_t leader_slack)
{
    uint32_t load[NODES_MAX] = { 0 }, lead[NODES_MAX] = { 0 };
    uint32_t want = (uint32_t)MIN(replicas, f->n);

    for (uint32_t s = 0; s < shards; s++) {
        assert_int_equal(all[s].len, want);
        for (uint32_t i = 0; i < want; i++)
            load[index_of(f, all[s].names[i])]++;
        lead[index_of(f, all[s].names[0])]++;
    }
    for (size_t i = 0; i < f->n; i++) {
        if (load[i] > (shards * want + f->n - 1) / f->n + slack)
            fail_msg("%s has %u of %u * %u on %zu nodes", f->names[i], load[i], shards, want, f->n);
        if (lead[i] > (shards + f->n - 1) / f->n + leader_slack)
            fail_msg("%s leads %u of %u on %zu nodes", f->names[i], lead[i], shards, f->n);
    }
}

static void test_balance_and_zones(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 300; round++) {
        struct fleet f = { .n = 0 };
        uint32_t zones = (uint32_t)prng_below(&p, 5), per = 1 + (uint32_t)prng_below(&p, 8);
        uint32_t shards = 1 + (uint32_t)prng_below(&p, 200);
        uint32_t replicas = 1 + (uint32_t)prng_below(&p, 5);

        for (uint32_t i = 0; i < MAX(zones, 1u) * per; i++)
            fleet_add(&f, i, zones ? (int)(i % zones) : -1);
        struct name_set *all = place(&f, shards, replicas);
        check_balance(&f, all, shards, replicas, 1, 2);
        for (uint32_t s = 0; s < shards; s++)
            assert_int_equal(zones_in(f.nodes, f.n, &all[s]), MIN(all[s].len, zones ? zones : f.n));
        xfree(all);
    }
}

/* Zones of unequal size: each shard still has one replica in each. */
static void test_small_zone_carries_more(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    uint32_t in_small = 0;

    fleet_add(&f, 0, 0);
    for (unsigned i = 1; i < 9; i++)
        fleet_add(&f, i, 1 + (int)(i % 2));
    struct name_set *all = place(&f, 100, 3);
    for (uint32_t s = 0; s < 100; s++) {
        assert_int_equal(zones_in(f.nodes, f.n, &all[s]), 3);
        in_small += name_set_has(&all[s], "node-0");
    }
    assert_int_equal(in_small, 100);
    xfree(all);
}

static void test_order_does_not_matter(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set *a, *b;

    for (unsigned i = 0; i < 12; i++)
        fleet_add(&f, i, (int)(i % 3));
    a = place(&f, 64, 3);
    for (size_t i = 0; i < f.n / 2; i++) {
        struct place_node was = f.nodes[i];
        f.nodes[i] = f.nodes[f.n - 1 - i];
        f.nodes[f.n - 1 - i] = was;
    }
    b = place(&f, 64, 3);
    assert_memory_equal(a, b, 64 * sizeof(*a));
    xfree(a);
    xfree(b);
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* One shard on its way: records only, the replication itself is instant or late at random. */
struct walk {
    struct repl_record now;
    struct place_facts facts;
    uint32_t steps, least;
};

static bool majority_lives(const struct walk *w, const struct name_set *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->len; i++)
        n += name_set_has(&w->facts.live, s->names[i]) &&
             name_set_has(&w->facts.synced, s->names[i]);
    return n > s->len / 2;
}

/* True: a step was made. */
static bool walk_step(struct walk *w, const struct name_set *wanted, struct prng *p)
{
    struct place_step step;
    struct err e;

    if (!w->now.established) {
        struct repl_record next;
        assert_true(majority_lives(w, &w->now.members));
        record_established(&w->now, &next);
        assert_int_equal(record_may_follow(&w->now, &next, &e), 0);
        w->now = next;
        return true;
    }
    place_next(&w->now, wanted, &w->facts, &step);
    if (step.kind == PLACE_NOTHING)
        return false;
    if (record_may_follow(&w->now, &step.to, &e))
        fail_msg("step %d about %s: %s", (int)step.kind, step.name, e.text);
    if (step.kind == PLACE_MEMBER)
        assert_true(name_set_has(&w->facts.synced, step.name));
    if (step.to.term != w->now.term) {
        assert_true(majority_lives(w, &step.to.members));
        assert_true(name_set_has(&w->facts.live, step.to.leader));
        assert_true(name_set_has(&w->facts.synced, step.to.leader));
    }
    w->now = step.to;
    w->least = MIN(w->least, w->now.members.len);
    w->steps++;
    /* Learners catch up sooner or later. */
    for (uint32_t i = 0; i < w->now.learners.len; i++)
        if (prng_chance(p, 0.5))
            (void)name_set_add(&w->facts.synced, w->now.learners.names[i]);
    return true;
}

static void walk_to(struct walk *w, const struct name_set *wanted, struct prng *p)
{
    for (int i = 0; i < 200; i++)
        if (!walk_step(w, wanted, p) && w->now.learners.len)
            (void)name_set_add(&w->facts.synced, w->now.learners.names[0]);
    if (!name_set_eq(&w->now.members, wanted) || strcmp(w->now.leader, wanted->names[0]) != 0)
        fail_msg("did not arrive: %u members, led by %s", w->now.members.len, w->now.leader);
    assert_int_equal(w->now.learners.len, 0);
}

static void walk_begin(struct walk *w, const struct fleet *f, const struct name_set *at)
{
    *w = (struct walk){ .now = { .term = 1, .members = *at, .established = true } };
    w->least = at->len;
    w->facts.replicas = at->len;
    w->facts.synced = *at;
    memcpy(w->now.leader, at->names[0], sizeof(w->now.leader));
    for (size_t i = 0; i < f->n; i++)
        if (w->facts.live.len < RECORD_SET_MAX)
            (void)name_set_add(&w->facts.live, f->names[i]);
}

/* 3 nodes to 6 and back, each shard, each step. */
static void test_three_six_three(void **state)
{
    (void)state;
    struct fleet small = { .n = 0 }, large = { .n = 0 };
    struct prng p;
    struct walk w;

    prng_init(&p, seed_of_run());
    for (unsigned i = 0; i < 6; i++) {
        if (i < 3)
            fleet_add(&small, i, (int)(i % 3));
        fleet_add(&large, i, (int)(i % 3));
    }
    struct name_set *a = place(&small, 48, 3), *b = place(&large, 48, 3);
    check_balance(&large, b, 48, 3, 0, 1);
    for (uint32_t s = 0; s < 48; s++) {
        walk_begin(&w, &large, &a[s]);
        walk_to(&w, &b[s], &p);
        walk_to(&w, &a[s], &p);
        assert_int_equal(w.least, 3);
        assert_true(w.steps <= 30);
    }
    xfree(a);
    xfree(b);
}

/* A dead member is replaced; with two of three dead nothing is done that needs a majority. */
static void test_the_dead_are_replaced(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 }, wanted = { .len = 0 };
    struct place_step step;
    struct prng p;
    struct walk w;

    prng_init(&p, seed_of_run());
    for (unsigned i = 0; i < 5; i++)
        fleet_add(&f, i, -1);
    for (int i = 0; i < 3; i++)
        assert_true(name_set_add(&at, f.names[i]));
    walk_begin(&w, &f, &at);
    (void)name_set_del(&w.facts.live, "node-2");
    (void)name_set_add(&wanted, "node-0");
    (void)name_set_add(&wanted, "node-1");
    (void)name_set_add(&wanted, "node-3");
    walk_to(&w, &wanted, &p);
    assert_int_equal(w.least, 3);

    walk_begin(&w, &f, &at);
    (void)name_set_del(&w.facts.live, "node-2");
    (void)name_set_del(&w.facts.live, "node-1");
    (void)name_set_del(&wanted, "node-1");
    (void)name_set_add(&wanted, "node-4");
    for (int i = 0; i < 20; i++) {
        place_next(&w.now, &wanted, &w.facts, &step);
        assert_true(step.kind == PLACE_NOTHING || step.kind == PLACE_LEARN);
        if (step.kind == PLACE_LEARN)
            w.now = step.to;
    }
    assert_int_equal(w.now.learners.len, 2);
}

/* Fewer nodes than replicas: a member that is dead stays, one for each replica asked for. */
static void test_never_below_replicas(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 }, wanted;
    struct place_step step;
    struct walk w;

    for (unsigned i = 0; i < 3; i++) {
        fleet_add(&f, i, -1);
        assert_true(name_set_add(&at, f.names[i]));
    }
    walk_begin(&w, &f, &at);
    wanted = at;
    (void)name_set_del(&wanted, "node-2");
    (void)name_set_del(&w.facts.live, "node-2");
    place_next(&w.now, &wanted, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_NOTHING);
}

/* No member is removed if the others would then lack a majority that lives and has the log. */
static void test_removal_waits_for_a_majority(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 }, wanted;
    struct place_step step;
    struct walk w;

    for (unsigned i = 0; i < 4; i++) {
        fleet_add(&f, i, -1);
        assert_true(name_set_add(&at, f.names[i]));
    }
    walk_begin(&w, &f, &at);
    w.facts.replicas = 3;
    wanted = at;
    (void)name_set_del(&wanted, "node-2");
    (void)name_set_del(&w.facts.synced, "node-1");
    (void)name_set_del(&w.facts.synced, "node-3");
    place_next(&w.now, &wanted, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_NOTHING);
    (void)name_set_add(&w.facts.synced, "node-3");
    place_next(&w.now, &wanted, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_REMOVE);
    assert_string_equal(step.name, "node-2");
}

static void must_remove(const struct walk *w, const struct name_set *wanted, const char *name)
{
    struct place_step step;

    place_next(&w->now, wanted, &w->facts, &step);
    assert_int_equal(step.kind, PLACE_REMOVE);
    assert_string_equal(step.name, name);
}

/* Of three living copies none is removed, although its node is drained, while the fourth member is
 * dead and keeps its place: after a restart it has its data again. */
static void test_the_living_stay_for_the_dead(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 }, wanted;
    struct place_step step;
    struct walk w;

    for (unsigned i = 0; i < 4; i++) {
        fleet_add(&f, i, -1);
        assert_true(name_set_add(&at, f.names[i]));
    }
    walk_begin(&w, &f, &at);
    w.facts.replicas = 3;
    wanted = at;
    (void)name_set_del(&wanted, "node-2");
    (void)name_set_del(&w.facts.live, "node-1");
    place_next(&w.now, &wanted, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_NOTHING);
    /* A living member without its log is no copy, and is removed first. */
    (void)name_set_add(&w.facts.live, "node-1");
    (void)name_set_add(&w.facts.lost, "node-1");
    must_remove(&w, &wanted, "node-1");
    (void)name_set_del(&w.facts.lost, "node-1");
    must_remove(&w, &wanted, "node-2");
}

/* Nodes 1 and 2 are drained, node 3 is dead for good and wanted only since 0 and 4 alone are not
 * enough. The copy of node 1 goes to node 4; that of node 2 stays until node 5 comes. */
static void test_a_drain_waits_for_a_node(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 }, wanted = { .len = 0 };
    struct place_step step;
    struct prng p;
    struct walk w;

    prng_init(&p, seed_of_run());
    for (unsigned i = 0; i < 6; i++)
        fleet_add(&f, i, -1);
    for (unsigned i = 0; i < 4; i++)
        assert_true(name_set_add(&at, f.names[i]));
    assert_true(name_set_add(&wanted, "node-0"));
    assert_true(name_set_add(&wanted, "node-3"));
    assert_true(name_set_add(&wanted, "node-4"));
    walk_begin(&w, &f, &at);
    w.facts.replicas = 3;
    (void)name_set_del(&w.facts.live, "node-3");
    (void)name_set_add(&w.facts.gone, "node-3");
    must_remove(&w, &wanted, "node-3");
    for (int i = 0; i < 50; i++) {
        uint32_t living = 0;

        if (!walk_step(&w, &wanted, &p) && w.now.learners.len)
            (void)name_set_add(&w.facts.synced, w.now.learners.names[0]);
        for (uint32_t k = 0; k < w.now.members.len; k++)
            living += name_set_has(&w.facts.live, w.now.members.names[k]);
        assert_true(living >= 3);
    }
    assert_int_equal(w.now.members.len, 3);
    assert_true(name_set_has(&w.now.members, "node-0"));
    assert_true(name_set_has(&w.now.members, "node-2"));
    assert_true(name_set_has(&w.now.members, "node-4"));
    place_next(&w.now, &wanted, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_NOTHING);

    (void)name_set_del(&wanted, "node-3");
    (void)name_set_add(&wanted, "node-5");
    walk_to(&w, &wanted, &p);
    assert_int_equal(w.least, 3);
}

/* One whose log is gone is no copy: it goes though it is wanted and lives, when the others are
 * enough; and learns. */
static void test_lost_logs(void **state)
{
    (void)state;
    struct fleet f = { .n = 0 };
    struct name_set at = { .len = 0 };
    struct place_step step;
    struct walk w;

    for (unsigned i = 0; i < 3; i++) {
        fleet_add(&f, i, -1);
        assert_true(name_set_add(&at, f.names[i]));
    }
    walk_begin(&w, &f, &at);
    w.facts.replicas = 3;
    (void)name_set_del(&w.facts.synced, "node-2");
    assert_true(name_set_add(&w.facts.lost, "node-2"));
    (void)name_set_del(&w.facts.synced, "node-1");
    place_next(&w.now, &at, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_NOTHING); /* node-1 does not know everything yet */
    (void)name_set_add(&w.facts.synced, "node-1");
    place_next(&w.now, &at, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_REMOVE);
    assert_string_equal(step.name, "node-2");
    record_established(&step.to, &w.now);
    place_next(&w.now, &at, &w.facts, &step);
    assert_int_equal(step.kind, PLACE_LEARN);
    assert_string_equal(step.name, "node-2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_balance_and_zones),
        cmocka_unit_test(test_small_zone_carries_more),
        cmocka_unit_test(test_order_does_not_matter),
        cmocka_unit_test(test_three_six_three),
        cmocka_unit_test(test_the_dead_are_replaced),
        cmocka_unit_test(test_never_below_replicas),
        cmocka_unit_test(test_removal_waits_for_a_majority),
        cmocka_unit_test(test_the_living_stay_for_the_dead),
        cmocka_unit_test(test_a_drain_waits_for_a_node),
        cmocka_unit_test(test_lost_logs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
