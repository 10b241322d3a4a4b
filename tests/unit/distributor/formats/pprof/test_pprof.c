/* SPDX-License-Identifier: Apache-2.0
 *
 * The pprof decoder on bodies made here (tests/lib/gen/gen_pprof.h), so that it is tested without
 * the sample files: against a slow model, and on every form of the wire.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/pprof/pprof.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

static int decode(struct dist_push *d, struct str body, const struct limits *l, struct err *e)
{
    return dist_decode(d, "app", "pprof", NULL, body, l, e);
}

/* Decodes what g has; fails the test unless the code is `want`. */
static void decode_gen(struct gen_pprof *g, struct dist_push *d, const struct limits *l, int want)
{
    struct buf body;
    struct err e = { 0 };

    buf_init(&body, 512 * MIB);
    gen_pprof_finish(g, &body);
    int rc = decode(d, buf_str(&body), l, &e);
    if (rc != want)
        fail_msg("%s %s, want %s", err_name(rc), e.text, err_name(want));
    buf_deinit(&body);
    gen_pprof_deinit(g);
}

static void begin(struct gen_pprof *g)
{
    gen_pprof_init(g);
    gen_type(g, "cpu", "nanoseconds");
}

static void check_rows(const struct push *p, const char *want)
{
    struct buf rows;

    dist_rows(p, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("got\n%.*swant\n%s", STR_ARG(buf_str(&rows)), want);
    buf_deinit(&rows);
}

/* ---- against the model --------------------------------------------------------------------- */

static void test_random(void **state)
{
    (void)state;
    struct limits l = limits_default();
    uint64_t seed = (uint64_t)time(NULL);
    struct prng p;

    printf("seed %" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 60; round++) {
        struct gen_random r;
        struct dist_push d;
        struct buf rows;
        struct err e = { 0 };
        gen_random_pprof(&p, 1 + prng_below(&p, 120), &r);
        if (decode(&d, buf_str(&r.body), &l, &e))
            fail_msg("round %d: %s", round, e.text);
        dist_rows(&d.push, &rows);
        if (!str_eq(buf_str(&rows), buf_str(&r.rows)))
            fail_msg("round %d: got\n%.*swant\n%.*s", round, STR_ARG(buf_str(&rows)),
                     STR_ARG(buf_str(&r.rows)));
        assert_int_equal(d.push.samples, r.samples);
        assert_int_equal(d.push.drops[DROP_NEGATIVE] + d.push.drops[DROP_UNKNOWN_LOCATION],
                         r.dropped);
        buf_deinit(&rows);
        dist_push_free(&d);
        gen_random_deinit(&r);
    }
}

/* ---- what becomes of odd things ------------------------------------------------------------ */

static void test_frames(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct dist_push d;
    struct gen_pprof g;

    begin(&g);
    uint64_t m = gen_mapping(&g, 0x400000, 0x500000, 0x1000, "/usr/bin/app (deleted)", "abcdef01");
    uint64_t n = gen_mapping(&g, 0x600000, 0x700000, 0, "/lib/libx.so", "unknown");
    uint64_t fake = gen_mapping(&g, 9, 3, 0, "jit", "");
    uint64_t fns[3] = { gen_function(&g, "inner", "a.go"), gen_function(&g, "mid", "a.go"),
                        gen_function(&g, "outer", "b.go") };
    uint64_t inlined = gen_location_inlined(&g, fns, 3);
    uint64_t nameless = gen_location(&g, gen_function(&g, "", ""), -5);
    uint64_t at[] = {
        gen_location_address(&g, m, 0x400010), /* build id: offset 0x1010 */
        gen_location_address(&g, n, 0x600020), /* no build id: name of the mapping */
        gen_location_address(&g, fake, 0x77),  /* start > limit: the raw address */
        gen_location_address(&g, 99, 0x88),    /* no such mapping */
        gen_location_address(&g, m, 0x10),     /* outside the mapping: as it is */
        gen_location_address(&g, 0, 0),        /* neither line nor address: no frame */
        gen_location(&g, 12345, 1),            /* no such function: by its address */
        inlined,
        nameless,
    };
    int64_t v[] = { 1 };
    for (size_t i = 0; i < ARRAY_LEN(at); i++)
        gen_sample(&g, &at[i], 1, v, 1);
    decode_gen(&g, &d, &l, 0);
    check_rows(&d.push, "cpu\t{}\t<no name>\t1\n"
                        "cpu\t{}\t[unknown]\t1\n"
                        "cpu\t{}\tapp!0x10\t1\n"
                        "cpu\t{}\tapp!0x1010\t1\n"
                        "cpu\t{}\tjit!0x77\t1\n"
                        "cpu\t{}\tlibx.so!0x20\t1\n"
                        "cpu\t{}\touter;mid;inner\t1\n"
                        "cpu\t{}\tunknown!0x400080\t1\n"
                        "cpu\t{}\tunknown!0x88\t1\n");
    const struct stacks *s = &d.push.stacks;
    bool seen = false;
    for (size_t i = 0; i < s->frame_func.len; i++) {
        struct str module = stacks_string_at(s, s->frame_module.ptr[i]);
        seen |= str_eqc(module, "abcdef01") && s->frame_addr.ptr[i] == 0x1010;
        /* With symbols there is no address, but the line at which the function begins. */
        struct str func = stacks_string_at(s, s->frame_func.ptr[i]);
        if (func.len)
            assert_int_equal(s->frame_addr.ptr[i], str_eqc(func, "[unknown]") ? 0 : 1);
    }
    assert_true(seen);
    dist_push_free(&d);
}

static void test_spies(void **state)
{
    (void)state;
    static const struct {
        const char *spy, *relative, *absolute;
    } rows[] = {
        { "pyspy", "a.py f", "f" },
        { "rbspy", "a.py f", "/lib/b.py f" },
        { "scripting", "a.py f", "/lib/b.py f" },
        { "gospy", "f", "f" },
        { "", "f", "f" },
    };
    struct limits l = limits_default();

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ingest_raw raw = { .name = STR("app"),
                                  .format = STR("pprof"),
                                  .spy_name = str_c(rows[i].spy) };
        struct gen_pprof g;
        struct dist_push d;
        struct buf body;
        struct err e;
        char want[256];
        begin(&g);
        uint64_t ids[] = { gen_location(&g, gen_function(&g, "f", "a.py"), 1),
                           gen_location(&g, gen_function(&g, "f", "/lib/b.py"), 1) };
        int64_t v = 3;
        gen_sample(&g, ids, 2, &v, 1);
        buf_init(&body, MIB);
        gen_pprof_finish(&g, &body);
        assert_int_equal(dist_decode_raw(&d, &raw, buf_str(&body), &l, &e), 0);
        snprintf(want, sizeof(want), "cpu\t{}\t%s;%s\t3\n", rows[i].absolute, rows[i].relative);
        check_rows(&d.push, want);
        assert_true(str_eqc(labels_get(&d.push.series[0].labels, STR("pyroscope_spy")),
                            *rows[i].spy ? rows[i].spy : "unknown"));
        dist_push_free(&d);
        buf_deinit(&body);
        gen_pprof_deinit(&g);
    }
}

