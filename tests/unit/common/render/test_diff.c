/* SPDX-License-Identifier: Apache-2.0
 *
 * A diff: both sides together are the flame graph of the merged trees, each side adds up, and a
 * side alone is its own flame graph.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/render/diff.h"
#include "common/render/flame.h"
#include "querier/output/flame_msg.h"
#include "tests/lib/roles/querier_gen.h"

static const uint64_t seed = 20261121;

static void add(struct calltree *t, const struct gen_part *g)
{
    struct err e;

    assert_int_equal(calltree_add(t, &g->part, NULL, &e), 0);
}

/* Bar i of the diff, both sides added, is bar i of the flame; so is each side where only this side
 * has values. */
static void same_bars(const struct diff *d, const struct flame *f, bool left, bool right)
{
    assert_int_equal(d->level_end.len, f->level_end.len);
    assert_int_equal(d->bars.len / 7, f->bars.len / 4);
    for (size_t i = 0; i < d->level_end.len; i++)
        assert_int_equal(d->level_end.ptr[i], f->level_end.ptr[i]);
    for (size_t i = 0; i < f->bars.len / 4; i++) {
        const uint64_t *b = &d->bars.ptr[i * 7], *w = &f->bars.ptr[i * 4];
        for (int k = 0; k < 3; k++) {
            assert_int_equal(b[k] + b[k + 3], w[k]);
            if (!left)
                assert_int_equal(b[k], 0);
            if (!right)
                assert_int_equal(b[k + 3], 0);
        }
        assert_true(str_eq(d->names.ptr[b[6]], f->names.ptr[w[3]]));
    }
}

/* Each side by itself: children begin behind the self value of their parent, without gaps. The
 * parent is found by the place of both sides together. */
static void sides_add_up(const struct diff *d)
{
    const size_t n = d->bars.len / 7;
    uint64_t *x = XNEW_ARRAY(uint64_t, 2 * n + 2), *filled = XNEW_ARRAY(uint64_t, 2 * n + 2);
    size_t up = 0, level = 0;

    for (size_t i = 0, lv = 0; lv < d->level_end.len; lv++) {
        uint64_t edge[2] = { 0, 0 };
        size_t begin = i;
        for (; i < d->level_end.ptr[lv]; i++) {
            const uint64_t *b = &d->bars.ptr[i * 7];
            for (int s = 0; s < 2; s++) {
                x[2 * i + (size_t)s] = edge[s] + b[3 * s];
                edge[s] = x[2 * i + (size_t)s] + b[3 * s + 1];
            }
            if (lv == 0)
                continue;
            while (x[2 * i] + x[2 * i + 1] >=
                   x[2 * up] + x[2 * up + 1] + d->bars.ptr[up * 7 + 1] + d->bars.ptr[up * 7 + 4])
                up++;
            assert_true(up < begin && up >= level);
            for (size_t s = 0; s < 2; s++) {
                const uint64_t *p = &d->bars.ptr[up * 7];
                assert_int_equal(x[2 * i + s], x[2 * up + s] + p[3 * s + 2] + filled[2 * up + s]);
                filled[2 * up + s] += b[3 * s + 1];
            }
        }
        level = begin;
        up = begin;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t s = 0; s < 2; s++)
            assert_int_equal(d->bars.ptr[i * 7 + 3 * s + 1],
                             d->bars.ptr[i * 7 + 3 * s + 2] + filled[2 * i + s]);
    xfree(x);
    xfree(filled);
}

