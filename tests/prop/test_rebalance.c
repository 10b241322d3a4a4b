/* SPDX-License-Identifier: Apache-2.0
 *
 * Placement from where things are, as properties: what a join, a leave, a death moves; that nodes
 * are even by number, by bytes and by work; that what is even stays where it is, also under noise.
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

enum { NODES_MAX = 64, SHARDS_MOST = 512 };
#define GIB_BYTES (UINT64_C(1) << 30)

struct world {
    struct place_node nodes[NODES_MAX];
    char names[NODES_MAX][16], zones[NODES_MAX][16];
    uint32_t n, shards, replicas;
    struct repl_record *now;  /* owned */
    struct place_shard *seen; /* owned */
    struct name_set *wanted;  /* owned */
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

/* ---- clusters -------------------------------------------------------------------------------- */

static void world_open(struct world *w, uint32_t shards, uint32_t replicas)
{
    *w = (struct world){ .shards = shards, .replicas = replicas };
    w->now = XNEW_ARRAY(struct repl_record, shards);
    w->seen = XNEW_ARRAY(struct place_shard, shards);
    w->wanted = XNEW_ARRAY(struct name_set, shards);
}

static void world_close(struct world *w)
{
    xfree(w->now);
    xfree(w->seen);
    xfree(w->wanted);
}

static void node_add(struct world *w, uint32_t number, int zone)
{
    uint32_t i = w->n++;

    CHECK(i < NODES_MAX);
    (void)snprintf(w->names[i], sizeof(w->names[0]), "node-%u", number);
    w->zones[i][0] = '\0';
    if (zone >= 0)
        (void)snprintf(w->zones[i], sizeof(w->zones[0]), "zone-%d", zone);
    w->nodes[i] = (struct place_node){ w->names[i], w->zones[i], false };
}

/* The last one takes its slot: order is no matter (test_order). */
static void node_del(struct world *w, uint32_t i)
{
    w->n--;
    memcpy(w->names[i], w->names[w->n], sizeof(w->names[0]));
    memcpy(w->zones[i], w->zones[w->n], sizeof(w->zones[0]));
}

static uint32_t find(const struct world *w, const char *name)
{
    uint32_t i = 0;

    while (i < w->n && strcmp(w->names[i], name) != 0)
        i++;
    return i;
}

static struct place_in in_of(const struct world *w)
{
    return (struct place_in){ w->nodes, w->n, w->seen, w->shards, w->replicas };
}

/* Where they should be; how many replicas that moves. */
static uint32_t plan(struct world *w)
{
    struct place_in in = in_of(w);
    uint32_t moved = 0;

    placement_target(&in, w->wanted);
    for (uint32_t s = 0; s < w->shards; s++)
        for (uint32_t i = 0; i < w->wanted[s].len; i++)
            moved += !name_set_has(&w->now[s].members, w->wanted[s].names[i]);
    return moved;
}

static void arrive(struct world *w, uint32_t shard)
{
    w->now[shard] =
        (struct repl_record){ .term = 1, .members = w->wanted[shard], .established = true };
    memcpy(w->now[shard].leader, w->wanted[shard].names[0], sizeof(w->now[shard].leader));
    w->seen[shard].now = &w->now[shard];
    w->seen[shard].able = (1u << w->wanted[shard].len) - 1;
}

static uint32_t go(struct world *w)
{
    uint32_t moved = plan(w);

    for (uint32_t s = 0; s < w->shards; s++)
        arrive(w, s);
    return moved;
}

static void counts(const struct world *w, uint32_t *ret)
{
    memset(ret, 0, NODES_MAX * sizeof(*ret));
    for (uint32_t s = 0; s < w->shards; s++)
        for (uint32_t i = 0; i < w->wanted[s].len; i++)
            ret[find(w, w->wanted[s].names[i])]++;
}

/* Every shard has its copies, in as many zones as can be. */
static void check_sets(const struct world *w, uint32_t zones)
{
    for (uint32_t s = 0; s < w->shards; s++) {
        uint32_t len = MIN(w->replicas, w->n);

        assert_int_equal(w->wanted[s].len, len);
        for (uint32_t i = 0; i < len; i++)
            assert_true(find(w, w->wanted[s].names[i]) < w->n);
        assert_int_equal(zones_in(w->nodes, w->n, &w->wanted[s]), MIN(len, zones ? zones : w->n));
    }
}