static void test_types(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;

    gen_pprof_init(&g);
    gen_type(&g, "samples", "count");
    gen_type(&g, "alloc-size", "bytes");
    gen_type(&g, "samples", "count"); /* once more */
    gen_type(&g, "a:b\"{", "");
    gen_type(&g, "inuse_space", "bytes");
    gen_period(&g, "samples", "count", 7);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, (int64_t[]){ 1, 2, 3, 4, 5 }, 5);
    gen_sample(&g, &at, 1, (int64_t[]){ 1, 2, 3, 4 }, 4);       /* too few */
    gen_sample(&g, &at, 1, (int64_t[]){ 1, 2, 3, 4, 5, 6 }, 6); /* too many */
    gen_sample(&g, &at, 1, (int64_t[]){ 0, 0, 0, 0, 0 }, 5);
    decode_gen(&g, &d, &l, 0);
    static const struct {
        const char *id;
        uint64_t total, unit;
        bool gauge;
    } want[] = {
        { "process_cpu:samples:count:samples:count", 1, 7, false },
        { "process_cpu:alloc_size:bytes:samples:count", 2, 1, false },
        { "process_cpu:samples_2:count:samples:count", 3, 1, false },
        { "process_cpu:a_b__::samples:count", 4, 1, false },
        { "process_cpu:inuse_space:bytes:samples:count", 5, 1, true },
    };
    assert_int_equal(d.push.series_len, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct push_series *s = &d.push.series[i];
        if (!str_eqc(s->profile_type, want[i].id))
            fail_msg("%.*s, want %s", STR_ARG(s->profile_type), want[i].id);
        assert_int_equal(s->total, want[i].total);
        assert_int_equal(s->unit, want[i].unit);
        assert_int_equal(s->gauge, want[i].gauge);
        assert_true(str_eq(labels_get(&s->labels, STR("__profile_type__")), s->profile_type));
        assert_true(str_eqc(labels_get(&s->labels, STR("__service_name__")), "app"));
    }
    assert_int_equal(d.push.drops[DROP_VALUE_COUNT], 2);
    dist_push_free(&d);
}

