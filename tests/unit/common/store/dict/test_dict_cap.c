/* SPDX-License-Identifier: Apache-2.0
 *
 * What may bring a stack to [overflow]: caps of a day, and nothing else. Neighbours that took all
 * they may leave room for a new service, and a dictionary share full of idle services is no cap.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define NOISY  8
#define STACKS 40

static void test_shares_of_a_tenant(void **state)
{
    struct dict_cap c;
    struct dict_cap_opts o = { .service_nodes = 500, .tenant_nodes = 1000 };

    (void)state;
    dict_cap_init(&c, &o);
    assert_int_equal(dict_cap_left(&c, 1, 1, 0), 500);
    dict_cap_take(&c, 1, 1, 500);
    assert_int_equal(dict_cap_left(&c, 1, 1, 0), 0);
    assert_int_equal(dict_cap_left(&c, 1, 2, 0), 250); /* three quarters are for all */
    dict_cap_take(&c, 1, 2, 250);
    assert_int_equal(dict_cap_left(&c, 1, 2, 0), 0);
    assert_int_equal(dict_cap_left(&c, 1, 3, 0), 10); /* a hundredth for the small */
    dict_cap_take(&c, 1, 3, 4);
    assert_int_equal(dict_cap_left(&c, 1, 3, 0), 6);
    assert_int_equal(dict_cap_left(&c, 2, 1, 0), 500); /* another tenant's */
    dict_cap_take(&c, 1, 4, 244);
    assert_int_equal(dict_cap_left(&c, 1, 3, 0), 2); /* of the last ones */
    dict_cap_take(&c, 1, 5, 2);
    assert_int_equal(dict_cap_left(&c, 1, 6, 0), 0);
    assert_int_equal(dict_cap_left(&c, 1, 6, 86400000), 500); /* tomorrow */
    dict_cap_deinit(&c);

    o = (struct dict_cap_opts){ 0 };
    dict_cap_init(&c, &o);
    dict_cap_take(&c, 1, 1, UINT64_C(1) << 40);
    assert_int_equal(dict_cap_left(&c, 1, 1, 0), UINT32_MAX);
    dict_cap_deinit(&c);
}

/* STACKS stacks that no other service has, of two nodes each below a common one. */
static void fill(struct store_bed *b, int service, int round)
{
    static uint64_t wid = 1000;
    char text[16 * KIB], name[32];
    size_t n = 0;
    struct bed_push p = { .service = name, .stacks = text, .wid = wid++ };

    (void)snprintf(name, sizeof(name), "noisy%d", service);
    for (int i = 0; i < STACKS; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%smain;s%d_%d_%d;leaf%d=%d",
                              i ? " " : "", service, round, i, i, i + 1);
    p.slot = store_bed_slot(b);
    assert_int_equal(store_bed_push(b, &p), 1);
}

static void new_service(struct store_bed *b)
{
    struct bed_push p = { .service = "after", .stacks = "a;b=3 a;c=4", .wid = 7 };
    struct store_stats before, after;

    store_stats(b->s, &before);
    p.slot = store_bed_slot(b);
    assert_int_equal(store_bed_push(b, &p), 1);
    store_stats(b->s, &after);
    assert_int_equal(after.overflow, before.overflow);
    assert_string_equal(
        store_bed_merge(b, NULL, "{service_name=\"after\"}", NULL, p.slot, p.slot + 2),
        "a;b=3 a;c=4");
}

/* What happened in a machine's CI: a tenant hammered its own cap, and then came a new service. */
static void test_a_new_service_after_noisy_ones(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000,
                            .dict_cap = { .service_nodes = 400, .tenant_nodes = 1000 } };
    struct store_stats stats;
    struct store_bed b;

    (void)state;
    store_bed_init(&b, &o);
    for (int round = 0; round < 10; round++)
        for (int i = 0; i < NOISY; i++)
            fill(&b, i, round);
    store_stats(b.s, &stats);
    assert_true(stats.overflow > 0); /* the neighbours have all they may */
    new_service(&b);
    store_bed_deinit(&b);
}

/* Dictionaries many times as large as their share: they come and go, and no stack is lost. */
static void test_share_full_of_idle_services(void **state)
{
    struct store_opts o = { .dict_bytes_max = 256 * KIB,
                            .seal_delay_ms = 60000,
                            .wid_horizon_ms = 4 * 3600 * 1000 };
    struct store_stats stats;
    struct store_bed b;
    uint32_t first;
    uint64_t largest = 0;
    char selector[64];

    (void)state;
    store_bed_init(&b, &o);
    first = store_bed_slot(&b);
    for (int round = 0; round < 3; round++)
        for (int i = 0; i < 100; i++) {
            fill(&b, i, round);
            store_stats(b.s, &stats);
            largest = MAX(largest, stats.dict_bytes);
        }
    new_service(&b);
    store_stats(b.s, &stats);
    assert_int_equal(stats.overflow, 0);
    assert_true(largest < 2 * o.dict_bytes_max); /* the last push's goes with the next one */
    for (int i = 0; i < 100; i += 33) {
        (void)snprintf(selector, sizeof(selector), "{service_name=\"noisy%d\"}", i);
        const char *text = store_bed_merge(&b, NULL, selector, NULL, first, first + 2);
        assert_null(strstr(text, DICT_OVERFLOW));
        (void)snprintf(selector, sizeof(selector), "main;s%d_0_39;leaf39=40", i);
        assert_non_null(strstr(text, selector));
    }
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_of_a_tenant),
        cmocka_unit_test(test_a_new_service_after_noisy_ones),
        cmocka_unit_test(test_share_full_of_idle_services),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
