/* SPDX-License-Identifier: Apache-2.0
 *
 * Which stored points a timeline reads: for random grids, floors, marks and gaps every slot is read
 * exactly once or lies in a node that a gap takes, all that is read is exact, and no point reaches
 * over the edge of a point of the grid.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/query/tl_cover.h"

#define BEGIN (LEVELS[7].node * 30)
#define SPAN  (DAY_SLOTS * 20)

static struct prng rnd;

static int setup(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    return 0;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)prng_below(&rnd, n);
}

/* ---- small grids, by hand ---- */

static void test_grid(void **state)
{
    static const struct floors all = { 0 };
    uint32_t a = BEGIN;
    struct tl_grid g;

    (void)state;
    /* [a, a + 12) in points of six slots, as the querier asks: the origin is the last slot. */
    tl_grid_init(&g, slot_to_ms(a + 5), 6 * SLOT_MS, 2);
    tl_grid_floors(&g, &all);
    tl_grid_bounds(&g);
    assert_int_equal(g.from, a);
    assert_int_equal(g.to, a + 12);
    assert_int_equal(tl_grid_point(&g, a), 0);
    assert_int_equal(tl_grid_point(&g, a + 5), 0);
    assert_int_equal(tl_grid_point(&g, a + 6), 1);
    assert_int_equal(tl_grid_edge(&g, a + 2), a + 6);
    assert_int_equal(tl_grid_edge(&g, a + 6), a + 12);
    /* Hours alone are kept: the edge at a + 6 stands behind its hour, the ends outside. */
    struct floors hours = { .at = { UINT32_MAX, UINT32_MAX, UINT32_MAX, 0, 0, 0, 0, 0 } };
    tl_grid_init(&g, slot_to_ms(a + 1005), 1000 * SLOT_MS, 2); /* [a + 6, a + 2006) */
    tl_grid_floors(&g, &hours);
    tl_grid_bounds(&g);
    assert_int_equal(g.from, a);
    assert_int_equal(g.to, a + 2160);
    assert_int_equal(tl_grid_edge(&g, a), a + 1440);
    assert_int_equal(tl_grid_point(&g, a + 1439), 0);
    assert_int_equal(tl_grid_point(&g, a + 1440), 1);
    /* Nothing is kept there. */
    struct floors gone = { .at = { UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX,
                                   UINT32_MAX, UINT32_MAX, a + LEVELS[7].node } };
    tl_grid_init(&g, slot_to_ms(a + 5), 6 * SLOT_MS, 2);
    tl_grid_floors(&g, &gone);
    tl_grid_bounds(&g);
    assert_int_equal(g.from, g.to);
}

/* ---- random ones ---- */

static struct floors random_floors(void)
{
    struct floors f = { 0 };
    uint32_t at = BEGIN + SPAN + 100;

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        at -= MIN(at - BEGIN + 1000, below(SPAN / 3));
        f.at[l] = prng_chance(&rnd, 0.2) ? 0 : at;
        at = MIN(at, f.at[l]);
    }
    floors_align(&f);
    if (prng_chance(&rnd, 0.4))
        floors_set_end(&f, BEGIN + below(SPAN));
    return f;
}

static struct tl_grid random_grid(const struct floors *f)
{
    static const int64_t steps[] = {
        5000, 10000, 15000, 60000, 600000, 3600000, 86400000, 1, 7001
    };
    int64_t step = steps[below(ARRAY_LEN(steps))];
    uint32_t from = BEGIN + below(SPAN - 1000);
    struct floors other = random_floors();
    struct tl_grid g;

    if (prng_chance(&rnd, 0.3))
        step = 1 + (int64_t)prng_below(&rnd, 200000000);
    int64_t span = (int64_t)(BEGIN + SPAN - from) * SLOT_MS / step;
    uint32_t points = 1 + below((uint32_t)MIN(span + 1, 200));
    int64_t origin = slot_to_ms(from) + (prng_chance(&rnd, 0.5) ? step - 1 : below(5000));
    tl_grid_init(&g, origin, step, points);
    tl_grid_floors(&g, f);
    if (prng_chance(&rnd, 0.3))
        tl_grid_floors(&g, &other);
    tl_grid_bounds(&g);
    return g;
}

static void random_dirty(struct dirty_set *d, uint32_t from, uint32_t to)
{
    double p = prng_unit(&rnd) * prng_unit(&rnd);

    for (uint32_t l = 2; l < KEY_LEVELS; l++)
        for (uint32_t t = node_of(l, from); t < to; t += LEVELS[l].node)
            if (prng_chance(&rnd, p))
                vec_push(&d->at[l], t);
}

static size_t random_gaps(struct cover_gap *gaps, size_t max, uint32_t from, uint32_t to)
{
    size_t n = prng_chance(&rnd, 0.5) ? 0 : below((uint32_t)max + 1);
    uint32_t at = from > 100 ? from - below(100) : 0;

    for (size_t i = 0; i < n; i++) {
        gaps[i].from = at + 1 + below(MAX(to - from, 2) / 4 + 1);
        gaps[i].to = gaps[i].from + 1 + below(prng_chance(&rnd, 0.5) ? 20 : 2000);
        at = gaps[i].to;
    }
    return n;
}

