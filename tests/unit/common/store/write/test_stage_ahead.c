/* SPDX-License-Identifier: Apache-2.0
 *
 * Stacks that are staged in parts before their request: what is stored is what it would be without,
 * whatever the parts meet on the way.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/store/write/stage_ahead.h"
#include "tests/lib/store/store_bed.h"

#define PARTS 5

/* Some stacks of few functions, so that requests share beginnings; none twice. */
static void random_stacks(struct prng *r, char *text, size_t max)
{
    size_t n = 0, stacks = 1 + prng_below(r, 12);

    for (size_t i = 0; i < stacks; i++) {
        size_t depth = 1 + prng_below(r, 6);
        n += (size_t)snprintf(text + n, max - n, "%smain", i ? " " : "");
        for (size_t j = 0; j < depth; j++)
            n += (size_t)snprintf(text + n, max - n, ";f%u", (unsigned)prng_below(r, 40));
        n += (size_t)snprintf(text + n, max - n, ";leaf%zu=%u", i, 1 + (unsigned)prng_below(r, 9));
    }
}

static const char *whole(struct store_bed *b, const char *service)
{
    char selector[64];

    (void)snprintf(selector, sizeof(selector), "{service_name=\"%s\"}", service);
    return store_bed_merge(b, NULL, selector, NULL, store_bed_slot(b) - 100,
                           store_bed_slot(b) + 100);
}

static void compare(struct store_bed *plain, struct store_bed *ahead)
{
    static const char *const services[] = { "a", "b", "c" };

    for (size_t i = 0; i < ARRAY_LEN(services); i++) {
        char *want = xstrdup(whole(plain, services[i]));
        assert_string_equal(whole(ahead, services[i]), want);
        xfree(want);
    }
}

/* Epochs of any size close before, between and behind the parts; requests come twice; both stores
 * are opened again after a crash. */
static void test_the_same_is_stored(void **state)
{
    static const uint32_t epochs[] = { 0, 20, 60 };
    size_t parts = 0;

    (void)state;
    for (uint64_t seed = 1; seed <= 60; seed++) {
        struct store_opts o = { .dict_bytes_max = 64 * MIB,
                                .wid_horizon_ms = 3600000,
                                .epoch_nodes_max = epochs[seed % ARRAY_LEN(epochs)] };
        struct store_bed plain = { 0 }, ahead = { 0 };
        struct prng r;

        prng_init(&r, seed);
        store_bed_init(&plain, &o);
        store_bed_init(&ahead, &o);
        for (uint64_t i = 1; i <= 20; i++) {
            char text[2048], service[2] = { (char)('a' + prng_below(&r, 3)), 0 };
            struct bed_push p = {
                .service = service, .stacks = text, .slot = store_bed_slot(&plain), .wid = i
            };
            random_stacks(&r, text, sizeof(text));
            assert_int_equal(store_bed_push(&plain, &p), 1);
            p.ahead = 1 + (unsigned)prng_below(&r, PARTS);
            assert_int_equal(store_bed_push(&ahead, &p), 1);
            size_t before = ahead.ahead;
            if (prng_below(&r, 4) == 0)
                assert_int_equal(store_bed_push(&ahead, &p), 0);
            assert_int_equal(ahead.ahead, before); /* known symbols need no part */
            if (prng_below(&r, 8) == 0) {
                store_bed_reopen(&plain, KV_MEM_KILL, 0);
                store_bed_reopen(&ahead, KV_MEM_KILL, 0);
            }
        }
        compare(&plain, &ahead);
        parts += ahead.ahead;
        store_bed_deinit(&plain);
        store_bed_deinit(&ahead);
    }
    assert_true(parts > 1000);
}

/* Near the cap of a day the request itself decides what is [overflow]: sums stay, and no more nodes
 * come in than may. */
static void test_the_cap_holds(void **state)
{
    enum { CAP = 60 };
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600000,
                            .epoch_nodes_max = UINT32_MAX,
                            .dict_cap = { .service_nodes = CAP, .tenant_nodes = 1000 } };
    struct store_bed b = { 0 };
    struct store_stats st;
    uint64_t pushed = 0, stored = 0;
    struct prng r;

    (void)state;
    prng_init(&r, 9);
    store_bed_init(&b, &o);
    for (uint64_t i = 1; i <= 20; i++) {
        char text[2048];
        struct bed_push p = {
            .service = "a", .stacks = text, .slot = store_bed_slot(&b), .wid = i, .ahead = PARTS
        };
        random_stacks(&r, text, sizeof(text));
        assert_int_equal(store_bed_push(&b, &p), 1);
        for (const char *c = text; (c = strchr(c, '=')); c++)
            pushed += strtoull(c + 1, NULL, 10);
    }
    for (const char *c = whole(&b, "a"); (c = strchr(c, '=')); c++)
        stored += strtoull(c + 1, NULL, 10);
    assert_int_equal(stored, pushed);
    store_stats(b.s, &st);
    assert_true(st.overflow > 0 && b.ahead > 0);
    store_bed_deinit(&b);
}

static void test_who_is_cut(void **state)
{
    static const struct {
        size_t nodes;
        bool told;
        unsigned parts;
    } rows[] = {
        { 2 * AHEAD_NODES - 1, false, 0 },
        { 2 * AHEAD_NODES, false, 2 },
        { 10 * AHEAD_NODES, false, 10 },
        { 10 * AHEAD_NODES, true, 0 },
        { 1000 * (size_t)AHEAD_NODES, false, AHEAD_PARTS_MAX },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct stacks_view v = { .nodes = rows[i].nodes };
        struct store_write w = { .stacks = &v };
        if (rows[i].told)
            w.told = (const void *)&v;
        assert_int_equal(store_ahead_parts(&w), rows[i].parts);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_is_stored),
        cmocka_unit_test(test_the_cap_holds),
        cmocka_unit_test(test_who_is_cut),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