static void check_number(const struct world *w, uint32_t slack)
{
    uint32_t count[NODES_MAX], all = w->shards * MIN(w->replicas, w->n);

    counts(w, count);
    for (uint32_t i = 0; i < w->n; i++)
        if (count[i] > (all + w->n - 1) / w->n + slack || count[i] + slack < all / w->n)
            fail_msg("%s has %u of %u on %u nodes", w->names[i], count[i], all, w->n);
}

/* ---- few moves ------------------------------------------------------------------------------- */

/* With as many zones as copies each has a copy of everything, which its nodes divide. */
static uint32_t share_of_last(const struct world *w, uint32_t zones)
{
    uint32_t in_zone = 0;

    for (uint32_t i = 0; i < w->n; i++)
        in_zone += strcmp(w->zones[i], w->zones[w->n - 1]) == 0;
    return zones ? w->shards / in_zone : w->shards * 3 / w->n;
}

/* One comes or goes: its share moves and no more. A life long, not only once. */
static void test_a_join_moves_its_share(void **state)
{
    (void)state;
    struct prng p;
    uint64_t moved_sum = 0, share_sum = 0;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 30; round++) {
        uint32_t zones = (uint32_t)prng_below(&p, 2) * 3, n = 3 + 3 * (uint32_t)prng_below(&p, 4);
        struct world w;

        world_open(&w, 48 + (uint32_t)prng_below(&p, 200), 3);
        for (uint32_t i = 0; i < n; i++)
            node_add(&w, i, zones ? (int)(i % zones) : -1);
        (void)go(&w);
        for (uint32_t event = 0; event < 30; event++) {
            uint32_t victim = (uint32_t)prng_below(&p, w.n), was[NODES_MAX], must = 0;
            bool join = w.n < 6 || (w.n < 40 && prng_chance(&p, 0.5));

            counts(&w, was);
            if (join)
                node_add(&w, 100 + event, zones ? (int)(event % zones) : -1);
            else if (zones) /* so that zones do not run empty, and stay alike */
                victim = w.n - 1;
            if (!join) {
                must = was[victim];
                node_del(&w, victim);
            }
            uint32_t share = join ? share_of_last(&w, zones) : must, m = go(&w);

            check_sets(&w, zones);
            if (!zones)
                check_number(&w, 0);
            if (m > share + share / 16 + 3)
                fail_msg("%u replicas moved when one %s, its share is %u of %u on %u nodes", m,
                         join ? "came" : "went", share, w.shards * 3, w.n);
            assert_int_equal(plan(&w), 0);
            moved_sum += m;
            share_sum += share;
        }
        world_close(&w);
    }
    print_message("moved %llu, shares %llu\n", (unsigned long long)moved_sum,
                  (unsigned long long)share_sum);
    assert_true(moved_sum <= share_sum + share_sum / 50);
}

static void test_three_six_three(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, 48, 3);
    for (uint32_t i = 0; i < 3; i++)
        node_add(&w, i, (int)i);
    assert_int_equal(go(&w), 144);
    for (uint32_t i = 3; i < 6; i++) {
        node_add(&w, i, (int)(i - 3));
        assert_in_range(go(&w), 24 - 8, 24 + 8);
    }
    check_sets(&w, 3);
    check_number(&w, 0);
    for (uint32_t left = 5; left >= 3; left--) {
        node_del(&w, 0);
        assert_in_range(go(&w), 1, 144 / (left + 1) + 8);
        check_sets(&w, 3);
    }
    check_number(&w, 0);
    world_close(&w);
}

/* All at once: six stand where three were, and three where six were. */
static void test_three_at_once(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, 48, 3);
    for (uint32_t i = 0; i < 3; i++)
        node_add(&w, i, (int)i);
    (void)go(&w);
    for (uint32_t i = 3; i < 6; i++)
        node_add(&w, i, (int)(i - 3));
    assert_int_equal(go(&w), 72);
    for (uint32_t i = 0; i < 3; i++)
        node_del(&w, w.n - 1);
    assert_int_equal(go(&w), 72);
    world_close(&w);
}

/* A zone is added: each shard gets a copy there. A zone is lost: the others keep their copies, and
 * take the rest. */
