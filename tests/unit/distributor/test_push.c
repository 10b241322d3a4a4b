/* SPDX-License-Identifier: Apache-2.0
 *
 * Push, from its HTTP request to the writes that arrive at the ingester, and the answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/compress/compress.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/roles/dist_bed.h"

#define PUSH   "/push.v1.PusherService/Push"
#define PROTO  "Content-Type: application/proto\r\n"
#define JSON   "Content-Type: application/json\r\n"
#define WEB    "Content-Type: application/grpc-web+proto\r\n"
#define LABELS "__name__=process_cpu,service_name=svc"

static void free_write(Embertree__WriteRequest *m)
{
    embertree__write_request__free_unpacked(m, NULL);
}

static uint64_t total_of(const Embertree__WriteRequest *m)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_series; i++)
        for (size_t v = 0; v < m->series[i]->n_vectors; v++)
            for (size_t k = 0; k < m->series[i]->vectors[v]->n_value; k++)
                sum += m->series[i]->vectors[v]->value[k];
    return sum;
}

static const char *label_of(const Embertree__WriteRequest *m, const char *name)
{
    static char text[256];

    for (size_t i = 0; i < m->series[0]->n_labels; i++) {
        const Embertree__LabelPair *l = m->series[0]->labels[i];
        if (!str_eqc(str_n(l->name.data, l->name.len), name))
            continue;
        assert_true(l->value.len < sizeof(text));
        memcpy(text, l->value.data, l->value.len);
        text[l->value.len] = '\0';
        return text;
    }
    return NULL;
}

static bool write_id_eq(const Embertree__WriteRequest *a, const Embertree__WriteRequest *b)
{
    return memcmp(a->series[0]->write_id.data, b->series[0]->write_id.data, 16) == 0;
}

/* As dist_bed_push; bytes of zero, of which frames have many, become '~'. */
static int push(struct dist_bed *b, const char *target, const char *headers, struct str body,
                const char **ret)
{
    int status = 0;

    dist_bed_send(b, target, headers, body);
    for (int i = 0; i < 6000 && b->client->out.len == 0; i++)
        net_pass(&b->world, 10);
    for (size_t i = 0; i < b->client->out.len; i++)
        if (!b->client->out.ptr[i])
            b->client->out.ptr[i] = '~';
    const char *got = net_got(b->client);
    if (sscanf(got, "HTTP/1.1 %d", &status) != 1)
        status = 0;
    if (ret)
        *ret = got;
    return status;
}

/* One series of one sample as proto. */
static void one(const char *labels, struct str raw, const char *id, struct buf *out)
{
    buf_reset(out);
    push_gen_series(labels, &raw, &id, 1, out);
}

static void test_every_protocol(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf raw, msg, zip, web, text, json;
    const char *got;
    struct err e;

    dist_bed_init(&b, 1, NULL);
    struct buf *all[] = { &raw, &msg, &zip, &web, &text, &json };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_init(all[i], MIB);
    push_gen_pprof("leaf", 30000000, 0, &raw);
    one(LABELS ",env=prod", buf_str(&raw), "id-1", &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), &got), 200);
    assert_non_null(strstr(got, "Content-Type: application/proto\r\n"));
    assert_non_null(strstr(got, "Content-Length: 0\r\n"));
    assert_int_equal(gzip(buf_str(&msg), 1, &zip, &e), 0);
    assert_int_equal(push(&b, PUSH, PROTO "Content-Encoding: gzip\r\n", buf_str(&zip), NULL), 200);
    buf_addf(&json, "{\"series\":[");
    push_gen_series_json(LABELS ",env=prod", &(struct str){ raw.ptr, raw.len },
                         &(const char *){ "x" }, 1, &json);
    buf_addf(&json, "],\"unknown\":{\"a\":[1]}}");
    assert_int_equal(push(&b, PUSH, JSON, buf_str(&json), &got), 200);
    assert_non_null(strstr(got, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(got, "\r\n\r\n{}"));
    push_gen_frame(0, buf_str(&msg), &web);
    assert_int_equal(push(&b, PUSH, WEB, buf_str(&web), &got), 200);
    assert_non_null(strstr(got, "grpc-status: 0\r\n"));
    buf_reset(&web);
    push_gen_frame(1, buf_str(&zip), &web);
    assert_int_equal(push(&b, PUSH, WEB "grpc-encoding: gzip\r\n", buf_str(&web), &got), 200);
    push_gen_base64(buf_str(&web), false, &text);
    assert_int_equal(push(&b, PUSH,
                          "Content-Type: application/grpc-web-text\r\n"
                          "grpc-encoding: gzip\r\n",
                          buf_str(&text), &got),
                     200);
    assert_non_null(strstr(got, "AAAAAACAAAAAEGdy")); /* an empty frame, then the trailers */
    assert_int_equal(b.writes.len, 6);
    for (size_t i = 0; i < 6; i++) {
        Embertree__WriteRequest *m = dist_bed_write(&b, i);
        assert_int_equal(total_of(m), 30000000);
        assert_string_equal(label_of(m, "__profile_type__"),
                            "process_cpu:cpu:nanoseconds:cpu:nanoseconds");
        assert_string_equal(label_of(m, "service_name"), "svc");
        assert_string_equal(label_of(m, "env"), "prod");
        assert_null(label_of(m, "app_name"));
        assert_null(label_of(m, "pyroscope_spy"));
        free_write(m);
    }
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_requests_total{format=\"push\"}"),
                     6);
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        buf_deinit(all[i]);
    dist_bed_deinit(&b);
}

