/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds in small examples: what becomes due when, what a change in between does, and that neither
 * the order of arrival nor the cutting into seals, steps and jobs changes what is built. The model
 * test (tests/prop/test_store.c) has the rest.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/check/check.h"
#include "common/store/state/commit.h"
#include "common/store/state/rollup_row.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define MINUTE_MS INT64_C(60000)
#define HOUR_MS   (60 * MINUTE_MS)
#define PACE_MS   (5 * MINUTE_MS)

static struct store_bed bed;
static struct err e;
static uint32_t hour; /* first slot of the hour of the beginning */

static const struct store_opts OPTS = {
    .dict_bytes_max = 64 * MIB,
    .seal_delay_ms = 30000,
    .build_delay_ms = 60000,
    .build_pace_ms = PACE_MS,
    .build_all = true,
    .wid_horizon_ms = 24 * 3600 * 1000,
    .seed = 42,
};

static int setup(void **state)
{
    (void)state;
    store_bed_init(&bed, &OPTS);
    hour = node_of(3, store_bed_slot(&bed)) + LEVELS[3].node;
    clock_fake_advance(&bed.clock, (uint64_t)(slot_to_ms(hour) - BED_START_MS));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    store_bed_deinit(&bed);
    return 0;
}

static void push(uint32_t slot, uint64_t wid, const char *labels, const char *stacks)
{
    assert_int_equal(
        store_bed_push(
            &bed,
            &(struct bed_push){ .slot = slot, .wid = wid, .labels = labels, .stacks = stacks }),
        1);
}

static void build(void)
{
    bool more = true;

    while (more)
        assert_int_equal(store_build(bed.s, 7, &more, &e), 0);
}

static void pass(int64_t ms)
{
    clock_fake_advance(&bed.clock, (uint64_t)ms);
    store_bed_seal(&bed);
    build();
}

static uint64_t built(uint32_t level)
{
    return atomic_load(&bed.s->nodes_built[level]);
}

static struct build_stats stats(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct build_stats st;

    assert_int_equal(store_build_stats(v, atomic_load(&bed.clock.wall_ms), &st, &e), 0);
    store_view_put(v);
    return st;
}

