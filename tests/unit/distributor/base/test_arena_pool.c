/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/thread.h"
#include "distributor/base/arena_pool.h"

/* ---- one thread ------------------------------------------------------------------------------ */

static void test_the_last_one_comes_first(void **state)
{
    struct arena_pool *as = arena_pool_new(2, 64 * KIB);
    struct arena *a = arena_pool_get(as, MIB), *b = arena_pool_get(as, MIB),
                 *c = arena_pool_get(as, MIB);
    void *first = arena_alloc(a, 1000);

    (void)state;
    assert_true(first && arena_alloc(b, 1000));
    arena_pool_put(as, b);
    arena_pool_put(as, a);
    arena_pool_put(as, c); /* there is no room for it */
    arena_pool_put(as, NULL);
    assert_ptr_equal(arena_pool_get(as, 2000), a);
    assert_int_equal(arena_used(a), 0);
    assert_int_equal(arena_limit(a), 2000);
    assert_ptr_equal(arena_alloc(a, 1000), first); /* in the memory it had */
    assert_null(arena_alloc(a, 2000));
    assert_ptr_equal(arena_pool_get(as, MIB), b);
    c = arena_pool_get(as, 100);
    assert_int_equal(arena_limit(c), 100);
    arena_free(a); /* like any other */
    arena_pool_put(as, b);
    arena_pool_put(as, c);
    arena_pool_free(as);
    arena_pool_free(NULL);
}

/* After some rounds what a request takes fits one chunk. */
static void test_chunks_grow_to_what_is_needed(void **state)
{
    struct arena_pool *as = arena_pool_new(1, 64 * KIB);
    void *last = NULL;

    (void)state;
    for (int round = 0; round < 5; round++) {
        struct arena *a = arena_pool_get(as, MIB);
        char *from = arena_alloc(a, 16);
        char *to = from;
        for (int i = 0; i < 30; i++)
            assert_non_null(to = arena_alloc(a, KIB));
        if (round >= 3) {
            assert_ptr_equal(to, from + 16 + 29 * KIB);
            assert_true(!last || last == from);
            last = from;
        }
        arena_pool_put(as, a);
    }
    arena_pool_free(as);
}

/* Kept arenas are counted. Where memory is short they are freed, and no more are kept. */
static void test_counted_and_given_back(void **state)
{
    struct arena_pool *as = arena_pool_new(4, 64 * KIB);
    struct arena *all[4];

    (void)state;
    assert_int_equal(arena_pool_bytes(as), 0);
    for (size_t i = 0; i < 4; i++) {
        all[i] = arena_pool_get(as, MIB);
        assert_non_null(arena_alloc(all[i], 10 * KIB));
    }
    assert_int_equal(arena_pool_bytes(as), 0); /* the users of the arenas count them */
    for (size_t i = 0; i < 4; i++)
        arena_pool_put(as, all[i]);
    size_t four = arena_pool_bytes(as);
    assert_int_equal(four, 4 * 64 * KIB); /* no more can be in them */
    arena_pool_shrink(as, 50);
    assert_int_equal(arena_pool_bytes(as), four / 2);
    arena_pool_shrink(as, 0);
    assert_int_equal(arena_pool_bytes(as), 0);
    all[0] = arena_pool_get(as, MIB);
    assert_non_null(arena_alloc(all[0], KIB));
    arena_pool_put(as, all[0]);
    assert_int_equal(arena_pool_bytes(as), 0);
    arena_pool_shrink(as, 100);
    all[0] = arena_pool_get(as, MIB);
    assert_non_null(arena_alloc(all[0], KIB));
    arena_pool_put(as, all[0]);
    assert_int_equal(arena_pool_bytes(as), 64 * KIB);
    arena_pool_free(as);
}

/* ---- several --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 2000 };

static void take_and_give(void *cookie)
{
    struct arena_pool *as = cookie;

    for (size_t i = 0; i < ROUNDS; i++) {
        struct arena *a = arena_pool_get(as, 64 * KIB);
        unsigned char *p = arena_alloc(a, 100 + i % 5000);
        memset(p, (int)i, 100);
        for (size_t k = 0; k < 100; k++)
            CHECK(p[k] == (unsigned char)i); /* no other thread has the arena */
        arena_pool_put(as, a);
    }
}

static void test_any_thread(void **state)
{
    struct arena_pool *as = arena_pool_new(2, 4 * KIB);
    struct thread t[THREADS] = { 0 };

    (void)state;
    for (int i = 0; i < THREADS; i++)
        thread_start(&t[i], "arenas", take_and_give, as);
    for (int i = 0; i < THREADS; i++)
        thread_join(&t[i]);
    arena_pool_free(as);
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
