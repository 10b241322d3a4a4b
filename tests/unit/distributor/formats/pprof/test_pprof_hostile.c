/* SPDX-License-Identifier: Apache-2.0
 *
 * The pprof decoder on hostile bodies made here: damaged, too deep, amplifying, with lengths that
 * lie.
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

/* An answer, whatever it is: nothing, or an error of the sender's that says why. */
static bool refused(int rc, const struct err *e)
{
    if (rc && ((rc != ERR_INPUT && rc != ERR_LIMIT) || strlen(e->text) < 8))
        fail_msg("%s \"%s\"", err_name(rc), e->text);
    return rc != 0;
}

/* Each prefix, and each body with two bytes changed. A prefix that ends between two fields is a
 * message of its own, most others are cut: so most are refused, and the whole is not. */
static void test_damaged(void **state)
{
    size_t cuts = 0, refusals = 0, changed = 0;

    (void)state;
    struct limits l = limits_default();
    struct gen_random r;
    struct prng p;

    prng_init(&p, 7);
    gen_random_pprof(&p, 6, &r);
    for (size_t n = 0; n < r.body.len; n += 1 + n / 200) {
        struct dist_push d;
        struct err e = { 0 };
        char *cut =
            xmemdup(r.body.ptr, n ? n : 1); /* its own block: ASan sees every byte too far */
        refusals += refused(decode(&d, str_n(cut, n), &l, &e), &e);
        cuts++;
        dist_push_free(&d);
        xfree(cut);
    }
    for (int i = 0; i < 3000; i++) {
        struct dist_push d;
        struct err e = { 0 };
        char *bad = xmemdup(r.body.ptr, r.body.len);
        bad[prng_below(&p, r.body.len)] = (char)prng_below(&p, 256);
        bad[prng_below(&p, r.body.len)] ^= (char)(1 << prng_below(&p, 8));
        changed += refused(decode(&d, str_n(bad, r.body.len), &l, &e), &e);
        dist_push_free(&d);
        xfree(bad);
    }
    struct dist_push d;
    struct err e = { 0 };
    assert_int_equal(decode(&d, buf_str(&r.body), &l, &e), 0);
    dist_push_free(&d);
    assert_true(refusals > cuts / 2 && changed > 300 && changed < 3000);
    gen_random_deinit(&r);
}

/* ---- limits and hostile bodies ------------------------------------------------------------- */

static void test_deep(void **state)
{
    (void)state;
    struct limits l = limits_default();
    static uint64_t ids[1000000];
    struct gen_pprof g;
    struct dist_push d;
    int64_t v = 5;

    for (int unpacked = 0; unpacked < 2; unpacked++) { /* a million frames, in both forms */
        begin(&g);
        uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
        for (size_t i = 0; i < ARRAY_LEN(ids); i++)
            ids[i] = at;
        g.unpacked = unpacked;
        gen_sample(&g, ids, ARRAY_LEN(ids), &v, 1);
        decode_gen(&g, &d, &l, ERR_LIMIT);
        assert_true(arena_used(d.arena) < 8 * MIB);
        dist_push_free(&d);
    }
    /* 8192 frames fit; the middle of more than 1024 goes; root and leaf stay. */
    for (size_t n = 1024; n <= 8192; n *= 2) {
        begin(&g);
        uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", ""), 1);
        uint64_t mid = gen_location(&g, gen_function(&g, "mid", ""), 1);
        uint64_t root = gen_location(&g, gen_function(&g, "root", ""), 1);
        for (size_t i = 0; i < n; i++)
            ids[i] = i == 0 ? leaf : i == n - 1 ? root : mid;
        gen_sample(&g, ids, n, &v, 1);
        gen_sample(&g, ids, n, &v, 1);
        decode_gen(&g, &d, &l, 0);
        struct buf rows;
        dist_rows(&d.push, &rows);
        assert_true(str_starts(buf_str(&rows), STR("cpu\t{}\troot;mid;")));
        assert_true(str_ends(buf_str(&rows), STR(";leaf\t10\n")));
        assert_int_equal(str_contains(buf_str(&rows), STR(";[truncated];")), n > 1024);
        assert_int_equal(d.push.stacks.node_parent.len, 1024);
        buf_deinit(&rows);
        dist_push_free(&d);
    }
}

/* Stacks that come short as ids and long as frames: refused before they are expanded. */
static void test_amplification(void **state)
{
    (void)state;
    struct limits l = limits_default();
    uint64_t fns[256], ids[40];
    struct gen_pprof g;
    struct dist_push d;
    int64_t v = 1;

    begin(&g);
    for (size_t i = 0; i < 256; i++)
        fns[i] = gen_function(&g, "f", "");
    uint64_t at = gen_location_inlined(&g, fns, 256);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = at;
    for (int i = 0; i < 20000; i++)
        gen_sample(&g, ids, ARRAY_LEN(ids), &v, 1); /* 10,240 frames each */
    decode_gen(&g, &d, &l, ERR_LIMIT);
    dist_push_free(&d);

    begin(&g); /* 8,192 each, all different: the budget of collapsed stacks */
    for (size_t i = 0; i < 256; i++)
        fns[i] = gen_function(&g, "f", "");
    uint64_t big = gen_location_inlined(&g, fns, 256), small[64];
    for (size_t i = 0; i < ARRAY_LEN(small); i++)
        small[i] = gen_location(&g, fns[i], (int64_t)i + 1);
    for (size_t i = 0; i < 30; i++)
        ids[i] = big;
    for (int i = 0; i < 10000; i++) {
        for (size_t k = 30; k < 33; k++)
            ids[k] = small[(size_t)(i >> (6 * (k - 30))) & 63];
        gen_sample(&g, ids, 33, &v, 1);
    }
    decode_gen(&g, &d, &l, ERR_LIMIT);
    dist_push_free(&d);
}

