/* SPDX-License-Identifier: Apache-2.0
 *
 * Files that people bring: what they are taken for, small ones by hand, and the sample files
 * against numbers that independent readers worked out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "distributor/formats/upload/upload.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

static int decode(struct dist_push *d, struct str body, const char **format, struct err *e)
{
    static struct limits l;
    struct ingest_raw raw = { .name = STR("app"), .sample_rate = STR("0") };

    l = limits_default();
    *d = (struct dist_push){ .arena = arena_new(256 * MIB) };
    push_init(&d->push, d->arena, &l, 3);
    *format = "none";
    if (ingest_parse(&raw, &l, DIST_NOW_MS, d->arena, &d->in, e))
        return e->code;
    const struct decode_job job = { &d->in, &l, DIST_NOW_MS, &d->push };
    int rc = upload_push(&job, body, format, e);
    if (!rc)
        dist_check(&d->push, &l);
    return rc;
}

static void check(const char *body, const char *want_format, const char *want)
{
    const char *format;
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    if (decode(&d, str_c(body), &format, &e))
        fail_msg("%s refused: %s", body, e.text);
    assert_string_equal(format, want_format);
    dist_rows(&d.push, &rows);
    if (!str_eqc(buf_str(&rows), want))
        fail_msg("%s: got\n%.*swant\n%s", body, STR_ARG(buf_str(&rows)), want);
    buf_deinit(&rows);
    dist_push_free(&d);
}

#define B(s)             \
    {                    \
        s, sizeof(s) - 1 \
    }
struct sniffed {
    struct str body;
    const char *want; /* the format, or a part of the sentence */
    bool refused;
};

static void sniff_all(const struct sniffed *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *format = "";
        struct err e = { 0 };
        int rc = upload_sniff(rows[i].body, &format, &e);
        assert_int_equal(rc, rows[i].refused ? ERR_INPUT : 0);
        if (!strstr(rc ? e.text : format, rows[i].want))
            fail_msg("row %zu: %s%s", i, format, e.text);
    }
}

static void test_sniff(void **state)
{
    (void)state;
    static const struct sniffed rows[] = {
        { B("FLR\0\0\2\0\0"), "jfr", false },
        { B("\n\4\10\1\20\2"), "pprof", false },
        { B("\x12\4\10\1\0\2"), "pprof", false },
        { B(" {\"a\":1}"), "json", false },
        { B("\xef\xbb\xbf[1]"), "json", false },
        { B("H\x97\x94\x98\xad\x0f\n\4\10\1\20\2"), "pprof", false }, /* as Go's fields may come */
        { B("a;b 1\n"), "folded", false },
        { B("a\x1b[0m;b\t1\r\n"), "folded", false },
        { B("\xff\xfe\x61\0 \0\x31\0"), "folded", false },
        { B("# x\njava 10 [000] 99.5: 10 cycles: \n\tff f (m)\n"), "perf script", false },
        { B("# austin: 3.7.0\n# mode: wall\n\nP1;T0:1;a.py:f:2 10\n"), "austin", false },
        { B("v main 3\nx 4\n"), "folded", false },
        { B(""), "empty", true },
        { B("--- symbol\nbinary=work\n"), "--collapsed", true },
        { B("# callgrind format\nversion: 1\n"), "callgrind", true },
        { B("version: 1\ncreator: callgrind-3.10.0\n"), "callgrind", true },
        { B("version: 1\ncreator: xdebug 3.4.0 (PHP 8.3)\ncmd: a.php\n"), "Excimer", true },
        { B("--- Execution profile ---\nTotal samples : 2\n"), "-o collapsed", true },
        { B("\n\x0a\n\2\n\0\x12\4\n\0\x12\0"), "/v1development/profiles", true },
        { B("\n\x06\x12\4\n\0\x12\0"), "/v1development/profiles", true },
        { B("v 10400 3\nX ./work\nI 1000 5e2991\n"), "heaptrack_print", true },
        { B("PERFILE2...."), "perf script", true },
        { B("\177ELF...."), "a program", true },
        { B("Nettrace"), "dotnet-trace", true },
        { B("\x89PNG"), "picture", true },
    };

    sniff_all(rows, ARRAY_LEN(rows));
}

