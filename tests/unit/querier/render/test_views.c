/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of functions, focus, sandwich and comparison against maps of full stacks, on random trees.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/render/flame.h"
#include "querier/render/compare.h"
#include "querier/render/focus.h"
#include "tests/lib/roles/views_oracle.h"

static const uint64_t seed = 20261122;

/* A tree of one to three random replies, and the model of it. */
struct random_tree {
    struct gen_part parts[3];
    size_t len;
    struct calltree tree;
    struct gen_model model;
};

static void random_tree(struct random_tree *r, struct prng *p)
{
    struct gen_opts o = { .nodes_max = 1 + prng_below(p, 120),
                          .functions = 2 + prng_below(p, 12),
                          .frames_per_function = 1 + prng_below(p, 3),
                          .value_chance = 0.4,
                          .value_max = 1 + prng_below(p, 50),
                          .chain = prng_chance(p, 0.15),
                          .unsymbolized = prng_chance(p, 0.5) };
    struct err e;

    *r = (struct random_tree){ .len = 1 + prng_below(p, 3) };
    calltree_init(&r->tree, prng_u64(p));
    for (size_t i = 0; i < r->len; i++) {
        gen_part_make(&r->parts[i], p, &o);
        assert_int_equal(calltree_add(&r->tree, &r->parts[i].part, NULL, &e), 0);
        gen_model_add(&r->model, &r->parts[i]);
    }
}

static void random_tree_free(struct random_tree *r)
{
    calltree_deinit(&r->tree);
    gen_model_free(&r->model);
    for (size_t i = 0; i < r->len; i++)
        gen_part_free(&r->parts[i]);
}

/* ---- top --------------------------------------------------------------------------------------*/

static void test_top_equals_sets_of_names(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 300; round++) {
        struct random_tree r;
        struct oracle want = { 0 };
        struct top top;

        random_tree(&r, &p);
        oracle_top(&want, &r.model);
        top_init(&top, &r.tree);
        assert_int_equal(top.total, want.total);
        assert_int_equal(top.len, want.sums.len);
        for (size_t i = 0; i < top.len; i++) {
            const struct oracle_sum *s = oracle_find(&want, r.tree.names.ptr[top.rows[i].name]);
            assert_non_null(s);
            assert_int_equal(top.rows[i].self, s->self);
            assert_int_equal(top.rows[i].total, s->total);
        }
        for (int by = TOP_SELF; by <= TOP_NAME; by++)
            for (int reversed = 0; reversed < 2; reversed++) {
                top_order(&top, &r.tree, (enum top_sort)by, reversed);
                for (size_t i = 1; i < top.len; i++) {
                    const struct top_row *a = &top.rows[i - reversed],
                                         *b = &top.rows[i - !reversed];
                    if (by == TOP_NAME)
                        assert_true(str_cmp(r.tree.names.ptr[b->name], r.tree.names.ptr[a->name]) <
                                    0);
                    else
                        assert_true(by == TOP_SELF ? b->self >= a->self : b->total >= a->total);
                }
            }
        top_deinit(&top);
        oracle_free(&want);
        random_tree_free(&r);
    }
}

static void add_stack(struct calltree *t, const char *folded, uint64_t value)
{
    struct str rest = str_c(folded), part;
    bool more = true;
    uint32_t at = 0;

    while (more && str_next(&rest, ';', &more, &part))
        at = calltree_child(t, at, calltree_name(t, part));
    calltree_put(t, at, value);
}

static void test_top_by_hand(void **state)
{
    (void)state;
    struct calltree t;
    struct top top;

    calltree_init(&t, 1);
    add_stack(&t, "main;Fib;Fib;Fib", 5);
    add_stack(&t, "main;Fib;print;Fib", 2);
    add_stack(&t, "main;total", 1); /* the name of the root */
    add_stack(&t, "idle", 0);
    top_init(&top, &t);
    assert_int_equal(top.len, 4);
    const struct top_row *fib = top_find(&top, calltree_name_find(&t, STR("Fib")));
    assert_int_equal(fib->self, 7);
    assert_int_equal(fib->total, 7);
    assert_int_equal(top_find(&top, CALLTREE_TOTAL)->total, 1);
    assert_null(top_find(&top, calltree_name_find(&t, STR("idle"))));
    assert_int_equal(calltree_name_find(&t, STR("none")), MAP_U64_EMPTY);
    top_search(&top, &t, STR("fIB"));
    assert_int_equal(top.len, 1);
    assert_int_equal(top.functions, 4);
    top_search(&top, &t, STR("fibs"));
    assert_int_equal(top.len, 0);
    top_deinit(&top);
    calltree_deinit(&t);
}

/* ---- focus and sandwich -----------------------------------------------------------------------*/

