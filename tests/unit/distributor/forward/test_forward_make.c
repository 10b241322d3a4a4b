/* SPDX-License-Identifier: Apache-2.0
 *
 * What is forwarded, decoded by our own decoders, is what was accepted.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/base/window.h"
#include "distributor/formats/push_msg.h"
#include "distributor/forward/forward_make.h"
#include "distributor/forward/forward_req.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/batch_keep.h"
#include "tests/lib/roles/dist_push.h"

static struct forward_conf *conf(const char *text)
{
    struct forward_conf *c = NULL;
    struct err e;

    if (forward_conf_parse("f", str_c(text), &c, &e))
        fail_msg("%s", e.text);
    return c;
}

struct records {
    VEC(struct str) all;
};

static void keep(void *cookie, struct str record)
{
    struct records *r = cookie;

    vec_push(&r->all, ((struct str){ xmemdup(record.ptr, record.len), record.len }));
}

static void records_free(struct records *r)
{
    vec_for (i, &r->all)
        xfree((void *)(uintptr_t)r->all.ptr[i].ptr);
    vec_free(&r->all);
}

static uint64_t make(const struct push *p, const char *text, struct records *ret)
{
    struct window w = { DIST_NOW_MS - 20000, DIST_NOW_MS - 10000 };
    struct intake_packed in = { .tenant = STR("t"), .push = p, .window = &w, .id = { 7, 9 } };
    struct forward_conf *c = conf(text);
    struct forward_made *m = NULL;
    uint64_t left_out = 0;
    struct err e;

    *ret = (struct records){ 0 };
    if (forward_made_new(&in, &m, &e) || forward_make(m, &c->targets[0], keep, ret, &left_out, &e))
        fail_msg("%s", e.text);
    forward_made_free(m);
    forward_conf_unref(c);
    return left_out;
}

#define PUSH_TO "targets: {b: {url: \"http://h\"}}"

static void decode_push(const struct records *r, struct batch_keep *k)
{
    batch_keep_init(k, NULL, DIST_NOW_MS);
    vec_for (i, &r->all) {
        struct forward_req q;
        struct push_msg m;
        struct arena *a = arena_new(64 * MIB);
        struct err e;
        assert_int_equal(forward_req_read(r->all.ptr[i], &q, &e), 0);
        assert_true(str_eqc(q.path, "/push.v1.PusherService/Push"));
        assert_int_equal(q.hops, 1);
        if (push_msg_proto(q.body, 100000, a, &m, &e) || push_msg_push(&m, &k->sink, &e))
            fail_msg("%s", e.text);
        arena_free(a);
    }
    batch_keep_check(k);
    assert_int_equal(k->rejected, 0);
}

static void assert_rows(const struct push *p, const struct batch_keep *k)
{
    struct buf want, got, one;

    dist_rows(p, &want);
    buf_init(&got, 64 * MIB);
    vec_for (i, &k->pushes) {
        dist_rows(&k->pushes.ptr[i]->push, &one);
        buf_add_str(&got, buf_str(&one));
        buf_deinit(&one);
    }
    gen_sort_lines(&got);
    assert_int_equal(want.len, got.len);
    assert_memory_equal(want.ptr, got.ptr, want.len);
    buf_deinit(&want);
    buf_deinit(&got);
}

static void test_random_profiles_come_back(void **state)
{
    uint64_t seed = (uint64_t)getpid();
    struct prng prng;

    (void)state;
    print_message("seed %" PRIu64 "\n", seed);
    prng_init(&prng, seed);
    for (int i = 0; i < 150; i++) {
        struct gen_random g;
        struct dist_push d;
        struct batch_keep k;
        struct records r;
        struct limits l = limits_default();
        struct err e;
        gen_random_pprof(&prng, (size_t)prng_below(&prng, 60), &g);
        int rc = dist_decode(&d, "app{env=prod}", "pprof", NULL, buf_str(&g.body), &l, &e);
        assert_int_equal(rc, 0);
        (void)make(&d.push, PUSH_TO, &r);
        decode_push(&r, &k);
        assert_rows(&d.push, &k);
        vec_for (n, &k.pushes) {
            const struct push *p = &k.pushes.ptr[n]->push;
            assert_true(str_eqc(p->service, "app"));
            assert_int_equal(p->time_ns / 1000000, DIST_NOW_MS - 20000);
            assert_int_equal(p->duration_ns / 1000000, 10000);
        }
        batch_keep_free(&k);
        records_free(&r);
        dist_push_free(&d);
        gen_random_deinit(&g);
    }
}

static void test_the_same_push_makes_the_same_requests(void **state)
{
    struct gen_random g;
    struct dist_push d;
    struct records a, b;
    struct limits l = limits_default();
    struct prng prng;
    struct err e;

    (void)state;
    prng_init(&prng, 5);
    gen_random_pprof(&prng, 50, &g);
    assert_int_equal(dist_decode(&d, "app", "pprof", NULL, buf_str(&g.body), &l, &e), 0);
    for (int mode = 0; mode < 2; mode++) {
        const char *text = mode ? "targets: {b: {url: \"http://h\", mode: ingest}}" : PUSH_TO;
        (void)make(&d.push, text, &a);
        (void)make(&d.push, text, &b);
        assert_int_equal(a.all.len, b.all.len);
        vec_for (i, &a.all)
            assert_true(str_eq(a.all.ptr[i], b.all.ptr[i]));
        records_free(&a);
        records_free(&b);
    }
    dist_push_free(&d);
    gen_random_deinit(&g);
}

static void test_spans(void **state)
{
    struct gen_pprof g;
    struct dist_push d;
    struct batch_keep k;
    struct records r;
    struct buf body;
    struct limits l = limits_default();
    struct err e;

    (void)state;
    gen_pprof_init(&g);
    gen_type(&g, "cpu", "nanoseconds");
    uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
    gen_sample(&g, &leaf, 1, (int64_t[]){ 10 }, 1);
    gen_label(&g, "span_id", "00000bac2a5ab0c7");
    gen_sample(&g, &leaf, 1, (int64_t[]){ 5 }, 1);
    gen_label(&g, "span_id", "10000bac2a5ab0c7");
    gen_sample(&g, &leaf, 1, (int64_t[]){ 3 }, 1);
    buf_init(&body, MIB);
    gen_pprof_finish(&g, &body);
    assert_int_equal(dist_decode(&d, "app", "pprof", NULL, buf_str(&body), &l, &e), 0);
    assert_int_equal(d.push.exemplars, 2);
    (void)make(&d.push, PUSH_TO, &r);
    decode_push(&r, &k);
    assert_rows(&d.push, &k);
    assert_int_equal(k.pushes.len, 1);
    const struct push_series *s = dist_series(&k.pushes.ptr[0]->push, "cpu");
    assert_non_null(s);
    assert_int_equal(s->total, 18);
    assert_int_equal(s->exemplars_len, 2);
    assert_int_equal(s->exemplars[0].values[0] + s->exemplars[1].values[0], 8);
    batch_keep_free(&k);
    records_free(&r);
    dist_push_free(&d);
    buf_deinit(&body);
    gen_pprof_deinit(&g);
}

static void test_ingest_mode(void **state)
{
    struct gen_pprof g;
    struct dist_push d, back;
    struct records r;
    struct buf body, want, got;
    struct forward_req q;
    struct limits l = limits_default();
    struct err e;

    (void)state;
    gen_pprof_init(&g);
    gen_type(&g, "alloc_space", "bytes");
    gen_type(&g, "inuse_space", "bytes");
    uint64_t leaf = gen_location(&g, gen_function(&g, "leaf", "a.go"), 7);
    gen_sample(&g, &leaf, 1, (int64_t[]){ 10, 20 }, 2);
    buf_init(&body, MIB);
    gen_pprof_finish(&g, &body);
    assert_int_equal(dist_decode(&d, "my.app{env=a}", "pprof", NULL, buf_str(&body), &l, &e), 0);
    (void)make(&d.push, "targets: {b: {url: \"http://h\", mode: ingest, labels: {z: \"1,2\"}}}",
               &r);
    assert_int_equal(r.all.len, 1);
    assert_int_equal(forward_req_read(r.all.ptr[0], &q, &e), 0);
    assert_true(str_starts(q.path, STR("/ingest?name=my.app%7Benv%3Da%2Cz%3D1_2%7D&from=17899")));
    assert_int_equal(q.key.len, 36);
    char type[200];
    (void)snprintf(type, sizeof(type), "%.*s", STR_ARG(q.content_type));
    assert_int_equal(dist_decode(&back, "my.app{env=a}", NULL, type, q.body, &l, &e), 0);
    dist_rows(&d.push, &want);
    dist_rows(&back.push, &got);
    assert_true(str_eq(buf_str(&want), buf_str(&got)));
    buf_deinit(&want);
    buf_deinit(&got);
    dist_push_free(&back);
    records_free(&r);
    dist_push_free(&d);
    buf_deinit(&body);
    gen_pprof_deinit(&g);
}

static void test_rules(void **state)
{
    static const struct {
        const char *more;
        uint64_t left_out;
    } rows[] = {
        { "", 0 },
        { ", match: ['{env=\"prod\"}']", 0 },
        { ", match: ['{env=\"dev\"}', '{env=~\"pr.*\"}']", 0 },
        { ", match: '{env=\"dev\"}'", 1 },
        { ", drop: ['{env=\"prod\"}']", 1 },
        { ", match: ['{env=\"prod\"}'], drop: ['{service_name=\"app\"}']", 1 },
        { ", relabel_configs: [{action: drop, source_labels: [env], regex: prod}]", 1 },
        { ", labels: {env: dev}, relabel_configs: [{action: keep, source_labels: [env], "
          "regex: dev}]",
          0 },
    };
    struct dist_push d;
    struct limits l = limits_default();
    struct err e;

    (void)state;
    assert_int_equal(dist_decode(&d, "app.cpu{env=prod}", NULL, NULL, STR("a;b 3\n"), &l, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct records r;
        char text[400];
        (void)snprintf(text, sizeof(text), "targets: {b: {url: \"http://h\"%s}}", rows[i].more);
        assert_int_equal(make(&d.push, text, &r), rows[i].left_out);
        assert_int_equal(r.all.len, rows[i].left_out ? 0 : 1);
        records_free(&r);
    }
    dist_push_free(&d);
}

static void test_bad_files(void **state)
{
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "target: {}", "target" },
        { "targets: []", "line 1" },
        { "targets: {a: {}}", "has no url" },
        { "targets: {a: {url: \"ftp://x\"}}", "no URL" },
        { "targets: {a: {url: \"http://u:p@x\"}}", "password" },
        { "targets: {../a: {url: \"http://x\"}}", "no name of a target" },
        { "targets: {.a: {url: \"http://x\"}}", "no name of a target" },
        { "targets: {a: {url: \"http://x\", mode: pull}}", "mode" },
        { "targets: {a: {url: \"http://x\", urll: 1}}", "urll" },
        { "targets: {a: {url: \"http://x\", concurrency: 0}}", "concurrency" },
        { "targets: {a: {url: \"http://x\", match: ['{a=']}}", "line 1" },
        { "targets: {a: {url: \"http://x\", match: ['x{}']}}", "no text before" },
        { "targets: {a: {url: \"http://x\", labels: {__x: y}}}", "no name of a label" },
        { "targets: {a: {url: \"http://x\", basic_auth: {password: p}}}", "username" },
        { "targets: {a: {url: \"http://x\", basic_auth: {username: u}, bearer_token: t}}", "both" },
        { "targets: {a: {url: \"http://x\", headers: {A: \"b\\r\\nC: d\"}}}", "control byte" },
        { "targets: {a: {url: \"http://x\", relabel_configs: [{action: fly}]}}", "fly" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct forward_conf *c = NULL;
        struct err e;
        assert_int_equal(forward_conf_parse("f", str_c(rows[i].text), &c, &e), ERR_CONFIG);
        if (!str_contains(str_c(e.text), str_c(rows[i].says)))
            fail_msg("%s: %s", rows[i].text, e.text);
    }
    struct forward_conf *none = conf("");
    assert_int_equal(none->len, 0);
    forward_conf_unref(none);
}

static void test_records(void **state)
{
    struct forward_req r = { .hops = 2,
                             .tenant = STR("t"),
                             .key = STR("k"),
                             .path = STR("/p"),
                             .content_type = STR("c"),
                             .body = STR("body") },
                       back;
    struct buf b;
    struct err e;

    (void)state;
    buf_init(&b, MIB);
    forward_req_write(&r, &b);
    assert_int_equal(forward_req_read(buf_str(&b), &back, &e), 0);
    assert_true(back.hops == 2 && str_eqc(back.tenant, "t") && str_eqc(back.path, "/p") &&
                str_eqc(back.body, "body"));
    for (size_t n = 0; n < b.len - 4; n++)
        assert_int_equal(forward_req_read(str_sub(buf_str(&b), 0, n), &back, &e), ERR_CORRUPT);
    b.ptr[3] = '\r';
    assert_int_equal(forward_req_read(buf_str(&b), &back, &e), ERR_CORRUPT);
    buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_profiles_come_back),
        cmocka_unit_test(test_the_same_push_makes_the_same_requests),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_ingest_mode),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_records),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
