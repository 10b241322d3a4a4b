/* SPDX-License-Identifier: Apache-2.0
 *
 * Roll-ups through everything that can happen to them: minutes that cross into ROLLED0, late data,
 * rules that change, groups that become too many, builds, restarts, power cuts. After every few
 * steps each roll-up must be the sum of its members' leaves (tests/lib/store/rollup_check.h), and
 * answers must be the model's, by groups and by members alike. Numbers are small, so that a few
 * pods make a busy minute. SEED=n repeats one run; SEEDS=n makes more of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/model/slot.h"
#include "tests/lib/store/rollup_check.h"
#include "tests/lib/store/store_steps.h"

#define STEPS 250
#define SEEDS 24

static const struct str *drops(int i, size_t *ret_n);

struct run {
    struct model_world w;
    struct model m;
    struct store_bed bed;
    VEC(struct model_request *) done;
    int drop;      /* which list is configured */
    uint32_t late; /* a minute in the past that gets more and more */
    struct rollup_counts seen;
};
static struct rollup_counts all_seen;

static struct group_drop drop_of(void *cookie, struct str tenant)
{
    const struct run *r = cookie;
    struct group_drop d;

    (void)tenant;
    d.names = drops(r->drop, &d.len);
    return d;
}

/* Arrays of their own, since their addresses tell that something changed. */
static const struct str *drops(int i, size_t *ret_n)
{
#define NAME(s)          \
    {                    \
        s, sizeof(s) - 1 \
    }
    static const struct str pod[] = { NAME("pod") };
    static const struct str both[] = { NAME("pod"), NAME("zone"), NAME("instance") };
    static const struct str stars[] = { NAME("po*"), NAME("odd*") };
    static const struct str other[] = { NAME("nothing") };
    static const struct {
        const struct str *names;
        size_t len;
    } lists[] = { { pod, 1 }, { both, 3 }, { stars, 2 }, { other, 1 } };

    *ret_n = lists[i].len;
    return lists[i].names;
}

static uint32_t below(struct run *r, uint32_t n)
{
    return (uint32_t)prng_below(&r->w.prng, n);
}

static bool chance(struct run *r, double p)
{
    return prng_chance(&r->w.prng, p);
}

/* ---- steps ---- */

static uint32_t any_slot(struct run *r)
{
    uint32_t now = store_bed_slot(&r->bed);

    if (chance(r, 0.1))
        r->late = now - below(r, 17280);
    switch (below(r, 10)) {
    case 0:
    case 1:
        return r->late + below(r, 12); /* the same late minute again and again */
    case 2:
        return now - below(r, 720);
    case 3:
        return now + below(r, 60);
    default:
        return now - below(r, 8);
    }
}

static void step_push(struct run *r)
{
    struct model_request *q = model_request_new(&r->w, any_slot(r));
    struct store_batch *b = store_batch_new(r->bed.s);
    struct store_result got;
    struct err e;

    steps_stage(&r->bed, b, &r->w, q, 5, &got);
    if (store_commit(r->bed.s, b, &e))
        fail_msg("push: %s", e.text);
    assert_int_equal(got.stored, q->pushes.len);
    model_add(&r->m, q);
    vec_push(&r->done, q);
}

/* A request that fails leaves no group, no rule, nothing. */
static void step_failed_push(struct run *r)
{
    struct model_request *q = model_request_new(&r->w, any_slot(r));
    struct store_batch *b = store_batch_new(r->bed.s);
    struct store_result got;
    struct stacks st;
    struct err e;

    stacks_init(&st, 64 * MIB, 5);
    r->bed.faults.fail_gets_in = 1 + below(r, 40);
    int rc = steps_try_stage(&r->bed, b, &r->w, q, &st, &got, &e);
    r->bed.faults.fail_gets_in = 0;
    assert_int_equal(rc ? store_batch_bytes(b) > 64 : 0, 0);
    if (store_commit(r->bed.s, b, &e))
        fail_msg("commit: %s", e.text);
    if (rc) {
        model_request_free(q);
    } else {
        model_add(&r->m, q);
        vec_push(&r->done, q);
    }
    stacks_deinit(&st);
}

static void step_seal(struct run *r)
{
    (void)steps_seal(&r->bed, 1 + below(r, 60));
}

static void step_build(struct run *r)
{
    for (int i = 0; i < 20 && steps_build(&r->bed, 1 + below(r, 60)); i++)
        ;
}

static void step_clock(struct run *r)
{
    uint32_t ms = below(r, chance(r, 0.15) ? 1800000 : 30000);

    /* One jump over five minutes would pause sealing. */
    for (; ms > 200000; ms -= 200000) {
        clock_fake_advance(&r->bed.clock, 200000);
        step_seal(r);
    }
    clock_fake_advance(&r->bed.clock, ms);
}

static void step_rule(struct run *r)
{
    r->drop = (int)below(r, 4);
}