static void check_focus(const struct random_tree *r, struct str name)
{
    struct calltree copy;
    struct oracle want = { 0 }, got = { 0 };
    CLEANUP(xfreep) uint32_t *map = XNEW_ARRAY(uint32_t, r->tree.parent.len);

    calltree_init(&copy, 7);
    calltree_graft(&copy, &r->tree, map);
    for (size_t i = 0; i < r->tree.parent.len; i++)
        calltree_put(&copy, map[i], r->tree.self.ptr[i]);
    focus_keep(&copy, calltree_name_find(&copy, name));
    oracle_focus(&want, &r->model, name);
    oracle_of_tree(&got, &copy);
    assert_int_equal(oracle_differ(&got, &want), 0);
    oracle_free(&got);
    oracle_free(&want);
    calltree_deinit(&copy);
}

static int descending(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Callers cut to `max`: kept nodes have their exact totals, which are the largest there are, and
 * what was cut is in the bars "other". */
static void check_cut(const struct random_tree *r, uint32_t name, const struct oracle *want,
                      size_t max)
{
    struct sandwich s;
    struct layout l;
    struct err e;
    uint64_t totals[8192], kept[8192];
    size_t n = 0, k = 0;

    assert_int_equal(sandwich_init(&s, &r->tree, name, max, NULL, &e), 0);
    assert_int_equal(calltree_total(&s.callers), want->total);
    vec_for (i, &want->sums)
        if (want->sums.ptr[i].text[0])
            totals[n++] = want->sums.ptr[i].total;
    qsort(totals, n, sizeof(*totals), descending);
    assert_true(s.cut == (n > max));
    layout_init(&l, &s.callers, 0);
    for (size_t i = 1; i < l.len; i++)
        if (!(l.name[i] == CALLTREE_OTHER && s.cut))
            kept[k++] = l.total[i];
    qsort(kept, k, sizeof(*kept), descending);
    bool real_other = false;
    vec_for (i, &want->sums)
        real_other |= strstr(want->sums.ptr[i].text, "other") != NULL;
    if (!real_other) {
        assert_int_equal(k, MIN(n, max));
        for (size_t i = 0; i < k; i++)
            assert_int_equal(kept[i], totals[i]);
    }
    layout_deinit(&l);
    sandwich_deinit(&s);
}

static void check_sandwich(const struct random_tree *r, struct prng *p, struct str name)
{
    struct oracle up = { 0 }, down = { 0 }, top = { 0 }, got_up = { 0 }, got_down = { 0 };
    uint32_t id = calltree_name_find(&r->tree, name);
    struct sandwich s;
    struct err e;

    oracle_callers(&up, &r->model, name);
    oracle_callees(&down, &r->model, name);
    oracle_top(&top, &r->model);
    const struct oracle_sum *sum = oracle_find(&top, name);
    assert_int_equal(sandwich_init(&s, &r->tree, id, 0, NULL, &e), 0);
    assert_false(s.cut);
    assert_int_equal(s.total, sum ? sum->total : 0);
    assert_int_equal(s.self, sum ? sum->self : 0);
    oracle_of_tree(&got_up, &s.callers);
    oracle_of_tree(&got_down, &s.callees);
    assert_int_equal(oracle_differ(&got_up, &up), 0);
    assert_int_equal(oracle_differ(&got_down, &down), 0);
    sandwich_deinit(&s);
    if (up.sums.len < 8192)
        check_cut(r, id, &up, 1 + prng_below(p, 20));
    oracle_free(&up);
    oracle_free(&down);
    oracle_free(&top);
    oracle_free(&got_up);
    oracle_free(&got_down);
}

static void test_focus_and_sandwich_equal_stacks(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed + 1);
    for (int round = 0; round < 200; round++) {
        struct random_tree r;

        random_tree(&r, &p);
        /* Names 0 and 1 may be functions, too: "total" is not in these trees, "other" is. */
        for (int k = 0; k < 3 && r.tree.names.len > 2; k++) {
            struct str name = r.tree.names.ptr[1 + prng_below(&p, r.tree.names.len - 1)];
            check_focus(&r, name);
            check_sandwich(&r, &p, name);
        }
        random_tree_free(&r);
    }
}

