/* SPDX-License-Identifier: Apache-2.0
 *
 * Uploaded JSON: .cpuprofile, .heapprofile and Firefox profiles, small ones by hand and large ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "distributor/formats/upload/upload.h"
#include "tests/lib/roles/dist_push.h"

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

/* JSON with ' for ", and @name@ for a callFrame. */
static void check_json(const char *text, const char *want_format, const char *want)
{
    struct buf body;

    buf_init(&body, MIB);
    for (const char *c = text; *c; c++) {
        if (*c == '@') {
            size_t len = strcspn(c + 1, "@");
            buf_add_str(&body, STR("\"callFrame\":{\"functionName\":\""));
            buf_add_str(&body, str_n(c + 1, len));
            buf_add_str(&body, STR("\",\"url\":\"x.js\",\"lineNumber\":4}"));
            c += len + 1;
        } else {
            buf_add_c(&body, *c == '\'' ? '"' : *c);
        }
    }
    buf_add_c(&body, '\0');
    check(body.ptr, want_format, want);
    buf_deinit(&body);
}

static void test_v8(void **state)
{
    (void)state;
    /* Samples at 110, 130, 120 (back), 160; end 200: the third has what is beyond 130. */
    check_json("{'nodes':[{'id':1,@(root)@,'children':[2]},{'id':2,@a@,'children':[7]},"
               "{'id':7,@@}],'startTime':100,'endTime':200,'samples':[2,7,2,7],"
               "'timeDeltas':[10,20,-10,40]}",
               "cpuprofile",
               "cpu\t{}\ta\t50000\ncpu\t{}\ta;(anonymous)\t40000\n"
               "samples\t{}\ta\t2\nsamples\t{}\ta;(anonymous)\t2\n");
    /* Parents by `parent`, hits only: 3 hits in 90 us. */
    check_json("{'nodes':[{'id':1,@(root)@},{'id':2,'parent':1,'hitCount':2,@a@},"
               "{'id':3,'parent':2,'hitCount':1,@b@}],'startTime':10,'endTime':100}",
               "cpuprofile",
               "cpu\t{}\ta\t60000\ncpu\t{}\ta;b\t30000\n"
               "samples\t{}\ta\t2\nsamples\t{}\ta;b\t1\n");
    /* A root among frames is no frame, however many there are. */
    check_json("{'nodes':[{'id':1,@(root)@,'parent':2,'hitCount':1},{'id':2,'parent':3,@(root)@},"
               "{'id':3,'parent':4,@a@},{'id':4,'parent':5,@(root)@},{'id':5,@(root)@},"
               "{'id':6,'parent':1,'hitCount':2,@b@}],'startTime':10,'endTime':100}",
               "cpuprofile",
               "cpu\t{}\ta\t30000\ncpu\t{}\ta;b\t60000\n"
               "samples\t{}\ta\t1\nsamples\t{}\ta;b\t2\n");
    /* The old style has one more timestamp than samples: the end. */
    check_json("{'head':{'functionName':'(root)','id':1,'children':[{'functionName':'a','id':2,"
               "'hitCount':1}]},'startTime':1,'endTime':2,'samples':[2],"
               "'timestamps':[1500000,1600000]}",
               "cpuprofile", "cpu\t{}\ta\t100000000\nsamples\t{}\ta\t1\n");
    /* Members in any order: the values first, children in front of their parent's own name. */
    check_json("{'timestamps':[1500000,1600000],'samples':[2],'endTime':2,'startTime':1,'head':"
               "{'children':[{'hitCount':1,'children':[],'id':2,'functionName':'a'}],'id':1,"
               "'functionName':'(root)'}}",
               "cpuprofile", "cpu\t{}\ta\t100000000\nsamples\t{}\ta\t1\n");
    check_json("{'timeDeltas':[10,20],'samples':[2,7],'endTime':200,'startTime':100,'nodes':["
               "{'children':[7],@a@,'id':2},{@b@,'id':7}]}",
               "cpuprofile",
               "cpu\t{}\ta\t20000\ncpu\t{}\ta;b\t70000\nsamples\t{}\ta\t1\nsamples\t{}\ta;b\t1\n");
    check_json("{'head':{@(root)@,'selfSize':0,'children':[{@a@,'selfSize':64}]}}", "heapprofile",
               "inuse_space\t{}\ta\t64\n");
}

