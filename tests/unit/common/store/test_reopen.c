/* SPDX-License-Identifier: Apache-2.0
 *
 * A store closed and opened in place, over RocksDB: with readers, without a database, and after.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <unistd.h>

#include "common/store/check/check.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/kv_dir.h"
#include "tests/lib/store/store_bed.h"

static struct store_bed bed;
static char *dir;
static struct err e;

static int open_dir(void *cookie, struct kv **ret, struct err *err)
{
    (void)cookie;
    return kv_rocks_open(&(struct kv_opts){ .dir = dir }, ret, err);
}

static int open_fails(void *cookie, struct kv **ret, struct err *err)
{
    (void)cookie;
    (void)ret;
    return err_set(err, ERR_NO_SPACE, "still full");
}

static int setup(void **state)
{
    (void)state;
    bed = (struct store_bed){ .o = { .dict_bytes_max = 64 * MIB,
                                     .seal_delay_ms = 60000,
                                     .wid_horizon_ms = 4 * 3600 * 1000 } };
    clock_fake_init(&bed.clock, BED_START_MS);
    bed.o.clock = &bed.clock.clock;
    dir = kv_dir_new();
    bed.o.kv = kv_dir_open(dir);
    assert_int_equal(store_open(&bed.o, &bed.s, &e), 0);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    kv_dir_remove(dir);
    return 0;
}

static struct bed_push push(uint64_t wid)
{
    return (struct bed_push){
        .labels = "pod=a", .stacks = "a;b=5 a;b;c=3", .slot = store_bed_slot(&bed), .wid = wid
    };
}

static const char *all(void)
{
    uint32_t now = store_bed_slot(&bed);

    return store_bed_merge(&bed, "t", "{}", BED_CPU, now - 1000, now + 1000);
}

static void test_goes_on(void **state)
{
    struct bed_push p = push(1);
    struct check_report r;

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    clock_fake_advance(&bed.clock, 300000);
    store_bed_seal(&bed);
    struct bed_push q = push(2);
    assert_int_equal(store_bed_push(&bed, &q), 1);
    assert_string_equal(all(), "a;b;c=6 a;b=10");
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
        assert_string_equal(all(), "a;b;c=6 a;b=10");
        assert_int_equal(store_bed_push(&bed, &p), 0); /* write ids are remembered */
        assert_int_equal(store_bed_push(&bed, &q), 0);
    }
    struct bed_push n = push(3);
    assert_int_equal(store_bed_push(&bed, &n), 1);
    assert_string_equal(all(), "a;b;c=9 a;b=15");
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_check(v, &r, &e), 0);
    store_view_put(v);
}

/* What was staged and not committed is gone, ids and all, and comes again. */
static void test_forgets_what_was_staged(void **state)
{
    struct bed_push p = push(1), q = push(2);
    struct store_batch *b = store_batch_new(bed.s);
    struct store_result got;
    struct check_report r;

    (void)state;
    p.stacks = "x;y=1";
    assert_int_equal(store_bed_stage(&bed, b, &p, &got, &e), 0);
    atomic_fetch_or(&bed.s->shut, STORE_SHUT_READ_ONLY); /* as after a write that failed */
    assert_int_not_equal(store_commit(bed.s, b, &e), 0);
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
    assert_false(store_read_only(bed.s));
    assert_int_equal(store_bed_push(&bed, &q), 1);
    assert_int_equal(store_bed_push(&bed, &p), 1);
    assert_string_equal(all(), "a;b;c=3 a;b=5 x;y=1");
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_check(v, &r, &e), 0);
    store_view_put(v);
}

static void test_without_a_database(void **state)
{
    struct bed_push p = push(1);
    struct store_batch *b;
    struct store_result got;
    struct check_report r;
    struct store_stats st;

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    assert_int_equal(store_reopen(bed.s, open_fails, NULL, &e), ERR_NO_SPACE);
    assert_true(store_read_only(bed.s));
    assert_int_equal(store_read_only_code(bed.s), ERR_NO_SPACE);
    b = store_batch_new(bed.s);
    assert_int_equal(store_bed_stage(&bed, b, &p, &got, &e), ERR_UNAVAILABLE);
    assert_int_not_equal(store_commit(bed.s, b, &e), 0);
    store_trim(bed.s);
    store_shrink(bed.s, 50);
    store_stats(bed.s, &st);
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(store_check_all(v, &(struct check_opts){ 0 }, &r, &e), ERR_UNAVAILABLE);
    assert_non_null(strstr(e.text, "still full"));
    store_view_put(v);

    assert_int_equal(store_reopen(bed.s, open_fails, NULL, &e), ERR_NO_SPACE);
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
    assert_string_equal(all(), "a;b;c=3 a;b=5");
    assert_int_equal(store_bed_push(&bed, &p), 0);
}