static void check(void)
{
    struct store_view *v = store_view_get(bed.s);
    struct check_report report;

    if (store_check(v, &report, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
}

static const char *ask(uint32_t from, uint32_t to)
{
    return store_bed_merge(&bed, NULL, "{pod=\"a\"}", NULL, from, to);
}

/* ---- when ---- */

static void test_due(void **state)
{
    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    push(hour + 119, 2, "pod=a", "a;b=7");
    pass(10 * MINUTE_MS + 30000); /* the window ended; its last minute is sealed */
    assert_int_equal(built(2), 0);
    assert_int_equal(stats().due[2], 0);
    uint64_t wait = store_build_wait_ms(bed.s);
    assert_in_range(wait, 1, 60000);
    clock_fake_advance(&bed.clock, wait);
    assert_int_equal(store_build_wait_ms(bed.s), 0);
    assert_int_equal(stats().due[2], 1);
    pass(0);
    assert_int_equal(built(2), 1);
    assert_int_equal(stats().marks[2], 0);
    assert_int_equal(stats().marks[3], 1);
    assert_string_equal(ask(hour, hour + 120), "a;b=12");
    pass(51 * MINUTE_MS);
    assert_int_equal(built(3), 1);
    assert_int_equal(built(4), 0);
    pass(8 * 24 * HOUR_MS);
    assert_true(built(4) == 1 && built(5) == 1 && built(6) == 1 && built(7) == 0);
    check();
    pass(64 * 24 * HOUR_MS);
    assert_int_equal(built(7), 1);
    for (uint32_t l = 2; l < KEY_LEVELS; l++)
        assert_int_equal(stats().marks[l], 0);
    assert_string_equal(ask(node_of(7, hour), node_of(7, hour) + LEVELS[7].node), "a;b=12");
    check();
}

/* Late data are answered at once, and their nodes built again after a while, all at once. */
static void test_late(void **state)
{
    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    pass(5 * MINUTE_MS);
    pass(2 * HOUR_MS);
    assert_true(built(2) == 1 && built(3) == 1);
    for (uint64_t i = 0; i < 4; i++) {
        push(hour + 5, 10 + i, "pod=a", "a=1");
        pass(MINUTE_MS);
        assert_int_equal(built(2), 1);
        assert_int_equal(stats().due[2], 0);
    }
    assert_string_equal(ask(hour, hour + 720), "a;b=5 a=4");
    check();
    pass(PACE_MS); /* since the first of them */
    assert_true(built(2) == 2 && built(3) == 1);
    assert_string_equal(ask(hour, hour + 720), "a;b=5 a=4");
    pass(PACE_MS); /* wider nodes wait longer */
    assert_true(built(2) == 2 && built(3) == 2);
    assert_string_equal(ask(hour, hour + 720), "a;b=5 a=4");
    check();
}

/* Data of the past get all their levels as soon as those of today: no node is there to be built
 * again. What comes later for the same nodes gathers. */
static void test_back_filled(void **state)
{
    (void)state;
    uint32_t old = node_of(7, hour) - 3 * LEVELS[7].node;

    for (uint32_t i = 0; i < 30; i++) /* an import: oldest first, over many nodes of an hour */
        push(old + i * 700, 1 + i, i % 2 ? "pod=a" : "pod=b", "a;b=5");
    pass(MINUTE_MS); /* sealed */
    pass(MINUTE_MS); /* the delay */
    for (uint32_t l = 2; l < KEY_LEVELS; l++) {
        if (stats().marks[l])
            fail_msg("level %u is not built", l);
        assert_true(built(l) > 0);
    }
    assert_string_equal(ask(old, old + LEVELS[7].node), "a;b=75");
    check();
    uint64_t before = built(2);
    push(old + 1, 100, "pod=c", "a=1");
    pass(MINUTE_MS);
    pass(2 * MINUTE_MS);
    assert_int_equal(built(2), before);
    pass(PACE_MS);
    assert_int_equal(built(2), before + 1);
    check();
}

static void test_lag(void **state)
{
    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    clock_fake_advance(&bed.clock, 2 * MINUTE_MS);
    store_bed_seal(&bed);
    clock_fake_advance(&bed.clock, 30 * MINUTE_MS);
    assert_int_equal(stats().lag_ms, 22 * MINUTE_MS - 90000);
    assert_int_equal(stats().lag_coarse_ms, 0);
    pass(0);
    assert_int_equal(stats().lag_ms, 0);
}

/* ---- jobs ---- */

struct held {
    struct arena *arena;
    struct build_job job;
    struct build_result result;
};

/* The one service and type there is. */
static struct member part(void)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_FINE, STR(""), STR_NULL);
    struct member m = { 0 };
    uint32_t level, t;

    assert_true(kv_iter_valid(it) && key_member_read(kv_iter_key(it), &level, &m, &t));
    m.series = 0;
    kv_iter_free(it);
    return m;
}

static struct held read_job(uint32_t level, uint32_t t)
{
    struct build_node n = { .m = part(), .level = level, .t = node_of(level, t) };
    struct store_view *v = store_view_get(bed.s);
    struct held h = { .arena = arena_new(64 * MIB) };
    struct build_room room = { .bytes_max = MIB, .rows_max = SIZE_MAX, .arena = h.arena };
    struct build_cursor c = { 0 };

    if (store_build_read(v, &n, &c, &room, &h.job, &e) ||
        build_merge(&h.job, h.arena, &h.result, &e))
        fail_msg("%s", e.text);
    store_view_put(v);
    return h;
}

static void drop(struct held *h)
{
    build_job_deinit(&h->job);
    build_result_deinit(&h->result);
    arena_free(h->arena);
}

static void test_changed_meanwhile(void **state)
{
    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    clock_fake_advance(&bed.clock, 20 * MINUTE_MS);
    store_bed_seal(&bed);
    struct held h = read_job(2, hour);
    push(hour + 4, 2, "pod=a", "a=1");
    clock_fake_advance(&bed.clock, MINUTE_MS);
    store_bed_seal(&bed);
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), ERR_NOT_FOUND);
    assert_int_equal(stats().marks[2], 1);
    drop(&h);
    assert_string_equal(ask(hour, hour + 120), "a;b=5 a=1");
    h = read_job(2, hour);
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), 0);
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), ERR_NOT_FOUND);
    drop(&h);
    assert_int_equal(stats().marks[2], 0);
    assert_string_equal(ask(hour, hour + 120), "a;b=5 a=1");
    check();
}

