/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "ingester/base/disk_watch.h"

struct bed {
    struct clock_fake fake;
    struct loop *loop;
    struct metrics *metrics;
    struct disk_watch *w;
    uint64_t waits_since; /* 0: nothing waits */
    int changes;
    bool hangs;
};

static uint64_t now(const struct bed *b)
{
    return clock_mono_ms(&b->fake.clock);
}

static void look(void *cookie, struct disk_watch *w)
{
    const struct bed *b = cookie;

    disk_watch_note(w, "the database", 1, 0);
    if (b->waits_since)
        disk_watch_note(w, "the replication log", 7, now(b) - b->waits_since);
    disk_watch_note(w, "a commit", 2, b->waits_since ? 1 : 0);
}

static void changed(void *cookie, bool hangs)
{
    struct bed *b = cookie;

    b->changes++;
    b->hangs = hangs;
}

static void bed_open(struct bed *b, uint64_t limit_ms)
{
    *b = (struct bed){ 0 };
    clock_fake_init(&b->fake, 1800000000000);
    b->loop = loop_sim_new(&b->fake);
    b->metrics = metrics_new();
    struct disk_watch_opts o = { b->loop, b->metrics, "/data", limit_ms, look, changed, b };
    b->w = disk_watch_new(&o);
}

static void bed_close(struct bed *b)
{
    disk_watch_free(b->w);
    loop_free(b->loop);
    metrics_free(b->metrics);
}

static void run_for(struct bed *b, uint64_t ms)
{
    uint64_t until = clock_mono_ns(&b->fake.clock) + ms * 1000000, next;

    while (loop_sim_next(b->loop, &next) && next <= until)
        assert_true(loop_sim_step(b->loop));
}

static void test_hangs_and_answers(void **state)
{
    struct bed b;
    struct err e;

    (void)state;
    bed_open(&b, 5000);
    run_for(&b, 20000);
    assert_int_equal(b.changes, 0);
    b.waits_since = now(&b);
    run_for(&b, 4500);
    assert_false(disk_watch_hangs(b.w) || disk_watch_suspects(b.w));
    assert_int_equal(disk_watch_check(b.w, ERR_BUSY, &e), 0);
    run_for(&b, 1000);
    assert_true(disk_watch_hangs(b.w) && b.hangs && b.changes == 1);
    run_for(&b, 3000);
    assert_int_equal(disk_watch_check(b.w, ERR_BUSY, &e), ERR_BUSY);
    assert_string_equal(e.text, "the disk of /data hangs: it has finished nothing for 8 s, and the "
                                "replication log of shard 7 waits for it; look at the disk");
    b.waits_since = 0;
    run_for(&b, 500);
    assert_false(disk_watch_hangs(b.w) || b.hangs);
    assert_int_equal(disk_watch_check(b.w, ERR_BUSY, &e), 0);
    /* Writes are taken at once, leads only after a minute of answers. */
    run_for(&b, 59000);
    assert_true(disk_watch_suspects(b.w));
    run_for(&b, 2000);
    assert_false(disk_watch_suspects(b.w));
    assert_int_equal(b.changes, 2);
    bed_close(&b);
}

/* One operation after the other ends, each after three seconds. */
static void test_slow(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, 5000);
    for (int i = 0; i < 40; i++) {
        b.waits_since = now(&b);
        run_for(&b, 3000);
    }
    assert_int_equal(b.changes, 0);
    assert_false(disk_watch_suspects(b.w));
    /* After seven seconds: it hung, and is not trusted while it stays half as slow. */
    b.waits_since = now(&b);
    run_for(&b, 7000);
    assert_int_equal(b.changes, 1);
    for (int i = 0; i < 40; i++) {
        b.waits_since = now(&b);
        run_for(&b, 3000);
        assert_true(disk_watch_suspects(b.w));
    }
    assert_int_equal(b.changes, 2);
    bed_close(&b);
}

/* A process that was stopped for half a minute finds old ages; they count from its return only. */
static void test_process_that_slept(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, 5000);
    b.waits_since = now(&b);
    run_for(&b, 1000);
    clock_fake_advance(&b.fake, 30000);
    run_for(&b, 1000);
    assert_int_equal(b.changes, 0);
    b.waits_since = 0; /* it had ended meanwhile */
    run_for(&b, 1000);
    b.waits_since = now(&b);
    run_for(&b, 1000);
    clock_fake_advance(&b.fake, 30000);
    run_for(&b, 4000);
    assert_int_equal(b.changes, 0);
    run_for(&b, 2000); /* it did not end, and the process did not sleep */
    assert_int_equal(b.changes, 1);
    bed_close(&b);
}

static void test_off(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, 0);
    b.waits_since = now(&b);
    run_for(&b, 60000);
    assert_int_equal(b.changes, 0);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hangs_and_answers),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_process_that_slept),
        cmocka_unit_test(test_off),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
