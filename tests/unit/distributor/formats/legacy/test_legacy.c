/* SPDX-License-Identifier: Apache-2.0
 *
 * The old formats: small ones by hand, broken ones, and the sample files beside what google/pprof
 * prints of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "distributor/formats/legacy/legacy.h"
#include "distributor/formats/upload/upload.h"
#include "tests/lib/roles/dist_push.h"

#define CPU_END "\0\0\0\0\1\0\0\0\0\0\0\0"

static void check_body(struct str body, const char *want, uint64_t left_out)
{
    struct limits l = limits_default();
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    assert_true(legacy_sniff(body));
    if (dist_decode(&d, "app", "pprof", NULL, body, &l, &e))
        fail_msg("%.*s: %s", STR_ARG(body), e.text);
    dist_rows(&d.push, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("%.*s: got\n%.*swant\n%s", STR_ARG(body), STR_ARG(buf_str(&rows)), want);
    assert_int_equal(d.push.drops[DROP_LINE], left_out);
    buf_deinit(&rows);
    dist_push_free(&d);
}

static void check(const char *body, const char *want, uint64_t left_out)
{
    check_body(str_c(body), want, left_out);
}

static void test_count(void **state)
{
    (void)state;
    check("goroutine profile: total 3\n"
          "2 @ 0x11 0x21\n"
          "#\t0x10\tmain.leaf+0x8\t\t/src/a.go:7\n"
          "#\t0x10\tmain.inlined_into+0x8\t/src/a.go:9\n"
          "#\t0x20\tmain.main+0x1\t/src/a.go:1\n"
          "\n"
          "1 @ 0x11 0x31\n"
          "#\t0x10\tmain.leaf+0x8\t\t/src/a.go:7\n"
          "# labels: {\"a\":\"b\"}\n",
          "goroutine\t{}\tmain.main;main.inlined_into;main.leaf\t2\n"
          "goroutine\t{}\tunknown!0x30;main.inlined_into;main.leaf\t1\n",
          0);
    check("threadcreate profile: total 2\r\n1 @ 0x11\r\nnonsense\r\n1 @\r\n",
          "threadcreate\t{}\t[unknown]\t1\nthreadcreate\t{}\tunknown!0x10\t1\n", 1);
    check("x profile: total 1\n1 @ 0x1011 0x5\n"
          "--- Memory map: ---\n"
          "00001000-00002000 r-xp 00000400 08:01 123 /bin/app (deleted)\n"
          "00000000-00001000 rw-p 00000000 08:01 123 /bin/no\n"
          "00002000-00003000: /lib/b.so\n",
          "x\t{}\tunknown!0x4;app!0x410\t1\n", 0);
}

static void test_heap(void **state)
{
    (void)state;
    /* Nothing was allocated but what is in use, nothing sampled. */
    check("heap profile:      3:      300 [     3:      300] @ heapprofile\n"
          "     2:      200 [     2:      200] @ 0x11 0x21\n"
          "     1:      100 [     1:      100] @ 0x31\n"
          "MAPPED_LIBRARIES:\n0-20: a\n",
          "objects\t{}\tunknown!0x20;a!0x10\t2\nobjects\t{}\tunknown!0x30\t1\n"
          "space\t{}\tunknown!0x20;a!0x10\t200\nspace\t{}\tunknown!0x30\t100\n",
          0);
}

static void test_heap_sampled(void **state)
{
    (void)state;
    check("heap profile: 1: 10 [5: 50] @ heap/2\n" /* Go: a rate of 1 is no sampling */
          "1: 10 [5: 50] @ 0x11\n"
          "0: 10 [5: 50] @ 0x11\n"
          "# runtime.MemStats\n# Alloc = 5\n",
          "alloc_objects\t{}\tunknown!0x10\t5\nalloc_space\t{}\tunknown!0x10\t50\n"
          "inuse_objects\t{}\tunknown!0x10\t1\ninuse_space\t{}\tunknown!0x10\t10\n",
          1);
    /* 1 object of 100 bytes every 100 bytes: 1 / (1 - 1/e) = 1.58 of them */
    check("heap profile: 100: 10000 [100: 10000] @ heapz_v2/100\n100: 10000 [100: 10000] @ 0x11\n",
          "objects\t{}\tunknown!0x10\t158\nspace\t{}\tunknown!0x10\t15819\n", 0);
    check("heap profile: 0: 0 [0: 0] @ heap/1048576\n", "", 0);
}