static void one_round(struct prng *p, const struct gen_opts *o, bool left, bool right)
{
    struct calltree trees[2], both;
    struct gen_part parts[2];
    const bool has[2] = { left, right };

    calltree_init(&both, 5);
    for (int s = 0; s < 2; s++) {
        calltree_init(&trees[s], prng_u64(p));
        gen_part_make(&parts[s], p, o);
        if (!has[s])
            continue;
        add(&trees[s], &parts[s]);
        add(&both, &parts[s]);
    }
    const size_t limits[] = { 0, 1, 3, 10, 1 + (size_t)prng_below(p, both.parent.len) };
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        struct layout l;
        struct flame f;
        struct diff d;
        layout_init(&l, &both, limits[i]);
        flame_init(&f, &l, &both);
        diff_init(&d, &trees[0], &trees[1], limits[i]);
        same_bars(&d, &f, left, right);
        sides_add_up(&d);
        assert_int_equal(d.ticks[DIFF_LEFT], calltree_total(&trees[0]));
        assert_int_equal(d.ticks[DIFF_RIGHT], calltree_total(&trees[1]));
        diff_deinit(&d);
        flame_deinit(&f);
        layout_deinit(&l);
    }
    for (int s = 0; s < 2; s++) {
        gen_part_free(&parts[s]);
        calltree_deinit(&trees[s]);
    }
    calltree_deinit(&both);
}

static void test_random(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 200; round++) {
        struct gen_opts o = { .nodes_max = 1 + (size_t)prng_below(&p, 120),
                              .functions = 2 + (size_t)prng_below(&p, 20),
                              .frames_per_function = 1 + (size_t)prng_below(&p, 3),
                              .value_chance = prng_unit(&p),
                              .value_max = prng_chance(&p, 0.5) ? 3 : 1000000,
                              .chain = prng_chance(&p, 0.1),
                              .unsymbolized = prng_chance(&p, 0.3) };
        one_round(&p, &o, round % 4 != 1, round % 4 != 2);
    }
}

static void part_of(struct gen_part *g, uint64_t b, uint64_t c)
{
    *g = (struct gen_part){ 0 };
    stacks_init(&g->stacks, GIB, 1);
    const char *const names[] = { "a", "b", "c" };
    const uint64_t values[] = { 2, b, c };
    uint32_t up = 0;
    for (int i = 0; i < 3; i++) { /* a;b and c */
        struct frame f = { .func = stacks_string(&g->stacks, str_c(names[i])) };
        up = stacks_node(&g->stacks, i == 1 ? up : 0, stacks_frame(&g->stacks, &f));
        vec_push(&g->nodes, up);
        vec_push(&g->values, values[i]);
    }
    g->part = (struct calltree_part){ .stacks = stacks_view(&g->stacks),
                                      .nodes = g->nodes.ptr,
                                      .values = g->values.ptr,
                                      .len = g->nodes.len };
}

static void test_example(void **state)
{
    (void)state;
    struct gen_part parts[2];
    struct calltree trees[2];
    struct diff d;
    struct json j;
    struct msg_out o;
    struct buf out;

    part_of(&parts[0], 3, 0);
    part_of(&parts[1], 0, 5);
    for (int s = 0; s < 2; s++) {
        calltree_init(&trees[s], 3);
        add(&trees[s], &parts[s]);
    }
    diff_init(&d, &trees[0], &trees[1], 0);
    buf_init(&out, MIB);
    json_init(&j, &out);
    diff_json(&d, &j);
    buf_add_c(&out, '\0');
    assert_string_equal(out.ptr, "{\"names\":[\"total\",\"a\",\"c\",\"b\"],\"levels\":["
                                 "[0,5,0,0,7,0,0],[0,5,2,0,2,2,1,0,0,0,0,5,5,2],[2,3,3,2,0,0,3]],"
                                 "\"numTicks\":12,\"maxSelf\":5}");
    buf_reset(&out);
    msg_out_init(&o, true, &out);
    flame_msg_diff(&o, 1, "f", &d);
    msg_out_end(&o);
    buf_add_c(&out, '\0');
    assert_non_null(strstr(out.ptr, "{\"values\":[\"2\",\"3\",\"3\",\"2\",\"0\",\"0\",\"3\"]}],"
                                    "\"total\":\"12\",\"maxSelf\":\"5\",\"leftTicks\":\"5\","
                                    "\"rightTicks\":\"7\"}"));
    buf_deinit(&out);
    diff_deinit(&d);
    for (int s = 0; s < 2; s++) {
        calltree_deinit(&trees[s]);
        gen_part_free(&parts[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_random),
                                        cmocka_unit_test(test_example) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