/* What begins like something else, and what `perf script -F` leaves out. */
static void test_sniff_close(void **state)
{
    (void)state;
    static const struct sniffed rows[] = {
        /* Folded text may begin as JSON does. */
        { B("[unknown];main;foo 3\n"), "folded", false },
        { B("[DestroyJavaVM tid=7];main 1\n"), "folded", false },
        { B("{lambda};main 3\n"), "folded", false },
        { B("{{closure}};main 3\n"), "folded", false },
        { B("{} 3\n"), "folded", false },
        { B("{}\n"), "json", false },
        { B("[1];main 3\n"), "folded", false },
        { B("[[x]];main 3\n"), "folded", false },
        { B("[true];main 3\n"), "folded", false },
        { B("[[1],[2]] 3\n"), "folded", false },
        { B("[true blue];main 3\n"), "folded", false },
        { B("[ { \"a\": 1 } ]"), "json", false },
        { B("[[1],[2.5e3 , null],[]]"), "json", false },
        { B("[1,2"), "json", false },
        { B("["), "json", false },
        { B("{"), "json", false },
        { B("[[\"a\"]]"), "json", false },
        /* What `perf script -F` leaves out. */
        { B("java  3244 99.500000: \n\tff f (m)\n"), "perf script", false },
        { B("java  3244 cpu-clock: \n\tff f (m)\n"), "perf script", false },
        { B("java  3244/3245 [001] 250 cycles: \n\tff f (m)\n"), "perf script", false },
        { B("java  3244 \n\tff f (m)\n"), "perf script", false },
        { B("java  3244 ff f (m)\n"), "perf script", false },
        { B("java 3244\njava 17\n"), "folded", false },
        { B("java cpu: 3244\n"), "folded", false },
    };

    sniff_all(rows, ARRAY_LEN(rows));
}
#undef B

static void test_folded_brackets(void **state)
{
    (void)state;
    check("[unknown];main;foo 3\n", "folded", "samples\t{}\t[unknown];main;foo\t3\n");
    check("{lambda};main 2\n", "folded", "samples\t{}\t{lambda};main\t2\n");
}

static void test_austin(void **state)
{
    (void)state;
#define HEAD(mode) "# austin: 3.7.0\n# interval: 1000\n# mode: " mode "\n\n"
#define TAIL       "P1;T0:1;a.py:f:2 10\nP1;T0:1;a.py:f:2 5\nP1;T0:1 -7\n\n# duration: 2058950\n"
    check(HEAD("wall") TAIL, "austin", "wall\t{}\tP1;T0:1;a.py:f:2\t15000\n");
    check(HEAD("cpu") TAIL, "austin", "cpu\t{}\tP1;T0:1;a.py:f:2\t15000\n");
    check(HEAD("memory\r") TAIL, "austin", "alloc_space\t{}\tP1;T0:1;a.py:f:2\t15\n");
    check("# austin: 9\n" TAIL, "austin", "wall\t{}\tP1;T0:1;a.py:f:2\t15000\n");
    const char *format;
    struct dist_push d;
    struct err e = { 0 };
    assert_int_equal(decode(&d, STR(HEAD("full") "P1;T0:1 10,0,3\n"), &format, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "\"full\""));
    dist_push_free(&d);
#undef HEAD
#undef TAIL
}

static void test_perf_script(void **state)
{
    (void)state;
    check("# comment\n"
          "my app (x) 12/13 [001] 99.500000:   250 cpu-clock:u: \n"
          "\t    ff leaf+0x1f (/bin/a (deleted))\n"
          "\t    fe [unknown] (/lib/b.so)\n"
          "\n"
          "java 9 99.600000: 7 cycles: \n"
          "    1a La/B;::x->c.d+0x4 (/tmp/perf-9.map)\n"
          "java 9 99.700000: cycles: 1b [unknown] ([unknown])\n",
          "perf script",
          "cpu\t{}\tmy app (x);[b.so];leaf\t250\n"
          "cycles\t{}\tjava;[unknown]\t1\n"
          "cycles\t{}\tjava;a/B::x;c.d\t7\n"
          "samples\t{}\tjava;[unknown]\t1\n"
          "samples\t{}\tjava;a/B::x;c.d\t1\n"
          "samples\t{}\tmy app (x);[b.so];leaf\t1\n");
}