/* A child that is dirty again holds its parent back. */
static void test_dirty_child(void **state)
{
    struct build_nodes due = { 0 };

    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    pass(5 * MINUTE_MS);
    pass(20 * MINUTE_MS);
    assert_int_equal(built(2), 1);
    clock_fake_advance(&bed.clock, HOUR_MS);
    push(hour + 300, 2, "pod=a", "a=1");
    clock_fake_advance(&bed.clock, MINUTE_MS);
    store_bed_seal(&bed);
    clock_fake_advance(&bed.clock, 24 * HOUR_MS);
    store_bed_seal(&bed);
    struct store_view *v = store_view_get(bed.s);
    assert_int_equal(
        store_build_due(
            v, &(struct build_search){ .engine_ms = INT64_MAX, .low = 3, .high = 7, .max = 100 },
            &due, &e),
        0);
    store_view_put(v);
    assert_int_equal(due.at.len, 0);
    assert_int_equal(stats().due[3], 1);
    vec_free(&due.at);
    pass(0);
    assert_int_equal(built(3), 1);
    assert_string_equal(ask(hour, hour + 720), "a;b=5 a=1");
    check();
}

static void test_wrong_sums(void **state)
{
    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    push(hour + 5, 2, "pod=a", "a;b=5");
    push(hour + 5, 3, "pod=b", "a;b=9");
    clock_fake_advance(&bed.clock, 20 * MINUTE_MS);
    store_bed_seal(&bed);
    struct held h = read_job(2, hour);
    assert_int_equal(h.result.rows.len, 2);
    h.job.sums.ptr[0].total++;
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), ERR_CORRUPT);
    h.job.sums.ptr[0].total--;
    h.job.sums.ptr[1].fp ^= 1;
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), ERR_CORRUPT);
    h.job.sums.ptr[1].fp ^= 1;
    h.result.rows.len--;
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), ERR_CORRUPT);
    assert_string_equal(ask(hour, hour + 120), "a;b=10");
    h.result.rows.len++;
    assert_int_equal(store_build_apply(bed.s, &h.job, &h.result, &e), 0);
    drop(&h);
    check();
}

/* What was purged below leaves the nodes above, whatever stands there. */
static void test_gone(void **state)
{
    struct member m;
    struct kv_batch *b = kv_batch_new();

    (void)state;
    push(hour + 3, 1, "pod=a", "a;b=5");
    push(hour + 400, 2, "pod=a", "a=1");
    push(hour + 400, 3, "pod=b", "a=1");
    pass(5 * MINUTE_MS);
    pass(2 * HOUR_MS);
    pass(2 * PACE_MS);
    m = part();
    assert_string_equal(ask(hour, hour + 720), "a;b=5 a=1");
    for (uint32_t l = 0; l < 2; l++) { /* all of the first ten minutes, by hand */
        enum kv_cf cf = l ? KV_RU : KV_FINE;
        struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, STR(""), STR_NULL);
        for (; kv_iter_valid(it); kv_iter_next(it))
            if (get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD) < hour + 120 &&
                kv_iter_key(it).ptr[0] <= 1)
                kv_batch_del(b, cf, kv_iter_key(it));
        kv_iter_free(it);
    }
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, KV_TL, STR(""), STR_NULL);
    for (; kv_iter_valid(it); kv_iter_next(it))
        if (get_u32be(kv_iter_key(it).ptr + KEY_MEMBER_HEAD) == hour && !kv_iter_key(it).ptr[0])
            kv_batch_del(b, KV_TL, kv_iter_key(it));
    kv_iter_free(it);
    struct dirty_change c = {
        .m = m, .t = hour, .engine_ms = atomic_load(&bed.clock.wall_ms), .entry = dirty_entry(bed.s)
    };
    assert_int_equal(dirty_mark(bed.s, b, &c, &e), 0);
    assert_int_equal(store_write_batch(bed.s, b, true, &e), 0);
    kv_batch_free(b);
    assert_string_equal(ask(hour, hour + 720), "a=1");
    pass(2 * PACE_MS);
    assert_int_equal(stats().marks[2], 0);
    assert_string_equal(ask(hour, hour + 720), "a=1");
    struct store_view *v = store_view_get(bed.s);
    struct check_opts o = { 0 };
    struct check_report report;
    assert_int_equal(store_check_all(v, &o, &report, &e), 0);
    store_view_put(v);
    assert_true(report.findings[CHECK_LEDGER] > 0); /* the lost rows are still counted */
    assert_int_equal(check_findings(&report), report.findings[CHECK_LEDGER]);
}

