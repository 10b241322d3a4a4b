/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of queries over ingesters that fail, hang or leave; tenants, limits, protocol headers;
 * and random pushes against a slow model.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/model/shard.h"
#include "common/net/json_in.h"
#include "querier/base/state.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)   (QBED_NOW + (s)*INT64_C(1000))
#define RENDER "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=now-100s&until=now"
#define RANGE  "\"start\":\"1749999900000\",\"end\":1750000000000"
#define MERGE  "{" RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\"}"

static const struct qbed_push three[] = {
    { 0, "a", "", QBED_CPU, T(-50), "x", 1, false, NULL },
    { 1, "b", "", QBED_CPU, T(-50), "y", 10, false, NULL },
    { 2, "c", "", QBED_CPU, T(-50), "z", 100, false, NULL },
};

static void expect(const char *reply, int status, const char *part)
{
    if (qbed_status(reply) != status || !strstr(reply, part))
        fail_msg("want %d and \"%s\", got:\n%s", status, part, reply);
}

static void expect_not(const char *reply, const char *part)
{
    if (strstr(reply, part))
        fail_msg("do not want \"%s\", got:\n%s", part, reply);
}

static void open_three(struct qbed *b)
{
    qbed_init(b, 3, NULL);
    qbed_data(b, three, ARRAY_LEN(three));
}

/* ---- partial answers --------------------------------------------------------------------------*/

static void test_a_missing_ingester_fails_the_query(void **state)
{
    (void)state;
    static const struct {
        int fail, status;
        const char *code;
    } rows[] = { { ERR_UNAVAILABLE, 503, "\"unavailable\"" },
                 { ERR_BUSY, 503, "\"unavailable\"" },
                 { ERR_TIMEOUT, 504, "\"deadline_exceeded\"" },
                 { ERR_IO, 500, "\"internal\"" },
                 { ERR_LIMIT, 400, "\"invalid_argument\"" } };
    struct qbed b;

    open_three(&b);
    expect(qbed_get(&b, RENDER), 200, "\"numTicks\":111");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        b.ingesters[1].fail = rows[i].fail;
        expect(qbed_get(&b, RENDER), rows[i].status, rows[i].code);
        expect(qbed_get(&b, RENDER), rows[i].status, "ingester 1: ");
        expect(qbed_connect(&b, "SelectMergeStacktraces", MERGE), rows[i].status, rows[i].code);
        expect(qbed_get(&b, "/labels"), rows[i].status, "canned failure");
    }
    b.ingesters[1].fail = 0;
    expect(qbed_get(&b, RENDER), 200, "\"numTicks\":111");
    expect_not(qbed_get(&b, RENDER), "artial");
    qbed_deinit(&b);
}

static void test_partial_answers_say_so(void **state)
{
    (void)state;
    struct qbed b;
    const char *r;

    open_three(&b);
    b.ingesters[1].fail = ERR_UNAVAILABLE;
    r = qbed_get(&b, RENDER "&allow_partial=1");
    expect(r, 200, "X-Embertree-Partial: 1 of 3 ingesters missing\r\n");
    expect(r, 200, "\"partial\":true");
    expect(r, 200, "\"numTicks\":101");
    expect(qbed_get(&b, "/pyroscope/label-values?label=service_name&allow_partial=true"), 200,
           "[\"a\",\"c\"]");
    qbed_send(&b, "POST", "/querier.v1.QuerierService/SelectMergeStacktraces",
              "Content-Type: application/json\r\nX-Embertree-Allow-Partial: 1\r\n", MERGE);
    net_pass(&b.world, 0);
    r = qbed_reply(&b);
    expect(r, 200, "X-Embertree-Partial: 1 of 3 ingesters missing\r\n");
    expect(r, 200, "\"total\":\"101\"");
    b.ingesters[0].fail = ERR_TIMEOUT;
    r = qbed_get(&b, RENDER "&allow_partial=1");
    expect(r, 200, "X-Embertree-Partial: 2 of 3 ingesters missing\r\n");
    /* No ingester is left: an empty answer would be wrong. */
    b.ingesters[2].fail = ERR_BUSY;
    expect(qbed_get(&b, RENDER "&allow_partial=1"), 504, "ingester 0: ");
    /* What is wrong with the query is wrong everywhere: not tolerated. */
    b.ingesters[0].fail = b.ingesters[2].fail = 0;
    b.ingesters[1].fail = ERR_LIMIT;
    expect(qbed_get(&b, RENDER "&allow_partial=1"), 400, "canned failure");
    b.ingesters[1].fail = 0;
    expect_not(qbed_get(&b, RENDER "&allow_partial=1"), "artial");
    assert_int_equal(qbed_metric(&b, "embertree_querier_partial_answers_total"), 4);
    assert_true(qbed_metric(&b, "embertree_querier_ingester_errors_total{"
                                "reason=\"ERR_UNAVAILABLE\"}") > 0);
    qbed_deinit(&b);
}