static void test_firefox(void **state)
{
    (void)state;
    check("{\"meta\":{\"interval\":2},\"threads\":[{\"name\":\"Main\",\"samples\":{\"schema\":"
          "{\"stack\":0,\"time\":1},\"data\":[[1,5],[0],[null]]},\"stackTable\":{\"schema\":"
          "{\"prefix\":0,\"frame\":1},\"data\":[[null,0],[0,1]]},\"frameTable\":{\"schema\":"
          "{\"location\":0},\"data\":[[0],[1]]},\"stringTable\":[\"(root)\",\"f (a.js:3:9)\"]}]}",
          "firefox",
          "samples\t{thread_name=Main}\t(root)\t1\nsamples\t{thread_name=Main}\t(root);f\t1\n"
          "wall\t{thread_name=Main}\t(root)\t2000000\n"
          "wall\t{thread_name=Main}\t(root);f\t2000000\n");
    /* The same, the schema behind the data, and an unused column in front. */
    check("{\"threads\":[{\"stringTable\":[\"(root)\",\"f (a.js:3:9)\"],"
          "\"frameTable\":{\"data\":[[0],[1]],"
          "\"schema\":{\"location\":0}},\"stackTable\":{\"data\":[[[{}],null,0],[\"]\",0,1]],"
          "\"schema\":{\"frame\":2,\"prefix\":1}},\"samples\":{\"data\":[[1,5],[0],[null]],"
          "\"schema\":{\"stack\":0}},\"name\":\"Main\"}],\"meta\":{\"interval\":2}}",
          "firefox",
          "samples\t{thread_name=Main}\t(root)\t1\nsamples\t{thread_name=Main}\t(root);f\t1\n"
          "wall\t{thread_name=Main}\t(root)\t2000000\n"
          "wall\t{thread_name=Main}\t(root);f\t2000000\n");
#define THREAD(table)                                                                          \
    "{\"name\":\"T\",\"samples\":{\"stack\":[1,0],\"weight\":[3,1],\"weightType\":\"bytes\"}," \
    "\"stackTable\":{" table                                                                   \
    ",\"frame\":[0,1]},\"frameTable\":{\"func\":[0,1],\"line\":[null,7]},"                     \
    "\"funcTable\":{\"name\":[0,1],\"fileName\":[null,2],\"resource\":[0,-1]},"                \
    "\"resourceTable\":{\"name\":[3]}}"
    check("{\"meta\":{\"interval\":1},\"shared\":{\"stringArray\":[\"0x1f\",\"g\",\"g.c\","
          "\"lib.so\"]},\"threads\":[" THREAD("\"prefix\":[null,0]") "," THREAD(
              "\"prefixOffset\":[0,1]") "]}",
          "firefox",
          "alloc_space\t{thread_name=T}\tlib.so!0x1f\t2\n"
          "alloc_space\t{thread_name=T}\tlib.so!0x1f;g\t6\n");
#undef THREAD
    /* Threads of one name are one series, however their samples are weighed. */
#define THREAD(weights)                                                                      \
    "{\"name\":\"T\",\"samples\":{\"stack\":[0]" weights "},\"stackTable\":{\"frame\":[0]}," \
    "\"frameTable\":{\"func\":[0]},\"funcTable\":{\"name\":[0]},\"stringArray\":[\"f\"]}"
    check("{\"meta\":{\"interval\":1},\"threads\":[" THREAD("") "," THREAD(
              ",\"weight\":[5],\"weightType\":\"tracing-ms\"") "]}",
          "firefox", "samples\t{thread_name=T}\tf\t1\nwall\t{thread_name=T}\tf\t6000000\n");
#undef THREAD
    /* What one thread's names made of a shared table is not what the next one's make of it. */
#define THREAD(name, string)                                                            \
    "{\"name\":\"" name "\",\"samples\":{\"stack\":[1]},\"frameTable\":{\"func\":[0]}," \
    "\"funcTable\":{\"name\":[0]},\"stringArray\":[\"" string "\"]}"
    check("{\"meta\":{\"interval\":1},\"shared\":{\"stackTable\":{\"frame\":[0,0],\"prefix\":"
          "[null,0]}},\"threads\":[" THREAD("A", "a") "," THREAD("B", "b") "]}",
          "firefox",
          "samples\t{thread_name=A}\ta;a\t1\nsamples\t{thread_name=B}\tb;b\t1\n"
          "wall\t{thread_name=A}\ta;a\t1000000\nwall\t{thread_name=B}\tb;b\t1000000\n");
#undef THREAD
}