static void test_jemalloc(void **state)
{
    (void)state;
    check("heap_v2/1\n"
          "  t*: 3: 30 [0: 0]\n"
          "  t0: 3: 30 [0: 0]\n"
          "@ 0x11 0x21\n"
          "  t*: 2: 20 [0: 0]\n"
          "  t0: 1: 10 [0: 0]\n"
          "  t1: 1: 10 [0: 0]\n"
          "@ 0x31\n"
          "  t0: 4: 40 [0: 0]\n"
          "  t1: 5: 50 [0: 0]\n"
          "\nMAPPED_LIBRARIES:\n00400000-00500000 r-xp 00000000 08:01 1  /bin/x\n",
          "objects\t{}\tunknown!0x20;unknown!0x10\t2\nobjects\t{}\tunknown!0x30\t9\n"
          "space\t{}\tunknown!0x20;unknown!0x10\t20\nspace\t{}\tunknown!0x30\t90\n",
          0);
}

static void test_contention(void **state)
{
    (void)state;
    check("--- contentionz 1 ---\ncycles/second = 2000000000\nsampling period = 10\n"
          "ms since reset = 5\ndiscarded samples = 0\n"
          "  100 3 @ 0x11\n",
          "contentions\t{}\tunknown!0x10\t30\ndelay\t{}\tunknown!0x10\t500\n", 0);
    check("--- mutex:\ncycles/second=1000000000\nsampling period=1\n"
          "7 1 @ 0x11\n#\t0x10\tsync.(*Mutex).Unlock+0x5\t/go/mutex.go:1\n",
          "contentions\t{}\tsync.(*Mutex).Unlock\t1\ndelay\t{}\tsync.(*Mutex).Unlock\t7\n", 0);
    check("--- contention:\ncycles/second=0\n7 1 @ 0x11\n",
          "contentions\t{}\tunknown!0x10\t1\ndelay\t{}\tunknown!0x10\t7\n", 0);
}

static void test_thread(void **state)
{
    (void)state;
    check("--- threadz 1 ---\n\n"
          "--- Thread 7f79 (name: main/1) stack: ---\n"
          "  PC:  0x00000010: helper(arg *)\n  0x21: main\n"
          "--- Thread 7f78 (name: b/2) stack: ---\n  [same as previous thread]\n"
          "--- Thread 7f77 (name: c/3) stack: ---\n  PC: 0x30\n   creator: 0x41 0x51\n"
          "--- Memory map: ---\n  0-100: app\n",
          "thread\t{}\tapp!0x20;app!0x10\t2\nthread\t{}\tapp!0x50;app!0x40;app!0x30\t1\n", 0);
}

static void test_java(void **state)
{
    (void)state;
    check("--- contentionz 1 ---\nformat = java\nresolution = microseconds\n"
          "sampling period = 100\nms since reset = 6\n"
          "   2  3 @ 0x3 0x0004 0x5\n\n\n"
          " 0x0000003 com.Foo.leaf (Foo.java:12)\n 0x4 com.Foo.<init> (Native Method)\n"
          " 0x5 [generated stub/JIT]\n 0x6 Rest\n",
          "contentions\t{}\tSTUB;com.Foo.<init>;com.Foo.leaf\t300\n"
          "delay\t{}\tSTUB;com.Foo.<init>;com.Foo.leaf\t200\n",
          0);
    check("--- heapz 1 ---\nformat = java\nresolution = bytes\n  52428800 1 @ 0x3\n 0x3 GC\n",
          "inuse_objects\t{}\tGC\t1\ninuse_space\t{}\tGC\t52428800\n", 0);
}

