/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings whose writer died: the chunks it finished are taken, the rest is counted; with none it
 * is refused. A recording that was cut on its way is refused whatever its chunks are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "common/base/wr.h"
#include "tests/lib/gen/gen_jfr.h"
#include "tests/lib/roles/dist_push.h"

static int decode(struct dist_push *d, struct str body, struct err *e)
{
    struct limits l = limits_default();
    const struct ingest_raw raw = { .name = STR("app"),
                                    .format = STR("jfr"),
                                    .sample_rate = STR("0") };

    return dist_decode_raw(d, &raw, body, &l, e);
}

/* n chunks of one CPU sample each; *ret_last is where the last one begins. */
static void chunks(struct gen_jfr *g, struct prng *p, size_t n, size_t *ret_last)
{
    prng_init(p, 11);
    gen_jfr_init(g, p);
    for (size_t i = 0; i < n; i++) {
        *ret_last = g->file.len;
        gen_jfr_chunk(g);
        struct gen_jfr_frame leaf = { gen_jfr_method(g, "demo/Main", "leaf"), 12 };
        gen_jfr_event(g, &(struct gen_jfr_event){
                             .is = GEN_JFR_CPU, .trace = gen_jfr_trace(g, &leaf, 1), .value = 1 });
        gen_jfr_finish(g);
    }
}

struct row {
    const char *name;
    uint64_t size; /* 0 and 1: as it is, else this */
    bool zero_size, zero_offsets;
    uint8_t state;
    size_t kept; /* bytes of the last chunk that the file has; 0: all */
};
static const struct row rows[] = {
    { "async-profiler", GIB, false, true, 0, 0 },
    { "async-profiler, only a header", GIB, false, true, 0, 68 },
    { "JDK", 0, true, true, 255, 0 },
    { "JDK, old offsets", 0, true, false, 255, 0 },
    { "JDK, while its header is written", 0, false, false, 255, 0 },
    { "JDK, cut as well", 0, true, true, 255, 100 },
};

static void make(const struct row *r, struct gen_jfr *g, size_t last)
{
    char *p = g->file.ptr + last;

    if (r->size || r->zero_size)
        put_u64be(p + 8, r->size);
    if (r->zero_offsets)
        memset(p + 16, 0, 16);
    p[64] = (char)r->state;
    if (r->kept)
        g->file.len = last + r->kept;
}

static void test_rest_is_taken(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (size_t n = 1; n < 4; n++) {
            struct gen_jfr g;
            struct prng p;
            struct dist_push d;
            struct err e = { 0 };
            size_t last;
            chunks(&g, &p, n, &last);
            make(&rows[i], &g, last);
            int rc = decode(&d, buf_str(&g.file), &e);
            if (n == 1) {
                if (rc != ERR_INPUT || !strstr(e.text, "nothing of these"))
                    fail_msg("%s: %d %s", rows[i].name, rc, e.text);
            } else {
                if (rc)
                    fail_msg("%s: %s", rows[i].name, e.text);
                assert_int_equal(d.push.samples, n - 1);
                assert_int_equal(d.push.drops[DROP_UNFINISHED], g.file.len - last);
                const struct push_series *s = dist_series(&d.push, "cpu");
                assert_non_null(s);
                assert_true(s->total > 0);
            }
            dist_push_free(&d);
            gen_jfr_deinit(&g);
        }
    }
}

/* The last flush is all there; what was written since has no end. */
static void test_unflushed(void **state)
{
    (void)state;
    for (int flushed = 0; flushed < 2; flushed++) {
        struct gen_jfr g;
        struct prng p;
        struct dist_push d;
        struct err e = { 0 };
        size_t last;
        chunks(&g, &p, 2, &last);
        g.file.ptr[last + 64] = flushed ? 3 : 0;
        buf_add_str(&g.file, STR("\x12\x34 events which have no length"));
        int rc = decode(&d, buf_str(&g.file), &e);
        if (flushed) {
            assert_int_equal(rc, 0);
            assert_int_equal(d.push.samples, 2);
            assert_int_equal(d.push.drops[DROP_UNFINISHED], 30);
        } else {
            assert_int_equal(rc, ERR_INPUT); /* a finished chunk has nothing behind it */
        }
        dist_push_free(&d);
        gen_jfr_deinit(&g);
    }
}

/* Cut anywhere inside the last chunk: the sender has the rest. */
static void test_cut_is_refused(void **state)
{
    struct gen_jfr g;
    struct prng p;
    size_t last;

    (void)state;
    chunks(&g, &p, 2, &last);
    for (size_t len = last + 1; len < g.file.len; len++) {
        struct dist_push d;
        struct err e = { 0 };
        assert_int_equal(decode(&d, str_n(g.file.ptr, len), &e), ERR_INPUT);
        dist_push_free(&d);
    }
    gen_jfr_deinit(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rest_is_taken),
        cmocka_unit_test(test_unflushed),
        cmocka_unit_test(test_cut_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