static bool in_gap_node(const struct tl_cover_in *in, uint32_t t)
{
    uint32_t base = floors_base(in->floors, in->group, t), node = node_of(base, t);

    for (size_t i = 0; i < in->gaps_len; i++)
        if (in->gaps[i].to > node && in->gaps[i].from < node + LEVELS[base].node)
            return true;
    return false;
}

static bool exact(const struct tl_cover_in *in, uint32_t level, uint32_t t)
{
    uint32_t base = floors_base(in->floors, true, t);

    if (level < base)
        return false;
    if (level == base || (level == 1 && in->group))
        return true;
    return !dirty_has(in->dirty, MAX(level, 2), node_of(MAX(level, 2), t));
}

static void check(const struct tl_cover_in *in, const struct tl_cover *c)
{
    uint8_t *seen = xcalloc(SPAN * 2 + LEVELS[7].node * 4, 1);
    uint32_t zero = BEGIN - LEVELS[7].node * 2;
    uint32_t lowest = floors_lowest(in->floors);

    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        vec_for (i, &c->at[l]) {
            const struct cover_run *r = &c->at[l].ptr[i];
            uint32_t width = LEVELS[l].tl_point;
            if (r->from >= r->to || r->from % width || (i && r[-1].to >= r->from))
                fail_msg("run %u..%u of level %u", r->from, r->to, l);
            for (uint32_t t = r->from; t < r->to; t += width) {
                uint32_t k = tl_grid_point(in->grid, t);
                if (!exact(in, l, t) || tl_grid_point(in->grid, t + width - 1) != k)
                    fail_msg("level %u at %u", l, t);
                for (uint32_t s = t; s < t + width; s++)
                    seen[s - zero]++;
            }
        }
    for (uint32_t t = in->from; t < in->to; t++) {
        uint8_t want = t >= lowest && !in_gap_node(in, t);
        if (seen[t - zero] != want)
            fail_msg("slot %u is read %u times, not %u", t, seen[t - zero], want);
        seen[t - zero] = 0;
    }
    for (uint32_t t = 0; t < SPAN * 2 + LEVELS[7].node * 4; t++)
        if (seen[t])
            fail_msg("slot %u is outside", t + zero);
    xfree(seen);
}

static void test_random(void **state)
{
    struct tl_cover cover = { 0 };

    (void)state;
    for (int round = 0; round < 400; round++) {
        struct floors f = random_floors();
        struct tl_grid g = random_grid(&f);
        struct dirty_set dirty = { 0 };
        struct cover_gap gaps[8];
        if (g.from >= g.to || g.to > BEGIN + 2 * SPAN)
            continue;
        random_dirty(&dirty, g.from, g.to);
        struct tl_cover_in in = { .grid = &g,
                                  .from = g.from,
                                  .to = g.to,
                                  .group = prng_chance(&rnd, 0.5),
                                  .floors = &f,
                                  .dirty = &dirty,
                                  .gaps = gaps,
                                  .gaps_len = random_gaps(gaps, ARRAY_LEN(gaps), g.from, g.to) };
        tl_cover_make(&in, &cover);
        check(&in, &cover);
        /* Edges: ascending, and a point is what lies between two of them. */
        for (uint32_t t = g.from, k = 0; t < g.to; k++) {
            uint32_t edge = tl_grid_edge(&g, t);
            assert_true(edge > t);
            assert_int_equal(tl_grid_point(&g, t), tl_grid_point(&g, edge - 1));
            if (edge < g.to)
                assert_true(tl_grid_point(&g, edge) > tl_grid_point(&g, t));
            t = edge;
        }
        dirty_deinit(&dirty);
    }
    tl_cover_deinit(&cover);
}

/* A year by days, all clean: one run. */
static void test_year(void **state)
{
    static const struct floors all = { 0 };
    uint32_t days = 365, a = BEGIN;
    struct dirty_set dirty = { 0 };
    struct tl_cover c = { 0 };
    struct tl_grid g;

    (void)state;
    tl_grid_init(&g, slot_to_ms(a + DAY_SLOTS) - 1, DAY_SLOTS * (int64_t)SLOT_MS, days);
    tl_grid_floors(&g, &all);
    tl_grid_bounds(&g);
    struct tl_cover_in in = {
        .grid = &g, .from = g.from, .to = g.to, .floors = &all, .dirty = &dirty
    };
    tl_cover_make(&in, &c);
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        assert_int_equal(c.at[l].len, l == 5);
    assert_int_equal(c.at[5].ptr[0].from, a);
    assert_int_equal(c.at[5].ptr[0].to, a + days * DAY_SLOTS);
    tl_cover_deinit(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_grid, setup),
        cmocka_unit_test_setup(test_random, setup),
        cmocka_unit_test_setup(test_year, setup),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