static void test_same_replies_in_any_order_give_the_same_callers(void **state)
{
    (void)state;
    struct calltree a, b;
    struct sandwich sa, sb;
    struct oracle oa = { 0 }, ob = { 0 };
    struct err e;
    static const char *const stacks[] = { "x;w;f", "y;w;f", "a;f", "b;f", "c;d;f", "f" };

    calltree_init(&a, 1);
    calltree_init(&b, 99);
    for (size_t i = 0; i < ARRAY_LEN(stacks); i++) {
        add_stack(&a, stacks[i], 5);
        add_stack(&b, stacks[ARRAY_LEN(stacks) - 1 - i], 5);
    }
    assert_int_equal(sandwich_init(&sa, &a, calltree_name_find(&a, STR("f")), 4, NULL, &e), 0);
    assert_int_equal(sandwich_init(&sb, &b, calltree_name_find(&b, STR("f")), 4, NULL, &e), 0);
    oracle_of_tree(&oa, &sa.callers);
    oracle_of_tree(&ob, &sb.callers);
    assert_int_equal(oracle_differ(&oa, &ob), 0);
    /* f 30, w 10, then of the 5s those near f by name: a, b. */
    assert_int_equal(oracle_find(&oa, STR("f\na"))->self, 5);
    assert_int_equal(oracle_find(&oa, STR("f\nb"))->self, 5);
    assert_int_equal(oracle_find(&oa, STR("f\nw\nother"))->self, 10);
    assert_int_equal(oracle_find(&oa, STR("f\nother"))->self, 5);
    assert_int_equal(oracle_find(&oa, STR("f"))->self, 5);
    oracle_free(&oa);
    oracle_free(&ob);
    sandwich_deinit(&sa);
    sandwich_deinit(&sb);
    calltree_deinit(&a);
    calltree_deinit(&b);
}

/* A trunk of n calls below which m leaves each call f: its callers are n * m nodes. */
static void test_callers_larger_than_the_tree_are_cut_as_they_are_made(void **state)
{
    (void)state;
    struct calltree t;
    struct sandwich s;
    struct err e;
    enum { TRUNK = 500, LEAVES = 3000 };
    char text[32];
    uint32_t at = 0, f;

    calltree_init(&t, 3);
    f = calltree_name(&t, STR("f"));
    for (int i = 0; i < TRUNK; i++)
        at = calltree_child(&t, at, calltree_name(&t, STR("g")));
    for (int i = 0; i < LEAVES; i++) {
        int n = snprintf(text, sizeof(text), "leaf%d", i);
        uint32_t leaf = calltree_child(&t, at, calltree_name(&t, str_n(strdup(text), (size_t)n)));
        calltree_put(&t, calltree_child(&t, leaf, f), 1);
    }
    assert_int_equal(sandwich_init(&s, &t, f, 100, NULL, &e), 0);
    assert_true(s.cut);
    assert_int_equal(s.total, LEAVES);
    assert_int_equal(calltree_total(&s.callers), LEAVES);
    assert_true(s.callers.parent.len <= 1 + 2 * 100);
    sandwich_deinit(&s);
    atomic_bool gone = true;
    assert_int_equal(sandwich_init(&s, &t, f, 0, &gone, &e), ERR_CANCELED);
    sandwich_deinit(&s);
    for (size_t i = 0; i < t.names.len; i++)
        if (str_starts(t.names.ptr[i], STR("leaf")))
            free((void *)(uintptr_t)t.names.ptr[i].ptr);
    calltree_deinit(&t);
}

static void test_focus_below(void **state)
{
    (void)state;
    struct calltree t;
    struct oracle o = { 0 };

    calltree_init(&t, 1);
    add_stack(&t, "a", 1);
    add_stack(&t, "a;b", 2);
    add_stack(&t, "a;b;c", 4);
    add_stack(&t, "d;a;b", 8);
    uint32_t a = calltree_child_find(&t, 0, calltree_name_find(&t, STR("a")));
    focus_below(&t, calltree_child_find(&t, a, calltree_name_find(&t, STR("b"))));
    assert_int_equal(calltree_child_find(&t, a, CALLTREE_TOTAL), MAP_U64_EMPTY);
    oracle_of_tree(&o, &t);
    assert_int_equal(o.total, 6);
    assert_int_equal(oracle_find(&o, STR("a\nb"))->total, 6);
    assert_null(oracle_find(&o, STR("d")));
    oracle_free(&o);
    calltree_deinit(&t);
}

/* ---- comparison -------------------------------------------------------------------------------*/