/* Time and event are what `perf script -F` was asked for; the samples are those that
 * stackcollapse-perf.pl counts. */
static void test_perf_fields(void **state)
{
    (void)state;
    static const char two[] = "samples\t{}\tjava;g;f\t1\nsamples\t{}\tjava;h\t2\n";
    static const char *const heads[] = { "java 7 99.5: ", "java  7/9 ", "java 7 [003] " };
    struct buf b;

    for (size_t i = 0; i < ARRAY_LEN(heads); i++) {
        buf_init(&b, MIB);
        buf_addf(&b, "%s\n\t 1f f+0x3 (/m)\n\t 20 g (/m)\n\n", heads[i]);
        buf_addf(&b, "%s\n        99 h (/m)\n\n%s\n 99 h (/m)\n", heads[i], heads[i]);
        buf_add_c(&b, '\0');
        check(b.ptr, "perf script", two);
        buf_deinit(&b);
    }
    check("java 7 cpu-clock:u: \n\t1f f (/m)\n\njava 7 250 cpu-clock:u: \n\t1f f (/m)\n",
          "perf script", "cpu\t{}\tjava;f\t251\nsamples\t{}\tjava;f\t2\n");
    check("java 7 99.5:  250 \n\t1f f (/m)\n\njava 7 99.6:   4 \n\t1f f (/m)\n", "perf script",
          "period\t{}\tjava;f\t254\nsamples\t{}\tjava;f\t2\n");
    /* A frame on the line of its event; 401097 is an address, not a period. */
    check("  my app 7 99.5:  401097 f (/m)\n  my app 7 99.5:  1f f (/m)\n", "perf script",
          "samples\t{}\tmy app;f\t2\n");
    /* A frame whose symbol begins with a number is still a frame. */
    check("java 7 cycles: \n\t  1f 12 cycles: (/m)\n", "perf script",
          "cycles\t{}\tjava;12 cycles:\t1\nsamples\t{}\tjava;12 cycles:\t1\n");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{}",
        "[]",
        "{\"traceEvents\":[]}",
        "{\"resourceProfiles\":[]}",
        "Total samples : 34\n\n a b\n c d\ne\n", /* more words than counts */
        "{\"nodes\":3,\"samples\":[1]}",
        "{\"nodes\":[{\"id\":1},{\"id\":1}]}",
        "{\"nodes\":[{\"id\":1,\"parent\":1,\"hitCount\":1}],\"startTime\":0,\"endTime\":9}",
#define ROOT ",\"callFrame\":{\"functionName\":\"(root)\"},\"hitCount\":1}"
        "{\"nodes\":[{\"id\":1,\"parent\":1" ROOT "],\"startTime\":0,\"endTime\":9}",
        "{\"nodes\":[{\"id\":1,\"parent\":2" ROOT ",{\"id\":2,\"parent\":1" ROOT
        "],\"startTime\":0,\"endTime\":9}",
        "{\"nodes\":[{\"id\":1,\"parent\":2},{\"id\":2,\"parent\":3" ROOT
        ",{\"id\":3,\"parent\":2" ROOT ",{\"id\":4,\"parent\":1,\"hitCount\":1}],"
        "\"startTime\":0,\"endTime\":9}",
#undef ROOT
        "{\"nodes\":[{\"id\":1}],\"startTime\":9,\"endTime\":1}",
        "{\"nodes\":[{\"id\":1,\"children\":[5]}],\"startTime\":0,\"endTime\":1}",
        "{\"nodes\":[{\"id\":1}],\"samples\":[1,1],\"timeDeltas\":[8e15,8e15],\"startTime\":0,"
        "\"endTime\":1}",
        "{\"meta\":{},\"threads\":[]}",
        "{\"meta\":{\"interval\":-1},\"threads\":[]}",
        "{\"meta\":{},\"threads\":[{\"samples\":{\"stack\":[1]},\"stackTable\":{\"frame\":[0],"
        "\"prefix\":[0]},\"frameTable\":{\"func\":[0]}}]}",
        "{\"meta\":{},\"threads\":[{\"samples\":{\"stack\":[0]},\"stackTable\":{\"frame\":[0],"
        "\"prefix\":[0]},\"frameTable\":{\"func\":[0]}}]}", /* its own prefix */
        "nothing here\n",
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *format;
        struct dist_push d;
        struct err e = { 0 };
        if (decode(&d, str_c(rows[i]), &format, &e) != ERR_INPUT)
            fail_msg("row %zu (%s): %s", i, format, e.text);
        assert_true(strlen(e.text) > 8);
        dist_push_free(&d);
    }
}

