/* SPDX-License-Identifier: Apache-2.0
 *
 * The order of service: every claim of fair.h by this order alone; and random runs against the
 * meaning of fairness: keys that always want something get equal amounts, within one job.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/sys/fair.h"

#define ITEMS 400

struct item {
    struct fair_item f;
    char key;
};
static struct item items[ITEMS];
static size_t used;

static struct item *push(struct fair *f, char key, uint64_t cost)
{
    struct item *i = &items[used++ % ITEMS];

    assert_null(i->f.key);
    *i = (struct item){ .key = key };
    assert_true(fair_push(f, (uint64_t)key, cost, &i->f));
    return i;
}

static struct item *serve(struct fair *f)
{
    struct fair_item *n = fair_next(f);

    CHECK(n);
    fair_take(f, n);
    return container_of(n, struct item, f);
}

/* Serves n jobs one after the other, each with its real cost (0: as guessed), as a word. */
static const char *order(struct fair *f, size_t n, uint64_t cost)
{
    static char text[ITEMS + 1];
    size_t len = 0;

    while (len < n && fair_next(f)) {
        struct item *i = serve(f);
        text[len++] = i->key;
        fair_done(f, &i->f, cost);
    }
    text[len] = 0;
    return text;
}

static void test_one_who_piles_up_waits_behind_himself(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ 0 });

    (void)state;
    for (int i = 0; i < 50; i++)
        push(f, 'h', 1);
    assert_string_equal(order(f, 3, 0), "hhh"); /* no other key has items */
    push(f, 'q', 1);
    push(f, 'q', 1);
    assert_string_equal(order(f, 6, 0), "qhqhhh");
    push(f, 'a', 1);
    push(f, 'b', 1);
    assert_string_equal(order(f, 4, 0), "abhh");
    assert_int_equal(fair_waiting(f), 50 - 3 - 4 - 2);
    (void)order(f, 100, 0);
    assert_int_equal(fair_keys(f), 0); /* debts are cleared when the queue is empty */
    fair_free(f);
    fair_free(NULL);
}

static void test_cost_counts_not_number(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ 0 });

    (void)state;
    for (int i = 0; i < 8; i++) {
        push(f, 'H', 4);
        push(f, 'l', 1);
    }
    assert_string_equal(order(f, 10, 0), "HllllHllll");
    (void)order(f, 100, 0);
    fair_free(f);
}

/* What a job did cost is known when it is done; its key pays for it, up to the limit of debt. */
static void test_real_cost_is_paid_later(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ .debt_max = 5 });

    (void)state;
    push(f, 'h', 1);
    push(f, 'h', 1);
    for (int i = 0; i < 9; i++)
        push(f, 'q', 1);
    struct item *i = serve(f);
    assert_int_equal(i->key, 'h');
    fair_done(f, &i->f, 1000);
    assert_string_equal(order(f, 10, 0), "qqqqqhqqqq");
    /* Less than thought: given back. */
    push(f, 'a', 100);
    push(f, 'a', 100);
    push(f, 'b', 100);
    push(f, 'b', 100);
    i = serve(f);
    assert_int_equal(i->key, 'a');
    fair_done(f, &i->f, 1);
    assert_string_equal(order(f, 3, 0), "bab");
    fair_free(f);
}

static void test_who_was_away_has_no_credit_and_keeps_his_debt(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ 0 });
    struct item *i;

    (void)state;
    for (int n = 0; n < 20; n++)
        push(f, 'a', 1);
    push(f, 'd', 1);
    assert_string_equal(order(f, 2, 0), "ad");
    assert_string_equal(order(f, 9, 0), "aaaaaaaaa");
    push(f, 'd', 1); /* 9 jobs later: one turn, not nine */
    push(f, 'd', 1);
    push(f, 'd', 1);
    assert_string_equal(order(f, 6, 0), "dadada");
    push(f, 'd', 1);
    i = serve(f);
    while (i->key != 'd') {
        fair_done(f, &i->f, 0);
        i = serve(f);
    }
    fair_done(f, &i->f, 4); /* leaves with a debt */
    push(f, 'd', 1);
    assert_string_equal(order(f, 5, 0), "aaada");
    (void)order(f, 100, 0);
    fair_free(f);
}

static void test_limits_of_a_key(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ .running_max = 2, .waiting_max = 3 });
    struct item *run[3], extra = { 0 };

    (void)state;
    for (int i = 0; i < 3; i++)
        push(f, 'h', 1);
    assert_false(fair_push(f, 'h', 1, &extra.f));
    assert_null(extra.f.key);
    run[0] = serve(f);
    run[1] = serve(f);
    assert_null(fair_next(f)); /* two run: the third waits although nothing else is to be done */
    push(f, 'q', 1);
    run[2] = serve(f);
    assert_int_equal(run[2]->key, 'q');
    assert_int_equal(fair_running(f), 3);
    fair_done(f, &run[0]->f, 0);
    run[0] = serve(f);
    assert_int_equal(run[0]->key, 'h');
    push(f, 'h', 1);
    struct item *gone = push(f, 'h', 1);
    fair_drop(f, &gone->f);
    assert_null(gone->f.key);
    for (int i = 0; i < 3; i++)
        fair_done(f, &run[i]->f, 0);
    assert_string_equal(order(f, 9, 0), "h");
    assert_int_equal(fair_waiting(f) + fair_running(f) + fair_keys(f), 0);
    fair_free(f);
}

