/* SPDX-License-Identifier: Apache-2.0
 *
 * Multipart pushes: profile, sample_type_config, prev_profile.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

#define TYPE "multipart/form-data; boundary=xYz"

static void add_part(struct buf *b, const char *name, struct str content)
{
    buf_addf(b,
             "--xYz\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"f\"\r\n"
             "Content-Type: application/octet-stream\r\n\r\n",
             name);
    buf_add_str(b, content);
    buf_add_str(b, STR("\r\n"));
}

/* prev and config may be {NULL, 0}. */
static int decode(struct dist_push *d, struct str cur, struct str prev, struct str config,
                  struct err *e)
{
    struct limits l = limits_default();
    struct buf body;

    buf_init(&body, 64 * MIB);
    add_part(&body, "profile", cur);
    if (prev.ptr)
        add_part(&body, "prev_profile", prev);
    if (config.ptr)
        add_part(&body, "sample_type_config", config);
    buf_add_str(&body, STR("--xYz--\r\n"));
    int rc = dist_decode(d, "app", NULL, TYPE, buf_str(&body), &l, e);
    buf_deinit(&body);
    return rc;
}

static int decode_twice(struct dist_push *d, struct str cur, struct err *e)
{
    struct limits l = limits_default();
    struct buf body;

    buf_init(&body, 64 * MIB);
    add_part(&body, "profile", cur);
    add_part(&body, "profile", cur);
    buf_add_str(&body, STR("--xYz--\r\n"));
    int rc = dist_decode(d, "app", NULL, TYPE, buf_str(&body), &l, e);
    buf_deinit(&body);
    return rc;
}

/* A heap profile: the stack main;f<i> with size label `size`. */
struct sample {
    int fn;
    int64_t size, values[2];
};
static void make(struct buf *body, const struct sample *s, size_t n, bool backwards)
{
    struct gen_pprof g;
    uint64_t fns[4];

    gen_pprof_init(&g);
    gen_type(&g, "alloc_space", "bytes");
    gen_type(&g, "inuse_space", "bytes");
    for (int i = 0; i < 4; i++) { /* ids and strings mean nothing across bodies */
        char name[8];
        int fn = backwards ? 3 - i : i;
        snprintf(name, sizeof(name), "f%d", fn);
        g.locations = (uint64_t)(backwards ? 100 + i : i);
        uint64_t id = gen_location(&g, gen_function(&g, name, "a.go"), fn);
        fns[fn] = id;
    }
    for (size_t i = 0; i < n; i++) {
        gen_label_num(&g, "bytes", s[i].size);
        gen_sample(&g, &fns[s[i].fn], 1, s[i].values, 2);
    }
    buf_init(body, MIB);
    gen_pprof_finish(&g, body);
    gen_pprof_deinit(&g);
}