/* What looks like nothing known is not said to be a broken pprof, or folded text with bad lines. */
static void test_unknown(void **state)
{
    (void)state;
    static const struct str rows[] = { { "\x01\x02\x03\x04 binary", 11 },
                                       { "<html>hello 5</html>", 20 },
                                       { "a,b,1\n", 6 } };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *format;
        struct dist_push d;
        struct err e;
        assert_int_equal(decode(&d, rows[i], &format, &e), ERR_INPUT);
        if (!strstr(e.text, "of no known kind") || !strstr(e.text, "speedscope"))
            fail_msg("row %zu: %s", i, e.text);
        dist_push_free(&d);
    }
}

/* For a known format that is not read, the error says what to do instead. */
static void test_advice(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        { "{\"traceEvents\":[]}", "speedscope" },
        { "[{\"ph\":\"X\",\"args\":{\"n\":18446744064077150000}}]", "speedscope" },
        { "{\"version\":1.2,\"mode\":\"cpu\",\"frames\":{}}", "stackprof --stackcollapse" },
        { "{\"resourceProfiles\":[{}]}", "/v1development/profiles" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *format;
        struct dist_push d;
        struct err e = { 0 };
        assert_int_equal(decode(&d, str_c(rows[i][0]), &format, &e), ERR_INPUT);
        if (!strstr(e.text, rows[i][1]))
            fail_msg("%s: %s", rows[i][0], e.text);
        dist_push_free(&d);
    }
}

static void test_zipped_twice(void **state)
{
    (void)state;
    struct str folded = STR("main;work 3\n");
    struct buf once, twice;
    const char *format;
    struct dist_push d;
    struct err e;

    buf_init(&once, MIB);
    buf_init(&twice, MIB);
    assert_int_equal(gzip(folded, 1, &once, &e), 0);
    assert_int_equal(decode(&d, buf_str(&once), &format, &e), 0);
    dist_push_free(&d);
    assert_int_equal(gzip(buf_str(&once), 1, &twice, &e), 0);
    assert_int_equal(decode(&d, buf_str(&twice), &format, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "gzip inside gzip"));
    dist_push_free(&d);
    buf_deinit(&once);
    buf_deinit(&twice);
}

/* ---- sample files ---------------------------------------------------------------------------- */

static size_t files;

static uint64_t number(const json_t *o, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(o, key));
}

static uint64_t total(const struct push *p, const char *type)
{
    struct dist_summary s;

    dist_summarise(p, type, &s);
    uint64_t sum = s.total;
    dist_summary_deinit(&s);
    return sum;
}

static uint64_t sum_of(const json_t *o)
{
    const char *key;
    json_t *v;
    uint64_t sum = 0;

    json_object_foreach((json_t *)(uintptr_t)o, key, v) sum += (uint64_t)json_integer_value(v);
    return sum;
}

