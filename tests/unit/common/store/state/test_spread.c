/* SPDX-License-Identifier: Apache-2.0
 *
 * How long pushes of a service are: what a row becomes by pushes one after the other, and what a
 * timeline of steady pushes looks like at any step.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
/* cmocka wants those above first */
#include <cmocka.h>

#include "common/store/state/spread.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_steps.h"

static uint64_t wid;

static void push(struct store_bed *b, uint32_t slot, uint32_t spread, const char *labels)
{
    struct bed_push p = {
        .labels = labels, .stacks = "main;work=30", .slot = slot, .wid = ++wid, .spread = spread
    };

    assert_int_equal(store_bed_push(b, &p), 1);
}

static struct spread row_of(struct store_bed *b)
{
    struct member m = { 1, 1, 0, 0 };
    struct spread s;
    struct err e;

    assert_int_equal(spread_load(b->s->kv, NULL, &m, &s, &e), 0);
    return s;
}

static void test_row(void **state)
{
    (void)state;
    static const char *const bad[] = { "\2\0\0\0\0\2", "\1",           "\1\0\0\0\1\2",
                                       "\1\0\0\0\0\4", "\1\0\0\0\0\0", "\1\0\0\0\0\2\0\0\0\0\3" };
    static const size_t lens[] = { 6, 1, 6, 6, 6, 11 };
    struct spread s = { .len = 0 };
    struct err e;

    assert_int_equal(spread_at(&s, 5), 1);
    assert_true(spread_add(&s, 100, 2)); /* the first one counts for what was before */
    assert_int_equal(spread_at(&s, 0), 2);
    assert_false(spread_add(&s, 200, 2));
    assert_true(spread_add(&s, 200, 3));
    assert_false(spread_add(&s, 150, 1)); /* older than the last */
    assert_int_equal(spread_at(&s, 199), 2);
    assert_int_equal(spread_at(&s, 200), 3);
    for (uint32_t i = 0; i < 20; i++)
        assert_true(spread_add(&s, 300 + i, 1 + i % 2));
    assert_int_equal(s.len, SPREAD_RUNS_MAX);
    assert_int_equal(s.at[0].since, 0);
    assert_int_equal(spread_at(&s, UINT32_MAX), 2);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(spread_read(str_n(bad[i], lens[i]), &s, &e), ERR_CORRUPT);
}

/* Another length is believed after some pushes in a row, from the last of them on. */
static void test_streak(void **state)
{
    (void)state;
    struct store_opts o = { .dict_bytes_max = MIB, .wid_horizon_ms = 3600000 };
    struct store_bed b;

    store_bed_init(&b, &o);
    uint32_t t = store_bed_slot(&b);
    push(&b, t, 0, NULL); /* an older sender does not say */
    assert_int_equal(row_of(&b).len, 0);
    push(&b, t, 2, NULL);
    assert_int_equal(row_of(&b).len, 1);
    for (int i = 0; i < 40; i++) /* two agents that take turns */
        push(&b, ++t, 2 + i % 2, NULL);
    assert_int_equal(row_of(&b).len, 1);
    push(&b, ++t, 2, NULL);
    for (int i = 1; i < SPREAD_STREAK; i++)
        push(&b, ++t, 9, NULL); /* as 3 */
    assert_int_equal(row_of(&b).len, 1);
    push(&b, ++t, 3, NULL);
    struct spread s = row_of(&b);
    assert_int_equal(s.len, 2);
    assert_int_equal(s.at[1].since, t);
    assert_int_equal(s.at[1].slots, 3);
    store_bed_reopen(&b, KV_MEM_POWER, 0);
    for (int i = 0; i < 2 * SPREAD_STREAK; i++) /* late ones change nothing */
        push(&b, t - 100 - (uint32_t)i, 1, NULL);
    push(&b, ++t, 3, NULL);
    assert_int_equal(row_of(&b).len, 2);
    steps_check(&b);
    store_bed_deinit(&b);
}

/* All points of steady pushes are equal, but the first and the last ones. */
static void check_flat(struct store_bed *b, uint32_t first, uint32_t end, uint64_t per_slot)
{
    static const int64_t steps[] = { 5000, 10000, 15000, 20000, 25000, 45000, 7000 };
    struct arena *a = arena_new(4 * MIB);
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct selector all = { .len = 0 };
        struct store_query q = {
            .tenant = STR("t"), .selector = &all, .profile_type = STR(BED_CPU), .spread = true
        };
        struct store_view *v = store_view_get(b->s);
        struct store_timeline t;
        int64_t origin = slot_to_ms(first + 20) - 1, step = steps[i], sum = 0;
        uint32_t points = (uint32_t)((slot_to_ms(end - 6) - origin) / step);

        if (store_timeline(v,
                           &(struct store_timeline_query){
                               .q = q, .origin_ms = origin, .step_ms = step, .points = points },
                           a, &t, &e))
            fail_msg("%s", e.text);
        assert_int_equal(t.series.len, 1);
        assert_int_equal(t.series.ptr[0].point.len, points);
        for (uint32_t k = 0; k < points; k++) {
            sum += (int64_t)t.series.ptr[0].value.ptr[k];
            if (step % SLOT_MS == 0)
                assert_int_equal(t.series.ptr[0].value.ptr[k], per_slot * (uint64_t)step / SLOT_MS);
        }
        assert_int_equal(sum, (int64_t)(per_slot * ((t.end_ms - t.start_ms) / SLOT_MS)));
        store_timeline_deinit(&t);
        store_view_put(v);
    }
    arena_free(a);
}

/* Pods of other phases, unsealed and sealed, by series and by groups. */
static void test_steady_load_is_flat(void **state)
{
    (void)state;
    for (uint32_t every = 1; every <= SPREAD_SLOTS_MAX; every++) {
        struct store_opts o = { .dict_bytes_max = MIB,
                                .wid_horizon_ms = 3600000,
                                .build_all = true,
                                .hot_bytes_max = every > 1 ? MIB : 0,
                                .hot_members_min = 1 };
        struct store_bed b;
        char labels[32];

        store_bed_init(&b, &o);
        uint32_t first = store_bed_slot(&b), end = first + 240;
        for (uint32_t pod = 0; pod < every; pod++) {
            (void)snprintf(labels, sizeof(labels), "pod=p%u", pod);
            for (uint32_t t = first + pod; t < end; t += every)
                push(&b, t, every, labels);
        }
        check_flat(&b, first, end, 30);
        clock_fake_advance(&b.clock, INT64_C(1500000));
        for (int i = 0; i < 3; i++) {
            clock_fake_advance(&b.clock, 130000);
            store_bed_seal(&b);
            while (steps_build(&b, 1000))
                ;
        }
        check_flat(&b, first, end, 30);
        steps_check(&b);
        store_bed_deinit(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_streak),
        cmocka_unit_test(test_steady_load_is_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
