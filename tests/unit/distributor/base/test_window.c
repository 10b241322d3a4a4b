/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "distributor/base/window.h"

#define NOW INT64_C(1790000000000)
#define S   INT64_C(1000)
#define DAY (86400 * S)

static void test_window_table(void **state)
{
    (void)state;
    static const struct {
        bool has_from, has_until, has_time;
        int64_t from, until, time, duration;
        int64_t start, end; /* 0, 0: refused */
        const char *says;
    } rows[] = {
        /* the URL decides */
        { true, true, false, NOW - 30 * S, NOW - 20 * S, 0, 0, NOW - 30 * S, NOW - 20 * S, NULL },
        { true, true, true, NOW - 30 * S, NOW - 20 * S, NOW - 500 * S, 5 * S, NOW - 30 * S,
          NOW - 20 * S, NULL },
        { true, true, false, NOW - 5 * S, NOW - 5 * S, 0, 0, NOW - 5 * S, NOW - 5 * S, NULL },
        { true, true, false, NOW, NOW - 1, 0, 0, 0, 0, "from is 1 ms after until" },
        /* one end missing: ten seconds from the other */
        { true, false, false, NOW - 60 * S, 0, 0, 0, NOW - 60 * S, NOW - 50 * S, NULL },
        { false, true, false, 0, NOW - 60 * S, 0, 0, NOW - 70 * S, NOW - 60 * S, NULL },
        { true, false, true, NOW - 60 * S, 0, NOW - 9 * S, S, NOW - 60 * S, NOW - 50 * S, NULL },
        /* neither: the body's own, or the last ten seconds */
        { false, false, true, 0, 0, NOW - 90 * S, 30 * S, NOW - 90 * S, NOW - 60 * S, NULL },
        { false, false, true, 0, 0, NOW - 90 * S, 0, NOW - 90 * S, NOW - 90 * S, NULL },
        { false, false, true, 0, 0, NOW - 90 * S, 900 * DAY, NOW - 90 * S, NOW, NULL },
        { false, false, false, 0, 0, 0, 0, NOW - 10 * S, NOW, NULL },
        /* accepted: from retention to ten minutes ahead */
        { true, true, false, NOW - 400 * DAY, NOW - 400 * DAY, 0, 0, NOW - 400 * DAY,
          NOW - 400 * DAY, NULL },
        { true, true, false, NOW - 400 * DAY - 1, NOW, 0, 0, 0, 0, "not_in_ingestion_window" },
        { true, false, false, NOW - 401 * DAY, 0, 0, 0, 0, 0,
          ", 34646400 s old, more than is kept (34560000 s: distributor.past, or reject_older" },
        { false, true, false, 0, NOW + 700 * S, 0, 0, 0, 0,
          ", 700 s ahead of this server's clock, more than is taken (600 s: distributor.future, " },
        { true, true, false, NOW, NOW + 600 * S, 0, 0, NOW, NOW + 600 * S, NULL },
        { true, true, false, NOW, NOW + 600 * S + 1, 0, 0, 0, 0, "not_in_ingestion_window" },
        { false, false, true, 0, 0, NOW - 401 * DAY, S, 0, 0, "not_in_ingestion_window" },
        /* absurd */
        { true, true, false, 0, NOW, 0, 0, 0, 0, "before 1990" },
        { true, true, false, NOW, NOW + 2 * DAY, 0, 0, 0, 0, "more than a day ahead" },
        { true, true, false, INT64_MIN, INT64_MAX, 0, 0, 0, 0, "before 1990" },
        { true, false, false, INT64_MAX, 0, 0, 0, 0, 0, "ahead" },
        { false, true, false, 0, INT64_MIN, 0, 0, 0, 0, "before 1990" },
    };
    const struct window_accept accept = { NOW, 400 * DAY, 600 * S };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ingest in = { .has_from = rows[i].has_from,
                             .has_until = rows[i].has_until,
                             .from_ms = rows[i].from,
                             .until_ms = rows[i].until };
        struct push p = { .has_time = rows[i].has_time,
                          .time_ns = rows[i].time * 1000000,
                          .duration_ns = MIN(rows[i].duration, INT64_MAX / 1000000) * 1000000 };
        struct window w = { -1, -1 };
        struct err e = { 0 };
        int rc = window_of(&in, &p, &accept, &w, &e);
        bool refused = rows[i].says != NULL;
        if (refused ? rc != ERR_INPUT || !strstr(e.text, rows[i].says) || w.start_ms != -1
                    : rc != 0 || w.start_ms != rows[i].start || w.end_ms != rows[i].end)
            fail_msg("row %zu: %d %s [%" PRId64 ", %" PRId64 ")", i, rc, e.text, w.start_ms - NOW,
                     w.end_ms - NOW);
    }
}