static void check_v8(const char *path, const struct push *p, const json_t *want)
{
    if (json_object_get(want, "total_bytes")) {
        assert_int_equal(total(p, "inuse_space"), number(want, "total_bytes"));
    } else if (json_object_get(want, "error")) { /* the old style: no numbers were worked out */
        assert_true(total(p, "cpu") > 0 && total(p, "samples") > 0);
    } else {
        struct dist_summary s;
        size_t i;
        json_t *row;
        assert_int_equal(total(p, "samples"), number(want, "samples"));
        dist_summarise(p, "samples", &s);
        json_array_foreach(json_object_get(want, "top_self_by_samples"), i, row)
        {
            const char *name = json_string_value(json_array_get(row, 0));
            bool found = false;
            for (size_t k = 0; k < s.self_len; k++)
                found |= str_eqc(str_n(s.self[k].name, s.self[k].len), name) &&
                         s.self[k].value == (uint64_t)json_integer_value(json_array_get(row, 1));
            if (!found)
                fail_msg("%s: self of %s", path, name);
        }
        dist_summary_deinit(&s);
        assert_true(total(p, "cpu") <= number(want, "duration_us") * 1000);
        assert_true(total(p, "cpu") > 0);
    }
}

/* What the reader of the numbers takes for no event: comm is padded in that file. */
#define PADDED_EVENTS 2

static void check_perf(const char *path, const struct push *p, const json_t *want)
{
    const json_t *periods = json_object_get(want, "period_sum_by_name"), *v;
    const char *key;
    uint64_t all = 0;

    if (strstr(path, "single-line")) {
        assert_int_equal(number(want, "events"), 0);
        assert_int_equal(total(p, "samples"), PADDED_EVENTS);
        return;
    }
    assert_int_equal(total(p, "samples"), sum_of(json_object_get(want, "events_by_name")));
    assert_int_equal(p->drops[DROP_LINE], number(want, "unparsed_lines"));
    json_object_foreach((json_t *)(uintptr_t)periods, key, v) all +=
        (uint64_t)json_integer_value(v);
    for (size_t i = 0; i < p->series_len; i++)
        if (!str_contains(p->series[i].profile_type, STR(":samples:")))
            all -= p->series[i].total;
    assert_int_equal(all, 0);
}

/* Expected are rows of samples; a row may have a weight. */
#define SAMPLY_WEIGHTS 13069

static void check_firefox(const char *path, const struct push *p, const json_t *want)
{
    const json_t *threads = json_object_get(want, "threads"), *t;
    const json_t *interval = json_object_get(want, "interval_ms");
    uint64_t samples = 0;
    size_t i;

    json_array_foreach((json_t *)(uintptr_t)threads, i, t) samples +=
        number(t, "samples") - number(t, "null_stacks");
    assert_int_equal(p->samples, samples);
    if (strstr(path, "samply"))
        samples = SAMPLY_WEIGHTS;
    assert_int_equal(total(p, "samples"), samples);
    assert_int_equal(total(p, "wall"), samples * (uint64_t)(json_number_value(interval) * 1e6));
}

static void one_file(const char *name, void *dir)
{
    char path[512], expected[512];
    const char *format;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };

    (void)snprintf(path, sizeof(path), "%s/%s", (const char *)dir, name);
    testdata_read(path, &body);
    if (decode(&d, buf_str(&body), &format, &e))
        fail_msg("%s: %s", path, e.text);
    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected);
    if (strcmp(dir, "cpuprofile") == 0)
        check_v8(path, &d.push, want);
    else if (strcmp(dir, "firefox") == 0)
        check_firefox(path, &d.push, want);
    else
        check_perf(path, &d.push, want);
    json_decref(want);
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void one_verdict(const char *file, const char *verdict, void *cookie)
{
    (void)cookie;
    char path[512];
    const char *format;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };

    (void)snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = decode(&d, buf_str(&body), &format, &e);
    if (rc != (strcmp(verdict, "ok") == 0 ? 0 : ERR_INPUT))
        fail_msg("%s (%s): %s %s", file, verdict, err_name(rc), e.text);
    if (!rc)
        assert_int_equal(total(&d.push, "samples"), 2);
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_files(void **state)
{
    (void)state;
    char v8[] = "cpuprofile", firefox[] = "firefox", perf[] = "perf-script";

    if (!testdata_here("uploaded samples"))
        skip();
    files = 0;
    testdata_each(v8, one_file, v8);
    testdata_each(firefox, one_file, firefox);
    testdata_each(perf, one_file, perf);
    testdata_verdicts(v8, one_verdict, NULL);
    testdata_verdicts(perf, one_verdict, NULL);
    assert_true(files >= 23);
}