static void test_a_dead_ingester(void **state)
{
    (void)state;
    struct qbed b;
    const char *why = NULL;

    open_three(&b);
    assert_true(querier_role.ready(b.self, &why));
    rpc_mem_cut(b.rpc, "mem://i1", "*");
    qbed_send(&b, "GET", RENDER, NULL, NULL);
    net_pass(&b.world, 5000);
    expect(qbed_reply(&b), 503, "ingester 1: ");
    expect(qbed_get(&b, RENDER "&allow_partial=1"), 200, "\"numTicks\":101");
    /* One ingester that is down shows in errors and not in readiness; all down show in both. */
    assert_true(querier_role.ready(b.self, &why));
    rpc_mem_cut(b.rpc, "mem://i0", "*");
    rpc_mem_cut(b.rpc, "mem://i2", "*");
    net_pass(&b.world, 5000);
    assert_false(querier_role.ready(b.self, &why));
    assert_non_null(strstr(why, "ingester mem://i0 is down"));
    rpc_mem_heal(b.rpc);
    net_pass(&b.world, 5000);
    assert_true(querier_role.ready(b.self, &why));
    expect(qbed_get(&b, RENDER "&from=now-200s"), 200, "\"numTicks\":111");
    qbed_deinit(&b);
}

/* ---- deadlines and clients that leave ---------------------------------------------------------*/

static void test_deadline(void **state)
{
    (void)state;
    static const char *const flags[] = { "--querier.timeout=2s", NULL };
    struct qbed b;

    qbed_init(&b, 3, flags);
    qbed_data(&b, three, ARRAY_LEN(three));
    b.ingesters[2].mute = true;
    qbed_send(&b, "GET", "/labels", NULL, NULL);
    net_pass(&b.world, 1000);
    assert_string_equal(qbed_reply(&b), "");
    net_pass(&b.world, 1500);
    expect(qbed_reply(&b), 504, "ingester 2: ");
    /* A client may ask for less, and gets a partial answer if it allows that. */
    b.ingesters[2].mute = false;
    b.ingesters[1].mute = true;
    qbed_send(&b, "POST", "/querier.v1.QuerierService/LabelNames",
              "Content-Type: application/json\r\nConnect-Timeout-Ms: 300\r\n"
              "X-Embertree-Allow-Partial: 1\r\n",
              "{" RANGE "}");
    net_pass(&b.world, 350);
    expect(qbed_reply(&b), 200, "1 of 3 ingesters missing");
    qbed_send(&b, "POST", "/querier.v1.QuerierService/LabelNames",
              "Content-Type: application/json\r\nConnect-Timeout-Ms: 0\r\n", "{" RANGE "}");
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 504, "\"deadline_exceeded\"");
    qbed_deinit(&b);
}

