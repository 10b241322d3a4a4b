/* SPDX-License-Identifier: Apache-2.0
 *
 * Compactors and one coordination service, simulated. At most one compactor that is awake works for
 * a shard, all of them together work for all shards in equal parts, and another one takes over
 * after the end of the lease of a compactor that is gone.
 * A mutant that never stops by its own clock must be caught.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/cluster/coord/coord_sim.h"
#include "common/net/json_in.h"
#include "common/sys/loop.h"
#include "compactor/claims.h"

#define SHARDS 32
#define MOST   4
#define TTL_MS 3000

struct one { /* a compactor: the shards it would work for */
    struct world *w;
    struct coord *coord;
    struct claims *claims;
    struct metrics *metrics;
    uint64_t fence[SHARDS];
    bool busy[SHARDS]; /* a turn is under way: `leave` has to wait for it */
    bool deaf;         /* a mutant: it does not notice that it lost a shard */
    bool left;
};
struct world {
    struct clock_fake clock;
    struct loop *loop;
    struct coord_site *site;
    struct view *view;
    struct prng p;
    struct one at[MOST];
    uint64_t newest[SHARDS];
    size_t doubles, stale;
};

static uint64_t seed_of_day(void)
{
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)time(NULL);

    print_message("SEED=%" PRIu64 "\n", seed);
    return seed;
}

static bool own(void *cookie, uint32_t shard, uint64_t fence)
{
    struct one *o = cookie;

    assert_true(shard < SHARDS && fence > 0);
    /* What fences are for: each claim has a larger one than all before. */
    o->w->stale += fence < o->w->newest[shard];
    o->w->newest[shard] = fence;
    o->fence[shard] = fence;
    return true;
}

static bool leave(void *cookie, uint32_t shard)
{
    struct one *o = cookie;

    return !o->busy[shard];
}

static void lose(void *cookie, uint32_t shard)
{
    struct one *o = cookie;

    if (!o->deaf)
        o->fence[shard] = 0;
}

static void start(struct world *w, size_t i)
{
    struct one *o = &w->at[i];
    struct claims_opts c = { .loop = w->loop,
                             .view = w->view,
                             .prefix = "/t",
                             .ttl_ms = TTL_MS,
                             .own = own,
                             .leave = leave,
                             .lose = lose,
                             .cookie = o };
    bool deaf = o->deaf;

    *o = (struct one){ .w = w, .deaf = deaf };
    o->coord = coord_sim_new(w->site);
    o->metrics = metrics_new();
    c.coord = o->coord;
    c.metrics = o->metrics;
    c.id = prng_u64(&w->p);
    o->claims = claims_new(&c);
}

/* As kill -9 ends it: nothing is given back. */
static void kill(struct world *w, size_t i)
{
    struct one *o = &w->at[i];

    claims_free(o->claims);
    coord_free(o->coord);
    metrics_free(o->metrics);
    *o = (struct one){ .w = w };
}

static void on_left(void *cookie)
{
    ((struct one *)cookie)->left = true;
}

static void world_open(struct world *w, uint64_t seed)
{
    static const char *const addrs[] = { "inproc://a" };

    *w = (struct world){ 0 };
    prng_init(&w->p, seed);
    clock_fake_init(&w->clock, 1700000000000);
    w->loop = loop_sim_new(&w->clock);
    w->site = coord_site_new(w->loop, seed);
    w->view = view_new_list(addrs, 1, SHARDS);
}

static void world_close(struct world *w)
{
    for (size_t i = 0; i < MOST; i++)
        if (w->at[i].claims)
            kill(w, i);
    view_free(w->view);
    coord_site_free(w->site);
    loop_free(w->loop);
}

static size_t owned(const struct one *o)
{
    size_t n = 0;

    for (size_t s = 0; s < SHARDS; s++)
        n += o->fence[s] != 0;
    return n;
}

/* Checks at every moment that no two compactors work for one shard. */
static void run(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms(loop_clock(w->loop)) + ms, due;

    while (loop_sim_next(w->loop, &due) && due / 1000000 < end) {
        (void)loop_sim_step(w->loop);
        for (size_t s = 0; s < SHARDS; s++) {
            size_t n = 0;
            for (size_t i = 0; i < MOST; i++)
                n += w->at[i].claims && w->at[i].fence[s] != 0;
            w->doubles += n > 1;
        }
    }
}

static void all_owned(const struct world *w, size_t among)
{
    size_t n = 0;

    for (size_t i = 0; i < MOST; i++) {
        size_t mine = w->at[i].claims ? owned(&w->at[i]) : 0;
        if (w->at[i].claims)
            assert_in_range(mine, SHARDS / among, (SHARDS + among - 1) / among + 1);
        n += mine;
    }
    assert_int_equal(n, SHARDS);
}