/* A body that was refused as another format. */
static void test_hint(void **state)
{
    (void)state;
    static const struct {
        enum format taken;
        struct str body;
        const char *want; /* "": nothing is added */
    } rows[] = {
#define B(s) { s, sizeof(s) - 1 }
        { FORMAT_GROUPS, B("FLR\0\0\2\0\0"), "send it with format=jfr" },
        { FORMAT_JFR, B("FLR\0\0\2\0\0"), "" },
        { FORMAT_GROUPS, B("\x0a\x04\x08\x01\x10\x02"), "send it with format=pprof" },
        { FORMAT_PPROF, B("\x0a\x04\x08\x01\x10\x02"), "" },
        { FORMAT_GROUPS, B("\1\2\3\4"), "" },
        { FORMAT_PPROF, B("main;a 1\n"), "folded stacks are sent without format=" },
        { FORMAT_TRIE, B("main;a 1\n"), "" },
        { FORMAT_GROUPS, B("main;a\n"), "" },
        { FORMAT_GROUPS, B("PERFILE2\0"), "this is perf.data: run `perf script`" },
        { FORMAT_PPROF, B("PK\3\4"), "this is a zip archive" },
        { FORMAT_GROUPS, B("{\"$schema\": \"https://www.speedscope.app/file\"}"),
          "send it with format=speedscope" },
        { FORMAT_SPEEDSCOPE, B("{\"shared\": {}}"), "" },
        { FORMAT_PPROF, B("{\"resourceProfiles\": []}"), "send it to /v1development/profiles" },
        { FORMAT_GROUPS, B("{\"nodes\": []}"), "uploaded to /api/v1/adhoc" },
        { FORMAT_GROUPS, B("<!DOCTYPE html><p>"), "a page of HTML" },
        { FORMAT_GROUPS, B("<module>;main\n"), "" },
        { FORMAT_JFR, B("--b\r\n"), "" },
        { FORMAT_PPROF, B("--- symbol\nbinary=work\n"), "pprof --collapsed" },
        { FORMAT_GROUPS, B("# austin: 3.7.0\n# mode: full\n"), "sampleRate=1000000" },
        { FORMAT_MULTIPART, B("FLR\0"), "" },
        { FORMAT_GROUPS, B(""), "" },
#undef B
    };
    const struct limits l = limits_default();

    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        struct str body = rows[i / 2].body;
        const char *want = rows[i / 2].want;
        struct err e;
        struct buf zip;

        buf_init(&zip, MIB);
        if (i % 2) { /* and below gzip */
            assert_int_equal(gzip(body, 1, &zip, &e), 0);
            body = buf_str(&zip);
        }
        (void)err_set(&e, ERR_INPUT, "wrong");
        upload_hint(rows[i / 2].taken, body, &l, &e);
        assert_int_equal(e.code, ERR_INPUT);
        if (want[0] ? !strstr(e.text, "wrong; ") || !strstr(e.text, want) : strcmp(e.text, "wrong"))
            fail_msg("row %zu: %s", i, e.text);
        (void)err_set(&e, ERR_LIMIT, "wrong"); /* it was read as what it is, as far as allowed */
        upload_hint(rows[i / 2].taken, body, &l, &e);
        assert_string_equal(e.text, "wrong");
        buf_deinit(&zip);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sniff),        cmocka_unit_test(test_sniff_close),
        cmocka_unit_test(test_perf_script),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_zipped_twice), cmocka_unit_test(test_advice),
        cmocka_unit_test(test_unknown),      cmocka_unit_test(test_files),
        cmocka_unit_test(test_hint),         cmocka_unit_test(test_austin),
        cmocka_unit_test(test_perf_fields),  cmocka_unit_test(test_folded_brackets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