/* What can be done about it depends on the way in. */
static void test_advice(void **state)
{
    (void)state;
    static const struct {
        struct ingest in;
        bool has_time;
        const char *says, *not ;
    } rows[] = {
        { { .raw.name = { "app", 3 }, .has_from = true, .from_ms = NOW - 500 * DAY },
          false,
          "reject_older_than of the tenant); from= and until= in the URL say when it was",
          "itself" },
        { { .raw.name = { "app", 3 } },
          true,
          "of the profile itself; from= and until= in the URL store it under another",
          "POST" },
        { { .has_from = false },
          true,
          "of the profile itself; by POST /ingest, from= and until=",
          "store it under" },
    };
    const struct window_accept accept = { NOW, 400 * DAY, 600 * S };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct push p = { .has_time = rows[i].has_time,
                                .time_ns = (NOW - 500 * DAY) * 1000000 };
        struct window w;
        struct err e;
        assert_int_equal(window_of(&rows[i].in, &p, &accept, &w, &e), ERR_INPUT);
        if (!strstr(e.text, rows[i].says) || strstr(e.text, rows[i].not ))
            fail_msg("row %zu: %s", i, e.text);
    }
}

static void test_leaves(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(16 * MIB);
    const int64_t base = slot_to_ms(1000); /* the start of a leaf */
    struct leaves l;
    struct window w;

    w = (struct window){ base + 7000, base + 7000 + 15000 }; /* 15 s: one point, its slot */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.len, 1);
    assert_int_equal(l.slots[0], 1001);
    assert_int_equal(l.spread, 3);
    w.end_ms = w.start_ms + 10400; /* agents are early and late */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.spread, 2);
    w.end_ms = w.start_ms + 15000;
    w.end_ms++; /* over 15 s: the leaves it covers, by what falls on them */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.len, 3);
    assert_int_equal(l.slots[0], 1001);
    assert_int_equal(l.slots[1], 1002);
    assert_int_equal(l.slots[2], 1004);
    assert_int_equal(l.weights[0], 3000);
    assert_int_equal(l.weights[1], 10000);
    assert_int_equal(l.weights[2], 2001);
    assert_int_equal(l.weight, 15001);
    w = (struct window){ base, base + 30000 };
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.len, 3);
    w = (struct window){ base, base }; /* a point */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.len, 1);
    assert_int_equal(l.spread, 1);
    w = (struct window){ base, base + 3600 * S }; /* an hour: all 360 */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_int_equal(l.len, 360);
    assert_int_equal(l.spread, LEAF_SLOTS);
    w = (struct window){ base + 1, base + 400 * DAY }; /* more than a year: points far apart */
    assert_true(leaves_of(&w, 360, a, &l));
    assert_true(l.len <= 360 && l.len > 300);
    for (size_t i = 1; i < l.len; i++)
        assert_true(l.slots[i] > l.slots[i - 1] && l.weights[i] > 0);
    assert_true(slot_to_ms(l.slots[l.len - 1]) < w.end_ms);
}