static void test_a_zone_comes_and_goes(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, 60, 3);
    for (uint32_t i = 0; i < 6; i++)
        node_add(&w, i, (int)(i % 2));
    (void)go(&w);
    check_sets(&w, 2);
    for (uint32_t i = 6; i < 9; i++)
        node_add(&w, i, 2);
    assert_in_range(go(&w), 60, 70);
    check_sets(&w, 3);
    check_number(&w, 0);
    for (int i = 0; i < 3; i++)
        node_del(&w, w.n - 1);
    assert_in_range(go(&w), 60, 70);
    check_sets(&w, 2);
    world_close(&w);
}

/* Another controller begins in the middle: what learners have is not thrown away, and it ends. */
static void test_in_the_middle(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 100; round++) {
        struct world w;
        uint32_t learners = 0, kept = 0, plans = 0;

        world_open(&w, 30 + (uint32_t)prng_below(&p, 100), 3);
        for (uint32_t i = 0; i < 6; i++)
            node_add(&w, i, -1);
        (void)go(&w);
        node_add(&w, 6, -1);
        (void)plan(&w);
        for (uint32_t s = 0; s < w.shards; s++)
            for (uint32_t i = 0; i < 3; i++) {
                const char *name = w.wanted[s].names[i];

                if (name_set_has(&w.now[s].members, name) || prng_chance(&p, 0.3))
                    continue;
                learners++;
                if (prng_chance(&p, 0.5))
                    (void)name_set_add(&w.now[s].learners, name);
                else
                    (void)name_set_add(&w.now[s].members, name);
            }
        (void)plan(&w);
        for (uint32_t s = 0; s < w.shards; s++)
            kept += name_set_has(&w.wanted[s], "node-6") &&
                    (name_set_has(&w.now[s].learners, "node-6") ||
                     name_set_has(&w.now[s].members, "node-6"));
        assert_true(kept + 1 >= learners);
        check_sets(&w, 0);
        check_number(&w, 0);
        while (go(&w))
            assert_true(++plans < 3);
        world_close(&w);
    }
}

static void test_order(void **state)
{
    (void)state;
    struct world a, b;
    struct prng p;

    prng_init(&p, seed_of_run());
    world_open(&a, 96, 3);
    world_open(&b, 96, 3);
    for (uint32_t i = 0; i < 12; i++) {
        node_add(&a, i, (int)(i % 3));
        node_add(&b, 11 - i, (int)((11 - i) % 3));
    }
    for (int step = 0; step < 6; step++) {
        (void)go(&a);
        (void)go(&b);
        assert_memory_equal(a.wanted, b.wanted, 96 * sizeof(*a.wanted));
        for (uint32_t s = 0; s < 96; s++) {
            a.seen[s].rate = b.seen[s].rate = prng_below(&p, 100000000);
            a.seen[s].bytes = b.seen[s].bytes = prng_below(&p, 100 * GIB_BYTES);
        }
    }
    world_close(&a);
    world_close(&b);
}

/* ---- bytes ----------------------------------------------------------------------------------- */

static uint64_t stored(const struct world *w, uint64_t *ret)
{
    uint64_t sum = 0;

    memset(ret, 0, NODES_MAX * sizeof(*ret));
    for (uint32_t s = 0; s < w->shards; s++)
        for (uint32_t i = 0; i < w->wanted[s].len; i++) {
            ret[find(w, w->wanted[s].names[i])] += w->seen[s].bytes;
            sum += w->seen[s].bytes;
        }
    return sum / w->n;
}

/* Some shards store much, most little: nodes become even by bytes, stay even by number, and then
 * nothing moves. */
static void test_bytes_become_even(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 40; round++) {
        uint32_t zones = round % 2 ? 3 : 0, plans = 0;
        uint64_t have[NODES_MAX], mean;
        struct world w;

        world_open(&w, 96 + (uint32_t)prng_below(&p, 96), 3);
        for (uint32_t i = 0; i < 12; i++)
            node_add(&w, i, zones ? (int)(i % zones) : -1);
        (void)go(&w);
        for (uint32_t s = 0; s < w.shards; s++)
            w.seen[s].bytes = GIB_BYTES * (prng_chance(&p, 0.1) ? 40 : 4);
        while (go(&w))
            assert_true(++plans < 20);
        check_sets(&w, zones);
        check_number(&w, 1);
        mean = stored(&w, have);
        for (uint32_t i = 0; i < w.n; i++)
            if (have[i] > mean + mean / 4 + GIB_BYTES)
                fail_msg("%s stores %llu GiB, the mean is %llu", w.names[i],
                         (unsigned long long)(have[i] / GIB_BYTES),
                         (unsigned long long)(mean / GIB_BYTES));
        /* A day later each has a little more or less. */
        for (uint32_t s = 0; s < w.shards; s++)
            w.seen[s].bytes += w.seen[s].bytes * prng_below(&p, 4) / 100;
        assert_true(plan(&w) <= 2);
        world_close(&w);
    }
}