static void ask(struct run *r, bool members)
{
    struct arena *a = arena_new(MIB);
    struct selector s = model_selector(&r->w, a);
    uint32_t now = store_bed_slot(&r->bed), len = 1 + below(r, chance(r, 0.5) ? 60 : 17280 * 2);
    uint32_t from = now - below(r, len) - below(r, 48);
    struct store_view *v = store_view_get(r->bed.s);
    struct store_query q = {
        .tenant = chance(r, 0.5) ? STR("anonymous") : STR("acme"),
        .selector = &s,
        .profile_type = str_c(model_types[below(r, MODEL_TYPES)].id),
        .start_ms = slot_to_ms(from),
        .end_ms = slot_to_ms(from + len),
        .members = members,
    };
    const struct str by[] = { STR("pod"), STR("zone"), STR("__type__"), STR("service_name") };
    uint32_t at = below(r, 4);

    model_check_merge(&r->m, r->m.pushes.len, v, &q);
    q.members = !members;
    model_check_merge(&r->m, r->m.pushes.len, v, &q);
    model_check_timeline(&r->m, r->m.pushes.len, v, &q, q.start_ms, 15000 * (1 + below(r, 60)),
                         1 + below(r, 30), by + at, below(r, 4 - at + 1));
    store_view_put(v);
    selector_deinit(&s);
    arena_free(a);
}

static void check_all(struct run *r)
{
    struct store_view *v = store_view_get(r->bed.s);

    rollup_check(v, &r->seen);
    store_view_put(v);
    steps_check(&r->bed);
}

/* Everything that was committed is there; what was sealed or built may have gone back. */
static void step_reopen(struct run *r)
{
    if (chance(r, 0.5))
        store_bed_reopen(&r->bed, KV_MEM_KILL, 0);
    else
        store_bed_reopen(&r->bed, KV_MEM_POWER, below(r, 20));
    check_all(r);
}

static void step(struct run *r)
{
    uint32_t n = below(r, 100);

    if (n < 50)
        step_push(r);
    else if (n < 65)
        step_seal(r);
    else if (n < 75)
        step_clock(r);
    else if (n < 82)
        step_build(r);
    else if (n < 90)
        ask(r, chance(r, 0.5));
    else if (n < 93)
        step_failed_push(r);
    else if (n < 95)
        step_rule(r);
    else if (n < 98)
        check_all(r);
    else
        step_reopen(r);
}

static void finish(struct run *r)
{
    for (int i = 0; i < 12; i++) {
        clock_fake_advance(&r->bed.clock, 200000);
        store_bed_seal(&r->bed);
    }
    for (int i = 0; i < 20; i++)
        step_build(r);
    check_all(r);
    for (int i = 0; i < 10; i++)
        ask(r, i % 2);
}

static void run_seed(uint64_t seed)
{
    struct run *r = XNEW(struct run);

    model_world_init(&r->w, seed);
    r->m.w = &r->w;
    struct store_opts o = {
        .dict_bytes_max = chance(r, 0.3) ? 1 : 64 * MIB,
        .seal_delay_ms = below(r, 60000),
        .build_delay_ms = below(r, 60000),
        .build_pace_ms = below(r, 60000),
        .build_all = true,
        .wid_horizon_ms = UINT32_MAX / 2,
        .seed = prng_u64(&r->w.prng),
        .epoch_nodes_max = chance(r, 0.5) ? 1 + below(r, 60) : 0,
        .hash_bits = chance(r, 0.5) ? 0 : 3 + below(r, 8),
        .group_drop = drop_of,
        .group_cookie = r,
        .test = { .groups_max = chance(r, 0.5) ? 0 : 1 + below(r, 6),
                  .whole_after = chance(r, 0.3) ? 0 : 1 + below(r, 3),
                  .rolled_members = chance(r, 0.2) ? 0 : 1 + below(r, 6),
                  .delta_bytes = chance(r, 0.3) ? 0 : 1 + below(r, 300) },
    };
    store_bed_init(&r->bed, &o);
    r->late = store_bed_slot(&r->bed) - 700;
    for (int i = 0; i < STEPS; i++)
        step(r);
    finish(r);
    store_bed_deinit(&r->bed);
    all_seen.rolled += r->seen.rolled;
    all_seen.listed += r->seen.listed;
    all_seen.deltas += r->seen.deltas;
    all_seen.lists += r->seen.lists;
    all_seen.vectors += r->seen.vectors;
    all_seen.whole += r->seen.whole;
    all_seen.rules = MAX(all_seen.rules, r->seen.rules);
    all_seen.groups = MAX(all_seen.groups, r->seen.groups);
    vec_for (i, &r->done)
        model_request_free(r->done.ptr[i]);
    vec_free(&r->done);
    vec_free(&r->m.pushes);
    model_world_deinit(&r->w);
    xfree(r);
}

static void test_rollups(void **state)
{
    (void)state;
    uint64_t seeds = steps_seeds(run_seed, SEEDS);
    printf("minutes rolled %" PRIu64 " listed %" PRIu64 ", late rows %" PRIu64
           ", nodes lists %" PRIu64 " vectors %" PRIu64 " whole %" PRIu64 ", rules %" PRIu64
           " groups %" PRIu64 "\n",
           all_seen.rolled, all_seen.listed, all_seen.deltas, all_seen.lists, all_seen.vectors,
           all_seen.whole, all_seen.rules, all_seen.groups);
    assert_true(seeds < SEEDS || (all_seen.rolled && all_seen.listed && all_seen.deltas &&
                                  all_seen.lists && all_seen.vectors && all_seen.whole));
    assert_true(seeds < SEEDS || (all_seen.rules > 1 && all_seen.groups > 8));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_rollups) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
