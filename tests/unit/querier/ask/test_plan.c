/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "querier/ask/plan.h"

#define E SLOT_EPOCH_MS

static void test_ranges_snap_outward(void **state)
{
    (void)state;
    static const struct {
        int64_t start, end, want_start, want_end;
        bool empty;
    } rows[] = {
        { E + 10000, E + 20000, E + 10000, E + 20000, false },
        { E + 10001, E + 10002, E + 10000, E + 20000, false },
        { E + 9999, E + 20001, E, E + 30000, false },
        { E - 5, E + 1, E, E + 10000, false },
        { 0, 1, E, E, true },
        { -100, E, E, E, true },
        { E + 7, E + 7, E, E + 10000, true },
        { INT64_MIN, INT64_MAX, E, E + INT64_C(4294967292) * 5000, false },
        { INT64_MAX - 1, INT64_MAX, E + INT64_C(4294967292) * 5000, E + INT64_C(4294967292) * 5000,
          true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plan_range r = plan_range(rows[i].start, rows[i].end);
        assert_int_equal(r.empty, rows[i].empty);
        assert_int_equal(r.start_ms, rows[i].want_start);
        assert_int_equal(r.end_ms, rows[i].want_end);
        assert_int_equal(slot_to_ms(slot_of_ms(r.end_ms)), r.end_ms); /* fits a slot */
    }
}

/* Every shard is on exactly one target, number i mod n; no target is without shards. */
static void test_targets_cover_all_shards(void **state)
{
    (void)state;
    for (uint64_t shards = 1; shards < 20; shards++)
        for (size_t ingesters = 1; ingesters < 10; ingesters++) {
            CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
            struct plan_targets t;
            struct err e;
            uint32_t seen[20] = { 0 };
            assert_int_equal(plan_targets(shards, ingesters, a, &t, &e), 0);
            for (size_t i = 0; i < t.len; i++) {
                assert_true(t.ptr[i].shards_len > 0);
                for (size_t k = 0; k < t.ptr[i].shards_len; k++) {
                    assert_int_equal(t.ptr[i].shards[k] % ingesters, t.ptr[i].ingester);
                    seen[t.ptr[i].shards[k]]++;
                }
            }
            for (uint64_t s = 0; s < shards; s++)
                assert_int_equal(seen[s], 1);
        }
    CLEANUP(arena_freep) struct arena *tiny = arena_new(64);
    struct plan_targets t;
    struct err e;
    assert_int_equal(plan_targets(1000, 3, tiny, &t, &e), ERR_LIMIT);
}

static void test_targets_of_some_shards(void **state)
{
    (void)state;
    static const uint32_t shards[] = { 7, 2, 4, 1, 5 };
    CLEANUP(arena_freep) struct arena *a = arena_new(64 * KIB);
    struct plan_targets t;
    struct err e;

    assert_int_equal(plan_targets_some(&(struct plan_some){ shards, 5, 3, false }, a, &t, &e), 0);
    assert_int_equal(t.len, 2); /* ingester 0 is not asked */
    assert_int_equal(t.ptr[0].ingester, 1);
    assert_int_equal(t.ptr[0].shards_len, 3);
    assert_int_equal(t.ptr[0].shards[2], 1);
    assert_int_equal(t.ptr[1].ingester, 2);
    assert_int_equal(t.ptr[1].shards_len, 2);
    assert_int_equal(t.ptr[1].shards[1], 5);
    assert_int_equal(plan_targets_some(&(struct plan_some){ shards, 5, 8, true }, a, &t, &e), 0);
    assert_int_equal(t.len, 5);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(t.ptr[i].ingester, shards[i]);
        assert_int_equal(t.ptr[i].shards_len, 1);
        assert_int_equal(t.ptr[i].shards[0], shards[i]);
    }
    CLEANUP(arena_freep) struct arena *tiny = arena_new(64);
    assert_int_equal(plan_targets_some(&(struct plan_some){ shards, 5, 3, false }, tiny, &t, &e),
                     ERR_LIMIT);
}