/* What is good is stored, what is not is named by its place and id. */
static void test_partial(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf good, msg, labels;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    buf_init(&good, MIB);
    buf_init(&msg, MIB);
    buf_init(&labels, 4 * KIB);
    push_gen_pprof("leaf", 5, 0, &good);
    buf_addf(&labels, LABELS);
    for (int i = 0; i < 29; i++)
        buf_addf(&labels, ",l%d=v", i);
    buf_add_c(&labels, '\0');
    struct str raws[] = { buf_str(&good), STR("junk") };
    push_gen_series(LABELS, raws, (const char *const[]){ "one", "two" }, 2, &msg);
    push_gen_series(labels.ptr, raws, (const char *const[]){ "three" }, 1, &msg);
    push_gen_series("__name__=memory,service_name=other", raws, NULL, 1, &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), &got), 400);
    assert_non_null(strstr(got, "Content-Type: application/json\r\n"));
    assert_non_null(strstr(got, "{\"code\":\"invalid_argument\",\"message\":\"2 errors: "
                                "push series with index 1 and id two failed: "));
    assert_non_null(strstr(got, "; push series with index 2 and id three failed: "
                                "max_label_names_per_series"));
    assert_int_equal(b.writes.len, 2);
    Embertree__WriteRequest *first = dist_bed_write(&b, 0), *last = dist_bed_write(&b, 1);
    assert_int_equal(total_of(first), 5);
    assert_string_equal(label_of(last, "__profile_type__"),
                        "memory:cpu:nanoseconds:cpu:nanoseconds");
    free_write(first);
    free_write(last);
    /* gRPC-Web tells the same by its trailers. */
    buf_reset(&labels);
    push_gen_frame(0, buf_str(&msg), &labels);
    assert_int_equal(push(&b, PUSH, WEB, buf_str(&labels), &got), 200);
    assert_non_null(strstr(got, "grpc-status: 3\r\ngrpc-message: 2 errors: push series"));
    buf_deinit(&good);
    buf_deinit(&msg);
    buf_deinit(&labels);
    dist_bed_deinit(&b);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *headers, *body, *says;
        int status;
    } rows[] = {
        { JSON, "", "zero-length body", 400 },
        { JSON, "{\"series\":[]}", "no profiles received", 400 },
        { PROTO, "", "no profiles received", 400 },
        { JSON, "{\"series\":[{\"labels\":[]}]}", "no profiles received", 400 },
        { JSON, "{\"series\":{}}", "series is no list", 400 },
        { JSON,
          "{\"series\":[{\"samples\":[{\"rawProfile\":\"a!\"}],\"labels\":[{\"name\":"
          "\"__name__\",\"value\":\"x\"}]}]}",
          "index 0 and id  failed: rawProfile is no base64", 400 },
        { JSON, "{\"series\":[{\"samples\":[{\"rawProfile\":\"\"}]}]}", "missing_labels", 400 },
        { JSON, "{\"series\":[{\"samples\":[{}],\"labels\":[{\"name\":\"a\",\"value\":\"x\"}]}]}",
          "there is no __name__", 400 },
        { JSON,
          "{\"series\":[{\"samples\":[{}],\"labels\":[{\"name\":\"__name__\",\"value\":\"x\"},"
          "{\"name\":\"a\",\"value\":\"1\"},{\"name\":\"a\",\"value\":\"2\"}]}]}",
          "duplicate_label_names", 400 },
        { PROTO, "\x0a\x05xx", "malformed", 400 },
        { PROTO, "\x18\x01\x0a\x02\x12\x01", "malformed series", 400 },
        { "Content-Type: text/plain\r\n", "x", "Accept-Post: application/proto, application/json",
          415 },
        { "Content-Type: application/connect+proto\r\n", "x", "Accept-Post: ", 415 },
        { "Content-Type: application/grpc\r\n", "x", "grpc-status: 12\r\n", 200 },
        { "Content-Type: application/grpc\r\n", "x",
          "grpc-message: gRPC came over HTTP/1.1 and needs HTTP/2: use https, ", 200 },
        { JSON "Connect-Protocol-Version: 2\r\n", "{}", "Connect-Protocol-Version", 400 },
        { JSON "Connect-Timeout-Ms: soon\r\n", "{}", "Connect-Timeout-Ms", 400 },
        { JSON "Connect-Timeout-Ms: 0\r\n", "{}", "deadline_exceeded", 504 },
        { JSON "Content-Encoding: br\r\n", "{}", "unknown compression", 501 },
        { JSON "Content-Encoding: gzip\r\n", "{}", "invalid_argument", 400 },
        { WEB, "", "grpc-status: 3\r\n", 200 },
        { WEB, "abc", "ends after 3", 200 },
        { WEB "grpc-timeout: 1\r\n", "", "grpc-timeout is", 200 },
        { WEB "grpc-timeout: 0m\r\n", "", "grpc-status: 4\r\n", 200 },
        { WEB "grpc-encoding: lz4\r\n", "", "grpc-status: 12\r\n", 200 },
    };
    struct dist_bed b;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int status = push(&b, PUSH, rows[i].headers, str_c(rows[i].body), &got);
        if (status != rows[i].status)
            fail_msg("row %zu: %s", i, got);
        if (!strstr(got, rows[i].says))
            fail_msg("row %zu: %s", i, got);
    }
    net_send_c(b.client, "GET " PUSH " HTTP/1.1\r\nHost: x\r\n\r\n");
    got = dist_bed_reply(&b, 1000);
    assert_non_null(strstr(got, "HTTP/1.1 405"));
    assert_non_null(strstr(got, "Allow: POST"));
    assert_int_equal(push(&b, "/push.v1.PusherService/Pull", JSON, STR("{}"), &got), 501);
    assert_non_null(strstr(got, "unimplemented"));
    assert_int_equal(b.writes.len, 0);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    dist_bed_deinit(&b);
}