/* ---- what is built depends on the data alone ---- */

#define PUSHES 400

struct plan_push {
    uint32_t slot;
    uint64_t wid;
    char labels[32], stacks[64];
};

static void make_pushes(struct plan_push *p)
{
    struct prng r;

    prng_init(&r, 7);
    for (uint64_t i = 0; i < PUSHES; i++) {
        p[i].slot = hour + (uint32_t)prng_below(&r, 2000);
        p[i].wid = i + 1;
        snprintf(p[i].labels, sizeof(p[i].labels), "pod=p%u,zone=%u", (unsigned)prng_below(&r, 6),
                 (unsigned)prng_below(&r, 2));
        snprintf(p[i].stacks, sizeof(p[i].stacks), "a;f%u=%u", (unsigned)prng_below(&r, 30),
                 1 + (unsigned)prng_below(&r, 1000));
    }
}

/* Rows that must not depend on how the work was cut: level 0 and 1 of groups may (late rows of
 * their own). `heads`: ids of stacks depend on the order of arrival, sums do not. */
static void describe(enum kv_cf cf, bool heads, struct buf *out)
{
    struct kv_iter *it = kv_iter_new(bed.s->kv, NULL, cf, STR(""), STR_NULL);

    for (; kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it), value = kv_iter_value(it);
        struct vec_reader v;
        if (cf == KV_RU && key.ptr[0] < 2)
            continue;
        for (size_t i = 0; i < key.len; i++)
            buf_addf(out, "%02x", (uint8_t)key.ptr[i]);
        if (heads) {
            assert_int_equal(vec_peek(value, &v, &e), 0);
            buf_addf(out, " %" PRIu64 " %" PRIu64 " %" PRIx64, v.meta.total, v.meta.writes,
                     v.meta.fp);
        }
        for (size_t i = 0; !heads && i < value.len; i++)
            buf_addf(out, "%02x", (uint8_t)value.ptr[i]);
        buf_add_c(out, '\n');
    }
    kv_iter_free(it);
}

static void run_plan(const struct plan_push *p, uint64_t seed, bool shuffle, struct buf *bytes,
                     struct buf *heads)
{
    uint32_t order[PUSHES];
    struct prng r;
    bool more;

    prng_init(&r, seed);
    for (uint32_t i = 0; i < PUSHES; i++) {
        uint32_t j = shuffle && i ? 1 + (uint32_t)prng_below(&r, i) : i; /* the first stays */
        order[i] = order[MIN(j, i)];
        order[MIN(j, i)] = i;
    }
    store_bed_init(&bed, &OPTS);
    clock_fake_advance(&bed.clock, (uint64_t)(slot_to_ms(hour) - BED_START_MS) + 3 * HOUR_MS);
    for (uint32_t i = 0; i < PUSHES; i++) {
        push(p[order[i]].slot, p[order[i]].wid, p[order[i]].labels, p[order[i]].stacks);
        if (prng_chance(&r, 0.2))
            assert_int_equal(store_seal(bed.s, 1 + prng_below(&r, 50), &more, &e), 0);
        if (prng_chance(&r, 0.2))
            assert_int_equal(store_build(bed.s, 1 + prng_below(&r, 50), &more, &e), 0);
        if (prng_chance(&r, 0.05))
            clock_fake_advance(&bed.clock, prng_below(&r, 10) * (uint64_t)MINUTE_MS);
    }
    pass(20 * HOUR_MS);
    pass(100 * 24 * HOUR_MS);
    check();
    for (uint32_t l = 2; l < KEY_LEVELS; l++)
        assert_true(built(l) > 0 && !stats().marks[l]);
    static const enum kv_cf cfs[] = { KV_FINE, KV_COARSE, KV_RU, KV_TL, KV_FN };
    for (size_t i = 0; i < ARRAY_LEN(cfs); i++)
        describe(cfs[i], false, bytes);
    describe(KV_FINE, true, heads);
    describe(KV_COARSE, true, heads);
    store_bed_deinit(&bed);
}