/* A profile whose threads share a table of so many frames. */
static void shared_frames(size_t frames, int threads, const char *want)
{
    const char *format;
    struct dist_push d;
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, 64 * MIB);
    buf_add_str(&b, STR("{\"meta\":{\"interval\":1},\"shared\":{\"stringArray\":[\"f\"],"
                        "\"stackTable\":{\"frame\":[0],\"prefix\":[null]},\"funcTable\":{"
                        "\"name\":[0]},\"frameTable\":{\"func\":[0"));
    for (size_t i = 1; i < frames; i++)
        buf_add_str(&b, STR(",0"));
    buf_add_str(&b, STR("]}},\"threads\":["));
    for (int i = 0; i < threads; i++)
        buf_addf(&b, "%s{\"name\":\"%d\",\"samples\":{\"stack\":[0]}}", i ? "," : "", i);
    buf_add_str(&b, STR("]}"));
    assert_int_equal(decode(&d, buf_str(&b), &format, &e), want ? ERR_LIMIT : 0);
    if (want && !strstr(e.text, want))
        fail_msg("%s, want %s", e.text, want);
    dist_push_free(&d);
    buf_deinit(&b);
}

/* Tables that all threads share are not gone over for each; each thread is two series. */
static void test_firefox_shared(void **state)
{
    (void)state;
    shared_frames(10, 500, NULL);
    shared_frames(10, 501, "more than 1000 series");
    shared_frames(1300000, 450, NULL);
}

/* A file of one thread with so many samples. */
static void firefox_samples(int n, int want)
{
    const char *format;
    struct dist_push d;
    struct err e = { 0 };
    struct buf b;

    buf_init(&b, 64 * MIB);
    buf_add_str(&b, STR("{\"meta\":{\"interval\":1},\"threads\":[{\"samples\":{\"time\":["));
    for (int i = 0; i < n; i++)
        buf_addf(&b, "%s%d.125", i ? "," : "", 1000000 + i);
    buf_add_str(&b, STR("],\"stack\":["));
    for (int i = 0; i < n; i++)
        buf_addf(&b, "%s%d", i ? "," : "", i % 2);
    buf_add_str(&b, STR("]},\"stackTable\":{\"frame\":[0,0],\"prefix\":[null,0]},\"frameTable\":{"
                        "\"func\":[0]},\"funcTable\":{\"name\":[0]},\"stringArray\":[\"f\"]}]}"));
    assert_int_equal(decode(&d, buf_str(&b), &format, &e), want);
    if (want)
        assert_non_null(strstr(e.text, "distributor.samples"));
    else
        assert_int_equal(dist_series(&d.push, "samples")->total, n);
    dist_push_free(&d);
    buf_deinit(&b);
}

static void test_firefox_large(void **state)
{
    (void)state;
    firefox_samples(1000000, 0);
    firefox_samples(1000001, ERR_LIMIT);
}

/* Nodes that are all (root) add no frame, and still take time: in a circle without end, in a
 * long row each as much as the row is long. */
static void test_v8_roots(void **state)
{
    static const char circle[] =
        "{\"nodes\":[{\"id\":1,\"callFrame\":{\"functionName\":\"(root)\"},\"hitCount\":1,"
        "\"children\":[2]},{\"id\":2,\"callFrame\":{\"functionName\":\"(root)\"},\"children\":[1]}"
        "],\"startTime\":0,\"endTime\":5}";
    const char *format;
    struct dist_push d;
    struct err e = { 0 };
    struct buf row;

    (void)state;
    assert_int_equal(decode(&d, str_c(circle), &format, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "parents"));
    dist_push_free(&d);
    buf_init(&row, 64 * MIB);
    buf_add_str(&row, STR("{\"startTime\":0,\"endTime\":5,\"nodes\":[{\"id\":0,\"callFrame\":{"
                          "\"functionName\":\"(root)\"}}"));
    for (int i = 1; i < 60000; i++)
        buf_addf(&row,
                 ",{\"id\":%d,\"parent\":%d,\"hitCount\":1,\"callFrame\":{"
                 "\"functionName\":\"(root)\"}}",
                 i, i - 1);
    buf_add_str(&row, STR("]}"));
    assert_int_equal(decode(&d, buf_str(&row), &format, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "too many frames"));
    dist_push_free(&d);
    buf_deinit(&row);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_v8),
        cmocka_unit_test(test_firefox),
        cmocka_unit_test(test_v8_roots),
        cmocka_unit_test(test_firefox_shared),
        cmocka_unit_test(test_firefox_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
