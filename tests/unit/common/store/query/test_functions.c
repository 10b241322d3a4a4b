/* SPDX-License-Identifier: Apache-2.0
 *
 * store_functions beside the slow way: random pushes to some pods, late ones too, seals and builds
 * between them, and questions about random grids, pods and names.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>
#include <roaring/roaring.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/model/slot.h"
#include "common/store/build/build.h"
#include "common/store/state/store_impl.h"
#include "tests/lib/store/store_bed.h"

#define NAMES 6 /* "a" .. "f" */
#define PODS  6
#define GAUGE "memory:inuse_space:bytes::"

struct values {
    uint64_t self[NAMES], total[NAMES];
};
struct push {
    uint32_t slot, pod;
    bool gauge;
    struct values v;
};

static struct prng rnd;
static struct store_bed bed;
static struct arena *arena;
static VEC(struct push) pushes;
static uint64_t wid;

static int setup(void **state)
{
    struct store_opts o = { .dict_bytes_max = 64 * MIB,
                            .wid_horizon_ms = 3600 * 1000,
                            .seal_delay_ms = 10000,
                            .build_all = true,
                            .epoch_nodes_max = 200 };
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&rnd, seed);
    store_bed_init(&bed, &o);
    arena = arena_new(16 * MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    vec_free(&pushes);
    arena_free(arena);
    store_bed_deinit(&bed);
    return 0;
}

static uint32_t below(uint32_t n)
{
    return (uint32_t)prng_below(&rnd, n);
}

/* ---- writing ---- */

static void add_stack(struct values *v, const char *stack, size_t depth, uint64_t value)
{
    for (size_t i = 0; i < depth; i++)
        if (!memchr(stack, stack[i], i))
            v->total[stack[i] - 'a'] += value;
    v->self[stack[depth - 1] - 'a'] += value;
}

static void push_random(uint32_t slot)
{
    char text[512], labels[32];
    struct push p = { .slot = slot, .pod = below(PODS), .gauge = prng_chance(&rnd, 0.3) };
    size_t n = 0;

    for (uint32_t stacks = 1 + below(NAMES); stacks; stacks--) {
        char stack[8];
        size_t depth = 1 + below(sizeof(stack));
        uint64_t value = 1 + below(100);
        for (size_t i = 0; i < depth; i++) {
            stack[i] = (char)('a' + (i ? below(NAMES) : stacks - 1));
            n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%c", i ? ";" : "", stack[i]);
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n, "=%" PRIu64 "%s", value,
                              stacks > 1 ? " " : "");
        add_stack(&p.v, stack, depth, value);
    }
    (void)snprintf(labels, sizeof(labels), "pod=p%u", p.pod);
    struct bed_push b = { .wid = ++wid,
                          .slot = slot,
                          .labels = labels,
                          .stacks = text,
                          .type = p.gauge ? GAUGE : NULL,
                          .gauge = p.gauge };
    assert_int_equal(store_bed_push(&bed, &b), 1);
    vec_push(&pushes, p);
}

/* ---- asking ---- */

struct answer {
    struct values *at; /* by point */
    uint64_t *all;
    uint32_t *leaves;
};

static uint32_t point_of(const struct store_functions_query *q, uint32_t slot)
{
    int64_t behind = slot_to_ms(slot_leaf(slot)) - q->origin_ms;

    return behind <= 0 ? 0 : (uint32_t)((behind + q->step_ms - 1) / q->step_ms);
}

static struct answer model(const struct store_functions_query *q, uint32_t pod, bool gauge,
                           uint32_t from, uint32_t to)
{
    struct answer a = { xcalloc(q->points, sizeof(*a.at)), xcalloc(q->points, sizeof(*a.all)),
                        xcalloc(q->points, sizeof(*a.leaves)) };
    roaring_bitmap_t *leaves = roaring_bitmap_create();

    vec_for (i, &pushes) {
        const struct push *p = &pushes.ptr[i];
        if (p->slot < from || p->slot >= to || p->gauge != gauge || (pod < PODS && p->pod != pod))
            continue;
        uint32_t k = MIN(point_of(q, p->slot), q->points - 1);
        for (size_t f = 0; f < NAMES; f++) {
            a.at[k].self[f] += p->v.self[f];
            a.at[k].total[f] += p->v.total[f];
            a.all[k] += p->v.self[f];
        }
        a.leaves[k] += roaring_bitmap_add_checked(leaves, p->slot / LEAF_SLOTS);
    }
    roaring_bitmap_free(leaves);
    return a;
}