static void test_client_that_leaves_cancels_its_calls(void **state)
{
    (void)state;
    struct qbed b;
    const struct querier *qr;

    open_three(&b);
    qr = b.self;
    for (int i = 0; i < 3; i++)
        b.ingesters[i].delay_ms = 500;
    qbed_send(&b, "GET", "/labels", NULL, NULL);
    net_pass(&b.world, 100);
    assert_int_equal(qr->running, 1);
    qbed_hang_up(&b);
    assert_int_equal(qr->running, 0);
    assert_int_equal(qr->bytes.used, 0);
    net_pass(&b.world, 1000);
    for (int i = 0; i < 3; i++)
        assert_int_equal(b.ingesters[i].canceled, 1);
    assert_int_equal(qbed_metric(&b, "embertree_querier_gone_total"), 1);
    assert_int_equal(
        qbed_metric(&b, "embertree_querier_queries_total{route=\"/labels\",code=\"ERR_CANCELED\"}"),
        1);
    /* An ingester whose answer decides early cancels the other calls as well. */
    b.ingesters[0].delay_ms = 0;
    b.ingesters[0].fail = ERR_UNAVAILABLE;
    expect(qbed_get(&b, "/labels"), 503, "ingester 0");
    net_pass(&b.world, 1000);
    assert_int_equal(b.ingesters[1].canceled, 2);
    qbed_deinit(&b);
}

/* ---- replies that are wrong, limits -----------------------------------------------------------*/

static void test_replies_that_do_not_check(void **state)
{
    (void)state;
    static const struct str junk = { "\xff\xff\xff\xff", 4 };
    /* MergeReply with node 5 of none, value 1; TimelineReply with one value and no point. */
    static const struct str bad_node = { "\x12\x04\x05\0\0\0\x1a\x08\x01\0\0\0\0\0\0\0", 16 };
    static const struct str bad_series = { "\x0a\x0a\x1a\x08\x01\0\0\0\0\0\0\0", 12 };
    struct qbed b;

    open_three(&b);
    b.ingesters[1].canned = &junk;
    expect(qbed_get(&b, RENDER), 500, "\"data_loss\"");
    expect(qbed_get(&b, "/labels"), 500, "reply of ingester 1");
    b.ingesters[1].canned = &bad_node;
    expect(qbed_get(&b, RENDER "&format=collapsed"), 500, "node 5 of 0");
    b.ingesters[1].canned = &bad_series;
    expect(qbed_connect(&b, "SelectSeries",
                        "{" RANGE ",\"profileTypeID\":\"" QBED_CPU
                        "\",\"labelSelector\":\"{}\",\"step\":10}"),
           500, "columns of points");
    qbed_deinit(&b);
}

static void test_memory_is_bounded(void **state)
{
    (void)state;
    static const char *const flags[] = { "--querier.query_bytes_max=1MiB", NULL };
    static const char *const all[] = { "--querier.bytes_max=64KiB", NULL };
    static struct qbed_push many[3000];
    static char names[3000][24];
    struct qbed b;

    for (int i = 0; i < 3000; i++) {
        snprintf(names[i], sizeof(names[i]), "f%d;g%d;h%d", i % 50, i, i % 7);
        many[i] = (struct qbed_push){ 0, "a", "", QBED_CPU, T(-50), names[i], 1, false, NULL };
    }
    qbed_init(&b, 1, flags);
    qbed_data(&b, many, 300);
    expect(qbed_get(&b, RENDER), 200, "\"numTicks\":300");
    qbed_data(&b, many, 3000);
    expect(qbed_get(&b, RENDER), 400, "querier.query_bytes_max");
    assert_int_equal(((const struct querier *)b.self)->bytes.used, 0);
    qbed_deinit(&b);
    qbed_init(&b, 1, all);
    qbed_data(&b, many, 300);
    expect(qbed_get(&b, RENDER), 400, "memory");
    qbed_deinit(&b);
}