/* Which pushes count once. */
static void test_write_ids(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf raw, other, msg;
    int64_t now_ns;

    dist_bed_init(&b, 1, NULL);
    buf_init(&raw, MIB);
    buf_init(&other, MIB);
    buf_init(&msg, MIB);
    now_ns = clock_wall_ms(b.env.clock) * 1000000;
    push_gen_pprof("leaf", 5, 0, &raw);
    struct str twice[] = { buf_str(&raw), buf_str(&raw) };
    const struct {
        const char *headers, *ids[2];
        bool retry_is_one; /* the same request again has the same ids */
    } rows[] = {
        { PROTO, { "", "" }, false },
        { PROTO, { "a", "b" }, true },
        { PROTO, { "a", "a" }, true },
        { PROTO "Idempotency-Key: k\r\n", { "", "" }, true },
        { PROTO "Idempotency-Key: l\r\n", { "a", "a" }, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        size_t at = b.writes.len;
        buf_reset(&msg);
        push_gen_series(LABELS, twice, rows[i].ids, 2, &msg);
        for (int times = 0; times < 2; times++)
            assert_int_equal(push(&b, PUSH, rows[i].headers, buf_str(&msg), NULL), 200);
        Embertree__WriteRequest *m[4];
        for (size_t k = 0; k < 4; k++)
            m[k] = dist_bed_write(&b, at + k);
        assert_false(write_id_eq(m[0], m[1])); /* two profiles of one request are two */
        assert_int_equal(write_id_eq(m[0], m[2]), rows[i].retry_is_one);
        assert_int_equal(write_id_eq(m[1], m[3]), rows[i].retry_is_one);
        for (size_t k = 0; k < 4; k++)
            free_write(m[k]);
    }
    /* One id all day long, other profiles: all of them count. A body that knows its instant needs
     * no id. */
    size_t at = b.writes.len;
    push_gen_pprof("other", 5, 0, &other);
    one(LABELS, buf_str(&raw), "same", &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), NULL), 200);
    one(LABELS, buf_str(&other), "same", &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), NULL), 200);
    buf_reset(&other);
    push_gen_pprof("other", 5, now_ns - 5000000001, &other);
    one(LABELS, buf_str(&other), "", &msg);
    for (int times = 0; times < 2; times++)
        assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), NULL), 200);
    Embertree__WriteRequest *m[4];
    for (size_t k = 0; k < 4; k++)
        m[k] = dist_bed_write(&b, at + k);
    assert_false(write_id_eq(m[0], m[1]));
    assert_true(write_id_eq(m[2], m[3]));
    for (size_t k = 0; k < 4; k++)
        free_write(m[k]);
    buf_deinit(&raw);
    buf_deinit(&other);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

