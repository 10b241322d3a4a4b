/* SPDX-License-Identifier: Apache-2.0
 *
 * Never silently partial, for every route there is: with one ingester that cannot answer, whoever
 * asked it says 503, or, where the caller allowed it, flags the answer. A route without a request
 * here fails the test: add one. And deadlines get shorter at every hop.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <string.h>

#include "querier/query/query.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)      (QBED_NOW + (s)*INT64_C(1000))
#define QUERY     "?query=" QBED_CPU "%7B%7D&from=now-100s&until=now"
#define OLD       "?query=app.cpu&from=now-100s&until=now"
#define RANGE     "\"start\":\"1749999900000\",\"end\":1750000000000"
#define TYPE      "\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\""
#define INGESTERS 3

static const struct qbed_push pushes[] = {
    { 0, "a", "", QBED_CPU, T(-50), "x;y", 1, false, NULL },
    { 1, "b", "", QBED_CPU, T(-50), "y", 10, false, NULL },
    { 2, "app", "", QBED_CPU, T(-50), "z", 100, false, NULL },
};

/* One request that a route takes, by its path; of RPCs the part behind the last '/'. Where a path
 * has several routes, those that change something stand under their method, too. */
static const struct {
    const char *path;
    const char *request; /* behind the path; or the body */
} requests[] = {
    { "/pyroscope/render", QUERY },
    { "/render", OLD },
    { "/merge", "{\"appName\":\"app.cpu\",\"profiles\":[\"0123456789abcdef\"]}" },
    { "/api/exemplars:merge", "{\"appName\":\"app.cpu\",\"profiles\":[\"0123456789abcdef\"]}" },
    { "/api/exemplars:query", OLD },
    { "/pyroscope/label-values", "?label=service_name" },
    { "/label-values", "?label=service_name" },
    { "/labels", "" },
    { "/api/apps", "" },
    { "/api/v1/functions", QUERY },
    { "/api/v1/functions/grew", QUERY },
    { "/api/v1/top", QUERY },
    { "/api/v1/focus", QUERY "&function=y" },
    { "/api/v1/sandwich", QUERY "&function=y" },
    { "/api/v1/subtree", QUERY },
    { "/api/v1/diff", QUERY "&leftFrom=now-200s" },
    { "/pyroscope/render-diff",
      "?leftQuery=" QBED_CPU "%7B%7D&leftFrom=now-200s&leftUntil=now-100s&rightQuery=" QBED_CPU
      "%7B%7D&rightFrom=now-100s&rightUntil=now" },
    { "/render-diff", OLD "&leftFrom=now-200s&leftUntil=now-100s&rightFrom=now-100s"
                          "&rightUntil=now" },
    { "/api/v1/space", "" },
    { "/api/v1/ledger", "" },
    { "/api/v1/ledger/accept", "?by=a&reason=b" },
    { "/api/v1/delete", "?query=%7Bservice_name=%22a%22%7D&dry_run=1" },
    { "/api/v1/deletes", "" },
    { "/api/annotations", "" },
    { "POST /api/annotations", "{\"appName\":\"a\",\"content\":\"b\",\"timestamp\":1}" },
    { "DELETE /api/annotations", "?id=000000000001000-abcdefghijkl" },
    { "ProfileTypes", "{" RANGE "}" },
    { "LabelNames", "{" RANGE "}" },
    { "LabelValues", "{" RANGE ",\"name\":\"service_name\"}" },
    { "Series", "{" RANGE "}" },
    { "SelectMergeStacktraces", "{" RANGE "," TYPE "}" },
    { "SelectMergeProfile", "{" RANGE "," TYPE "}" },
    { "SelectMergeSpanProfile", "{" RANGE "," TYPE ",\"spanSelector\":[\"0123456789abcdef\"]}" },
    { "SelectSeries", "{" RANGE "," TYPE ",\"step\":10}" },
    { "SelectHeatmap",
      "{" RANGE "," TYPE ",\"step\":10,\"queryType\":\"HEATMAP_QUERY_TYPE_SPAN\"}" },
    { "Diff", "{\"left\":{" RANGE "," TYPE "},\"right\":{" RANGE "," TYPE "}}" },
    { "GetProfileStats", "{}" },
    { "AnalyzeQuery", "{" RANGE ",\"query\":\"" QBED_CPU "{}\"}" },
    { "Get", "{}" },
    { "Set", "{\"setting\":{\"name\":\"b\",\"value\":\"1\"}}" },
    { "Delete", "{\"name\":\"b\"}" },
    { "GetRecordingRule", "{\"id\":\"abc\"}" },
    { "ListRecordingRules", "{}" },
    { "UpsertRecordingRule",
      "{\"metric_name\":\"profiles_recorded_cpu\",\"matchers\":[\"{__profile_type__=\\\"" QBED_CPU
      "\\\"}\"]}" },
    { "DeleteRecordingRule", "{\"id\":\"abc\"}" },
};
/* These ask no ingester. */
static const char *const alone[] = { "GetFeatureFlags", "Version" };

static const char *method_of(const struct query_route *r)
{
    return r->methods & HTTP_POST ? "POST" : r->methods & HTTP_DELETE ? "DELETE" : "GET";
}

static const char *name_of(const struct query_route *r)
{
    return r->connect ? strrchr(r->path, '/') + 1 : r->path;
}

static const char *request_of(const struct query_route *r)
{
    const char *name = name_of(r);
    char under_method[200];

    snprintf(under_method, sizeof(under_method), "%s %s", method_of(r), name);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        if (strcmp(requests[i].path, under_method) == 0)
            return requests[i].request;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++)
        if (strcmp(requests[i].path, name) == 0)
            return requests[i].request;
    return NULL;
}