static void test_lists_are_cut_and_say_so(void **state)
{
    (void)state;
    static const char *const flags[] = { "--querier.labels_max=2", NULL };
    struct qbed b;
    const char *r;

    qbed_init(&b, 3, flags);
    qbed_data(&b, three, ARRAY_LEN(three));
    r = qbed_get(&b, "/pyroscope/label-values?label=service_name");
    expect(r, 200, "X-Embertree-Truncated: true\r\n");
    expect(r, 200, "[\"a\",\"b\"]");
    r = qbed_get(&b,
                 "/pyroscope/label-values?label=service_name&query=%7Bservice_name!=%22a%22%7D");
    expect(r, 200, "[\"b\",\"c\"]");
    expect_not(r, "Truncated");
    qbed_deinit(&b);
}

static void test_too_many_queries(void **state)
{
    (void)state;
    static const char *const flags[] = { "--querier.queries_max=1", "--querier.queue_max=0", NULL };
    struct qbed b;
    struct net_mem *second;

    qbed_init(&b, 1, flags);
    b.ingesters[0].delay_ms = 100;
    qbed_send(&b, "GET", "/labels", NULL, NULL);
    second = net_connect(&b.world);
    net_send_c(second, "GET /labels HTTP/1.1\r\nHost: h\r\n\r\n");
    net_pass(&b.world, 0);
    expect(net_got(second), 503, "querier.queue_max");
    net_pass(&b.world, 200);
    expect(qbed_reply(&b), 200, "[]");
    net_end(second, false);
    net_pass(&b.world, 10);
    net_mem_free(second);
    qbed_deinit(&b);
}

static void test_saturated_sums_are_flagged(void **state)
{
    (void)state;
    static const struct qbed_push big[] = {
        { 0, "a", "", QBED_CPU, T(-50), "x", INT64_MAX, false, NULL },
        { 1, "a", "", QBED_CPU, T(-50), "x", 5, false, NULL },
    };
    struct qbed b;
    const char *r;

    qbed_init(&b, 2, NULL);
    qbed_data(&b, big, ARRAY_LEN(big));
    r = qbed_get(&b, RENDER);
    expect(r, 200, "X-Embertree-Saturated: true\r\n");
    expect(r, 200, "\"numTicks\":9223372036854775807");
    qbed_deinit(&b);
}

/* ---- tenants, protocol ------------------------------------------------------------------------*/

static void test_tenants(void **state)
{
    (void)state;
    static const struct qbed_push mixed[] = {
        { 0, "a", "", QBED_CPU, T(-50), "x", 1, false, "t1" },
        { 0, "b", "", QBED_CPU, T(-50), "x;y", 10, false, "t2" },
        { 1, "b", "", QBED_CPU, T(-50), "z", 100, false, "t3" },
    };
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    static const struct {
        const char *header;
        int status;
        const char *part;
    } rows[] = {
        { "", 401, "no org id" },
        { "X-Scope-OrgID: t1\r\n", 200, "\"numTicks\":1," },
        { "X-Scope-OrgID: t2\r\n", 200, "\"numTicks\":10," },
        { "X-Scope-OrgID: t1|t2\r\n", 200, "\"numTicks\":11," },
        { "X-Scope-OrgID: t3|t1|t2|t1\r\n", 200, "\"numTicks\":111," },
        { "X-Scope-OrgID: absent\r\n", 200, "\"numTicks\":0," },
        { "X-Scope-OrgID: a/b\r\n", 400, "tenant" },
    };
    struct qbed b;

    qbed_init(&b, 2, flags);
    qbed_data(&b, mixed, ARRAY_LEN(mixed));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        qbed_send(&b, "GET", RENDER, rows[i].header, NULL);
        net_pass(&b.world, 0);
        expect(qbed_reply(&b), rows[i].status, rows[i].part);
    }
    qbed_send(&b, "POST", "/querier.v1.QuerierService/Series", "Content-Type: application/json\r\n",
              "{" RANGE "}");
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 401, "{\"code\":\"unauthenticated\",\"message\":\"no org id\"}");
    qbed_deinit(&b);
}