/* Which of the profiles under one key it is does not depend on what became of those before it. */
static void test_write_ids_beside_refused(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf ahead, raw, msg;

    dist_bed_init(&b, 1, NULL);
    buf_init(&ahead, MIB);
    buf_init(&raw, MIB);
    buf_init(&msg, MIB);
    int64_t now_ns = clock_wall_ms(b.env.clock) * 1000000;
    push_gen_pprof("ahead", 3, now_ns + INT64_C(603) * 1000000000, &ahead);
    push_gen_pprof("leaf", 5, now_ns, &raw);
    struct str both[] = { buf_str(&ahead), buf_str(&raw) };
    push_gen_series(LABELS, both, (const char *const[]){ "", "" }, 2, &msg);
    const char *headers = PROTO "Idempotency-Key: k\r\n", *got;
    assert_int_equal(push(&b, PUSH, headers, buf_str(&msg), &got), 400);
    assert_non_null(strstr(got, "not_in_ingestion_window"));
    assert_int_equal(b.writes.len, 1);
    net_pass(&b.world, 5000);
    assert_int_equal(push(&b, PUSH, headers, buf_str(&msg), NULL), 200);
    assert_int_equal(b.writes.len, 3);
    Embertree__WriteRequest *m[3];
    for (size_t k = 0; k < 3; k++)
        m[k] = dist_bed_write(&b, k);
    assert_int_equal(total_of(m[1]), 3);
    assert_true(write_id_eq(m[0], m[2]));
    assert_false(write_id_eq(m[0], m[1]));
    for (size_t k = 0; k < 3; k++)
        free_write(m[k]);
    buf_deinit(&ahead);
    buf_deinit(&raw);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

static void test_nothing_to_store(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf raw, msg;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    buf_init(&raw, MIB);
    buf_init(&msg, MIB);
    push_gen_pprof("leaf", 0, 0, &raw);
    one(LABELS, buf_str(&raw), "", &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), NULL), 200);
    assert_int_equal(b.writes.len, 0);
    /* Hours old is fine, older than the retention is not. */
    const struct {
        int64_t ago_s;
        int status;
    } rows[] = { { 7200, 200 }, { 401 * 86400, 400 }, { -300, 200 }, { -3600, 400 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&raw);
        push_gen_pprof("leaf", 1,
                       (clock_wall_ms(b.env.clock) - rows[i].ago_s * 1000) * INT64_C(1000000),
                       &raw);
        one(LABELS, buf_str(&raw), "", &msg);
        if (push(&b, PUSH, PROTO, buf_str(&msg), &got) != rows[i].status)
            fail_msg("row %zu: %s", i, got);
        if (rows[i].status == 400)
            assert_non_null(strstr(got, "not_in_ingestion_window"));
    }
    buf_deinit(&raw);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

