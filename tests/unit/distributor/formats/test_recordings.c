/* SPDX-License-Identifier: Apache-2.0
 *
 * Recordings of our own programs by real profilers (tests/golden/recordings): totals as the
 * profilers' own tools have them, and three times as much of hot as of cold. They are in the
 * repository, so this runs everywhere.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/base/compress/compress.h"
#include "common/sys/fs.h"
#include "distributor/formats/upload/upload.h"
#include "tests/lib/roles/dist_push.h"

#define FOLDER "tests/golden/recordings/"
#define NOW_MS INT64_C(1830000000000) /* after all of them were made */

static void read_file(const char *name, struct buf *out)
{
    char path[512];
    struct err e;

    (void)snprintf(path, sizeof(path), FOLDER "%s", name);
    buf_init(out, 4 * MIB);
    if (fs_real()->read_file(fs_real(), path, out, &e))
        fail_msg("%s: run tests from the root of the repository", e.text);
}

/* What the profiler's own tool says. */
static double expected(const char *file, const char *what)
{
    struct buf text;
    struct str rest, line, part;
    double v = -1;

    read_file("expected.tsv", &text);
    rest = buf_str(&text);
    for (bool more = true; str_next(&rest, '\n', &more, &line);) {
        bool columns = true;
        char number[64];
        if (!str_next(&line, '\t', &columns, &part) || !str_eqc(part, file) ||
            !str_next(&line, '\t', &columns, &part) || !str_eqc(part, what))
            continue;
        (void)snprintf(number, sizeof(number), "%.*s", STR_ARG(line));
        assert_int_equal(sscanf(number, "%lf", &v), 1);
    }
    buf_deinit(&text);
    if (v <= 0)
        fail_msg("%s %s is not in expected.tsv", file, what);
    return v;
}

static void decode(const char *file, struct dist_push *d, const char *want_format)
{
    static struct limits l;
    const struct ingest_raw raw = { .name = STR("app"), .sample_rate = STR("0") };
    const struct inflate_limits unzip = { .bytes_max = 16 * MIB };
    struct buf zipped, body;
    const char *format = "none";
    struct err e = { 0 };

    read_file(file, &zipped);
    buf_init(&body, 16 * MIB);
    assert_int_equal(gunzip(buf_str(&zipped), &unzip, &body, &e), 0);
    l = limits_default();
    *d = (struct dist_push){ .arena = arena_new(256 * MIB) };
    push_init(&d->push, d->arena, &l, 3);
    assert_int_equal(ingest_parse(&raw, &l, NOW_MS, d->arena, &d->in, &e), 0);
    const struct decode_job job = { &d->in, &l, NOW_MS, &d->push };
    if (upload_push(&job, buf_str(&body), &format, &e))
        fail_msg("%s: %s", file, e.text);
    dist_check(&d->push, &l);
    assert_string_equal(format, want_format);
    buf_deinit(&zipped);
    buf_deinit(&body);
}

/* Sum of the rows of a type whose stack has this frame; NULL: of all. */
static uint64_t sum_of(const struct push *p, const char *type, const char *frame)
{
    struct buf rows;
    struct str rest, line, stack;
    uint64_t sum = 0, v;

    dist_rows(p, &rows);
    rest = buf_str(&rows);
    for (bool more = true; str_next(&rest, '\n', &more, &line);) {
        ptrdiff_t tab = str_rfind(line, '\t');
        bool columns = true, found = !frame;
        struct str part;
        if (tab < 0 || !str_next(&line, '\t', &columns, &part) || !str_eqc(part, type) ||
            !str_next(&line, '\t', &columns, &part) || !str_next(&line, '\t', &columns, &stack))
            continue;
        for (bool frames = true; !found && str_next(&stack, ';', &frames, &part);)
            found = str_ends(part, str_c(frame));
        assert_true(str_u64(line, &v));
        sum += found ? v : 0;
    }
    buf_deinit(&rows);
    return sum;
}