static void test_connect_protocol(void **state)
{
    (void)state;
#define JSON "Content-Type: application/json\r\n"
    static const struct {
        const char *method, *headers, *body;
        int status;
        const char *part;
    } rows[] = {
        { "POST", JSON, "{" RANGE "}", 200, "Accept-Encoding: gzip\r\n" },
        { "POST", "Content-Type: application/json; charset=utf-8\r\n", "{" RANGE "}", 200,
          "names" },
        { "POST", "Content-Type: Application/JSON;charset=\"utf-8\"\r\n", "{" RANGE "}", 200,
          "names" },
        { "POST", "Content-Type: application/proto\r\n", "x", 400, "invalid_argument" },
        { "POST", "Content-Type: application/proto\r\n", "\x10\x64\x18\x80\x08", 200,
          "Content-Type: application/proto\r\n" },
        { "POST", "Content-Type: text/plain\r\n", "x", 415,
          "Accept-Post: application/proto, application/json" },
        { "POST", "Content-Type: application/json; charset=latin1\r\n", "{}", 415, "Accept-Post" },
        { "POST", "", "{}", 415, "Content-Length: 0\r\n" },
        { "GET", "", NULL, 405, "Allow: POST" },
        { "POST", JSON "Connect-Protocol-Version: 1\r\n", "{" RANGE "}", 200, "names" },
        { "POST", JSON "Connect-Protocol-Version: 2\r\n", "{" RANGE "}", 400, "invalid_argument" },
        { "POST", JSON "Connect-Timeout-Ms: 1000\r\n", "{" RANGE "}", 200, "names" },
        { "POST", JSON "Connect-Timeout-Ms: 12345678901\r\n", "{" RANGE "}", 400, "Timeout" },
        { "POST", JSON "Connect-Timeout-Ms: -1\r\n", "{" RANGE "}", 400, "Timeout" },
        { "POST", JSON "Content-Encoding: identity\r\n", "{" RANGE "}", 200, "names" },
        { "POST", JSON "Content-Encoding: br\r\n", "{" RANGE "}", 501, "unknown compression" },
        { "POST", JSON "Content-Encoding: gzip\r\n", "{" RANGE "}", 400, "invalid_argument" },
        { "POST", JSON "Accept: */*;allow-utf8-labelnames=true\r\n", "{" RANGE "}", 200,
          "\"k8s.pod\"" },
        { "POST", JSON "Accept: text/html, */*; q=1 ; allow-utf8-labelnames=true\r\n",
          "{" RANGE "}", 200, "\"k8s.pod\"" },
        { "POST", JSON "Accept: application/json\r\n", "{" RANGE "}", 200,
          "[\"__profile_type__\",\"service_name\"]" },
    };
    static const struct qbed_push odd[] = {
        { 0, "a", "k8s.pod=p", QBED_CPU, T(-50), "x", 1, false, NULL },
    };
    struct qbed b;

    qbed_init(&b, 1, NULL);
    qbed_data(&b, odd, ARRAY_LEN(odd));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        qbed_send(&b, rows[i].method, "/querier.v1.QuerierService/LabelNames", rows[i].headers,
                  rows[i].body);
        net_pass(&b.world, 0);
        expect(qbed_reply(&b), rows[i].status, rows[i].part);
    }
    qbed_deinit(&b);
}

static void test_connect_gzip_request(void **state)
{
    (void)state;
    struct qbed b;
    struct buf gz, out;
    struct err e;

    qbed_init(&b, 1, NULL);
    buf_init(&gz, MIB);
    buf_init(&out, MIB);
    assert_int_equal(gzip(STR("{" RANGE "}"), 6, &gz, &e), 0);
    buf_addf(&out,
             "POST /querier.v1.QuerierService/LabelNames HTTP/1.1\r\nHost: h\r\nContent-Type: "
             "application/json\r\nContent-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
             gz.len);
    buf_add_str(&out, buf_str(&gz));
    net_send(b.client, buf_str(&out));
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 200, "{}");
    buf_deinit(&gz);
    buf_deinit(&out);
    qbed_deinit(&b);
}