static void test_service_is_named(void **state)
{
    (void)state;
    struct {
        enum match_op op;
        struct str name, value;
        bool found;
    } rows[] = {
        { MATCH_EQ, STR("service_name"), STR("a"), true },
        { MATCH_EQ, STR("service_name"), STR(""), false }, /* services without a name */
        { MATCH_NE, STR("service_name"), STR("a"), false },
        { MATCH_RE, STR("service_name"), STR("a"), false },
        { MATCH_NRE, STR("service_name"), STR("a"), false },
        { MATCH_EQ, STR("service"), STR("a"), false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct matcher m[2] = {
            { .op = MATCH_EQ, .name = STR("x"), .value = STR("y") },
            { .op = rows[i].op, .name = rows[i].name, .value = rows[i].value }
        };
        struct selector s[2] = { { .matchers = NULL }, { .matchers = m, .len = 2 } };
        struct str service = STR("77");
        assert_int_equal(plan_service(s, 2, &service), rows[i].found);
        assert_true(str_eqc(service, rows[i].found ? "a" : "77"));
    }
}

static void test_series_grid(void **state)
{
    (void)state;
    static const struct {
        int64_t start, end;
        double step;
        uint64_t max;
        int code;
        uint32_t points;
        int64_t step_ms;
    } rows[] = {
        { 0, 100000, 15, 100, 0, 7, 15000 },
        { 0, 0, 15, 100, 0, 1, 15000 },
        { 5, 15004, 15, 100, 0, 1, 15000 },
        { 5, 15005, 15, 100, 0, 2, 15000 },
        { 0, 10, 0.001, 100, 0, 11, 1 },
        { 0, 10, 0.0014, 100, 0, 11, 1 },
        { 0, 10, 1e9, 100, 0, 1, 1000000000000 },
        { 0, 10, 0.00099, 100, ERR_INPUT, 0, 0 },
        { 0, 10, 0, 100, ERR_INPUT, 0, 0 },
        { 0, 10, -1, 100, ERR_INPUT, 0, 0 },
        { 0, 10, 0.0 / 0.0, 100, ERR_INPUT, 0, 0 },
        { 0, 10, 1e300, 100, ERR_INPUT, 0, 0 },
        { 0, 99000, 1, 100, 0, 100, 1000 },
        { 0, 100000, 1, 100, ERR_LIMIT, 0, 0 },
        { -253402300799999, 253402300799999, 0.001, 100, ERR_LIMIT, 0, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plan_grid g = { 0 };
        struct err e;
        assert_int_equal(
            plan_series_grid(rows[i].start, rows[i].end, rows[i].step, rows[i].max, &g, &e),
            rows[i].code);
        assert_int_equal(g.points, rows[i].points);
        assert_int_equal(g.step_ms, rows[i].step_ms);
    }
}

/* What the error proposes is enough. */
static void test_proposed_step_works(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, 11);
    for (int i = 0; i < 1000; i++) {
        int64_t range = 1 + (int64_t)prng_below(&p, 1000000000000);
        struct plan_grid g;
        struct err e;
        unsigned long long proposed;
        if (plan_series_grid(0, range, 0.001, 1000, &g, &e) == 0)
            continue;
        const char *at = strstr(e.text, "at least ");
        assert_non_null(at);
        assert_int_equal(sscanf(at, "at least %llu s", &proposed), 1);
        assert_int_equal(plan_series_grid(0, range, (double)proposed, 1000, &g, &e), 0);
    }
}

static void test_timeline_steps(void **state)
{
    (void)state;
    static const struct {
        int64_t range_s, step_s;
    } rows[] = {
        { 0, 15 },          { 3600, 15 },         { 6 * 3600, 15 },       { 86400, 60 },
        { 7 * 86400, 300 }, { 30 * 86400, 1800 }, { 365 * 86400, 21600 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_int_equal(plan_timeline_step_s(rows[i].range_s * 1000), rows[i].step_s);
    for (int64_t range = 1; range < INT64_C(253402300800000); range += range / 3 + 1) {
        struct plan_timeline t = plan_timeline(0, range);
        assert_true(t.samples > 0 && t.samples < 11000);
    }
}

/* Buckets are half-open, aligned to the step, cover every millisecond of the range once; the grid
 * of points says the same buckets. */
static void test_timeline_covers_the_range(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, 5);
    for (int i = 0; i < 5000; i++) {
        int64_t from = (int64_t)prng_below(&p, INT64_C(4000000000000));
        int64_t until = from + (int64_t)prng_below(&p, prng_chance(&p, 0.5) ? 1000000 : 1000000000);
        struct plan_timeline t = plan_timeline(from, until);
        int64_t start = t.start_s * 1000, step = t.step_s * 1000;
        int64_t end = start + step * t.samples;
        int64_t last = until > from ? until - 1 : from;
        assert_int_equal(start % step, 0);
        assert_true(start <= from && from < start + step);
        assert_true(end - step <= last && last < end);
        assert_int_equal(t.grid.points, t.samples);
        for (uint32_t k = 0; k < t.samples && k < 5; k++) {
            int64_t right = t.grid.origin_ms + k * t.grid.step_ms;
            int64_t left = right - t.grid.step_ms; /* (left, right] = [start + k step, ...) */
            assert_int_equal(left + 1, start + k * step);
            assert_int_equal(right + 1, start + (k + 1) * step);
        }
    }
}

/* From a minute on points are [T - step, T); finer ones stay unchanged. */
static void test_grid_asked(void **state)
{
    struct plan_grid fine = { 1000000, 59999, 7 }, coarse = { 1000000, 60000, 7 };

    (void)state;
    assert_int_equal(plan_grid_asked(fine).origin_ms, 1000000);
    assert_int_equal(plan_grid_asked(coarse).origin_ms, 999999);
    assert_int_equal(plan_grid_asked(coarse).step_ms, 60000);
    assert_int_equal(plan_grid_asked(coarse).points, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid_asked),
        cmocka_unit_test(test_ranges_snap_outward),
        cmocka_unit_test(test_targets_cover_all_shards),
        cmocka_unit_test(test_targets_of_some_shards),
        cmocka_unit_test(test_service_is_named),
        cmocka_unit_test(test_series_grid),
        cmocka_unit_test(test_proposed_step_works),
        cmocka_unit_test(test_timeline_steps),
        cmocka_unit_test(test_timeline_covers_the_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