/* Memory is bounded whatever the body announces; the bound is reached, not passed. */
static void test_memory_ceiling(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    struct prng p;
    uint64_t ids[100];
    int64_t v = 1;

    prng_init(&p, 3);
    l.decode_bytes = 2 * MIB;
    begin(&g); /* a million empty strings, two bytes each */
    for (int i = 0; i < 1000000; i++)
        gen_string(&g, "");
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, &v, 1);
    decode_gen(&g, &d, &l, ERR_LIMIT);
    dist_push_free(&d);

    /* The same ends in the parser, where the table would be made, and not only behind it. */
    struct pprof parsed;
    struct err e = { 0 };
    struct buf body;
    begin(&g);
    for (int i = 0; i < 1000000; i++)
        gen_string(&g, "");
    buf_init(&body, 16 * MIB);
    gen_pprof_finish(&g, &body);
    gen_pprof_deinit(&g);
    assert_int_equal(pprof_parse(&parsed, buf_str(&body), &l, &e), ERR_LIMIT);
    pprof_deinit(&parsed);
    buf_deinit(&body);

    begin(&g); /* random stacks: every sample brings new nodes */
    uint64_t locations[64];
    for (size_t i = 0; i < 64; i++) {
        char name[16];
        snprintf(name, sizeof(name), "f%zu", i);
        locations[i] = gen_location(&g, gen_function(&g, name, ""), 1);
    }
    for (int i = 0; i < 3000; i++) {
        for (size_t k = 0; k < ARRAY_LEN(ids); k++)
            ids[k] = locations[prng_below(&p, 64)];
        gen_sample(&g, ids, ARRAY_LEN(ids), &v, 1);
    }
    decode_gen(&g, &d, &l, ERR_LIMIT);
    assert_true(stacks_bytes(&d.push.stacks) <= l.decode_bytes);
    assert_true(stacks_bytes(&d.push.stacks) > l.decode_bytes / 2);
    assert_true(arena_used(d.arena) <= l.decode_bytes);
    dist_push_free(&d);
}

static void test_limits(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct gen_pprof g;
    struct dist_push d;
    struct buf name;
    int64_t v = 1;

    /* Samples: exactly as many as allowed, and one more. */
    for (int more = 0; more < 2; more++) {
        begin(&g);
        uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
        for (int i = 0; i < 50 + more; i++)
            gen_sample(&g, &at, 1, &v, 1);
        l.samples = 50;
        decode_gen(&g, &d, &l, more ? ERR_LIMIT : 0);
        dist_push_free(&d);
    }
    l = limits_default();
    for (int more = 0; more < 2; more++) { /* labels of a sample */
        begin(&g);
        uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
        for (uint64_t i = 0; i < l.labels_per_sample + (uint64_t)more; i++)
            gen_label_num(&g, "n", (int64_t)i);
        gen_sample(&g, &at, 1, &v, 1);
        decode_gen(&g, &d, &l, more ? ERR_LIMIT : 0);
        dist_push_free(&d);
    }
    for (int more = 0; more < 2; more++) { /* symbols: cut over 64 KiB, refused over 1 MiB */
        begin(&g);
        buf_init(&name, 2 * MIB);
        buf_add_str(&name, STR("start"));
        while (name.len < (more ? MIB + 1 : 100000))
            buf_add_c(&name, 'x');
        buf_add_c(&name, '\0');
        uint64_t at = gen_location(&g, gen_function(&g, name.ptr, ""), 1);
        gen_sample(&g, &at, 1, &v, 1);
        decode_gen(&g, &d, &l, more ? ERR_LIMIT : 0);
        if (!more) {
            assert_int_equal(d.push.stacks.string_len.ptr[1], l.symbol_keep_bytes);
            assert_int_equal(d.push.drops[CHANGE_SYMBOL], 1);
        }
        dist_push_free(&d);
        buf_deinit(&name);
    }
    gen_pprof_init(&g); /* sample types */
    for (int i = 0; i <= PPROF_TYPES_MAX; i++)
        gen_type(&g, "t", "u");
    decode_gen(&g, &d, &l, ERR_LIMIT);
    dist_push_free(&d);
}

/* Lengths, tags and varints that lie. */
/* Two profiles one behind the other are one message to a decoder, with the sums of both and the
 * time of the second: they are refused, so that no sum is stored twice. */