static void test_every_ingester_is_asked_for_its_shards(void **state)
{
    (void)state;
    static const struct qbed_push moved[] = {
        /* With 2 ingesters and 4 shards: 0 and 2 on the first, 1 and 3 on the second. */
        { 0, "a", "", QBED_CPU, T(-50), "x", 1, false, NULL },
        { 1, "a", "", QBED_CPU, T(-50), "x", 2, false, NULL },
    };
    struct qbed b;

    qbed_init(&b, 2, NULL);
    qbed_data(&b, moved, ARRAY_LEN(moved));
    expect(qbed_get(&b, RENDER), 200, "\"numTicks\":3,");
    assert_int_equal(b.ingesters[0].calls, 2); /* merge and timeline */
    assert_int_equal(b.ingesters[1].calls, 2);
    expect(qbed_get(&b, "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=5000&until=6000"), 200,
           "\"numTicks\":0,");
    assert_int_equal(b.ingesters[0].calls, 2); /* no rows are possible: no ingester is asked */
    qbed_deinit(&b);
}

static void test_a_service_is_asked_of_one_ingester(void **state)
{
    (void)state;
    static const struct qbed_push placed[] = {
        { QBED_BY_SERVICE, "a", "", QBED_CPU, T(-50), "x", 1, false, NULL },
        { QBED_BY_SERVICE, "b", "", QBED_CPU, T(-50), "x", 2, false, NULL },
        { QBED_BY_SERVICE, "c", "", QBED_CPU, T(-50), "x", 4, false, NULL },
        { QBED_BY_SERVICE, "d", "", QBED_CPU, T(-50), "x", 8, false, NULL },
    };
    struct qbed b;
    size_t calls = 0;

    qbed_init(&b, 3, NULL);
    qbed_data(&b, placed, ARRAY_LEN(placed));
    for (size_t i = 0; i < ARRAY_LEN(placed); i++) {
        char target[200], part[32];
        snprintf(target, sizeof(target), "/render?query=%s.cpu&from=now-100s", placed[i].service);
        snprintf(part, sizeof(part), "\"numTicks\":%d,", (int)placed[i].value);
        expect(qbed_get(&b, target), 200, part);
        size_t now = 0;
        for (int k = 0; k < 3; k++)
            now += b.ingesters[k].calls;
        assert_int_equal(now, calls + 4); /* types, merge, timeline, collectors: one each */
        calls = now;
    }
    expect(qbed_get(&b, RENDER), 200, "\"numTicks\":15,");
    /* Others may be down: their services are not asked for. */
    uint32_t home = shard_of(STR("anonymous"), STR("a"), 6) % 3;
    for (uint32_t k = 0; k < 3; k++)
        b.ingesters[k].fail = k == home ? 0 : ERR_UNAVAILABLE;
    expect(qbed_get(&b, "/render?query=a.cpu&from=now-100s"), 200, "\"numTicks\":1,");
    expect_not(qbed_get(&b, "/render?query=a.cpu&from=now-100s&allow_partial=1"), "artial");
    expect(qbed_get(&b, "/render?"
                        "query=" QBED_CPU "%7Bservice_name=~%22a%22%7D&from=now-100s"),
           503, "canned failure");
    qbed_deinit(&b);
}

/* ---- the page beside the API ------------------------------------------------------------------*/