static bool asks_nobody(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(alone); i++)
        if (strcmp(alone[i], name) == 0)
            return true;
    return false;
}

/* One request; the whole reply. Valid until the next one. */
static const char *send(struct qbed *b, const struct query_route *r, bool allow)
{
    const char *request = request_of(r);
    bool body = r->connect || r->body_max > 0;
    char target[1000], headers[200];

    snprintf(target, sizeof(target), "%s%s", r->path, body ? "" : request);
    snprintf(headers, sizeof(headers), "%s%s", body ? "Content-Type: application/json\r\n" : "",
             allow ? "X-Embertree-Allow-Partial: 1\r\n" : "");
    qbed_send(b, method_of(r), target, headers, body ? request : NULL);
    net_pass(&b->world, 10);
    return qbed_reply(b);
}

static size_t calls(const struct qbed *b)
{
    size_t n = 0;

    for (size_t i = 0; i < INGESTERS; i++)
        n += b->ingesters[i].calls;
    return n;
}

/* Ingester `down` cannot answer. */
static void check(struct qbed *b, const struct query_route *r, size_t down, bool allow)
{
    size_t before = b->ingesters[down].calls;

    allow |= strcmp(r->path, "/api/v1/space") == 0; /* a report always tells what there is */
    b->ingesters[down].fail = ERR_UNAVAILABLE;
    const char *reply = send(b, r, allow);
    bool asked = b->ingesters[down].calls > before;
    bool flagged = strstr(reply, "\nX-Embertree-Partial: 1 of ") != NULL;
    int status = qbed_status(reply);
    b->ingesters[down].fail = 0;
    if (asked && status != 503 && !(allow && status == 200 && flagged))
        fail_msg("%s with ingester %zu down%s: %s", r->path, down,
                 allow ? ", partial answers allowed" : "", reply);
    if (flagged && !asked)
        fail_msg("%s says it is partial and is not: %s", r->path, reply);
}

static void test_every_route(void **state)
{
    const struct query_route *routes;
    size_t len, asking = 0;
    struct qbed b;

    (void)state;
    qbed_init(&b, INGESTERS, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    routes = query_routes(&len);
    for (size_t i = 0; i < len; i++) {
        const struct query_route *r = &routes[i];
        size_t before = calls(&b);
        if (asks_nobody(name_of(r)))
            continue;
        if (!request_of(r))
            fail_msg("%s is a new route: add a request for it to this test", r->path);
        const char *reply = send(&b, r, false);
        int status = qbed_status(reply);
        if (status != 200 && status != 201 && status != 204 && status != 404)
            fail_msg("%s with all ingesters: %s", r->path, reply);
        if (calls(&b) == before)
            fail_msg("%s asked no ingester: %s", r->path, reply);
        for (size_t down = 0; down < INGESTERS; down++) {
            check(&b, r, down, false);
            check(&b, r, down, true);
        }
        asking++;
    }
    assert_true(asking > 20);
    qbed_deinit(&b);
}

/* What a caller allows is what the querier has; an ingester gets less, so that its late answer can
 * still be told. */
static void test_deadlines_shrink(void **state)
{
    static const char *const flags[] = { "--querier.timeout=20s", NULL };
    static const struct {
        const char *header;
        uint64_t most, least;
    } cases[] = {
        { "", 20000, 19000 },
        { "Connect-Timeout-Ms: 1000\r\n", 1000, 900 },
        { "Connect-Timeout-Ms: 100\r\n", 100, 80 },
        { "Connect-Timeout-Ms: 3600000\r\n", 20000, 19000 },
    };
    struct qbed b;

    (void)state;
    qbed_init(&b, 1, flags);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char headers[200];
        snprintf(headers, sizeof(headers), "Content-Type: application/json\r\n%s", cases[i].header);
        qbed_send(&b, "POST", "/querier.v1.QuerierService/LabelNames", headers, "{" RANGE "}");
        net_pass(&b.world, 10);
        assert_int_equal(qbed_status(qbed_reply(&b)), 200);
        assert_true(b.ingesters[0].left_ms < cases[i].most);
        assert_true(b.ingesters[0].left_ms >= cases[i].least);
    }
    qbed_deinit(&b);
}

/* The same of gRPC's header, in its units. */
static void test_grpc_timeouts(void **state)
{
    static const struct {
        const char *timeout;
        uint64_t most, least;
    } cases[] = { { "1S", 1000, 900 }, { "500m", 500, 450 }, { "100000u", 100, 80 } };
    struct qbed b;

    (void)state;
    qbed_init(&b, 1, NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char head[400];
        int n = snprintf(head, sizeof(head),
                         "POST /querier.v1.QuerierService/ProfileTypes HTTP/1.1\r\nHost: h\r\n"
                         "Content-Type: application/grpc-web+proto\r\ngrpc-timeout: %s\r\n"
                         "Content-Length: 5\r\n\r\n",
                         cases[i].timeout);
        size_t before = b.ingesters[0].calls;
        net_send(b.client, str_n(head, (size_t)n));
        net_send(b.client, str_n("\0\0\0\0\0", 5));
        net_pass(&b.world, 10);
        assert_int_equal(b.ingesters[0].calls, before + 1);
        assert_true(b.ingesters[0].left_ms < cases[i].most);
        assert_true(b.ingesters[0].left_ms >= cases[i].least);
        assert_int_equal(qbed_status(qbed_reply(&b)), 200);
    }
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route),
        cmocka_unit_test(test_deadlines_shrink),
        cmocka_unit_test(test_grpc_timeouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
