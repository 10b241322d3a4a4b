/* SPDX-License-Identifier: Apache-2.0
 *
 * Pushes of too many stacks, or too deep ones: names are lost, values are not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "distributor/base/options.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

static void check_text(const struct limits *l, const char *body, const char *want, uint64_t over)
{
    struct dist_push d;
    struct buf rows;
    struct err e;

    assert_int_equal(dist_decode(&d, "app.alloc_objects", NULL, NULL, str_c(body), l, &e), 0);
    dist_rows(&d.push, &rows);
    buf_add_c(&rows, '\0');
    assert_string_equal(rows.ptr, want);
    assert_int_equal(d.push.drops[CHANGE_STACKS], over);
    buf_deinit(&rows);
    dist_push_free(&d);
}

static void test_text(void **state)
{
    struct limits l = limits_default();

    (void)state;
    l.stacks = 2;
    check_text(&l, "a;b;c 1\na;d 2\na;b;x;y 4\nq 8\na;b 16\na;b;c 32\n",
               "alloc_objects\t{}\t[overflow]\t8\n"
               "alloc_objects\t{}\ta;b\t16\n"
               "alloc_objects\t{}\ta;b;[overflow]\t4\n"
               "alloc_objects\t{}\ta;b;c\t33\n"
               "alloc_objects\t{}\ta;d\t2\n",
               2);
    l.stacks = 3;
    check_text(&l, "a 1\nb 2\nc 4\nd 8\ne 16\n",
               "alloc_objects\t{}\t[overflow]\t24\n"
               "alloc_objects\t{}\ta\t1\n"
               "alloc_objects\t{}\tb\t2\n"
               "alloc_objects\t{}\tc\t4\n",
               2);
}

/* The same random stacks as text and as pprof, with any limit: equal sums; what is below the frames
 * of a row that is not cut is at most what was pushed there. */
static void test_totals(void **state)
{
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 100; round++) {
        struct limits l = limits_default();
        struct dist_push text_push, pprof_push;
        struct gen_pprof g;
        struct buf lines, body;
        uint64_t functions[12], total = 0;
        struct err e;

        l.stacks = 1 + prng_below(&p, 30);
        l.frames_keep = prng_below(&p, 2) ? 8 : 1024;
        gen_pprof_init(&g);
        gen_type(&g, "alloc_objects", "count");
        for (int i = 0; i < 12; i++) {
            char name[8];
            (void)snprintf(name, sizeof(name), "f%d", i);
            functions[i] = gen_location(&g, gen_function(&g, name, ""), 0);
        }
        buf_init(&lines, MIB);
        buf_init(&body, MIB);
        for (size_t n = 1 + prng_below(&p, 80); n > 0; n--) {
            uint64_t ids[12];
            size_t depth = 1 + prng_below(&p, 12);
            int64_t value = 1 + (int64_t)prng_below(&p, 1000);

            for (size_t i = 0; i < depth; i++) { /* root first in the text, last in the ids */
                size_t f = prng_below(&p, i < 3 ? 2 : 12);
                ids[depth - 1 - i] = functions[f];
                buf_addf(&lines, "%sf%zu", i ? ";" : "", f);
            }
            buf_addf(&lines, " %" PRId64 "\n", value);
            gen_sample(&g, ids, depth, &value, 1);
            total += (uint64_t)value;
        }
        gen_pprof_finish(&g, &body);
        if (dist_decode(&text_push, "app.alloc_objects", NULL, NULL, buf_str(&lines), &l, &e) ||
            dist_decode(&pprof_push, "app", "pprof", NULL, buf_str(&body), &l, &e))
            fail_msg("%s", e.text);
        assert_int_equal(text_push.push.series[0].total, total);
        assert_int_equal(pprof_push.push.series[0].total, total);
        struct buf a, b;
        dist_rows(&text_push.push, &a);
        dist_rows(&pprof_push.push, &b);
        assert_true(str_eq(buf_str(&a), buf_str(&b))); /* both cut at the same stacks */
        assert_int_equal(text_push.push.drops[CHANGE_STACKS] > 0,
                         str_contains(buf_str(&a), STR("[overflow]")));
        buf_deinit(&a);
        buf_deinit(&b);
        buf_deinit(&lines);
        buf_deinit(&body);
        gen_pprof_deinit(&g);
        dist_push_free(&text_push);
        dist_push_free(&pprof_push);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_totals),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
