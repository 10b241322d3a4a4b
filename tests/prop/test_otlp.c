/* SPDX-License-Identifier: Apache-2.0
 *
 * Random requests, written in every layout and both encodings, against the model. Holds: what comes
 * out is what was put in, or the body is refused because its layout cannot be told, and then it is
 * read rightly once the layout is named.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "distributor/otlp/otlp_push.h"
#include "tests/lib/gen/gen_otlp.h"
#include "tests/lib/roles/batch_keep.h"

#define NOW_MS INT64_C(1790000000000)
#define RUNS   300

static uint64_t seed, undecided, decided;

static void compare(const struct gen_otlp *g, struct str body, enum otlp_layout layout, bool json,
                    const char *what)
{
    struct batch_keep k;
    struct buf want, got;
    struct err e = { 0 };

    batch_keep_init(&k, NULL, NOW_MS);
    int rc = json ? otlp_decode_json(body, &k.sink, &e)
                  : otlp_decode_proto(body, OTLP_AUTO, &k.sink, &e);
    if (rc && !json && strstr(e.text, "cannot tell")) {
        assert_int_equal(k.pushes.len, 0);
        undecided++;
        rc = otlp_decode_proto(body, layout, &k.sink, &e);
    } else {
        decided++;
    }
    if (rc)
        fail_msg("seed %llu %s %s: %s", (unsigned long long)seed, otlp_layout_name(layout), what,
                 e.text);
    buf_init(&want, 16 * MIB);
    buf_init(&got, 16 * MIB);
    gen_otlp_rows(g, &want);
    batch_keep_rows(&k, &got);
    if (!str_eq(buf_str(&want), buf_str(&got)))
        fail_msg("seed %llu %s %s: want\n%.*s\ngot\n%.*s", (unsigned long long)seed,
                 otlp_layout_name(layout), what, STR_ARG(buf_str(&want)), STR_ARG(buf_str(&got)));
    vec_for (i, &k.pushes) {
        const struct batch_kept *p = k.pushes.ptr[i];
        assert_true(p->push.has_time && p->push.time_ns == g->profiles.ptr[i].time_ns);
        assert_true(p->push.duration_ns == g->profiles.ptr[i].duration_ns);
        assert_true((p->id != NULL) == g->profiles.ptr[i].has_id && p->identity);
    }
    assert_int_equal(k.rejected, 0);
    buf_deinit(&want);
    buf_deinit(&got);
    batch_keep_free(&k);
}

static void test_layouts(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    struct prng p;
    struct gen_otlp g;
    struct buf body;

    seed = given ? strtoull(given, NULL, 10) : 20261121;
    printf("SEED=%llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    buf_init(&body, 16 * MIB);
    for (int i = 0; i < RUNS; i++) {
        unsigned how = (unsigned)prng_below(&p, 16);
        gen_otlp_random(&g, &p);
        for (int layout = OTLP_15; layout < OTLP_LAYOUTS; layout++) {
            buf_reset(&body);
            gen_otlp_proto(&g, (enum otlp_layout)layout, how, &body);
            compare(&g, buf_str(&body), (enum otlp_layout)layout, false, "proto");
            buf_reset(&body);
            gen_otlp_json(&g, (enum otlp_layout)layout, how, &body);
            compare(&g, buf_str(&body), (enum otlp_layout)layout, true, "JSON");
        }
        gen_otlp_free(&g);
    }
    buf_deinit(&body);
    print_message("layout told from the body: %llu of %llu\n", (unsigned long long)decided,
                  (unsigned long long)(decided + undecided));
    assert_true(undecided * 20 < decided);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_layouts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
