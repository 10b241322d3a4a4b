/* SPDX-License-Identifier: Apache-2.0
 *
 * The scheduler on a simulated loop: every entry gets each of its turns, never twice at once, never
 * more than the places there are; failures make pauses; what is deleted is not started.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <time.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/scrape/scrape_sched.h"

#define ENTRIES 300

struct entry {
    struct sched_entry sched;
    struct rig *g;
    struct timer *timer;
    uint64_t takes_ms, starts, first_ms, last_ms;
    bool running, fails, deleted;
};
struct rig {
    struct clock_fake clock;
    struct env_sim env;
    struct loop *loop;
    struct sched *sched;
    struct entry all[ENTRIES];
    size_t running, most;
    struct prng prng;
};

static uint64_t now(const struct rig *g)
{
    return clock_mono_ms(&g->clock.clock);
}

static void ended(void *cookie)
{
    struct entry *x = cookie;

    assert_true(x->running);
    x->running = false;
    x->g->running--;
    sched_done(x->g->sched, &x->sched, !x->fails, !x->deleted);
}

static void start(void *cookie, struct sched_entry *s)
{
    struct entry *x = container_of(s, struct entry, sched);
    struct rig *g = cookie;

    assert_false(x->running);
    assert_false(x->deleted);
    x->running = true;
    g->running++;
    g->most = MAX(g->most, g->running);
    if (!x->starts++)
        x->first_ms = now(g);
    x->last_ms = now(g);
    if (x->takes_ms)
        loop_timer_start(x->timer, x->takes_ms, 0);
    else
        ended(x);
}

static void begin(struct rig *g, size_t places, uint64_t seed)
{
    struct sched_opts o = { .running_max = places, .start = start, .cookie = g };

    memset(g, 0, sizeof(*g));
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&g->prng, seed);
    clock_fake_init(&g->clock, INT64_C(1700000000000));
    env_sim_init(&g->env, &g->clock.clock, fs_real(), seed);
    g->loop = loop_sim_new(&g->clock);
    o.loop = g->loop;
    o.env = &g->env.env;
    g->sched = sched_new(&o);
    for (size_t i = 0; i < ENTRIES; i++) {
        struct entry *x = &g->all[i];
        x->g = g;
        x->sched.hash = prng_u64(&g->prng);
        x->sched.interval_ms = 15000;
        x->timer = loop_timer_new(g->loop, ended, x);
    }
}

static void run_for(struct rig *g, uint64_t ms)
{
    uint64_t end = now(g) + ms, next;

    while (loop_sim_next(g->loop, &next) && next / 1000000 <= end)
        assert_true(loop_sim_step(g->loop));
    if (now(g) < end)
        clock_fake_advance(&g->clock, (int64_t)(end - now(g)));
}

static void finish(struct rig *g)
{
    sched_stop(g->sched);
    while (g->running)
        assert_true(loop_sim_step(g->loop));
    sched_free(g->sched);
    for (size_t i = 0; i < ENTRIES; i++)
        loop_timer_free(g->all[i].timer);
    loop_free(g->loop);
}

static void add_all(struct rig *g)
{
    for (size_t i = 0; i < ENTRIES; i++)
        sched_add(g->sched, &g->all[i].sched);
}

static void turns(void **state)
{
    struct rig *g = XNEW(struct rig);
    size_t buckets[15] = { 0 };

    (void)state;
    begin(g, ENTRIES, 1);
    add_all(g);
    run_for(g, 15000 * 40 + 600);
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct entry *x = &g->all[i];
        assert_in_range(x->starts, 40, 41);
        /* on its grid, jitter included */
        uint64_t phase = (x->last_ms + 15000 - x->sched.hash % 15000) % 15000;
        assert_true(phase <= 500);
        buckets[x->sched.hash % 15000 / 1000]++;
    }
    for (size_t i = 0; i < 15; i++)
        assert_true(buckets[i] > 5); /* spread */
    assert_int_equal(sched_skipped(g->sched), 0);
    finish(g);
    xfree(g);
}

