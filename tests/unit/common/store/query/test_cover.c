/* SPDX-License-Identifier: Apache-2.0
 *
 * Covers of random ranges over random floors, marks, gaps and `since`, against the rules written
 * out slot by slot. SEED=n repeats one run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/query/cover.h"

#define HOUR  720u
#define YEAR  (365u * DAY_SLOTS)
#define RANGE (500u * DAY_SLOTS)
#define RUNS  4000

struct world {
    struct prng p;
    struct floors floors;
    struct dirty_set dirty;
    VEC(struct cover_gap) gaps;
    struct cover_in in;
};

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)prng_below(&w->p, n);
}

static int by_slot(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

/* A change at a slot, as a seal marks it: all levels above the base of groups. */
static void mark(struct world *w, uint32_t t)
{
    for (uint32_t l = MAX(floors_base(&w->floors, true, t) + 1, DIRTY_FIRST); l < KEY_LEVELS; l++)
        vec_push(&w->dirty.at[l], node_of(l, t));
}

static void sort_marks(struct world *w)
{
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        size_t n = 0;
        uint32_t *at = w->dirty.at[l].ptr;
        if (w->dirty.at[l].len)
            qsort(at, w->dirty.at[l].len, sizeof(*at), by_slot);
        for (size_t i = 0; i < w->dirty.at[l].len; i++)
            if (!n || at[n - 1] != at[i])
                at[n++] = at[i];
        w->dirty.at[l].len = n;
    }
}

static void make_world(struct world *w, uint64_t seed)
{
    uint32_t now = RANGE + below(w, 1000), at = now;

    prng_init(&w->p, seed);
    w->floors = (struct floors){ 0 };
    for (uint32_t l = 0; l < KEY_LEVELS && prng_chance(&w->p, 0.7); l++) {
        at -= below(w, MIN(at, prng_chance(&w->p, 0.3) ? RANGE : 4 * LEVELS[l].node * 10) + 1);
        w->floors.at[l] = at;
    }
    floors_align(&w->floors);
    if (prng_chance(&w->p, 0.3))
        floors_set_end(&w->floors, below(w, now));
    for (uint32_t i = below(w, 30); i > 0; i--)
        mark(w, below(w, prng_chance(&w->p, 0.5) ? now : 3 * DAY_SLOTS));
    sort_marks(w);
    for (uint32_t t = 0, n = below(w, 4); n > 0; n--) {
        struct cover_gap g = { .from = t + below(w, RANGE / 3) };
        g.to = g.from + 1 + below(w, prng_chance(&w->p, 0.5) ? 400 : RANGE / 4);
        vec_push(&w->gaps, g);
        t = g.to;
    }
    uint32_t len = 1 + below(w, prng_chance(&w->p, 0.5) ? 3 * HOUR : RANGE);
    w->in = (struct cover_in){
        .from = below(w, now),
        .group = prng_chance(&w->p, 0.5),
        .since = prng_chance(&w->p, 0.5) ? 0 : below(w, now),
        .floors = &w->floors,
        .dirty = &w->dirty,
        .gaps = w->gaps.ptr,
        .gaps_len = w->gaps.len,
    };
    w->in.to = w->in.from + len;
}

static void free_world(struct world *w)
{
    dirty_deinit(&w->dirty);
    vec_free(&w->gaps);
}

static bool touched(const struct world *w, uint32_t t, uint32_t end)
{
    vec_for (i, &w->gaps) {
        if (w->gaps.ptr[i].from < end && t < w->gaps.ptr[i].to)
            return true;
    }
    return false;
}

static bool marked(const struct world *w, uint32_t level, uint32_t t)
{
    vec_for (i, &w->dirty.at[level]) {
        if (w->dirty.at[level].ptr[i] == t)
            return true;
    }
    return false;
}

/* May a cover with these bounds use this node? By the words of cover.h. */
static bool usable(const struct world *w, const struct cover *c, uint32_t level, uint32_t t)
{
    uint32_t end = t + LEVELS[level].node, base = floors_base(&w->floors, w->in.group, t);

    if (t % LEVELS[level].node || t < c->from || end > c->to || level < base ||
        touched(w, t, end) || (!w->in.group && level == 1))
        return false;
    return level == base || !marked(w, level, t);
}

static void check_bounds(const struct world *w, const struct cover *c)
{
    uint32_t from = MAX(w->in.from, floors_lowest(&w->floors));

    if (w->in.group && w->in.since > w->floors.at[7]) {
        uint32_t since = w->in.since;
        while (since % LEVELS[floors_base(&w->floors, false, w->in.since)].node)
            since++;
        from = MAX(from, since);
    }
    if (from >= w->in.to) {
        assert_int_equal(c->from, c->to);
        assert_int_equal(c->runs.len, 0);
        return;
    }
    uint32_t base = floors_base(&w->floors, w->in.group, from);
    assert_true(c->from <= from && from - c->from < LEVELS[base].node);
    assert_int_equal(c->from % LEVELS[base].node, 0);
    base = floors_base(&w->floors, w->in.group, w->in.to - 1);
    assert_true(c->to >= w->in.to && c->to - w->in.to < LEVELS[base].node);
    assert_int_equal(c->to % LEVELS[base].node, 0);
}