static void test_same_bytes(void **state)
{
    static struct plan_push p[PUSHES];
    struct buf bytes[2], heads[2];

    (void)state;
    store_bed_deinit(&bed);
    make_pushes(p);
    for (uint64_t seed = 0; seed < 8; seed++) {
        bool shuffle = seed >= 4;
        for (int i = 0; i < 2; i++) {
            buf_init(&bytes[i], 256 * MIB);
            buf_init(&heads[i], 256 * MIB);
        }
        run_plan(p, 1000, false, &bytes[0], &heads[0]);
        run_plan(p, seed, shuffle, &bytes[1], &heads[1]);
        assert_true(heads[0].len > 1000 && bytes[0].len > 10000);
        assert_true(str_eq(buf_str(&heads[0]), buf_str(&heads[1])));
        if (!shuffle)
            assert_true(str_eq(buf_str(&bytes[0]), buf_str(&bytes[1])));
        for (int i = 0; i < 2; i++) {
            buf_deinit(&bytes[i]);
            buf_deinit(&heads[i]);
        }
    }
    store_bed_init(&bed, &OPTS);
}

/* ---- rows ---- */

static void test_rows(void **state)
{
    struct dirty_mark m = { 0x123456789abcdef0, 0x01020304 }, got;
    struct floors f = { 0 }, read;
    char row[DIRTY_ROW_LEN + 1];

    (void)state;
    dirty_row_put(&m, row);
    assert_memory_equal(row, "\x01\x12\x34\x56\x78\x9a\xbc\xde\xf0\x01\x02\x03\x04", 13);
    assert_int_equal(dirty_row_read(str_n(row, DIRTY_ROW_LEN), &got, &e), 0);
    assert_true(got.entry == m.entry && got.since == m.since);
    assert_int_equal(dirty_row_read(str_n(row, DIRTY_ROW_LEN - 1), &got, &e), ERR_CORRUPT);
    row[0] = 2;
    assert_int_equal(dirty_row_read(str_n(row, DIRTY_ROW_LEN), &got, &e), ERR_CORRUPT);
    char bytes[FLOORS_ROW_LEN] = { 0 };
    assert_int_equal(floors_read(str_n(bytes, sizeof(bytes)), &read, &e), 0);
    assert_memory_equal(&read, &f, sizeof(f));
    bytes[3] = 120; /* at[0] */
    assert_int_equal(floors_read(str_n(bytes, sizeof(bytes)), &read, &e), 0);
    bytes[3] = 60; /* inside a node of 10 m */
    assert_int_equal(floors_read(str_n(bytes, sizeof(bytes)), &read, &e), ERR_CORRUPT);
    bytes[3] = 0;
    bytes[7] = 120; /* at[1] > at[0] */
    assert_int_equal(floors_read(str_n(bytes, sizeof(bytes)), &read, &e), ERR_CORRUPT);
    assert_int_equal(floors_read(str_n(bytes, 31), &read, &e), ERR_CORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test_setup_teardown(test_due, setup, teardown),
        cmocka_unit_test_setup_teardown(test_late, setup, teardown),
        cmocka_unit_test_setup_teardown(test_back_filled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lag, setup, teardown),
        cmocka_unit_test_setup_teardown(test_changed_meanwhile, setup, teardown),
        cmocka_unit_test_setup_teardown(test_dirty_child, setup, teardown),
        cmocka_unit_test_setup_teardown(test_wrong_sums, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_same_bytes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
