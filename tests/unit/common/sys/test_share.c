/* SPDX-License-Identifier: Apache-2.0
 *
 * What tenants may hold of one budget, by counting.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/sys/share.h"

#define ALL 1000

/* Takes as long as it gets some; how much that was. */
static size_t fill(struct share *s, struct budget *b, size_t n)
{
    size_t got = 0;

    while (share_take(s, b, 0, n) == SHARE_TAKEN)
        got += n;
    return got;
}

static void test_one_leaves_a_quarter(void **state)
{
    struct share flood = { 0 }, quiet = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, ALL);
    assert_in_range(fill(&flood, &b, 10), ALL * 3 / 4 - 10, ALL * 3 / 4 + 10);
    assert_int_equal(share_take(&flood, &b, 0, 10), SHARE_OVER);
    assert_int_equal(share_take(&quiet, &b, 0, 10), SHARE_TAKEN);
    assert_int_equal(share_take(&quiet, &b, 0, 10), SHARE_TAKEN);
    share_give(&quiet, &b, 20);
    share_give(&flood, &b, share_held(&flood));
    assert_int_equal(b.used, 0);
}

/* Ten that take in turns get the same, and something stays free. */
static void test_many_get_the_same(void **state)
{
    struct share s[10] = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, 100 * ALL);
    for (size_t round = 0; round < 100 * ALL; round++)
        for (size_t i = 0; i < 10; i++)
            (void)!share_take(&s[i], &b, 0, 10);
    for (size_t i = 0; i < 10; i++)
        assert_in_range(share_held(&s[i]), 100 * ALL * 3 / 31 - 100, 100 * ALL * 3 / 31 + 100);
    assert_true(b.used < 100 * ALL);
}

/* A tenant that filled its share alone gets nothing more until it is below the share of two. */
static void test_gives_way(void **state)
{
    struct share flood = { 0 }, other = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, ALL);
    (void)fill(&flood, &b, 10);
    (void)fill(&other, &b, 10);
    while (share_take(&flood, &b, 0, 10) == SHARE_OVER)
        share_give(&flood, &b, 10);
    assert_true(share_held(&flood) <= SHARE_FACTOR * (ALL - b.used));
    for (int i = 0; i < ALL; i++) { /* both are served on and on, and both want more */
        share_give(&flood, &b, 10);
        (void)fill(&other, &b, 10);
        (void)fill(&flood, &b, 10);
    }
    assert_in_range(share_held(&other), ALL * 3 / 7 - 20, ALL * 3 / 7 + 20);
}

/* What was let in may grow beyond what is let in, and leaves something, too. */
static void test_growth(void **state)
{
    struct share s = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, ALL);
    (void)fill(&s, &b, 10);
    assert_int_equal(share_take(&s, &b, 0, 50), SHARE_OVER);
    assert_int_equal(share_take(&s, &b, 10, 50), SHARE_TAKEN);
    assert_int_equal(share_take(&s, &b, 60, 100), SHARE_OVER);
    share_give(&s, &b, share_held(&s));
}

/* The only request of a tenant is held to the budget alone, else every retry would be refused. */
static void test_a_single_request(void **state)
{
    struct share s = { 0 };
    struct budget b;

    (void)state;
    budget_init(&b, ALL);
    assert_int_equal(share_take(&s, &b, 0, ALL - 100), SHARE_TAKEN);
    assert_int_equal(share_take(&s, &b, 0, 1), SHARE_OVER);
    assert_int_equal(share_take(&s, &b, ALL - 100, 100), SHARE_TAKEN);
    assert_int_equal(share_take(&s, &b, ALL, 1), SHARE_FULL);
    assert_int_equal(share_take(NULL, &b, 0, 1), SHARE_FULL);
    share_give(&s, &b, ALL);
    assert_int_equal(share_take(NULL, &b, 0, ALL), SHARE_TAKEN);
    share_give(NULL, &b, ALL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_leaves_a_quarter),
        cmocka_unit_test(test_many_get_the_same),
        cmocka_unit_test(test_gives_way),
        cmocka_unit_test(test_growth),
        cmocka_unit_test(test_a_single_request),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