static void test_unknown_paths(void **state)
{
    (void)state;
    struct qbed b;

    qbed_init(&b, 1, NULL);
    expect(qbed_get(&b, "/"), 200, "Content-Security-Policy: default-src 'none'");
    expect(qbed_get(&b, "/nope"), 404, "\"not_found\"");
    expect(qbed_get(&b, "/export"), 404, "\"not_found\"");
    expect(qbed_get(&b, "/export"), 404, "\"not_found\"");
    qbed_send(&b, "GET", "/explore", "Accept: text/html,*/*\r\n", NULL);
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 200, "Content-Type: text/html");
    qbed_send(&b, "GET", "/api/nope", "Accept: text/html,*/*\r\n", NULL);
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 404, "\"not_found\"");
    qbed_send(&b, "POST", "/nope", NULL, "body");
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 404, "\"not_found\"");
    expect(qbed_reply(&b), 404, "Connection: close"); /* at the head: its body is not read */
    net_pass(&b.world, 10000);
    assert_true(b.client->closed);
    qbed_send(&b, "POST", "/pyroscope/render", NULL, "x");
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 405, "Allow: GET");
    qbed_deinit(&b);
}

/* ---- property: answers equal a sum over the pushes --------------------------------------------*/

static const char *const stacks_pool[] = { "a",   "a;b",   "a;b;c", "a;d", "b",
                                           "b;a", "c;a;b", "",      "e;e", "e;e;e" };
static const char *const services_pool[] = { "s0", "s1", "s2" };
static const char *const labels_pool[] = { "", "env=x", "env=y,pod=1", "pod=2" };

static bool wanted(const struct qbed_push *p, int service)
{
    return service < 0 || strcmp(p->service, services_pool[service]) == 0;
}

/* Lines of folded text, sorted by the code under test; the model sums per stack. */
static void check_folded(struct qbed *b, const struct qbed_push *ps, size_t n, int service,
                         int64_t from, int64_t until)
{
    char target[300], line[64];
    const char *body;
    uint64_t lines = 0, stacks = 0;

    snprintf(target, sizeof(target),
             "/pyroscope/render?query=%s%%7Bservice_name%s%%22%s%%22%%7D"
             "&from=%lld&until=%lld&format=collapsed",
             QBED_CPU, service < 0 ? "!=" : "=", service < 0 ? "" : services_pool[service],
             (long long)from, (long long)until);
    body = qbed_body(qbed_get(b, target));
    for (const char *c = body; *c; c++)
        lines += *c == '\n';
    int64_t low = from - (from % 10000), high = until + (until % 10000 ? 10000 - until % 10000 : 0);
    if (from == until)
        high = low + 10000;
    for (size_t s = 0; s < ARRAY_LEN(stacks_pool); s++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < n; i++)
            if (wanted(&ps[i], service) && strcmp(ps[i].folded, stacks_pool[s]) == 0 &&
                ps[i].ms >= low && ps[i].ms < high)
                sum += ps[i].value;
        if (!sum)
            continue;
        stacks++;
        snprintf(line, sizeof(line), "%s %llu\n",
                 *stacks_pool[s] ? stacks_pool[s] : "(empty stack)", (unsigned long long)sum);
        const char *at = strstr(body, line);
        while (at && at != body && at[-1] != '\n')
            at = strstr(at + 1, line);
        if (!at)
            fail_msg("%s\nno line \"%s\" in\n%s", target, line, body);
    }
    assert_int_equal(lines, stacks);
}