/* Everything split_series promises, over random series and windows. */
static void check_split(struct prng *p, const struct leaves *l, struct arena *a)
{
    uint32_t nodes[200];
    uint64_t values[200], sums[200] = { 0 };
    static const uint64_t units[] = { 1, 1, 10000000, 7, UINT64_C(1) << 61 };
    struct push_series s = { .unit = units[prng_below(p, ARRAY_LEN(units))],
                             .nodes = nodes,
                             .values = values,
                             .len = 1 + prng_below(p, 200) };
    double total_units = 0, most = 0;
    struct piece *pieces, *again;
    size_t n, m, odd = 0;

    for (size_t i = 0; i < s.len; i++) {
        uint64_t q = prng_below(p, 4) ? 1 + prng_below(p, 3) : 1 + prng_below(p, 100000);
        nodes[i] = (uint32_t)(i * 3 + 1);
        values[i] = MIN(q, INT64_MAX / s.unit) * s.unit;
        if (prng_below(p, 50) == 0 && s.unit > 1 && values[i] < INT64_MAX) {
            values[i]++; /* no multiple: divided in ones */
            odd++;
        }
        total_units += (double)(values[i] / (values[i] % s.unit ? 1 : s.unit));
    }
    assert_true(split_series(&s, l, a, &pieces, &n));
    assert_true(split_series(&s, l, a, &again, &m));
    assert_int_equal(n, m);
    for (size_t k = 0; k < n; k++) {
        const struct piece *x = &pieces[k];
        double units_here = 0;
        size_t at = 0;
        assert_true(x->len > 0 && (k == 0 || x->slot > pieces[k - 1].slot));
        assert_int_equal(x->slot, again[k].slot);
        assert_memory_equal(x->nodes, again[k].nodes, x->len * sizeof(*x->nodes));
        assert_memory_equal(x->values, again[k].values, x->len * sizeof(*x->values));
        for (size_t i = 0; i < x->len; i++) {
            while (nodes[at] != x->nodes[i]) /* ascending, and of the series */
                assert_true(++at < s.len);
            uint64_t unit = values[at] % s.unit ? 1 : s.unit;
            assert_true(x->values[i] > 0 && x->values[i] % unit == 0);
            sums[at] += x->values[i];
            units_here += (double)(x->values[i] / unit);
        }
        size_t leaf = 0;
        while (l->slots[leaf] != x->slot)
            leaf++;
        double share = total_units * l->weights[leaf] / (double)l->weight;
        most = MAX(most, units_here > share ? units_here - share : share - units_here);
    }
    for (size_t i = 0; i < s.len; i++)
        assert_true(sums[i] == values[i]); /* the sum is exact, stack by stack */
    /* Debts even out: a leaf is never far from its share. */
    if (odd == 0 && most > 3.0)
        fail_msg("a leaf is %f units off", most);
}

static void test_split(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(256 * MIB);
    uint64_t seed = (uint64_t)time(NULL);
    struct prng p;

    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < 400; i++) {
        struct leaves l;
        struct window w;
        arena_reset(a);
        w.start_ms = slot_to_ms(1000) + (int64_t)prng_below(&p, 20000);
        w.end_ms = w.start_ms + 15001 + (int64_t)prng_below(&p, i % 10 ? 120000 : 4000000000);
        assert_true(leaves_of(&w, 360, a, &l));
        check_split(&p, &l, a);
    }
}

static void test_split_special(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(MIB);
    const uint32_t nodes[] = { 1, 2, 3 };
    const uint64_t values[] = { INT64_MAX, 1, 5 };
    struct push_series s = { .unit = 1, .nodes = nodes, .values = values, .len = 3 };
    struct window w = { slot_to_ms(1000), slot_to_ms(1000) + 60000 };
    struct leaves l;
    struct piece *pieces;
    size_t n;

    assert_true(leaves_of(&w, 360, a, &l));
    s.gauge = true; /* never split */
    assert_true(split_series(&s, &l, a, &pieces, &n));
    assert_int_equal(n, 1);
    assert_int_equal(pieces[0].slot, 1000);
    assert_ptr_equal(pieces[0].nodes, nodes);
    s.gauge = false; /* the largest value there is keeps its sum */
    assert_true(split_series(&s, &l, a, &pieces, &n));
    assert_int_equal(n, 6);
    uint64_t sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += pieces[k].values[0];
    assert_true(sum == INT64_MAX);

    /* 20,000 stacks of one sample each over an hour: no leaf gets a spike. */
    CLEANUP(arena_freep) struct arena *big = arena_new(64 * MIB);
    uint32_t *many = ARENA_ARRAY(big, uint32_t, 20000);
    uint64_t *ones = ARENA_ARRAY(big, uint64_t, 20000);
    for (uint32_t i = 0; i < 20000; i++) {
        many[i] = i + 1;
        ones[i] = 1;
    }
    struct push_series flat = { .unit = 1, .nodes = many, .values = ones, .len = 20000 };
    w.end_ms = w.start_ms + 3600000;
    assert_true(leaves_of(&w, 360, big, &l));
    assert_true(split_series(&flat, &l, big, &pieces, &n));
    assert_int_equal(n, 360);
    for (size_t k = 0; k < n; k++)
        assert_in_range(pieces[k].len, 55, 56);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_window_table),  cmocka_unit_test(test_advice),
        cmocka_unit_test(test_leaves),        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_special),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