/* Node's SDK sends CPU time beside wall time: elsewhere it is found as a CPU profile. */
static void test_cpu_time_of_wall_profiles(void **state)
{
    (void)state;
    static const char *const want[] = { "wall:samples:count:wall:nanoseconds",
                                        "wall:wall:nanoseconds:wall:nanoseconds",
                                        "process_cpu:cpu:nanoseconds:wall:nanoseconds" };
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;

    gen_pprof_init(&g);
    gen_type(&g, "samples", "count");
    gen_type(&g, "wall", "nanoseconds");
    gen_type(&g, "cpu", "nanoseconds");
    gen_period(&g, "wall", "nanoseconds", 10);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, (int64_t[]){ 1, 20, 3 }, 3);
    decode_gen(&g, &d, &l, 0);
    assert_int_equal(d.push.series_len, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct push_series *s = &d.push.series[i];
        if (!str_eqc(s->profile_type, want[i]))
            fail_msg("%.*s, want %s", STR_ARG(s->profile_type), want[i]);
        assert_true(
            str_eqc(labels_get(&s->labels, STR("__name__")), i < 2 ? "wall" : "process_cpu"));
    }
    dist_push_free(&d);
}

static void test_saturation(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    int64_t most = INT64_MAX;

    begin(&g);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, &most, 1);
    gen_sample(&g, &at, 1, &most, 1);
    gen_sample(&g, &at, 1, &most, 1);
    decode_gen(&g, &d, &l, 0);
    assert_true(d.push.series[0].values[0] == INT64_MAX);
    assert_int_equal(d.push.drops[CHANGE_SATURATED], 2);
    dist_push_free(&d);
}

/* ---- labels -------------------------------------------------------------------------------- */

