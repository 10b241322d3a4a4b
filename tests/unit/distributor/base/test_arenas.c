/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/thread.h"
#include "distributor/base/arenas.h"

/* ---- one thread ------------------------------------------------------------------------------ */

static void test_the_last_one_comes_first(void **state)
{
    struct arenas *as = arenas_new(2, 64 * KIB);
    struct arena *a = arenas_take(as, MIB), *b = arenas_take(as, MIB), *c = arenas_take(as, MIB);
    void *first = arena_alloc(a, 1000);

    (void)state;
    assert_true(first && arena_alloc(b, 1000));
    arenas_give(as, b);
    arenas_give(as, a);
    arenas_give(as, c); /* there is no room for it */
    arenas_give(as, NULL);
    assert_ptr_equal(arenas_take(as, 2000), a);
    assert_int_equal(arena_used(a), 0);
    assert_int_equal(arena_limit(a), 2000);
    assert_ptr_equal(arena_alloc(a, 1000), first); /* in the memory it had */
    assert_null(arena_alloc(a, 2000));
    assert_ptr_equal(arenas_take(as, MIB), b);
    c = arenas_take(as, 100);
    assert_int_equal(arena_limit(c), 100);
    arena_free(a); /* like any other */
    arenas_give(as, b);
    arenas_give(as, c);
    arenas_free(as);
    arenas_free(NULL);
}

/* After some rounds what a request takes fits one chunk. */
static void test_chunks_grow_to_what_is_needed(void **state)
{
    struct arenas *as = arenas_new(1, 64 * KIB);
    void *last = NULL;

    (void)state;
    for (int round = 0; round < 5; round++) {
        struct arena *a = arenas_take(as, MIB);
        char *from = arena_alloc(a, 16);
        char *to = from;
        for (int i = 0; i < 30; i++)
            assert_non_null(to = arena_alloc(a, KIB));
        if (round >= 3) {
            assert_ptr_equal(to, from + 16 + 29 * KIB);
            assert_true(!last || last == from);
            last = from;
        }
        arenas_give(as, a);
    }
    arenas_free(as);
}

/* Kept arenas are counted. Where memory is short they are freed, and no more are kept. */
static void test_counted_and_given_back(void **state)
{
    struct arenas *as = arenas_new(4, 64 * KIB);
    struct arena *all[4];

    (void)state;
    assert_int_equal(arenas_bytes(as), 0);
    for (size_t i = 0; i < 4; i++) {
        all[i] = arenas_take(as, MIB);
        assert_non_null(arena_alloc(all[i], 10 * KIB));
    }
    assert_int_equal(arenas_bytes(as), 0); /* in use: their owners count them */
    for (size_t i = 0; i < 4; i++)
        arenas_give(as, all[i]);
    size_t four = arenas_bytes(as);
    assert_int_equal(four, 4 * 64 * KIB); /* no more can be in them */
    arenas_shrink(as, 50);
    assert_int_equal(arenas_bytes(as), four / 2);
    arenas_shrink(as, 0);
    assert_int_equal(arenas_bytes(as), 0);
    all[0] = arenas_take(as, MIB);
    assert_non_null(arena_alloc(all[0], KIB));
    arenas_give(as, all[0]);
    assert_int_equal(arenas_bytes(as), 0);
    arenas_shrink(as, 100);
    all[0] = arenas_take(as, MIB);
    assert_non_null(arena_alloc(all[0], KIB));
    arenas_give(as, all[0]);
    assert_int_equal(arenas_bytes(as), 64 * KIB);
    arenas_free(as);
}

/* ---- several --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 2000 };

static void take_and_give(void *cookie)
{
    struct arenas *as = cookie;

    for (size_t i = 0; i < ROUNDS; i++) {
        struct arena *a = arenas_take(as, 64 * KIB);
        unsigned char *p = arena_alloc(a, 100 + i % 5000);
        memset(p, (int)i, 100);
        for (size_t k = 0; k < 100; k++)
            CHECK(p[k] == (unsigned char)i); /* no other thread has it */
        arenas_give(as, a);
    }
}

static void test_any_thread(void **state)
{
    struct arenas *as = arenas_new(2, 4 * KIB);
    struct thread t[THREADS] = { 0 };

    (void)state;
    for (int i = 0; i < THREADS; i++)
        thread_start(&t[i], "arenas", take_and_give, as);
    for (int i = 0; i < THREADS; i++)
        thread_join(&t[i]);
    arenas_free(as);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_one_comes_first),
        cmocka_unit_test(test_chunks_grow_to_what_is_needed),
        cmocka_unit_test(test_counted_and_given_back),
        cmocka_unit_test(test_any_thread),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
