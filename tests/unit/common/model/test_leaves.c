/* SPDX-License-Identifier: Apache-2.0
 *
 * Leaves of points beside sets of the most obvious kind: an array of flags for each point.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "common/base/prng.h"
#include "common/model/leaves.h"

#define POINTS 12
#define LEAVES 60
#define PARTS  4

struct part { /* owns what a leaf_part borrows */
    bool has[POINTS][LEAVES];
    uint32_t point[POINTS], count[POINTS];
    size_t len;
    struct leaf_items items;
};

static void encode(struct part *p, struct prng *r)
{
    struct leaf_writer w = { .to = &p->items };

    for (uint32_t k = 0; k < POINTS; k++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < LEAVES; i++) {
            if (!p->has[k][i])
                continue;
            leaf_put(&w, i, 1);
            n++;
        }
        if (!n && prng_below(r, 2))
            continue; /* a point without leaves may stand there or not */
        p->point[p->len] = k;
        p->count[p->len++] = n;
    }
    leaf_put_end(&w);
}

static struct leaf_part view(const struct part *p)
{
    return (struct leaf_part){ p->point, p->count, p->len, p->items.ptr, p->items.len };
}

/* Points overlap, go back, repeat or run on, by chance. */
static void fill(struct part *p, struct prng *r)
{
    uint32_t step = 1 + (uint32_t)prng_below(r, 5), wide = 1 + (uint32_t)prng_below(r, 30);

    *p = (struct part){ 0 };
    for (uint32_t k = 0; k < POINTS; k++) {
        uint32_t from = (uint32_t)prng_below(r, 3) ? 4 * k : (uint32_t)prng_below(r, LEAVES);
        if (!prng_below(r, 4))
            continue;
        for (uint32_t i = from; i < LEAVES && i < from + wide; i += step)
            p->has[k][i] = prng_below(r, 8) > 0;
    }
    encode(p, r);
}

static void test_against_flags(void **state)
{
    uint64_t seed = (uint64_t)time(NULL);
    struct prng r;
    struct err e = { 0 };

    (void)state;
    printf("seed %" PRIu64 "\n", seed);
    prng_init(&r, seed);
    for (int round = 0; round < 3000; round++) {
        static struct part parts[PARTS];
        struct leaf_part views[PARTS];
        size_t n = 1 + (size_t)prng_below(&r, PARTS);
        uint32_t count[POINTS], again[POINTS];
        struct leaf_items out = { 0 };

        for (size_t i = 0; i < n; i++) {
            fill(&parts[i], &r);
            views[i] = view(&parts[i]);
            assert_int_equal(leaf_part_check(&views[i], &e), 0);
        }
        leaf_unite(views, n, NULL, POINTS, count, &out);
        for (size_t k = 0; k < POINTS; k++) {
            uint32_t want = 0;
            for (size_t l = 0; l < LEAVES; l++) {
                bool any = false;
                for (size_t i = 0; i < n; i++)
                    any |= parts[i].has[k][l];
                want += any;
            }
            assert_int_equal(count[k], want);
        }
        /* What was united is as good as its parts, and adds nothing to them. */
        struct leaf_part sum = { NULL, count, POINTS, out.ptr, out.len };
        assert_int_equal(leaf_part_check(&sum, &e), 0);
        struct leaf_part both[] = { sum, views[0] };
        leaf_unite(both, 2, NULL, POINTS, again, NULL);
        assert_memory_equal(again, count, sizeof(count));
        vec_free(&out);
        for (size_t i = 0; i < n; i++)
            vec_free(&parts[i].items);
    }
}

static void test_some_points_only(void **state)
{
    struct prng r;
    struct part p;
    const uint32_t point[] = { 3, 4, 9 };
    uint32_t count[3];

    (void)state;
    prng_init(&r, 7);
    for (int round = 0; round < 200; round++) {
        fill(&p, &r);
        struct leaf_part v = view(&p);
        leaf_unite(&v, 1, point, 3, count, NULL);
        for (size_t i = 0; i < 3; i++) {
            uint32_t want = 0;
            for (size_t l = 0; l < LEAVES; l++)
                want += p.has[point[i]][l];
            assert_int_equal(count[i], want);
        }
        vec_free(&p.items);
    }
}