static void check_shares(const struct push *p, const char *type, const char *hot, const char *cold,
                         const char *spin)
{
    uint64_t h = sum_of(p, type, hot), c = sum_of(p, type, cold), all = sum_of(p, type, NULL);

    printf("%s: hot %" PRIu64 " cold %" PRIu64 " of %" PRIu64 "\n", type, h, c, all);
    assert_true(c > 0 && h > 2 * c && h < 5 * c);
    assert_true(sum_of(p, type, spin) >= (h + c) * 9 / 10);
}

static void test_java(void **state)
{
    struct dist_push d;

    (void)state;
    decode("java.jfr.gz", &d, "jfr");
    assert_int_equal(d.push.samples, (uint64_t)expected("java.jfr.gz", "events:execution") +
                                         (uint64_t)expected("java.jfr.gz", "events:allocation") +
                                         (uint64_t)expected("java.jfr.gz", "events:monitor"));
    assert_int_equal(sum_of(&d.push, "cpu", NULL),
                     (uint64_t)expected("java.jfr.gz", "events:execution"));
    assert_int_equal(sum_of(&d.push, "alloc_sample_objects", NULL),
                     (uint64_t)expected("java.jfr.gz", "events:allocation"));
    assert_int_equal(sum_of(&d.push, "alloc_sample_bytes", NULL),
                     (uint64_t)expected("java.jfr.gz", "bytes:allocation"));
    assert_true(sum_of(&d.push, "alloc_sample_bytes", "Work.allocate") > 8 * MIB);
    assert_int_equal(sum_of(&d.push, "contentions", NULL),
                     (uint64_t)expected("java.jfr.gz", "events:monitor"));
    assert_int_equal(sum_of(&d.push, "contentions", "Work.contend"),
                     sum_of(&d.push, "contentions", NULL));
    check_shares(&d.push, "cpu", "Work.hot", "Work.cold", "Work.spin");
    dist_push_free(&d);
}

static void test_python(void **state)
{
    struct dist_push d;

    (void)state;
    decode("python.speedscope.json.gz", &d, "speedscope");
    double want = expected("python.speedscope.json.gz", "weights") * 1e9;
    double have = (double)d.push.series[0].total;
    assert_true(have > want * 0.999 && have < want * 1.001);
    dist_push_free(&d);
    decode("python.folded.gz", &d, "folded");
    assert_int_equal(d.push.series[0].total, (uint64_t)expected("python.folded.gz", "samples"));
    dist_push_free(&d);
}

static void test_node(void **state)
{
    struct dist_push d;

    (void)state;
    decode("node.cpuprofile.gz", &d, "cpuprofile");
    check_shares(&d.push, "samples", "hot", "cold", "spin");
    assert_int_equal(sum_of(&d.push, "samples", NULL),
                     (uint64_t)expected("node.cpuprofile.gz", "samples"));
    dist_push_free(&d);
}

static void test_go(void **state)
{
    struct dist_push d;

    (void)state;
    decode("go-cpu.pb.gz", &d, "pprof");
    assert_int_equal(sum_of(&d.push, "cpu", NULL), (uint64_t)expected("go-cpu.pb.gz", "cpu"));
    assert_int_equal(sum_of(&d.push, "samples", NULL),
                     (uint64_t)expected("go-cpu.pb.gz", "samples"));
    check_shares(&d.push, "cpu", "main.hot", "main.cold", "main.spin");
    dist_push_free(&d);
    decode("go-heap.pb.gz", &d, "pprof");
    assert_int_equal(sum_of(&d.push, "inuse_space", NULL),
                     (uint64_t)expected("go-heap.pb.gz", "inuse_space"));
    assert_true(sum_of(&d.push, "inuse_space", "main.keep") >= 8 * MIB);
    dist_push_free(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_java),
        cmocka_unit_test(test_python),
        cmocka_unit_test(test_node),
        cmocka_unit_test(test_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
