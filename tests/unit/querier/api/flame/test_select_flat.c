/* SPDX-License-Identifier: Apache-2.0
 *
 * Points of seconds below a call site, from sums by leaf: beside pushes that are spread one by one;
 * steady load is flat at every step, and no unit is lost.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/base.h"
#include "common/base/prng.h"
#include "querier/api/flame/select_flat.h"

#define T0     (SLOT_EPOCH_MS + INT64_C(150000000) * 1000)
#define LEAVES 60
#define SLOTS  (LEAVES * LEAF_SLOTS)
#define POINTS 700
#define SEEDS  300

struct world {
    uint64_t starts[SLOTS], site[SLOTS]; /* whole profiles, and below the site, by slot of start */
    uint32_t window;
    uint64_t value[POINTS], sixths[POINTS];
    double want[POINTS];
};

/* As the store spreads whole profiles: each slot rounded down, with the rest going to the next. */
static void spread(const struct world *w, uint64_t ret[SLOTS])
{
    uint64_t left = 0;

    for (size_t i = 0; i < SLOTS; i++) {
        for (uint32_t back = 0; back < w->window && back <= i; back++)
            left += w->starts[i - back] * (6 / w->window);
        ret[i] = left / 6;
        left %= 6;
    }
}

static bool point_of(const struct plan_grid *g, int64_t ms, size_t *ret)
{
    for (size_t k = 0; k < g->points; k++) {
        int64_t to = g->origin_ms + (int64_t)k * g->step_ms;
        *ret = k;
        if (ms > to - g->step_ms && ms <= to)
            return true;
    }
    return false;
}

static void make_points(struct world *w, const struct plan_grid *g)
{
    struct flat f = { .grid = g, .value = w->value, .sixths = w->sixths, .window = w->window };
    size_t k;

    memset(w->value, 0, sizeof(w->value));
    memset(w->sixths, 0, sizeof(w->sixths));
    memset(w->want, 0, sizeof(w->want));
    for (size_t i = 0; i < SLOTS; i += LEAF_SLOTS)
        flat_add(&f, T0 + (int64_t)i * SLOT_MS, w->site[i] + w->site[i + 1], &w->starts[i]);
    flat_end(&f);
    for (size_t i = 0; i < SLOTS; i++)
        for (uint32_t on = 0; on < w->window; on++)
            if (point_of(g, T0 + (int64_t)(i + on) * SLOT_MS, &k))
                w->want[k] += (double)w->site[i] / w->window;
}

static void test_beside_pushes(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct world *w = calloc(1, sizeof(*w));
        struct prng p;
        prng_init(&p, seed);
        w->window = 1 + (uint32_t)prng_below(&p, FLAT_WINDOW_MAX);
        uint64_t total = 0, share = 1 + prng_below(&p, 9), sum = 0;
        for (size_t i = 0; i < SLOTS; i++) { /* the same share of both slots, or one push a leaf */
            if (prng_chance(&p, 0.4))
                continue;
            w->starts[i] = 10 * (1 + prng_below(&p, 1000000));
            w->site[i] = w->starts[i] / 10 * share;
            total += w->site[i];
        }
        int64_t step = 1000 * (1 + (int64_t)prng_below(&p, 59)), from = T0 - 30000;
        struct plan_grid g = { from + (int64_t)prng_below(&p, 9999), step,
                               (uint32_t)((SLOTS * SLOT_MS + 250000) / step) };
        g.points = MIN(g.points, POINTS);
        make_points(w, &g);
        for (size_t k = 0; k < g.points; k++) {
            if ((double)w->value[k] > w->want[k] + 2 || (double)w->value[k] < w->want[k] - 2)
                fail_msg("seed %d, step %d, window %u, point %zu: %.0f, want %f", (int)seed,
                         (int)step, w->window, k, (double)w->value[k], w->want[k]);
            sum += w->value[k];
        }
        if (g.points < POINTS)
            assert_int_equal(sum, total);
        free(w);
    }
}

static void test_steady_load_is_flat(void **state)
{
    static const int64_t steps[] = { 5, 10, 15, 20, 25, 30, 45, 55 };

    (void)state;
    for (uint32_t window = 2; window <= 3; window++)
        for (size_t s = 0; s < ARRAY_LEN(steps); s++)
            for (size_t phase = 0; phase < window; phase++) {
                struct world *w = calloc(1, sizeof(*w));
                w->window = window;
                for (size_t i = phase; i < SLOTS; i += window) {
                    w->starts[i] = window * 1000;
                    w->site[i] = window * 300;
                }
                struct plan_grid g = { T0 + 60000 + 3000, steps[s] * 1000,
                                       (uint32_t)(400 / steps[s]) };
                make_points(w, &g);
                for (size_t k = 0; k < g.points; k++)
                    assert_int_equal(w->value[k], 300 * steps[s] / 5);
                free(w);
            }
}

static void test_window(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        struct world w = { .window = 1 + (uint32_t)(seed % FLAT_WINDOW_MAX) };
        uint64_t got[SLOTS];
        struct prng p;
        prng_init(&p, seed);
        size_t one = 5 + (size_t)prng_below(&p, SLOTS - 10);
        for (size_t i = 0; i < SLOTS; i++)
            w.starts[i] = i == one || prng_chance(&p, 0.3) ? 20 + prng_below(&p, 1000) : 0;
        spread(&w, got);
        assert_int_equal(flat_window(w.starts, got, SLOTS), w.window);
    }
    uint64_t none[SLOTS] = { 0 };
    assert_int_equal(flat_window(none, none, SLOTS), 1);
}

static void test_leaves_of_a_grid(void **state)
{
    struct plan_grid g = { T0 + 12000, 15000, 4 }, leaves, slots;
    int64_t from, to;

    (void)state;
    assert_true(flat_leaves(&g, &leaves)); /* from T0 - 3000 + 1 ms, two slots before the first */
    assert_int_equal(flat_first_leaf(&leaves), T0 - 20000);
    assert_int_equal(leaves.points, 8); /* to T0 + 57 s */
    slots = flat_slots(&leaves);
    assert_int_equal(slots.origin_ms, T0 - 20000);
    assert_int_equal(slots.points, 16);
    flat_bounds(&g, &from, &to);
    assert_int_equal(from, T0);
    assert_int_equal(to, T0 + 60000);
    g.origin_ms = SLOT_EPOCH_MS + 1000;
    assert_false(flat_leaves(&g, &leaves));
}

static void test_beyond_the_largest_number(void **state)
{
    struct plan_grid g = { T0, 10000, 3 };
    uint64_t value[3] = { 0 }, sixths[3] = { 0 }, starts[] = { 1, 1 };
    struct flat f = { .grid = &g, .value = value, .sixths = sixths, .window = 1 };

    (void)state;
    for (int i = 0; i < 4; i++)
        flat_add_whole(&f, T0 + 10000, INT64_MAX);
    flat_add(&f, T0 + 20000, INT64_MAX, starts); /* its second slot is behind the grid */
    flat_add(&f, T0 + 90000, INT64_MAX, starts);
    flat_end(&f);
    assert_int_equal(value[0], 0);
    assert_int_equal(value[1], INT64_MAX);
    assert_true(value[2] >= INT64_MAX / 2 && value[2] <= INT64_MAX / 2 + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_beside_pushes),
        cmocka_unit_test(test_steady_load_is_flat),
        cmocka_unit_test(test_window),
        cmocka_unit_test(test_leaves_of_a_grid),
        cmocka_unit_test(test_beyond_the_largest_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