static void places(void **state)
{
    struct rig *g = XNEW(struct rig);

    (void)state;
    begin(g, 7, 2);
    for (size_t i = 0; i < ENTRIES; i++)
        g->all[i].takes_ms = 1000;
    add_all(g);
    run_for(g, 600000); /* 7 places for a second each: 4200 runs at most */
    uint64_t starts = 0, least = UINT64_MAX;
    for (size_t i = 0; i < ENTRIES; i++) {
        starts += g->all[i].starts;
        least = MIN(least, g->all[i].starts);
    }
    assert_int_equal(g->most, 7);
    assert_in_range(starts, 4000, 4200);
    assert_true(least >= 10); /* no target starves */
    assert_true(sched_skipped(g->sched) > 5000);
    finish(g);
    xfree(g);
}

static void slow_and_failing(void **state)
{
    struct rig *g = XNEW(struct rig);
    struct entry *slow = &g->all[0], *dead = &g->all[1], *fine = &g->all[2];

    (void)state;
    begin(g, 10, 3);
    slow->takes_ms = 40000;
    dead->fails = true;
    for (size_t i = 0; i < 3; i++)
        sched_add(g->sched, &g->all[i].sched);
    run_for(g, 3600000);
    assert_in_range(slow->starts, 78, 81); /* every third turn */
    assert_in_range(fine->starts, 239, 241);
    assert_in_range(dead->starts, 14, 20); /* 5 minutes apart in the end */
    dead->fails = false;
    uint64_t before = dead->starts;
    run_for(g, 1200000);
    assert_true(dead->starts > before + 50);
    finish(g);
    xfree(g);
}

/* An interval of a day that was a mistake is over when it is another one, whatever the entry is at.
 */
static void another_interval(void **state)
{
    struct rig *g = XNEW(struct rig);
    struct entry *waits = &g->all[0], *runs = &g->all[1], *queued = &g->all[2];
    struct entry *all[] = { waits, runs, queued };

    (void)state;
    begin(g, 1, 4);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        all[i]->sched.interval_ms = 86400000;
        all[i]->sched.hash = now(g) + 1000 * i + (i ? 0 : 40000000);
        sched_add(g->sched, &all[i]->sched);
    }
    runs->takes_ms = 4000;
    run_for(g, 3600);
    assert_int_equal(runs->sched.state, SCHED_RUNS);
    assert_int_equal(queued->sched.state, SCHED_QUEUED);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        sched_interval(g->sched, &all[i]->sched, 1000);
    run_for(g, 2000);
    runs->takes_ms = 0;
    run_for(g, 10000);
    assert_int_equal(g->most, 1);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        assert_in_range(all[i]->starts, 9, 12);
    assert_true(sched_skipped(g->sched) < 20);
    finish(g);
    xfree(g);
}

/* Any order of adding, deleting, slow and failing runs. */
static void any_order(void **state)
{
    struct rig *g = XNEW(struct rig);

    (void)state;
    begin(g, 20, (uint64_t)time(NULL));
    for (int step = 0; step < 20000; step++) {
        struct entry *x = &g->all[prng_u64(&g->prng) % ENTRIES];
        x->fails = prng_u64(&g->prng) % 4 == 0;
        x->takes_ms = prng_u64(&g->prng) % 3 * 7000;
        if (x->sched.state == SCHED_OFF) {
            x->deleted = false;
            x->sched.interval_ms = 1000 + prng_u64(&g->prng) % 30000;
            sched_add(g->sched, &x->sched);
        } else if (prng_u64(&g->prng) % 3 == 0) {
            sched_interval(g->sched, &x->sched, 1000 + prng_u64(&g->prng) % 30000);
        } else if (x->running) {
            x->deleted = true;
        } else {
            sched_del(g->sched, &x->sched);
        }
        run_for(g, prng_u64(&g->prng) % 200);
        assert_int_equal(sched_running(g->sched), g->running);
        assert_true(g->running <= 20);
    }
    uint64_t starts = 0;
    for (size_t i = 0; i < ENTRIES; i++)
        starts += g->all[i].starts;
    assert_true(starts > 1000);
    finish(g);
    xfree(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(turns),
        cmocka_unit_test(places),
        cmocka_unit_test(slow_and_failing),
        cmocka_unit_test(another_interval),
        cmocka_unit_test(any_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
