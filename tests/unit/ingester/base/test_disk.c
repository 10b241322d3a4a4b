/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ingester/base/disk.h"

struct bed {
    struct fs fs;
    uint64_t left, total;
    int fail;
    struct clock_fake fake;
    struct loop *loop;
    struct pool *pool;
    struct metrics *metrics;
    struct ingester_metrics im;
    struct disk_opts o;
    bool drained;
};

static int space(const struct fs *fs, const char *path, uint64_t *ret_free, uint64_t *ret_total,
                 struct err *e)
{
    const struct bed *b =
        (const struct bed *)(const void *)((const char *)fs - offsetof(struct bed, fs));

    assert_string_equal(path, "here");
    if (b->fail)
        return err_set(e, b->fail, "no answer");
    *ret_free = b->left;
    *ret_total = b->total;
    return 0;
}

static void bed_open(struct bed *b)
{
    *b = (struct bed){ .fs = { .space = space }, .left = 50 * GIB, .total = 100 * GIB };
    clock_fake_init(&b->fake, 1800000000000);
    b->loop = loop_sim_new(&b->fake);
    b->pool = pool_new("p", 0, 16);
    b->metrics = metrics_new();
    ingester_metrics_init(&b->im, b->metrics);
    b->o = (struct disk_opts){ &b->fs, b->loop, b->pool, "here", 0, &b->im, false };
}

static void on_drained(void *cookie)
{
    ((struct bed *)cookie)->drained = true;
}

static void bed_close(struct bed *b, struct disk *d)
{
    disk_drain(d, on_drained, b);
    while (!b->drained)
        assert_true(loop_sim_step(b->loop));
    disk_free(d);
    pool_free(b->pool);
    loop_free(b->loop);
    metrics_free(b->metrics);
}

static void run_for(struct bed *b, uint64_t ms)
{
    uint64_t until = clock_mono_ns(&b->fake.clock) + ms * 1000000, next;

    while (loop_sim_next(b->loop, &next) && next <= until)
        assert_true(loop_sim_step(b->loop));
}

static void test_reserve_auto(void **state)
{
    (void)state;
    assert_int_equal(disk_reserve_auto(0), 64 * MIB);
    assert_int_equal(disk_reserve_auto(GIB), 64 * MIB);
    assert_int_equal(disk_reserve_auto(10 * GIB), 10 * GIB / 50);
    assert_int_equal(disk_reserve_auto(100 * GIB), GIB);
}

static void test_refuses_and_takes_again(void **state)
{
    struct disk *d = NULL;
    struct bed b;
    struct err e = { 0 };

    (void)state;
    bed_open(&b);
    assert_int_equal(disk_new(&b.o, &d, &e), 0);
    assert_int_equal(disk_check(d, &e), 0);
    b.left = GIB - 1;
    run_for(&b, 1100);
    assert_int_equal(disk_check(d, &e), ERR_NO_SPACE);
    assert_non_null(strstr(e.text, "1023 MiB free"));
    b.left = GIB + GIB / 20; /* over the reserve, but not by a tenth */
    run_for(&b, 1100);
    assert_int_equal(disk_check(d, &e), ERR_NO_SPACE);
    b.left = GIB + GIB / 10;
    run_for(&b, 1100);
    assert_int_equal(disk_check(d, &e), 0);
    b.fail = ERR_IO; /* a volume that cannot be asked keeps its last answer */
    run_for(&b, 3000);
    assert_int_equal(disk_check(d, &e), 0);
    assert_int_equal(metric_value(b.im.disk_free), GIB + GIB / 10);
    assert_int_equal(metric_value(b.im.disk_reserve), GIB);
    bed_close(&b, d);
}

static void test_full_from_the_start(void **state)
{
    struct disk *d = NULL;
    struct bed b;
    struct err e = { 0 };

    (void)state;
    bed_open(&b);
    b.left = 5;
    b.o.reserve = 10;
    assert_int_equal(disk_new(&b.o, &d, &e), 0);
    assert_int_equal(disk_check(d, &e), ERR_NO_SPACE);
    bed_close(&b, d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reserve_auto),
        cmocka_unit_test(test_refuses_and_takes_again),
        cmocka_unit_test(test_full_from_the_start),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