/* ---- CPU ------------------------------------------------------------------------------------- */

static void put_word(struct buf *b, bool big, bool wide, uint32_t v)
{
    if (wide && big)
        wr_u64be(b, v);
    else if (big)
        wr_u32be(b, v);
    else
        wr_u32le(b, v);
    if (wide && !big)
        wr_u32le(b, 0);
}

/* The second frame, 0x99, is the handler's; 0x11 then repeats the leaf 0x11. */
static void test_cpu(void **state)
{
    (void)state;
    static const uint32_t words[] = { 0,    3,    0,    100,  0, /* 100 us */
                                      2,    3,    0x11, 0x9a, 0x21, 5,    4, 0x11, 0x9a,
                                      0x11, 0x31, 1,    2,    0x41, 0x9a, 0, 1,    0 };

    for (int i = 0; i < 4; i++) {
        struct buf b;
        buf_init(&b, MIB);
        for (size_t k = 0; k < ARRAY_LEN(words); k++)
            put_word(&b, i & 1, i & 2, words[k]);
        buf_add_str(&b, STR("0-30 r-xp 0 0:0 1 /a/b\n"));
        check_body(buf_str(&b),
                   "cpu\t{}\tb!0x20;b!0x11\t200000\ncpu\t{}\tunknown!0x30;b!0x11\t500000\n"
                   "cpu\t{}\tunknown!0x41\t100000\n"
                   "samples\t{}\tb!0x20;b!0x11\t2\nsamples\t{}\tunknown!0x30;b!0x11\t5\n"
                   "samples\t{}\tunknown!0x41\t1\n",
                   0);
        buf_deinit(&b);
    }
}

/* ---- refused --------------------------------------------------------------------------------- */

static void test_sniff(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        bool is;
    } rows[] = {
        { "", false },
        { "a;b 1\n", false },
        { "heap profile", false },
        { "\n\n  heap profile: 1: 2 [3: 4] @ heap/1\n", true },
        { "# x\n--- threadz 1 ---\n", true },
        { "--- heapz 1 ---\n", false },
        { "--- heapz 1 ---\nformat = cpp\n", false },
        { "--- contentionz 1 ---\n", true },
        { "--- Other\n", false },
        { "goroutine profile: total 7\n", true },
        { "goroutine profile: total\n", false },
        { "goroutine profile: total 7 x\n", false },
        { " profile: total 7\n", false },
        { "heap_v2/", true },
        { "\x0a\x04\x08\x01\x10\x02", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (legacy_sniff(str_c(rows[i].body)) != rows[i].is)
            fail_msg("row %zu", i);
    assert_true(legacy_sniff(STR("\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0")));
    assert_false(legacy_sniff(STR("\0\0\0\0\3\0\0\0\2\0\0\0\1\0\0\0\0\0\0\0")));
    assert_false(legacy_sniff(STR("\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\1\0\0\0")));
}

static void test_refused(void **state)
{
    (void)state;
    struct limits l = limits_default();
#define CPU "\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0"
#define B(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }
    static const struct str rows[] = {
        B("heap profile: 1: 2\n"),
        B("heap profile: 1: 2 [3: 4] @ other\n"),
        B("heap profile: 1: 2 [3: 4] @ heap/99999999999999999999\n"),
        B("heap profile: 1: 2 [3: 4] @ heap/1\nx\n"),
        B("heap_v2/x\n"),
        B("goroutine profile: total 7\nx\n"),
        B("--- contentionz 1 ---\ncycles/second = x\n1 1 @ 0x1\n"),
        B("--- contentionz 1 ---\nsampling period = -1\n1 1 @ 0x1\n"),
        B("--- heapz 1 ---\nformat = java\nx\n"),
        B("--- Thread 1 (name: x/1) stack: ---\n"),
        B("\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0" CPU_END),                 /* period 0 */
        B(CPU "\1\0\0\0"),                                                     /* cut */
        B(CPU "\1\0\0\0\0\0\0\0"),                                             /* no address */
        B(CPU "\1\0\0\0\xff\xff\xff\xff\1\0\0\0"),                             /* too many */
        B("\0\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\2\0\0\0\1\0\0\0"), /* one missing */
    };
#undef B

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct err e = { 0 };
        int rc = dist_decode(&d, "app", "pprof", NULL, rows[i], &l, &e);
        if (rc != ERR_INPUT || !e.text[0])
            fail_msg("row %zu: %d %s", i, rc, e.text);
        dist_push_free(&d);
    }
}