/* A year of pushes each minute is one item and the first. */
static void test_what_repeats_is_short(void **state)
{
    struct leaf_items items = { 0 };
    struct leaf_writer w = { .to = &items };
    const uint32_t count[] = { 525600 };
    struct err e = { 0 };

    (void)state;
    for (uint32_t i = 0; i < count[0]; i++)
        leaf_put(&w, 7000000 + 6 * i, 1);
    leaf_put_end(&w);
    const uint32_t want[] = { 7000000, 1, 1, 6, 1, 525599 };
    assert_int_equal(items.len, ARRAY_LEN(want));
    assert_memory_equal(items.ptr, want, sizeof(want));
    struct leaf_part p = { NULL, count, 1, items.ptr, items.len };
    assert_int_equal(leaf_part_check(&p, &e), 0);
    vec_free(&items);
}

static void test_counts_alone(void **state)
{
    const uint32_t a[] = { 2, 1 }, b[] = { 1, 5 }, items[] = { 10, 2, 1, 5, 1, 1 };
    struct leaf_part parts[] = { { NULL, a, 2, items, 6 }, { NULL, b, 2, NULL, 0 } };
    struct leaf_items out = { 0 };
    uint32_t count[2];

    (void)state;
    leaf_unite(parts, 2, NULL, 2, count, &out);
    assert_int_equal(count[0], 2);
    assert_int_equal(count[1], 5);
    assert_int_equal(out.len, 0);
    vec_free(&out);
}

static void test_refused(void **state)
{
    static const struct {
        uint32_t count[3], items[9];
        size_t len;
        int code;
    } rows[] = {
        { { 2, 0, 1 }, { 5, 2, 1, 1, 1, 1 }, 6, 0 },
        { { 2, 0, 1 }, { 5, 2, 1, 0, 1, 1 }, 6, 0 },              /* the same in the next point */
        { { 2, 0, 1 }, { 5, 2, 1, UINT32_MAX - 3, 1, 1 }, 6, 0 }, /* back */
        { { 1, 1, 1 }, { 0, 1, 3 }, 3, 0 },                       /* leaf 0 in each */
        { { 2, 1, 0 }, { LEAF_NUMBER_MAX - 1, 2, 1, 0, 1, 1 }, 6, 0 },
        { { 2, 0, 1 }, { 5, 2, 1, 1, 1 }, 5, ERR_CORRUPT },    /* cut off */
        { { 2, 0, 1 }, { 5, 2, 1 }, 3, ERR_CORRUPT },          /* too few */
        { { 2, 0, 1 }, { 5, 4, 1 }, 3, ERR_CORRUPT },          /* too many */
        { { 2, 0, 1 }, { 5, 1, 1, 0, 2, 1 }, 6, ERR_CORRUPT }, /* twice in a point */
        { { 2, 0, 1 }, { 5, 1, 1, UINT32_MAX, 2, 1 }, 6, ERR_CORRUPT },
        { { 1, 1, 1 }, { UINT32_MAX, 3, 1 }, 3, ERR_CORRUPT }, /* before time */
        { { 1, 1, 1 }, { 5, 1, 1, UINT32_MAX - 6, 2, 1 }, 6, ERR_CORRUPT },
        { { 2, 0, 1 }, { LEAF_NUMBER_MAX - 1, 3, 1 }, 3, ERR_CORRUPT }, /* behind it */
        { { 3, 0, 0 }, { LEAF_NUMBER_MAX / 2, 1, 3 }, 3, ERR_CORRUPT },
        { { 2, 0, 1 }, { 5, 0, 1, 1, 3, 1 }, 6, ERR_CORRUPT }, /* nothing */
        { { 2, 0, 1 }, { 5, 3, 0 }, 3, ERR_CORRUPT },
        { { UINT32_MAX, 1, 1 }, { 1, UINT32_MAX, 1, 1, 2, 1 }, 6, ERR_CORRUPT },
        { { 2, 0, 1 }, { 5, UINT32_MAX, UINT32_MAX }, 3, ERR_CORRUPT },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct leaf_part p = { NULL, rows[i].count, 3, rows[i].items, rows[i].len };
        struct err e = { 0 };

        if (leaf_part_check(&p, &e) != rows[i].code)
            fail_msg("row %zu: %s", i, e.text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_flags),
        cmocka_unit_test(test_some_points_only),
        cmocka_unit_test(test_what_repeats_is_short),
        cmocka_unit_test(test_counts_alone),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