/* A node that joins gets its part of the bytes with its part of the shards. */
static void test_a_join_gets_its_bytes(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 30; round++) {
        uint64_t have[NODES_MAX], mean;
        struct world w;

        world_open(&w, 120, 3);
        for (uint32_t i = 0; i < 9; i++)
            node_add(&w, i, -1);
        (void)go(&w);
        for (uint32_t s = 0; s < w.shards; s++)
            w.seen[s].bytes = GIB_BYTES * (1 + prng_below(&p, 30));
        while (go(&w)) {
        }
        node_add(&w, 9, -1);
        assert_in_range(go(&w), 33, 42);
        mean = stored(&w, have);
        assert_in_range(have[9], mean - mean / 4, mean + mean / 4);
        world_close(&w);
    }
}

/* A small difference in bytes moves nothing. */
static void test_little_moves_nothing(void **state)
{
    (void)state;
    struct world w;

    world_open(&w, 24, 3);
    for (uint32_t i = 0; i < 6; i++)
        node_add(&w, i, (int)(i % 3));
    (void)go(&w);
    for (uint32_t s = 0; s < w.shards; s++)
        w.seen[s].bytes = s < 3 ? GIB_BYTES / 4 : 1000;
    assert_int_equal(plan(&w), 0);
    world_close(&w);
}

/* ---- leaders --------------------------------------------------------------------------------- */

/* Of nodes if the first of `wanted` leads: the highest load, and the mean of those that live. */
static double loads(const struct world *w, double *ret_mean)
{
    double load[NODES_MAX] = { 0 }, high = 0, sum = 0;
    uint32_t living = 0;

    for (uint32_t s = 0; s < w->shards; s++)
        for (uint32_t i = 0; i < w->wanted[s].len; i++)
            load[find(w, w->wanted[s].names[i])] +=
                (double)(w->seen[s].rate + PLACE_IDLE_RATE) * (i ? PLACE_FOLLOWS : PLACE_LEADS);
    for (uint32_t i = 0; i < w->n; i++) {
        if (w->nodes[i].away)
            continue;
        high = load[i] > high ? load[i] : high;
        sum += load[i];
        living++;
    }
    *ret_mean = sum / living;
    return high;
}

static uint32_t lead(struct world *w, uint32_t max)
{
    struct place_in in = in_of(w);
    uint32_t turned;

    for (uint32_t s = 0; s < w->shards; s++)
        w->wanted[s] = w->now[s].members;
    turned = place_leaders(&in, w->wanted, max);
    return turned;
}

/* They lead as was planned; members keep their order, as in records. */
static void take_turns(struct world *w)
{
    for (uint32_t s = 0; s < w->shards; s++)
        memcpy(w->now[s].leader, w->wanted[s].names[0], sizeof(w->now[s].leader));
}

static void draw_rates(struct world *w, struct prng *p)
{
    for (uint32_t s = 0; s < w->shards; s++)
        w->seen[s].rate = 2000000 + prng_below(p, 6000000) + (prng_chance(p, 0.03) ? 10000000 : 0);
}

static void world_busy(struct world *w, struct prng *p, uint32_t nodes, uint32_t shards)
{
    world_open(w, shards, 3);
    for (uint32_t i = 0; i < nodes; i++)
        node_add(w, i, (int)(i % 3));
    (void)go(w);
    draw_rates(w, p);
}

/* From even by number to even by work: within a tenth. Then, and as long as rates change by a few
 * percent only, nothing. */