/* A reader that does not end keeps it from happening; nothing is lost by the try. */
static void test_waits_for_readers(void **state)
{
    struct bed_push p = push(1);
    struct store_view *v = store_view_get(bed.s);

    (void)state;
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), ERR_BUSY);
    assert_int_equal(store_bed_push(&bed, &p), 1);
    store_view_put(v);
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
    assert_string_equal(all(), "a;b;c=3 a;b=5");
}

/* Readers on other threads, all the while. */
static _Atomic bool stop;
static _Atomic uint64_t answers;

static void read_on(void *cookie)
{
    struct check_report r;
    struct err err;

    (void)cookie;
    while (!atomic_load(&stop)) {
        struct store_view *v = store_view_get(bed.s);
        if (store_check(v, &r, &err) == 0)
            atomic_fetch_add(&answers, r.raw_rows);
        store_view_put(v);
    }
}

static void test_beside_readers(void **state)
{
    struct thread readers[3] = { 0 };
    struct bed_push p = push(1);

    (void)state;
    assert_int_equal(store_bed_push(&bed, &p), 1);
    atomic_store(&stop, false);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        thread_start(&readers[i], "reader", read_on, NULL);
    for (int i = 0; i < 8; i++)
        assert_int_equal(store_reopen(bed.s, i % 4 == 3 ? open_fails : open_dir, NULL, &e),
                         i % 4 == 3 ? ERR_NO_SPACE : 0);
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
    uint64_t before = atomic_load(&answers);
    while (atomic_load(&answers) == before)
        usleep(1000);
    atomic_store(&stop, true);
    for (size_t i = 0; i < ARRAY_LEN(readers); i++)
        thread_join(&readers[i]);
    assert_int_equal(store_bed_push(&bed, &p), 0);
}

/* The loop asks without the gate: engine time never falls back, and a store that cannot be opened
 * is read-only all the while, with a reason. */
static _Atomic uint64_t asked, odd;

static void ask_on(void *cookie)
{
    struct store_clock clock;
    int64_t last = 0;

    (void)cookie;
    while (!atomic_load(&stop)) {
        store_clock(bed.s, &clock);
        bool well = clock.engine_ms >= last && store_read_only(bed.s) &&
                    store_read_only_code(bed.s) == ERR_NO_SPACE &&
                    strstr(store_read_only_why(bed.s), "still full");
        atomic_fetch_add(&odd, !well);
        atomic_fetch_add(&asked, 1);
        last = clock.engine_ms;
    }
}

static void test_asked_without_the_gate(void **state)
{
    struct thread loop = { 0 };

    (void)state;
    assert_int_equal(store_reopen(bed.s, open_fails, NULL, &e), ERR_NO_SPACE);
    atomic_store(&stop, false);
    atomic_store(&asked, 0);
    atomic_store(&odd, 0);
    thread_start(&loop, "loop", ask_on, NULL);
    while (!atomic_load(&asked))
        usleep(100);
    for (int i = 0; i < 20000 && (i < 2000 || atomic_load(&asked) < 100000); i++)
        assert_int_equal(store_reopen(bed.s, open_fails, NULL, &e), ERR_NO_SPACE);
    atomic_store(&stop, true);
    thread_join(&loop);
    assert_int_equal(atomic_load(&odd), 0);
    assert_int_equal(store_reopen(bed.s, open_dir, NULL, &e), 0);
    assert_false(store_read_only(bed.s));
}

#define BED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED(test_goes_on),
        BED(test_forgets_what_was_staged),
        BED(test_without_a_database),
        BED(test_waits_for_readers),
        BED(test_beside_readers),
        BED(test_asked_without_the_gate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