static void test_labels(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct ingest_raw raw = { .name = STR("app{env=prod,profile_id=1,__x=2}"),
                              .format = STR("pprof") };
    struct gen_pprof g;
    struct dist_push d;
    struct buf body;
    struct err e;
    int64_t v = 1;

    begin(&g);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "pod", "a"); /* an ordinary one splits */
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "pod", "a"); /* order does not matter, numbers do not */
    gen_label(&g, "zone", "z");
    gen_sample(&g, &at, 1, &v, 1);
    gen_label_num(&g, "bytes", 16);
    gen_label(&g, "zone", "z");
    gen_label(&g, "pod", "a");
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "profile_id", "0123456789abcdef"); /* per request */
    gen_label(&g, "span_id", "x");
    gen_label(&g, "trace_id", "y");
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "env", "evil"); /* the push's own */
    gen_label(&g, "service_name", "evil");
    gen_label(&g, "pyroscope_spy", "evil");
    gen_label(&g, "__name__", "evil");
    gen_label(&g, "__profile_type__", "evil");
    gen_label(&g, "", "evil");
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "a\nb=\"c\"", "x\xff"); /* not fit for a name; not UTF-8 */
    gen_sample(&g, &at, 1, &v, 1);
    gen_label(&g, "pod", "a"); /* the first of two wins */
    gen_label(&g, "pod", "b");
    gen_sample(&g, &at, 1, &v, 1);
    buf_init(&body, MIB);
    gen_pprof_finish(&g, &body);
    assert_int_equal(dist_decode_raw(&d, &raw, buf_str(&body), &l, &e), 0);
    check_rows(&d.push, "cpu\t{a_b__c_=x?,env=prod}\tf\t1\n"
                        "cpu\t{env=prod,pod=a,zone=z}\tf\t2\n"
                        "cpu\t{env=prod,pod=a}\tf\t2\n"
                        "cpu\t{env=prod}\tf\t3\n");
    assert_true(d.push.drops[DROP_LABEL] >= 5);
    dist_push_free(&d);
    buf_deinit(&body);
    gen_pprof_deinit(&g);
}

/* Forty thousand users in a sample label: the series are capped, the total is not touched. */
static void test_label_overflow(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    char user[32];
    int64_t v[2] = { 1, 2 };

    gen_pprof_init(&g);
    gen_type(&g, "samples", "count");
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    for (int i = 0; i < 40000; i++) { /* more than raw sets are remembered */
        snprintf(user, sizeof(user), "u%d", i);
        gen_label(&g, "user", user);
        gen_sample(&g, &at, 1, v, 2);
    }
    l.series = 20;
    decode_gen(&g, &d, &l, 0);
    uint64_t total = 0, overflow = 0;
    for (size_t i = 0; i < d.push.series_len; i++) {
        const struct push_series *s = &d.push.series[i];
        total += s->total;
        if (str_eqc(labels_get(&s->labels, STR("user")), "[overflow]"))
            overflow += s->total;
    }
    assert_int_equal(d.push.series_len, 20);
    assert_int_equal(total, 3 * 40000);
    assert_int_equal(overflow, 3 * (40000 - 9));
    dist_push_free(&d);

    begin(&g); /* a limit of one series: no split at all */
    at = gen_location(&g, gen_function(&g, "f", ""), 1);
    for (int i = 0; i < 5; i++) {
        snprintf(user, sizeof(user), "u%d", i);
        gen_label(&g, "user", user);
        gen_sample(&g, &at, 1, v, 1);
    }
    l.series = 1;
    decode_gen(&g, &d, &l, 0);
    check_rows(&d.push, "cpu\t{}\tf\t5\n");
    dist_push_free(&d);
}

static void test_many_label_names(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    char key[32];
    int64_t v = 1;

    begin(&g);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    for (int i = 0; i < 60; i++) {
        snprintf(key, sizeof(key), "k%02d", i);
        gen_label(&g, key, "x");
    }
    gen_sample(&g, &at, 1, &v, 1);
    decode_gen(&g, &d, &l, 0);
    size_t own = 0;
    for (size_t i = 0; i < d.push.series[0].labels.len; i++)
        own += !str_starts(d.push.series[0].labels.ptr[i].name, STR("__"));
    assert_int_equal(own, l.label_names);
    assert_int_equal(d.push.series[0].total, 1);
    dist_push_free(&d);
}

