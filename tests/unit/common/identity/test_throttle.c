/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/identity/throttle.h"

#define NOW 1000000

/* Ten at once, then one in six seconds; and what it says to wait is enough, and no less is. */
static void test_bucket(void **state)
{
    struct throttle *t = throttle_new();
    uint64_t now = NOW;

    (void)state;
    for (int i = 0; i < 10; i++)
        assert_int_equal(throttle_fail(t, "10.0.0.1:1000", now), 0);
    for (int i = 0; i < 1000; i++) /* those that are refused cost nothing */
        assert_int_equal(throttle_fail(t, "10.0.0.1:1000", now), 6);
    assert_int_equal(throttle_fail(t, "10.0.0.1:2", now + 5999), 1);
    assert_int_equal(throttle_fail(t, "10.0.0.1:2", now + 6000), 0);
    assert_int_equal(throttle_fail(t, "10.0.0.1:2", now + 6000), 6);
    now += 24 * 3600 * 1000;
    for (int i = 0; i < 10; i++)
        assert_int_equal(throttle_fail(t, "10.0.0.1:3", now), 0);
    assert_true(throttle_fail(t, "10.0.0.1:3", now) > 0);
    throttle_free(t);
    throttle_free(NULL);
}

static bool same(const char *a, const char *b)
{
    struct throttle *t = throttle_new();

    for (int i = 0; i < 10; i++)
        assert_int_equal(throttle_fail(t, a, NOW), 0);
    bool full = throttle_fail(t, b, NOW) > 0;
    throttle_free(t);
    return full;
}

/* A pair that happens to share a counter does so with one secret in 4,096, and each process of this
 * test has another one: so the other pairs are judged together. */
static void test_sources(void **state)
{
    static const char *const equal[][2] = {
        { "10.0.0.1:1", "10.0.0.1:65535" },
        { "[::ffff:10.0.0.1]:1", "10.0.0.1:1" },
        { "[2001:db8:1:2:3:4:5:6]:1", "[2001:db8:1:2::1]:9" },
        { "[::1]:1", "[::1]:2" },
        { "unix", "unix" },
    };
    static const char *const other[][2] = {
        { "10.0.0.1:1", "10.0.0.2:1" },
        { "[2001:db8:1:2::1]:1", "[2001:db8:1:3::1]:1" },
        { "10.0.0.1:1", "[2001:db8::1]:1" },
    };
    size_t shared = 0;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(equal); i++)
        if (!same(equal[i][0], equal[i][1]))
            fail_msg("%s and %s are not one source", equal[i][0], equal[i][1]);
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        shared += same(other[i][0], other[i][1]);
    assert_true(shared < ARRAY_LEN(other));
}

/* A hundred thousand sources that fail once each: almost none of them has to wait for others, in
 * the memory of 4,096 counters that are emptied in time. */
static void test_many(void **state)
{
    struct throttle *t = throttle_new();
    uint32_t told = 0;
    char peer[32];

    (void)state;
    for (unsigned i = 0; i < 100000; i++) {
        (void)snprintf(peer, sizeof(peer), "10.%u.%u.%u:1", i >> 16 & 255, i >> 8 & 255, i & 255);
        told += throttle_fail(t, peer, NOW + (uint64_t)i * 10) > 0;
    }
    assert_true(told < 100);
    throttle_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bucket),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
