/* SPDX-License-Identifier: Apache-2.0
 *
 * A sound database has no findings in a round of any cutting; each kind of damage is found, what
 * can be built again is marked and then sound, and what cannot is said.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/check/check.h"
#include "common/store/check/scrub.h"
#include "common/store/codec/vec.h"
#include "common/store/state/commit.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define MINUTE_MS INT64_C(60000)

static struct store_bed bed;
static struct err e;

static const struct store_opts OPTS = {
    .dict_bytes_max = 64 * MIB,
    .seal_delay_ms = 30000,
    .build_delay_ms = 60000,
    .build_pace_ms = MINUTE_MS,
    .build_all = true,
    .wid_horizon_ms = 24 * 3600 * 1000,
    .seed = 42,
};

static void build(void)
{
    bool more = true;

    store_bed_seal(&bed);
    while (more)
        assert_int_equal(store_build(bed.s, 64, &more, &e), 0);
}

static int setup(void **state)
{
    static const char *const types[] = { BED_CPU, "memory:alloc_space:bytes:space:bytes" };
    char labels[64], stacks[128];
    struct prng p;
    uint64_t wid = 0;

    (void)state;
    prng_init(&p, 7);
    store_bed_init(&bed, &OPTS);
    for (int i = 0; i < 400; i++) {
        (void)snprintf(labels, sizeof(labels), "pod=p%d,zone=z%d", i % 5, i % 2);
        (void)snprintf(stacks, sizeof(stacks), "main;f%u=%u main;f%u;g%u=%u",
                       (unsigned)prng_below(&p, 40), (unsigned)prng_below(&p, 90) + 1,
                       (unsigned)prng_below(&p, 40), (unsigned)prng_below(&p, 9),
                       (unsigned)prng_below(&p, 90) + 1);
        struct bed_push push = { .service = i % 3 ? "one" : "two",
                                 .type = types[i % 2],
                                 .labels = labels,
                                 .stacks = stacks,
                                 .slot = store_bed_slot(&bed),
                                 .wid = ++wid };
        assert_int_equal(store_bed_push(&bed, &push), 1);
        clock_fake_advance(&bed.clock,
                           (uint64_t)(MINUTE_MS / 2 + (int64_t)prng_below(&p, 20) * MINUTE_MS));
        if (i % 50 == 49)
            build();
    }
    clock_fake_advance(&bed.clock, (uint64_t)(24 * 60 * MINUTE_MS));
    build();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

/* A whole round in steps of so many rows. */
static struct scrub scrub(size_t rows, struct scrub_found *found)
{
    struct store_view *v = store_view_get(bed.s);
    struct arena *a = arena_new(64 * MIB);
    const struct scrub_opts o = { .rows_max = rows, .sample = 2, .arena = a };
    struct scrub s = { 0 };

    found->at.len = 0;
    found->more = 0;
    for (int i = 0; !s.done; i++) {
        assert_true(i < 1000000);
        if (store_scrub(v, &s, &o, found, &e))
            fail_msg("%s", e.text);
    }
    arena_free(a);
    store_view_put(v);
    return s;
}

static void check_clean(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct check_report r;

    if (store_check(v, &r, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
}

static void test_sound(void **state)
{
    static const size_t steps[] = { 1, 7, 100, 100000 };
    struct scrub_found found = { 0 };

    (void)state;
    check_clean();
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct scrub s = scrub(steps[i], &found);
        if (found.at.len)
            fail_msg("%s", found.at.ptr[0].text);
        assert_true(s.rows > 1000 && s.nodes > 50 && s.sampled > 10 && s.sampled < s.nodes);
    }
    vec_free(&found.at);
}

/* The n-th row of a level, in a family; the key stays valid until the next call. */
static struct str nth(enum kv_cf cf, uint32_t level, size_t n, struct buf *key, struct buf *value)
{
    char from = (char)level;
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, str_n(&from, 1), STR_NULL);

    for (; n; n--)
        kv_iter_next(it);
    assert_true(kv_iter_valid(it) && kv_iter_key(it).ptr[0] == from);
    buf_init(key, KIB);
    buf_init(value, MIB);
    assert_true(buf_add_str(key, kv_iter_key(it)) && buf_add_str(value, kv_iter_value(it)));
    kv_iter_free(it);
    return buf_str(key);
}

static void put(enum kv_cf cf, struct str key, const struct str *value)
{
    struct kv_batch *b = kv_batch_new();

    if (value)
        kv_batch_put(b, cf, key, *value);
    else
        kv_batch_del(b, cf, key);
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
}