/* Ids in several pieces, packed and single, mixed: one stack. */
static void test_mixed_packing(void **state)
{
    (void)state;
    struct limits l = limits_default();
    static const char *const forms[] = {
        "\x0a\x02\x02\x01",                 /* packed */
        "\x08\x02\x08\x01",                 /* single */
        "\x08\x02\x0a\x01\x01",             /* single, packed */
        "\x0a\x01\x02\x08\x01",             /* packed, single */
        "\x0a\x01\x02\x0a\x01\x01",         /* packed twice */
        "\x08\x82\x80\x00\x08\x81\x80\x00", /* overlong but valid */
        "\x0a\x00\x08\x02\x0a\x00\x08\x01", /* with empty pieces */
    };
    static const size_t lens[] = { 4, 4, 5, 5, 6, 8, 8 };
    struct gen_pprof g;
    struct dist_push d;

    begin(&g);
    gen_location(&g, gen_function(&g, "root", ""), 1);
    gen_location(&g, gen_function(&g, "leaf", ""), 1);
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        struct buf m;
        buf_init(&m, KIB);
        buf_add(&m, forms[i], lens[i]);
        gen_u64(&m, 2, 1); /* value 1, single */
        gen_bytes(&g.body, 2, buf_str(&m));
        buf_deinit(&m);
    }
    decode_gen(&g, &d, &l, 0);
    check_rows(&d.push, "cpu\t{}\troot;leaf\t7\n");
    dist_push_free(&d);
}

static void test_ids(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    int64_t v = 1;

    begin(&g); /* one id twice */
    gen_location(&g, gen_function(&g, "f", ""), 1);
    g.locations = 0;
    gen_location(&g, 1, 1);
    decode_gen(&g, &d, &l, ERR_INPUT);
    dist_push_free(&d);

    begin(&g); /* id 0 */
    g.id_mul = 0;
    gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_location(&g, 0, 1);
    decode_gen(&g, &d, &l, ERR_INPUT);
    dist_push_free(&d);

    begin(&g); /* .NET: all functions have the id 0, one per location */
    for (uint64_t i = 1; i <= 3; i++) {
        char name[8];
        snprintf(name, sizeof(name), "f%d", (int)i);
        g.id_mul = 0;
        gen_function(&g, name, "");
        g.id_mul = 1;
        gen_location(&g, i, 1);
    }
    gen_sample(&g, (uint64_t[]){ 3, 2, 1 }, 3, &v, 1);
    decode_gen(&g, &d, &l, 0);
    check_rows(&d.push, "cpu\t{}\tf1;f2;f3\t1\n");
    dist_push_free(&d);
}

static void test_time(void **state)
{
    (void)state;
    static const struct {
        int64_t ns;
        int code;
        bool has, identity;
    } rows[] = {
        { 0, 0, false, false },
        { 15000000000, 0, false, false },               /* 1970: an unset clock */
        { INT64_C(1700000000123456), 0, false, false }, /* microseconds */
        { INT64_C(1700000000123456789), 0, true, true },
        { INT64_C(1700000000000000000), 0, true, false },         /* whole seconds prove nothing */
        { INT64_C(400000000000000000), ERR_INPUT, false, false }, /* 1982 */
        { -1, ERR_INPUT, false, false },
        { INT64_MIN, ERR_INPUT, false, false },
        { INT64_MAX, ERR_INPUT, false, false },
        { (DIST_NOW_MS + 86000000) * 1000000, 0, true, false },
        { (DIST_NOW_MS + 87000000) * 1000000, ERR_INPUT, false, false },
    };
    struct limits l = limits_default();

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct gen_pprof g;
        struct dist_push d;
        begin(&g);
        uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
        gen_sample(&g, &at, 1, (int64_t[]){ 1 }, 1);
        g.time_ns = rows[i].ns;
        decode_gen(&g, &d, &l, rows[i].code);
        assert_int_equal(d.push.has_time, rows[i].has);
        assert_int_equal(d.push.has_identity, rows[i].identity);
        dist_push_free(&d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_frames),
        cmocka_unit_test(test_spies),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_cpu_time_of_wall_profiles),
        cmocka_unit_test(test_saturation),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_label_overflow),
        cmocka_unit_test(test_many_label_names),
        cmocka_unit_test(test_mixed_packing),
        cmocka_unit_test(test_ids),
        cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