static void check(struct dist_push *d, const char *want)
{
    struct buf rows;

    dist_rows(&d->push, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("got\n%.*swant\n%s", STR_ARG(buf_str(&rows)), want);
    buf_deinit(&rows);
}

/* Addresses are part of a key, so both bodies must be made with the same ones: not backwards. */
static void test_subtract(void **state)
{
    (void)state;
    static const struct sample before[] = {
        { 0, 16, { 100, 5 } },
        { 0, 32, { 50, 5 } },
        { 1, 16, { 10, 1 } },
        { 3, 16, { 7, 7 } },
    };
    static const struct sample after[] = {
        { 0, 16, { 130, 6 } }, /* +30 */
        { 0, 32, { 40, 4 } },  /* -10: nothing, and must not eat the +30 */
        { 1, 16, { 10, 2 } },  /* unchanged */
        { 2, 16, { 9, 3 } },   /* new */
    };
    struct buf cur, prev;
    struct dist_push d;
    struct err e;

    make(&cur, after, ARRAY_LEN(after), false);
    make(&prev, before, ARRAY_LEN(before), false);
    assert_int_equal(decode(&d, buf_str(&cur), buf_str(&prev), STR_NULL, &e), 0);
    check(&d, "alloc_space\t{}\tf0\t30\n"
              "alloc_space\t{}\tf2\t9\n"
              "inuse_space\t{}\tf0\t10\n"
              "inuse_space\t{}\tf1\t2\n"
              "inuse_space\t{}\tf2\t3\n");
    assert_int_equal(d.push.drops[DROP_DELTA_NEGATIVE], 1);
    dist_push_free(&d);
    /* The configuration decides what is cumulative. */
    assert_int_equal(decode(&d, buf_str(&cur), buf_str(&prev),
                            STR("{\"alloc_space\":{},\"inuse_space\":{\"cumulative\":true}}"), &e),
                     0);
    check(&d, "alloc_space\t{}\tf0\t170\n"
              "alloc_space\t{}\tf1\t10\n"
              "alloc_space\t{}\tf2\t9\n"
              "inuse_space\t{}\tf0\t1\n"
              "inuse_space\t{}\tf1\t1\n"
              "inuse_space\t{}\tf2\t3\n");
    dist_push_free(&d);
    /* An empty prev_profile counts as absent. The profile itself leaves no cumulative values. */
    assert_int_equal(decode(&d, buf_str(&cur), STR(""), STR_NULL, &e), 0);
    assert_int_equal(dist_series(&d.push, "alloc_space")->total, 189);
    dist_push_free(&d);
    assert_int_equal(decode(&d, buf_str(&cur), buf_str(&cur), STR_NULL, &e), 0);
    assert_null(dist_series(&d.push, "alloc_space"));
    assert_int_equal(dist_series(&d.push, "inuse_space")->total, 15);
    dist_push_free(&d);
    buf_deinit(&cur);
    buf_deinit(&prev);
}

static void test_parts(void **state)
{
    (void)state;
    static const struct sample one[] = { { 0, 16, { 1, 2 } } };
    struct limits l = limits_default();
    struct buf cur, gz, other;
    struct dist_push d;
    struct gen_pprof g;
    struct err e;

    make(&cur, one, 1, true);
    buf_init(&gz, MIB);
    assert_int_equal(gzip(buf_str(&cur), 1, &gz, &e), 0);
    assert_int_equal(decode(&d, buf_str(&gz), STR_NULL, STR_NULL, &e), 0); /* zipped part */
    check(&d, "alloc_space\t{}\tf0\t1\ninuse_space\t{}\tf0\t2\n");
    dist_push_free(&d);
    assert_int_equal(decode(&d, STR(""), STR_NULL, STR_NULL, &e), 0); /* empty: nothing stored */
    assert_int_equal(d.push.series_len, 0);
    dist_push_free(&d);
    assert_int_equal(decode(&d, STR("hello"), STR_NULL, STR_NULL, &e), ERR_INPUT);
    dist_push_free(&d);
    assert_int_equal(decode(&d, buf_str(&cur), STR("hello"), STR_NULL, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "prev_profile"));
    dist_push_free(&d);
    assert_int_equal(decode(&d, buf_str(&cur), STR_NULL, STR("{"), &e), ERR_INPUT);
    dist_push_free(&d);
    /* display-name renames the series, not the type */
    assert_int_equal(decode(&d, buf_str(&cur), STR_NULL,
                            STR("{\"alloc_space\":{\"display-name\":\"cpu\"}}"), &e),
                     0);
    assert_true(str_eqc(dist_series(&d.push, "alloc_space")->profile_type,
                        "process_cpu:alloc_space:bytes::"));
    dist_push_free(&d);
    /* other sample types */
    gen_pprof_init(&g);
    gen_type(&g, "alloc_space", "bytes");
    buf_init(&other, MIB);
    gen_pprof_finish(&g, &other);
    assert_int_equal(decode(&d, buf_str(&cur), buf_str(&other), STR_NULL, &e), ERR_INPUT);
    dist_push_free(&d);
    /* two of one name: which one counts would be a guess, and the other one lost */
    assert_int_equal(decode_twice(&d, buf_str(&cur), &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "2 parts named \"profile\""));
    dist_push_free(&d);
    /* no file part of that name */
    assert_int_equal(
        dist_decode(&d, "app", NULL, TYPE,
                    STR("--xYz\r\nContent-Disposition: form-data; name=\"profile\"\r\n\r\nx\r\n"
                        "--xYz--"),
                    &l, &e),
        ERR_INPUT);
    assert_non_null(strstr(e.text, "has no filename"));
    dist_push_free(&d);
    /* base64 parts would be stored as garbage */
    assert_int_equal(dist_decode(&d, "app", NULL, TYPE,
                                 STR("--xYz\r\nContent-Transfer-Encoding: base64\r\n"
                                     "Content-Disposition: form-data; name=\"profile\"; "
                                     "filename=\"f\"\r\n\r\nCgA=\r\n--xYz--"),
                                 &l, &e),
                     ERR_INPUT);
    dist_push_free(&d);
    gen_pprof_deinit(&g);
    buf_deinit(&cur);
    buf_deinit(&gz);
    buf_deinit(&other);
}

/* Pairs of real profiles; expected totals are over keys as the agent counts them. */
static void test_samples(void **state)
{
    (void)state;
    static const char *const names[] = { "heap", "block", "stress-failure.3" };

    if (!testdata_here("pprof-delta"))
        skip();
    json_t *all = testdata_json("expected/pprof-delta.json");
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct buf before, after;
        struct dist_push d;
        struct err e;
        char path[128];
        size_t k;
        json_t *type;
        snprintf(path, sizeof(path), "pprof-delta/%s.before.pprof", names[i]);
        testdata_read(path, &before);
        snprintf(path, sizeof(path), "pprof-delta/%s.after.pprof", names[i]);
        testdata_read(path, &after);
        if (decode(&d, buf_str(&after), buf_str(&before), STR_NULL, &e))
            fail_msg("%s: %s", names[i], e.text);
        json_array_foreach(json_object_get(json_object_get(all, names[i]), "sample_types"), k, type)
        {
            const char *name = json_string_value(json_object_get(type, "type"));
            const struct push_series *s = dist_series(&d.push, name);
            assert_int_equal(s ? s->total : 0,
                             json_integer_value(json_object_get(type, "delta_total_of_positive")));
        }
        dist_push_free(&d);
        buf_deinit(&before);
        buf_deinit(&after);
    }
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subtract),
        cmocka_unit_test(test_parts),
        cmocka_unit_test(test_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