static void compare(const struct store_functions_query *q, const struct store_functions *have,
                    const struct answer *want)
{
    size_t at = 0;

    assert_int_equal(have->all.len, q->points);
    for (uint32_t k = 0; k < q->points; k++) {
        assert_int_equal(have->all.ptr[k], want->all[k]);
        if (have->gauge)
            assert_int_equal(have->leaves.ptr[k], want->leaves[k]);
    }
    for (size_t f = 0; f < NAMES; f++) {
        char name = (char)('a' + f);
        bool asked = !q->names_len, any = false;
        size_t i = 0;
        for (size_t n = 0; n < q->names_len; n++)
            asked = asked || q->names[n].ptr[0] == name;
        for (uint32_t k = 0; k < q->points; k++)
            any = any || want->at[k].total[f];
        if (!asked || !any)
            continue;
        assert_true(at < have->at.len);
        const struct store_function *got = &have->at.ptr[at++];
        assert_true(str_eq(got->name, str_n(&name, 1)));
        for (uint32_t k = 0; k < q->points; k++) {
            bool there = i < got->point.len && got->point.ptr[i] == k;
            assert_int_equal(there ? got->self.ptr[i] : 0, want->at[k].self[f]);
            assert_int_equal(there ? got->total.ptr[i] : 0, want->at[k].total[f]);
            i += there;
        }
        assert_int_equal(i, got->point.len);
    }
    assert_int_equal(at, have->at.len);
}

static void ask(uint32_t begin)
{
    static const int64_t steps[] = { 10000, 15000, 60000, 600000, 3600000, 5000, 7003 };
    static const struct str names[] = { { "c", 1 }, { "zz", 2 }, { "a", 1 } };
    uint32_t now = store_bed_slot(&bed), from = begin + below(now - begin);
    uint32_t pod = below(2 * PODS);
    bool gauge = prng_chance(&rnd, 0.3);
    char text[64];
    struct store_functions_query q = { .step_ms = steps[below(ARRAY_LEN(steps))] };
    struct store_functions have;
    struct selector s;
    struct err e;

    (void)snprintf(text, sizeof(text), pod < PODS ? "{pod=\"p%u\"}" : "{}", pod);
    arena_reset(arena);
    if (selector_parse(str_c(text), SELECTOR_PROMETHEUS, arena, &s, &e) || selector_compile(&s, &e))
        fail_msg("%s", e.text);
    int64_t span = (int64_t)(now + 20 - from) * SLOT_MS / q.step_ms;
    q.points = 1 + below((uint32_t)MIN(span + 1, 300));
    q.origin_ms = slot_to_ms(from) + (prng_chance(&rnd, 0.5) ? q.step_ms - 1 : below(5000));
    if (prng_chance(&rnd, 0.4)) {
        q.names = names;
        q.names_len = 1 + below(ARRAY_LEN(names));
    }
    q.q = (struct store_query){ .tenant = STR("t"),
                                .selector = &s,
                                .profile_type = str_c(gauge ? GAUGE : BED_CPU) };
    struct store_view *v = store_view_get(bed.s);
    if (store_functions(v, &q, arena, &have, &e))
        fail_msg("functions: %s", e.text);
    store_view_put(v);
    struct answer want = model(&q, pod, gauge, slot_of_ms(have.start_ms), slot_of_ms(have.end_ms));
    compare(&q, &have, &want);
    xfree(want.at);
    xfree(want.all);
    xfree(want.leaves);
    store_functions_deinit(&have);
    selector_deinit(&s);
}

static void seal_and_build(void)
{
    bool more = true;
    struct err e;

    store_bed_seal(&bed);
    while (more)
        if (store_build(bed.s, 1000, &more, &e))
            fail_msg("build: %s", e.text);
}

static void test_random(void **state)
{
    uint32_t begin = store_bed_slot(&bed);

    (void)state;
    for (int round = 0; round < 60; round++) {
        for (uint32_t n = below(12); n; n--) {
            uint32_t now = store_bed_slot(&bed), back = prng_chance(&rnd, 0.1) ? 2000 : 20;
            push_random(MAX(begin, now - MIN(now - begin, below(back))));
        }
        clock_fake_advance(&bed.clock, below(200000));
        if (prng_chance(&rnd, 0.6))
            seal_and_build();
        for (int i = 0; i < 4; i++)
            ask(begin);
    }
}

static void test_limits(void **state)
{
    struct store_functions_query q = { .step_ms = 0, .points = 1 };
    struct store_view *v = store_view_get(bed.s);
    struct store_functions f;
    struct err e;

    (void)state;
    assert_int_equal(store_functions(v, &q, arena, &f, &e), ERR_INPUT);
    q.step_ms = 1;
    q.points = 0;
    assert_int_equal(store_functions(v, &q, arena, &f, &e), ERR_INPUT);
    store_view_put(v);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_random, setup, teardown),
        cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