static void test_compare_joins_tables(void **state)
{
    (void)state;
    struct prng p;
    static const double ones[DIFF_SIDES] = { 1, 1 };

    prng_init(&p, seed + 2);
    for (int round = 0; round < 100; round++) {
        struct random_tree r[DIFF_SIDES];
        struct oracle want[DIFF_SIDES] = { 0 };
        struct compare c;
        size_t seen = 0;

        for (int s = 0; s < DIFF_SIDES; s++) {
            random_tree(&r[s], &p);
            oracle_top(&want[s], &r[s].model);
        }
        compare_init(&c, &r[0].tree, &r[1].tree, ones);
        for (size_t i = 0; i < c.len; i++)
            for (int s = 0; s < DIFF_SIDES; s++) {
                const struct oracle_sum *sum = oracle_find(&want[s], c.rows[i].name);
                assert_int_equal(c.rows[i].self[s], sum ? sum->self : 0);
                assert_int_equal(c.rows[i].total[s], sum ? sum->total : 0);
                seen += sum != NULL;
            }
        assert_int_equal(seen, want[0].sums.len + want[1].sums.len);
        compare_order(&c, COMPARE_TOTAL, COMPARE_GREW);
        for (size_t i = 0; i < c.len; i++) {
            assert_true(c.rows[i].total[1] > c.rows[i].total[0]);
            assert_true(i == 0 || compare_delta(&c, c.rows[i - 1].total) >=
                                      compare_delta(&c, c.rows[i].total));
        }
        compare_deinit(&c);
        for (int s = 0; s < DIFF_SIDES; s++) {
            oracle_free(&want[s]);
            random_tree_free(&r[s]);
        }
    }
}

static void test_factors(void **state)
{
    (void)state;
    struct compare_side side = { .total = 200, .range_ms = 4000, .instances = 5 };
    enum compare_mode m;

    assert_true(compare_factor(&side, COMPARE_ABSOLUTE) == 1);
    assert_true(compare_factor(&side, COMPARE_RELATIVE) == 0.5);
    assert_true(compare_factor(&side, COMPARE_SECOND) == 0.25);
    assert_true(compare_factor(&side, COMPARE_INSTANCE) == 0.2);
    assert_true(compare_factor(&side, COMPARE_SECOND_INSTANCE) == 0.05);
    side.gauge = true;
    assert_true(compare_factor(&side, COMPARE_SECOND) == 1);
    side = (struct compare_side){ 0 };
    for (int i = COMPARE_RELATIVE; i <= COMPARE_SECOND_INSTANCE; i++)
        assert_true(compare_factor(&side, (enum compare_mode)i) == 0);
    for (int i = COMPARE_ABSOLUTE; i <= COMPARE_SECOND_INSTANCE; i++) {
        assert_true(compare_mode_parse(str_c(compare_mode_name((enum compare_mode)i)), &m));
        assert_int_equal(m, i);
    }
    assert_false(compare_mode_parse(STR("Absolute"), &m));
}

static void test_scale_rounds_the_sum_once(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed + 3);
    for (int round = 0; round < 200; round++) {
        struct random_tree r;
        double factor = (double)prng_below(&p, 1000) / 300;

        random_tree(&r, &p);
        double total = (double)calltree_total(&r.tree);
        CLEANUP(xfreep)
        uint64_t *was = xmemdup(r.tree.self.ptr, r.tree.self.len * sizeof(uint64_t));
        compare_scale(&r.tree, factor);
        double now = (double)calltree_total(&r.tree);
        assert_true(now - total * factor <= 0.501 && total * factor - now <= 0.501);
        vec_for (i, &r.tree.self) {
            double off = (double)r.tree.self.ptr[i] - (double)was[i] * factor;
            assert_true(off < 1.001 && off > -1.001);
        }
        random_tree_free(&r);
    }
    struct calltree t;
    calltree_init(&t, 1);
    add_stack(&t, "a", INT64_MAX / 2);
    add_stack(&t, "b", INT64_MAX / 2);
    compare_scale(&t, 3);
    assert_true(t.saturated);
    assert_int_equal(calltree_total(&t), INT64_MAX);
    calltree_deinit(&t);
}

static void test_nothing(void **state)
{
    (void)state;
    struct calltree t;
    struct top top;
    struct sandwich s;
    struct err e;

    calltree_init(&t, 1);
    top_init(&top, &t);
    assert_int_equal(top.len, 0);
    top_order(&top, &t, TOP_SELF, false);
    top_deinit(&top);
    uint32_t f = calltree_name(&t, STR("f"));
    focus_keep(&t, f);
    assert_int_equal(sandwich_init(&s, &t, f, 10, NULL, &e), 0);
    assert_int_equal(s.total, 0);
    sandwich_deinit(&s);
    calltree_deinit(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top_equals_sets_of_names),
        cmocka_unit_test(test_top_by_hand),
        cmocka_unit_test(test_focus_and_sandwich_equal_stacks),
        cmocka_unit_test(test_same_replies_in_any_order_give_the_same_callers),
        cmocka_unit_test(test_callers_larger_than_the_tree_are_cut_as_they_are_made),
        cmocka_unit_test(test_focus_below),
        cmocka_unit_test(test_compare_joins_tables),
        cmocka_unit_test(test_factors),
        cmocka_unit_test(test_scale_rounds_the_sum_once),
        cmocka_unit_test(test_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