static void test_they_share(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    start(&w, 0);
    run(&w, 1000);
    all_owned(&w, 1);
    start(&w, 1);
    run(&w, 2000);
    all_owned(&w, 2);
    start(&w, 2);
    run(&w, 2000);
    all_owned(&w, 3);
    /* Only what the new one gets has moved. */
    uint64_t before[SHARDS];
    for (size_t s = 0; s < SHARDS; s++)
        before[s] = w.newest[s];
    start(&w, 3);
    run(&w, 2000);
    all_owned(&w, 4);
    size_t moved = 0;
    for (size_t s = 0; s < SHARDS; s++)
        moved += before[s] != w.newest[s];
    assert_in_range(moved, SHARDS / 4, SHARDS / 2);
    assert_int_equal(w.doubles, 0);
    assert_int_equal(w.stale, 0);
    world_close(&w);
}

static void test_one_dies(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    start(&w, 0);
    start(&w, 1);
    run(&w, 2000);
    all_owned(&w, 2);
    kill(&w, 0);
    run(&w, TTL_MS + 1000);
    all_owned(&w, 1);
    /* A compactor that ends in order is replaced at once. */
    start(&w, 2);
    run(&w, 2000);
    all_owned(&w, 2);
    claims_leave(w.at[1].claims, on_left, &w.at[1]);
    run(&w, 500);
    assert_true(w.at[1].left);
    kill(&w, 1);
    all_owned(&w, 1);
    assert_int_equal(w.doubles, 0);
    assert_int_equal(w.stale, 0);
    world_close(&w);
}

/* Cut off from the service, awake: it stops by its own clock before another one begins. */
static void cut_off(struct world *w, bool deaf)
{
    w->at[0].deaf = deaf;
    start(w, 0);
    start(w, 1);
    run(w, 2000);
    coord_sim_cut(w->at[0].coord, true);
    run(w, TTL_MS + 1500);
    coord_sim_cut(w->at[0].coord, false);
    run(w, TTL_MS + 2000);
}

static void test_cut_off(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    cut_off(&w, false);
    assert_int_equal(w.doubles, 0);
    assert_int_equal(w.stale, 0);
    all_owned(&w, 2);
    world_close(&w);
    /* The mutant: it proves that the check above can fail. */
    world_open(&w, seed_of_day());
    cut_off(&w, true);
    assert_true(w.doubles > 0);
    world_close(&w);
}

/* A shard is given away only when its turn is over. */
static void test_a_turn_ends_first(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    start(&w, 0);
    run(&w, 1000);
    for (size_t s = 0; s < SHARDS; s++)
        w.at[0].busy[s] = true;
    start(&w, 1);
    run(&w, 3000);
    assert_int_equal(owned(&w.at[0]), SHARDS);
    assert_int_equal(owned(&w.at[1]), 0);
    for (size_t s = 0; s < SHARDS; s++)
        w.at[0].busy[s] = false;
    run(&w, 1000);
    all_owned(&w, 2);
    assert_int_equal(w.doubles, 0);
    world_close(&w);
}

static void test_the_service_is_away(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    start(&w, 0);
    start(&w, 1);
    run(&w, 2000);
    coord_site_away(w.site, true);
    run(&w, 3 * TTL_MS);
    assert_int_equal(owned(&w.at[0]) + owned(&w.at[1]), 0);
    coord_site_away(w.site, false);
    run(&w, 2 * TTL_MS + 2000);
    all_owned(&w, 2);
    assert_int_equal(w.doubles, 0);
    assert_int_equal(w.stale, 0);
    world_close(&w);
}

/* Answers lost, delays, deaths, cuts at random; then quiet, and all is shared again. */
static void test_at_random(void **state)
{
    struct coord_faults faults = {
        .delay_min_ms = 1, .delay_max_ms = 150, .lose_request = 0.1, .lose_reply = 0.1
    };
    struct world w;

    (void)state;
    world_open(&w, seed_of_day());
    coord_site_faults(w.site, &faults);
    for (size_t round = 0; round < 60; round++) {
        size_t i = prng_below(&w.p, MOST);

        if (!w.at[i].claims)
            start(&w, i);
        else if (prng_chance(&w.p, 0.4))
            kill(&w, i);
        else
            coord_sim_cut(w.at[i].coord, prng_chance(&w.p, 0.5));
        if (prng_chance(&w.p, 0.1))
            coord_site_compact(w.site);
        run(&w, prng_below(&w.p, 4000));
    }
    coord_site_faults(w.site, &(struct coord_faults){ 0 });
    for (size_t i = 0; i < MOST; i++)
        if (w.at[i].claims)
            coord_sim_cut(w.at[i].coord, false);
        else
            start(&w, i);
    run(&w, 60000);
    all_owned(&w, MOST);
    assert_int_equal(w.doubles, 0);
    assert_int_equal(w.stale, 0);
    world_close(&w);
}

static void test_what_it_says(void **state)
{
    struct world w;
    struct buf out;
    struct json j;

    (void)state;
    world_open(&w, 1);
    start(&w, 0);
    start(&w, 1);
    run(&w, 2000);
    buf_init(&out, 64 * KIB);
    json_init(&j, &out);
    json_obj(&j);
    claims_ring(w.at[0].claims, &j);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&out), STR("\"leased\":true,\"shards\":16")));
    buf_deinit(&out);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_they_share),
        cmocka_unit_test(test_one_dies),
        cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_a_turn_ends_first),
        cmocka_unit_test(test_the_service_is_away),
        cmocka_unit_test(test_at_random),
        cmocka_unit_test(test_what_it_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