static void test_leaders_become_even_and_stay(void **state)
{
    (void)state;
    struct prng p;
    uint32_t late = 0;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 12; round++) {
        uint32_t nodes = 3 * (1 + (uint32_t)prng_below(&p, 16)), first;
        uint64_t *rates;
        double mean, high;
        struct world w;

        world_busy(&w, &p, nodes, 8 * nodes);
        rates = XNEW_ARRAY(uint64_t, w.shards);
        for (uint32_t s = 0; s < w.shards; s++)
            rates[s] = w.seen[s].rate;
        first = lead(&w, UINT32_MAX);
        high = loads(&w, &mean);
        if (high > 1.1 * mean)
            fail_msg("%u nodes: the busiest has %.2f of the mean", nodes, high / mean);
        assert_true(first <= w.shards / 3);
        take_turns(&w);
        assert_int_equal(lead(&w, UINT32_MAX), 0);
        for (int minute = 0; minute < 100; minute++) {
            for (uint32_t s = 0; s < w.shards; s++)
                w.seen[s].rate = rates[s] * (97 + prng_below(&p, 7)) / 100;
            late += lead(&w, UINT32_MAX);
            take_turns(&w);
        }
        xfree(rates);
        world_close(&w);
    }
    /* 1,200 looks at some 200 shards each. */
    print_message("%u hand-overs under noise\n", late);
    assert_true(late <= 60);
}

/* No traffic, no difference: by number, within one of even. */
static void test_idle_leaders(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 30; round++) {
        uint32_t nodes = 3 + (uint32_t)prng_below(&p, 12), leads[NODES_MAX] = { 0 };
        struct world w;

        world_open(&w, nodes * (1 + (uint32_t)prng_below(&p, 8)), 3);
        for (uint32_t i = 0; i < nodes; i++)
            node_add(&w, i, -1);
        (void)go(&w);
        for (uint32_t s = 0; s < w.shards; s++) /* the first of each takes all it can */
            memcpy(w.now[s].leader, w.now[s].members.names[2], sizeof(w.now[s].leader));
        (void)lead(&w, UINT32_MAX);
        for (uint32_t s = 0; s < w.shards; s++)
            leads[find(&w, w.wanted[s].names[0])]++;
        for (uint32_t i = 0; i < nodes; i++)
            assert_in_range(leads[i], w.shards / nodes > 2 ? w.shards / nodes - 2 : 0,
                            w.shards / nodes + 2);
        world_close(&w);
    }
}

/* Only who can leads, only so many are turned, and none that was turned a moment ago. */
static void test_leaders_in_bounds(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed_of_run());
    for (int round = 0; round < 40; round++) {
        uint32_t max = (uint32_t)prng_below(&p, 9), turned = 0, away;
        struct world w;

        world_busy(&w, &p, 12, 96);
        away = (uint32_t)prng_below(&p, 12);
        w.nodes[away].away = true;
        for (uint32_t s = 0; s < w.shards; s++) {
            w.seen[s].able = (uint32_t)prng_below(&p, 8);
            w.seen[s].stay = prng_chance(&p, 0.2);
        }
        (void)lead(&w, max);
        for (uint32_t s = 0; s < w.shards; s++) {
            const char *to = w.wanted[s].names[0];
            uint32_t i = 0;

            assert_true(name_set_eq(&w.wanted[s], &w.now[s].members));
            if (strcmp(to, w.now[s].leader) == 0)
                continue;
            turned++;
            assert_false(w.seen[s].stay);
            assert_true(find(&w, to) != away);
            while (strcmp(w.now[s].members.names[i], to) != 0)
                i++;
            assert_true(w.seen[s].able >> i & 1);
        }
        assert_true(turned <= max);
        world_close(&w);
    }
}

/* A few at a time, with the bound that the controller has, comes to the same in the end. */
static void test_leaders_a_few_at_a_time(void **state)
{
    (void)state;
    struct prng p;
    struct world w;
    double mean, high;
    uint32_t steps = 0, all = 0, turned;

    prng_init(&p, seed_of_run());
    world_busy(&w, &p, 30, 240);
    while ((turned = lead(&w, 8)) > 0) {
        take_turns(&w);
        all += turned;
        assert_true(++steps < 40);
    }
    high = loads(&w, &mean);
    assert_true(high < 1.1 * mean);
    assert_true(all < 120);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_join_moves_its_share),
        cmocka_unit_test(test_three_six_three),
        cmocka_unit_test(test_three_at_once),
        cmocka_unit_test(test_a_zone_comes_and_goes),
        cmocka_unit_test(test_in_the_middle),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_bytes_become_even),
        cmocka_unit_test(test_a_join_gets_its_bytes),
        cmocka_unit_test(test_little_moves_nothing),
        cmocka_unit_test(test_leaders_become_even_and_stay),
        cmocka_unit_test(test_idle_leaders),
        cmocka_unit_test(test_leaders_in_bounds),
        cmocka_unit_test(test_leaders_a_few_at_a_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