/* More pushes than are sent at once; each must be acked, and the answer waits for the last. */
static void test_many(void **state)
{
    (void)state;
    static const char *const flags[] = { "--distributor.request_profiles=60", NULL };
    struct dist_bed b;
    struct buf raw, msg;
    struct str raws[61];
    const char *got;

    dist_bed_init(&b, 1, flags);
    buf_init(&raw, MIB);
    buf_init(&msg, MIB);
    push_gen_pprof("leaf", 7, 0, &raw);
    for (size_t i = 0; i < ARRAY_LEN(raws); i++)
        raws[i] = buf_str(&raw);
    push_gen_series(LABELS, raws, NULL, 60, &msg);
    b.fail_first = 3;
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), NULL), 200);
    assert_int_equal(b.writes.len, 63);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_total"), 60);
    buf_reset(&msg);
    push_gen_series(LABELS, raws, NULL, 61, &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), &got), 400);
    assert_non_null(strstr(got, "more than 60 profiles"));
    assert_int_equal(b.writes.len, 63);
    /* The ingester refuses all, or cannot be reached: the client tries again. */
    b.answer = DIST_BED_FAIL;
    buf_reset(&msg);
    push_gen_series(LABELS, raws, NULL, 20, &msg);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), &got), 500);
    assert_non_null(strstr(got, "20 errors: push series with index 0 and id  failed: "));
    b.answer = DIST_BED_SILENT;
    assert_int_equal(push(&b, PUSH, PROTO "Connect-Timeout-Ms: 200\r\n", buf_str(&msg), &got), 504);
    assert_non_null(strstr(got, "deadline_exceeded"));
    /* Too little is left for one more attempt: it was still the client who gave no more time. */
    b.answer = DIST_BED_FAIL;
    b.fail = ERR_UNAVAILABLE;
    assert_int_equal(push(&b, PUSH, PROTO "Connect-Timeout-Ms: 200\r\n", buf_str(&msg), &got), 504);
    assert_non_null(strstr(got, "deadline_exceeded"));
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 0);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    buf_deinit(&raw);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

/* A client hangs up: the received profiles are stored, and nothing leaks. */
static void test_client_gone(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf raw, msg;
    struct str raws[20];

    dist_bed_init(&b, 1, NULL);
    buf_init(&raw, MIB);
    buf_init(&msg, MIB);
    push_gen_pprof("leaf", 7, 0, &raw);
    for (size_t i = 0; i < ARRAY_LEN(raws); i++)
        raws[i] = buf_str(&raw);
    push_gen_series(LABELS, raws, NULL, 20, &msg);
    dist_bed_send(&b, PUSH, PROTO, buf_str(&msg));
    net_end(b.client, true);
    net_pass(&b.world, 30000);
    assert_int_equal(b.writes.len, 20);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working"), 0);
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_pushes_working_bytes"), 0);
    buf_deinit(&raw);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

static void test_tenants(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi", "--distributor.tenant_rate_bytes=100",
                                         "--distributor.tenant_burst_bytes=1KiB", NULL };
    struct dist_bed b;
    struct buf raw, msg;
    const char *got;

    dist_bed_init(&b, 1, flags);
    buf_init(&raw, MIB);
    buf_init(&msg, MIB);
    push_gen_pprof("leaf", 7, 0, &raw);
    struct str raws[] = { buf_str(&raw), buf_str(&raw), buf_str(&raw), buf_str(&raw) };
    push_gen_series(LABELS, raws, NULL, 4, &msg);
    assert_in_range(msg.len, 513, 1024);
    assert_int_equal(push(&b, PUSH, PROTO, buf_str(&msg), &got), 401);
    assert_non_null(strstr(got, "{\"code\":\"unauthenticated\",\"message\":\"no org id\"}"));
    assert_int_equal(push(&b, PUSH, PROTO "X-Scope-OrgID: t1\r\n", buf_str(&msg), NULL), 200);
    assert_int_equal(push(&b, PUSH, PROTO "X-Scope-OrgID: t1\r\n", buf_str(&msg), &got), 429);
    assert_non_null(strstr(got, "resource_exhausted"));
    assert_non_null(strstr(got, "Retry-After: "));
    buf_deinit(&raw);
    buf_deinit(&msg);
    dist_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_protocol),
        cmocka_unit_test(test_partial),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_write_ids),
        cmocka_unit_test(test_write_ids_beside_refused),
        cmocka_unit_test(test_nothing_to_store),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_client_gone),
        cmocka_unit_test(test_tenants),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