static void check_series(struct qbed *b, const struct qbed_push *ps, size_t n, int64_t start,
                         int64_t end, int64_t step_s)
{
    char json[400];
    struct json_doc *doc;
    struct err e;
    uint64_t got = 0, want = 0;

    snprintf(json, sizeof(json),
             "{\"start\":%lld,\"end\":%lld,\"step\":%lld,\"profileTypeID\":\"%s\","
             "\"labelSelector\":\"{}\",\"groupBy\":[\"service_name\"]}",
             (long long)start, (long long)end, (long long)step_s, QBED_CPU);
    const char *body = qbed_body(qbed_connect(b, "SelectSeries", json));
    assert_int_equal(json_parse(str_c(body), &doc, &e), 0);
    const struct json_val *series = json_get(json_root(doc), "series", NULL);
    for (size_t i = 0; i < json_len(series); i++) {
        const struct json_val *points = json_get(json_at(series, i), "points", NULL);
        const struct json_val *label = json_at(json_get(json_at(series, i), "labels", NULL), 0);
        struct str service = STR_NULL;
        assert_int_equal(json_take_str(json_get(label, "value", NULL), "value", &service, &e), 0);
        for (size_t k = 0; k < json_len(points); k++) {
            double value = 0;
            int64_t at = 0, sum = 0;
            assert_int_equal(
                json_take_double(json_get(json_at(points, k), "value", NULL), "v", &value, &e), 0);
            assert_int_equal(
                json_take_i64(json_get(json_at(points, k), "timestamp", NULL), "t", &at, &e), 0);
            assert_int_equal((at - start) % (step_s * 1000), 0);
            for (size_t m = 0; m < n; m++) {
                int64_t slot = ps[m].ms - ps[m].ms % 5000;
                if (str_eqc(service, ps[m].service) && slot > at - step_s * 1000 && slot <= at)
                    sum += (int64_t)ps[m].value;
            }
            assert_int_equal((int64_t)value, sum);
            assert_true(sum > 0);
            got += (uint64_t)sum;
        }
    }
    int64_t last = start + (end - start) / (step_s * 1000) * (step_s * 1000);
    for (size_t m = 0; m < n; m++) {
        int64_t slot = ps[m].ms - ps[m].ms % 5000;
        if (slot > start - step_s * 1000 && slot <= last)
            want += ps[m].value;
    }
    assert_int_equal(got, want);
    json_doc_free(doc);
}

static void test_random_pushes_equal_the_model(void **state)
{
    (void)state;
    uint64_t seed = 20261121;
    struct prng p;
    struct qbed b;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    qbed_init(&b, 3, NULL);
    for (int round = 0; round < 60; round++) {
        struct qbed_push ps[60];
        size_t n = prng_below(&p, ARRAY_LEN(ps) + 1);
        for (size_t i = 0; i < n; i++)
            ps[i] = (struct qbed_push){
                .ingester = QBED_BY_SERVICE,
                .service = services_pool[prng_below(&p, 3)],
                .labels = labels_pool[prng_below(&p, 4)],
                .type = QBED_CPU,
                .ms = QBED_NOW - (int64_t)prng_below(&p, 100000),
                .folded = stacks_pool[prng_below(&p, ARRAY_LEN(stacks_pool))],
                .value = 1 + prng_below(&p, 1000),
            };
        qbed_data(&b, ps, n);
        int64_t from = QBED_NOW - (int64_t)prng_below(&p, 120000);
        int64_t until = from + (int64_t)prng_below(&p, (uint64_t)(QBED_NOW - from) + 1);
        check_folded(&b, ps, n, (int)prng_below(&p, 4) - 1, from, until);
        check_series(&b, ps, n, from, until, 1 + (int64_t)prng_below(&p, 40));
    }
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_ingester_fails_the_query),
        cmocka_unit_test(test_partial_answers_say_so),
        cmocka_unit_test(test_a_dead_ingester),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_client_that_leaves_cancels_its_calls),
        cmocka_unit_test(test_replies_that_do_not_check),
        cmocka_unit_test(test_memory_is_bounded),
        cmocka_unit_test(test_lists_are_cut_and_say_so),
        cmocka_unit_test(test_too_many_queries),
        cmocka_unit_test(test_saturated_sums_are_flagged),
        cmocka_unit_test(test_tenants),
        cmocka_unit_test(test_connect_protocol),
        cmocka_unit_test(test_connect_gzip_request),
        cmocka_unit_test(test_every_ingester_is_asked_for_its_shards),
        cmocka_unit_test(test_a_service_is_asked_of_one_ingester),
        cmocka_unit_test(test_unknown_paths),
        cmocka_unit_test(test_random_pushes_equal_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