/* Samples, memory and stacks have their limits here, too. */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        uint64_t samples, decode_bytes, inflated_bytes, frames;
    } rows[] = {
        { 99, 256 * MIB, 64 * MIB, 8192 },
        { 1000, 64 * KIB, 64 * MIB, 8192 },
        { 1000, 256 * MIB, KIB, 8192 },
        { 1000, 256 * MIB, 64 * MIB, 19 },
    };
    struct buf b;

    buf_init(&b, MIB);
    buf_add_str(&b, STR("x profile: total 100\n"));
    for (int i = 0; i < 100; i++) {
        buf_add_str(&b, STR("1 @"));
        for (int k = 0; k < 20; k++)
            buf_addf(&b, " 0x%x", i * 20 + k + 1);
        buf_add_c(&b, '\n');
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct limits l = limits_default();
        struct dist_push d;
        struct err e = { 0 };
        l.samples = rows[i].samples;
        l.decode_bytes = rows[i].decode_bytes;
        l.inflated_bytes = rows[i].inflated_bytes;
        l.frames = rows[i].frames;
        assert_int_equal(dist_decode(&d, "app", "pprof", NULL, buf_str(&b), &l, &e), ERR_LIMIT);
        dist_push_free(&d);
    }
    buf_deinit(&b);
}

/* Values at the edge stay, none wraps. */
static void test_saturated(void **state)
{
    (void)state;
    check("--- contentionz 1 ---\nsampling period = 9223372036854775807\n"
          "9223372036854775807 2 @ 0x11\n",
          "contentions\t{}\tunknown!0x10\t9223372036854775807\n"
          "delay\t{}\tunknown!0x10\t9223372036854775807\n",
          0);
    check("heap profile: 1: 1 [1: 1] @ heap_v2/9223372036854775807\n"
          "9223372036854775807: 1 [9223372036854775807: 1] @ 0x11\n",
          "objects\t{}\tunknown!0x10\t9223372036854775807\n"
          "space\t{}\tunknown!0x10\t9223372036854775807\n",
          0);
}

/* ---- other ways in --------------------------------------------------------------------------- */

static void test_multipart_and_upload(void **state)
{
    (void)state;
    struct str page = STR("goroutine profile: total 1\n1 @ 0x11\n");
    struct str form = STR("--b\r\nContent-Disposition: form-data; name=\"profile\"; "
                          "filename=\"x\"\r\n\r\ngoroutine profile: total 1\n1 @ 0x11\n\r\n"
                          "--b--\r\n");
    struct limits l = limits_default();
    const char *format = "";
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    assert_int_equal(dist_decode(&d, "app", "", "multipart/form-data; boundary=b", form, &l, &e),
                     0);
    dist_rows(&d.push, &rows);
    assert_true(str_eqc(buf_str(&rows), "goroutine\t{}\tunknown!0x10\t1\n"));
    buf_deinit(&rows);
    dist_push_free(&d);
    assert_int_equal(upload_sniff(page, &format, &e), 0);
    assert_string_equal(format, "pprof");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_heap),
        cmocka_unit_test(test_heap_sampled),
        cmocka_unit_test(test_jemalloc),
        cmocka_unit_test(test_contention),
        cmocka_unit_test(test_thread),
        cmocka_unit_test(test_java),
        cmocka_unit_test(test_cpu),
        cmocka_unit_test(test_sniff),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_saturated),
        cmocka_unit_test(test_multipart_and_upload),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