/* What running items of a key hold is bounded, but for one alone. */
static void test_weight(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ .weight_max = 10 });
    struct item *run[4];

    (void)state;
    push(f, 'h', 1)->f.weight = 50;
    push(f, 'h', 1)->f.weight = 6;
    push(f, 'h', 1)->f.weight = 4;
    push(f, 'h', 1)->f.weight = 1;
    run[0] = serve(f); /* over the bound, but alone */
    assert_null(fair_next(f));
    push(f, 'q', 1)->f.weight = 10;
    run[1] = serve(f);
    assert_int_equal(run[1]->key, 'q');
    fair_done(f, &run[0]->f, 0);
    run[0] = serve(f);
    run[2] = serve(f);
    assert_null(fair_next(f)); /* 10 of 10 */
    fair_done(f, &run[2]->f, 0);
    run[2] = serve(f);
    assert_int_equal(run[2]->f.weight, 1);
    for (int i = 0; i < 3; i++)
        fair_done(f, &run[i]->f, 0);
    assert_int_equal(fair_waiting(f) + fair_running(f), 0);
    fair_free(f);
}

/* Keys that always have something waiting get the same within one job of each. */
static void test_random_shares(void **state)
{
    uint64_t seed = (uint64_t)time(NULL), had[5] = { 0 };
    struct fair *f = fair_new(&(struct fair_opts){ 0 });
    struct prng p;

    (void)state;
    printf("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (char k = 0; k < 5; k++)
        for (int i = 0; i < 2; i++)
            push(f, k, 1);
    for (int n = 0; n < 20000; n++) {
        struct item *i = serve(f);
        uint64_t cost = 1 + prng_u64(&p) % (1 + 20 * (uint64_t)i->key);
        char key = i->key;
        had[(size_t)key] += cost;
        fair_done(f, &i->f, cost);
        assert_true(fair_push(f, (uint64_t)key, 1, &i->f));
    }
    for (size_t k = 1; k < 5; k++)
        assert_true(had[k] <= had[0] + 200 && had[0] <= had[k] + 200);
    (void)order(f, ITEMS, 0);
    fair_free(f);
}

/* Keys that come once each leave nothing behind. */
static void test_keys_are_forgotten(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ 0 });
    struct fair_item keep = { 0 };

    (void)state;
    assert_true(fair_push(f, 1, 1, &keep));
    for (uint64_t k = 2; k < 20000; k++) {
        struct fair_item i = { 0 };
        assert_true(fair_push(f, k, 1, &i));
        fair_take(f, &i);
        fair_done(f, &i, 1000);
    }
    assert_true(fair_keys(f) <= 4097);
    fair_drop(f, &keep);
    assert_int_equal(fair_keys(f), 0);
    fair_free(f);
}

static void test_a_paused_item_is_the_next_of_its_key(void **state)
{
    struct fair *f = fair_new(&(struct fair_opts){ .running_max = 1 });
    struct item *h = push(f, 'h', 10);

    (void)state;
    push(f, 'h', 10);
    assert_ptr_equal(serve(f), h);
    assert_false(fair_ahead(f, &h->f, 5, false));
    struct item *q = push(f, 'q', 10);
    assert_true(fair_ahead(f, &h->f, 5, false));
    fair_pause(f, &h->f, 5, 10);
    assert_true(h->f.paused);
    assert_int_equal(fair_waiting(f), 3);
    assert_int_equal(fair_running(f), 0);
    assert_ptr_equal(serve(f), q);
    assert_ptr_equal(serve(f), h); /* before the other of its key */
    assert_false(h->f.paused);
    assert_false(fair_ahead(f, &h->f, 1, false)); /* q runs, and does not wait */
    assert_true(fair_ahead(f, &h->f, 6, true));
    assert_false(fair_ahead(f, &q->f, 14, true)); /* it had 14, h 5 and a guess of 10 */
    assert_true(fair_ahead(f, &q->f, 16, true));
    fair_done(f, &q->f, 0);
    fair_done(f, &h->f, 0);
    assert_string_equal(order(f, 5, 0), "h");
    fair_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_who_piles_up_waits_behind_himself),
        cmocka_unit_test(test_a_paused_item_is_the_next_of_its_key),
        cmocka_unit_test(test_cost_counts_not_number),
        cmocka_unit_test(test_real_cost_is_paid_later),
        cmocka_unit_test(test_who_was_away_has_no_credit_and_keeps_his_debt),
        cmocka_unit_test(test_limits_of_a_key),
        cmocka_unit_test(test_weight),
        cmocka_unit_test(test_random_shares),
        cmocka_unit_test(test_keys_are_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