static void test_two_profiles_in_one_body(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct buf one, body;

    buf_init(&one, MIB);
    buf_init(&body, MIB);
    for (int times = 1; times <= 2; times++) {
        struct gen_pprof g;
        struct dist_push d;
        struct err e = { 0 };

        begin(&g);
        g.time_ns = 1700000000000000000;
        uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
        gen_sample(&g, (uint64_t[]){ leaf }, 1, (int64_t[]){ 10 }, 1);
        gen_pprof_finish(&g, &body);
        gen_pprof_deinit(&g);
        int rc = decode(&d, buf_str(&body), &l, &e);
        assert_int_equal(rc, times == 1 ? 0 : ERR_INPUT);
        assert_true(times == 1 || strstr(e.text, "time_nanos appears twice"));
        dist_push_free(&d);
    }
    buf_deinit(&one);
    buf_deinit(&body);
}

/* A hundred string indexes may point nowhere; more only if they are a hundredth of all, no more. */
static void test_string_indexes_that_point_nowhere(void **state)
{
    static const struct {
        int functions, bad;
        int want;
    } rows[] = {
        { 300, 100, 0 }, { 300, 101, ERR_INPUT }, { 10500, 101, 0 }, { 9000, 101, ERR_INPUT }
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct limits l = limits_default();
        struct gen_pprof g;
        struct dist_push d;

        begin(&g);
        for (int k = 0; k < rows[i].functions; k++) {
            struct buf f;
            buf_init(&f, 64);
            gen_u64(&f, 1, ++g.functions);
            gen_u64(&f, 2, k < rows[i].bad ? 99999999 : gen_string(&g, "f"));
            gen_bytes(&g.body, 5, buf_str(&f));
            buf_deinit(&f);
        }
        uint64_t leaf = gen_location(&g, g.functions, 7);
        gen_sample(&g, (uint64_t[]){ leaf }, 1, (int64_t[]){ 10 }, 1);
        decode_gen(&g, &d, &l, rows[i].want);
        dist_push_free(&d);
    }
}

static void test_wire(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        const char *bytes;
        size_t len;
    } rows[] = {
#define ROW(name, bytes) { name, bytes, sizeof(bytes) - 1 }
        ROW("length 2^64 - 1", "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01xx"),
        ROW("length 2^31", "\x12\x80\x80\x80\x80\x08xx"),
        ROW("length one too long", "\x12\x03xx"),
        ROW("varint of eleven bytes", "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
        ROW("tenth byte over 1", "\x48\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"),
        ROW("varint cut", "\x48\xff"),
        ROW("start of a group", "\x13"),
        ROW("end of a group", "\x14"),
        ROW("wire type 6", "\x16"),
        ROW("wire type 7", "\x17"),
        ROW("field 0", "\x02\x00"),
        ROW("field over 2^29", "\x80\x80\x80\x80\x10\x00"),
        ROW("samples as a number", "\x10\x05"),
        ROW("time as bytes", "\x4a\x01\x05"),
        ROW("fixed64 cut", "\xa1\x06\x01\x02\x03"),
        ROW("fixed32 cut", "\xa5\x06\x01\x02\x03"),
        ROW("location id as fixed64", "\x12\x09\x09\x01\x00\x00\x00\x00\x00\x00\x00"),
        ROW("packed ids cut", "\x0a\x00\x12\x04\x0a\x02\x80\x80"),
        ROW("packed values cut", "\x0a\x00\x12\x04\x12\x02\x80\x80"),
        ROW("single id cut", "\x0a\x00\x12\x02\x08\x80"),
        ROW("label as a number", "\x0a\x00\x12\x02\x18\x01"),
        ROW("line as a number", "\x22\x02\x20\x01"),
#undef ROW
    };
    struct limits l = limits_default();
    struct gen_pprof g;
    struct buf good;

    begin(&g);
    uint64_t at = gen_location(&g, gen_function(&g, "f", ""), 1);
    gen_sample(&g, &at, 1, (int64_t[]){ 1 }, 1);
    g.time_ns = 0;
    buf_init(&good, MIB);
    gen_pprof_finish(&g, &good);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int behind = 0; behind < 2; behind++) { /* alone at the end, and with room behind */
            struct dist_push d;
            struct buf body;
            struct err e = { 0 };
            buf_init(&body, MIB);
            if (behind)
                buf_add_str(&body, buf_str(&good));
            buf_add(&body, rows[i].bytes, rows[i].len);
            char *copy = xmemdup(body.ptr, body.len);
            int rc = decode(&d, str_n(copy, body.len), &l, &e);
            if (rc != ERR_INPUT)
                fail_msg("%s: %s %s", rows[i].name, err_name(rc), e.text);
            xfree(copy);
            buf_deinit(&body);
            dist_push_free(&d);
        }
    }
    buf_deinit(&good);
    gen_pprof_deinit(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_damaged),
        cmocka_unit_test(test_deep),
        cmocka_unit_test(test_amplification),
        cmocka_unit_test(test_memory_ceiling),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_wire),
        cmocka_unit_test(test_two_profiles_in_one_body),
        cmocka_unit_test(test_string_indexes_that_point_nowhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
