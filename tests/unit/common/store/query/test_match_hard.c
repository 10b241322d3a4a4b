/* SPDX-License-Identifier: Apache-2.0
 *
 * Regexes over 100,000 values of a label: an answer that is right, or ERR_LIMIT; never a part.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/size.h"
#include "common/model/regex.h"
#include "common/model/slot.h"
#include "tests/lib/store/store_bed.h"

#ifdef DEBUG
#define VALUES 20000 /* sanitizers make each dear */
#else
#define VALUES 100000
#endif
#define BATCH_PUTS 1000

/* pod = "<number>-aa..a": 40 bytes each, value 1. */
static void fill(struct store_bed *b)
{
    for (int i = 0; i < VALUES; i += BATCH_PUTS) {
        struct store_batch *batch = store_batch_new(b->s);
        struct store_result result;
        struct err e;
        for (int k = i; k < i + BATCH_PUTS; k++) {
            char labels[64];
            (void)snprintf(labels, sizeof(labels), "pod=%06d-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", k);
            struct bed_push p = {
                .labels = labels, .stacks = "a=1", .slot = store_bed_slot(b), .wid = (uint64_t)k + 1
            };
            if (store_bed_stage(b, batch, &p, &result, &e))
                fail_msg("stage: %s", e.text);
        }
        if (store_commit(b->s, batch, &e))
            fail_msg("commit: %s", e.text);
    }
}

/* The total, or the error's code, negative. */
static int64_t ask(struct store_bed *b, const char *selector, uint64_t *steps_left)
{
    struct arena *a = arena_new(64 * MIB);
    struct store_merge m = { 0 };
    struct selector s;
    struct stacks st;
    struct err e;
    int64_t ret;

    assert_int_equal(selector_parse(str_c(selector), SELECTOR_PROMETHEUS, a, &s, &e), 0);
    if (selector_compile(&s, &e))
        fail_msg("%s: %s", selector, e.text);
    selector_limit(&s, steps_left);
    struct store_query q = { .tenant = STR("t"),
                             .selector = &s,
                             .profile_type = STR(BED_CPU),
                             .start_ms = slot_to_ms(store_bed_slot(b) - 10),
                             .end_ms = slot_to_ms(store_bed_slot(b) + 10) };
    stacks_init(&st, 64 * MIB, 3);
    m.stacks = &st;
    struct store_view *v = store_view_get(b->s);
    ret = store_merge(v, &q, &m, &e) ? -(int64_t)e.code : (int64_t)m.total;
    store_view_put(v);
    store_merge_deinit(&m);
    stacks_deinit(&st);
    selector_deinit(&s);
    arena_free(a);
    return ret;
}

static void test_patterns_over_many_values(void **state)
{
    (void)state;
    static const struct {
        const char *selector;
        int64_t want; /* negative: the code */
    } rows[] = {
        { "{pod=~\".*\"}", VALUES },
        { "{pod=~\"0000.*\"}", 100 },
        { "{pod=~\"[0-9]+-a+\"}", VALUES },
        { "{pod!~\"0(0|1|2).*\"}", VALUES > 30000 ? VALUES - 30000 : 0 },
        { "{pod=~\".*9-(a|aa|aaa)a*\"}", VALUES / 10 },
        { "{pod=~\"(a+)+$\"}", 0 },        /* does not begin with a: at once */
        { "{pod=~\"[0-9-]*(a+)+b\"}", 0 }, /* without a b: at once */
        { "{pod=~\"[0-9-]*(a+)+[bc]\"}", -ERR_LIMIT },
        { "{pod=~\"[0-9-]*(a|aa)+[bc]\"}", -ERR_LIMIT },
        { "{pod=~\"(.*)*[xy]\"}", -ERR_LIMIT },
        { "{pod!~\"([a-z0-9-]+)*[!?]\"}", -ERR_LIMIT },
        /* Each value takes some thousand steps: one by one allowed, 100,000 are not. */
        { "{pod=~\".*.*.*[xy]\"}", -ERR_LIMIT },
        { "{pod=~\"0000.*\",pod=~\".*.*.*[xy]\"}", -ERR_LIMIT },
    };
    struct store_bed b;

    store_bed_init(&b, &(struct store_opts){ .names_bytes_max = 512 * MIB });
    fill(&b);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t steps = REGEX_QUERY_STEPS;
        int64_t got = ask(&b, rows[i].selector, &steps);
        if (got != rows[i].want)
            fail_msg("%s: %lld, want %lld", rows[i].selector, (long long)got,
                     (long long)rows[i].want);
    }
    store_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_patterns_over_many_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