/* Between runs nothing but base nodes that a gap touches. */
static void check_hole(const struct world *w, uint32_t from, uint32_t to)
{
    for (uint32_t t = from; t < to;) {
        uint32_t node = LEVELS[floors_base(&w->floors, w->in.group, t)].node;
        assert_int_equal(t % node, 0);
        assert_true(touched(w, t, t + node));
        t += node;
        assert_true(t <= to);
    }
}

static void check_cover(const struct world *w, const struct cover *c)
{
    uint32_t at = c->from;

    check_bounds(w, c);
    vec_for (i, &c->runs) {
        const struct cover_run *r = &c->runs.ptr[i];
        assert_true(r->from >= at && r->from < r->to);
        check_hole(w, at, r->from);
        if (i && r[-1].to == r->from)
            assert_int_not_equal(r[-1].level, r->level);
        for (uint32_t t = r->from; t < r->to; t += LEVELS[r->level].node) {
            assert_true(usable(w, c, r->level, t));
            for (uint32_t l = r->level + 1; l < KEY_LEVELS; l++)
                assert_false(usable(w, c, l, node_of(l, t)));
        }
        at = r->to;
    }
    check_hole(w, at, c->to);
}

static void run_seed(uint64_t seed)
{
    struct world w = { 0 };
    struct cover c = { 0 };

    prng_init(&w.p, seed);
    make_world(&w, seed);
    cover_make(&w.in, &c);
    check_cover(&w, &c);
    cover_deinit(&c);
    free_world(&w);
}

static void test_random(void **state)
{
    const char *one = getenv("SEED");
    uint64_t base = (uint64_t)time(NULL) * 1000;

    (void)state;
    if (one && *one) {
        run_seed(strtoull(one, NULL, 10));
        return;
    }
    printf("SEED=%" PRIu64 " and the %d behind it\n", base, RUNS / 2);
    fflush(stdout);
    for (uint64_t i = 0; i < RUNS; i++)
        run_seed(i < RUNS / 2 ? i : base + i - RUNS / 2);
}

static size_t nodes(const struct cover *c)
{
    size_t n = 0;

    vec_for (i, &c->runs) {
        n += (c->runs.ptr[i].to - c->runs.ptr[i].from) / LEVELS[c->runs.ptr[i].level].node;
    }
    return n;
}

static void test_bound(void **state)
{
    struct floors floors = { 0 };
    struct dirty_set dirty = { 0 };
    struct cover c = { 0 };
    struct prng p;
    size_t worst[2] = { 0 };

    (void)state;
    prng_init(&p, 1);
    for (int i = 0; i < 20000; i++) {
        struct cover_in in = { .group = i % 2, .floors = &floors, .dirty = &dirty };
        in.from = (uint32_t)prng_below(&p, 5 * YEAR);
        in.to = in.from + YEAR - (uint32_t)prng_below(&p, YEAR / 50);
        if (i >= 19998) { /* the worst there is */
            in.from = 64 * DAY_SLOTS - 64 * DAY_SLOTS + LEAF_SLOTS;
            in.to = in.from + YEAR - 2 * LEAF_SLOTS;
            in.to -= (in.to + LEAF_SLOTS) % (64 * DAY_SLOTS);
        }
        cover_make(&in, &c);
        worst[i % 2] = MAX(worst[i % 2], nodes(&c));
    }
    cover_deinit(&c);
    printf("nodes of a year at most: members %zu, groups %zu\n", worst[0], worst[1]);
    assert_true(worst[1] <= 85);
    assert_true(worst[0] <= 85 + 2 * 59);
}

static void test_floors(void **state)
{
    struct floors f = { .at = { 1000, 900, 700, 5000 } };
    static const uint32_t want[KEY_LEVELS] = { 960, 840, 0, 0, 0, 0, 0, 0 };

    (void)state;
    floors_align(&f);
    assert_memory_equal(f.at, want, sizeof(want));
    assert_int_equal(floors_base(&f, false, 960), 0);
    assert_int_equal(floors_base(&f, false, 959), 2);
    assert_int_equal(floors_base(&f, true, 959), 1);
    assert_int_equal(floors_base(&f, true, 839), 2);
    f.at[0] = f.at[1] = f.at[2] = f.at[3] = f.at[4] = f.at[5] = 10 * 8 * DAY_SLOTS;
    f.at[6] = f.at[7] = 64 * DAY_SLOTS;
    assert_int_equal(floors_base(&f, false, 9 * 8 * DAY_SLOTS), 6);
    assert_int_equal(floors_base(&f, true, 63 * DAY_SLOTS), FLOORS_GONE);
    assert_int_equal(cover_split(&f, 9 * 8 * DAY_SLOTS + 1), 10 * 8 * DAY_SLOTS);
    assert_int_equal(cover_split(&f, 3), 64 * DAY_SLOTS);
    assert_int_equal(cover_split(&f, 80 * DAY_SLOTS + 1), 80 * DAY_SLOTS + LEAF_SLOTS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floors),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