/* Finds one wrong node, has it built again, and finds it sound. */
static void heals(uint32_t level)
{
    struct scrub_found found = { 0 };

    (void)scrub(64, &found);
    assert_true(found.at.len > 0);
    bool seen = false;
    vec_for (i, &found.at) {
        assert_int_equal(found.at.ptr[i].kind, SCRUB_NODE);
        seen = seen || found.at.ptr[i].node.level == level;
        assert_int_equal(store_scrub_mark(bed.s, &found.at.ptr[i].node, &e), 0);
    }
    assert_true(seen);
    clock_fake_advance(&bed.clock, (uint64_t)(24 * 60 * MINUTE_MS));
    build();
    (void)scrub(64, &found);
    if (found.at.len)
        fail_msg("after: %s", found.at.ptr[0].text);
    check_clean();
    vec_free(&found.at);
}

static void test_wrong_sum_is_built_again(void **state)
{
    struct buf key, value, other_key, other;

    (void)state;
    for (uint32_t level = 2; level <= 4; level++) {
        nth(KV_COARSE, level, 0, &key, &value);
        nth(KV_COARSE, level, 3, &other_key, &other);
        assert_false(str_eq(buf_str(&value), buf_str(&other)));
        struct str bad = buf_str(&other);
        put(KV_COARSE, buf_str(&key), &bad);
        heals(level);
        buf_deinit(&key);
        buf_deinit(&value);
        buf_deinit(&other_key);
        buf_deinit(&other);
    }
}

static void test_missing_node_is_built_again(void **state)
{
    struct buf key, value;

    (void)state;
    nth(KV_COARSE, 3, 2, &key, &value);
    put(KV_COARSE, buf_str(&key), NULL);
    heals(3);
    buf_deinit(&key);
    buf_deinit(&value);
}

static void test_damaged_node_is_built_again(void **state)
{
    struct buf key, value;

    (void)state;
    nth(KV_COARSE, 3, 1, &key, &value);
    value.ptr[value.len / 2] ^= 0x10;
    struct str bad = buf_str(&value);
    put(KV_COARSE, buf_str(&key), &bad);
    heals(3);
    buf_deinit(&key);
    buf_deinit(&value);
}

static void test_wrong_rollup_is_built_again(void **state)
{
    struct buf key, value, other_key, other;
    size_t n = 1;

    (void)state;
    nth(KV_RU, 3, 0, &key, &value);
    for (;; n++) { /* one of another sum */
        nth(KV_RU, 3, n, &other_key, &other);
        if (!str_eq(buf_str(&value), buf_str(&other)))
            break;
        buf_deinit(&other_key);
        buf_deinit(&other);
    }
    struct str bad = buf_str(&other);
    put(KV_RU, buf_str(&key), &bad);
    heals(3);
    buf_deinit(&key);
    buf_deinit(&value);
    buf_deinit(&other_key);
    buf_deinit(&other);
}

/* Nothing a leaf could be made of: it is said, and nothing is marked. */
static void test_damaged_leaf_is_said(void **state)
{
    struct scrub_found found = { 0 };
    struct buf key, value;
    bool leaf = false;

    (void)state;
    nth(KV_FINE, 0, 5, &key, &value);
    value.ptr[value.len / 2] ^= 0x10;
    struct str bad = buf_str(&value);
    put(KV_FINE, buf_str(&key), &bad);
    (void)scrub(64, &found);
    vec_for (i, &found.at)
        assert_int_equal(found.at.ptr[i].kind, SCRUB_ROW); /* what is above it is good */
    vec_for (i, &found.at)
        leaf = leaf || (found.at.ptr[i].kind == SCRUB_ROW && found.at.ptr[i].node.level == 0 &&
                        strstr(found.at.ptr[i].text, "level 0"));
    assert_true(leaf);
    vec_free(&found.at);
    buf_deinit(&key);
    buf_deinit(&value);
}

/* A leaf that is gone: its timeline knows of it, so the parent is not made to forget it. */
static void test_missing_leaf_is_said(void **state)
{
    struct scrub_found found = { 0 };
    struct buf key, value;

    (void)state;
    nth(KV_FINE, 0, 5, &key, &value);
    put(KV_FINE, buf_str(&key), NULL);
    (void)scrub(64, &found);
    assert_true(found.at.len > 0);
    vec_for (i, &found.at) {
        assert_int_equal(found.at.ptr[i].kind, SCRUB_ROW);
        assert_int_equal(found.at.ptr[i].node.level, 2);
    }
    vec_free(&found.at);
    buf_deinit(&key);
    buf_deinit(&value);
}

#define BED(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        BED(test_sound),
        BED(test_wrong_sum_is_built_again),
        BED(test_missing_node_is_built_again),
        BED(test_damaged_node_is_built_again),
        BED(test_wrong_rollup_is_built_again),
        BED(test_damaged_leaf_is_said),
        BED(test_missing_leaf_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
