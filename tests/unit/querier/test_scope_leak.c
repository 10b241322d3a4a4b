/* SPDX-License-Identifier: Apache-2.0
 *
 * A key that may see one team's series, on every route that reads series: nothing of the other
 * team's words or numbers is in any answer, and the answer is byte for byte that of a request which
 * asks for that team by a matcher. A route without a row here fails the test.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/identity/scope.h"
#include "common/role/core/doors.h"
#include "querier/query/query.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)    (QBED_NOW + (s)*INT64_C(1000))
#define PEARS   "pears:pears:count:pears:count"
#define GREEN   "greens:greens:count:greens:count"
#define SERVICE "/querier.v1.QuerierService/"
#define TEAM_A \
    "[{\"tenants\":[\"anonymous\"],\"roles\":[\"read\",\"delete\"],\"match\":\"{team=\\\"a\\\"}\"}]"
#define ALL     "[{\"tenants\":[\"anonymous\"],\"roles\":[\"read\",\"delete\"]}]"
#define NO_READ "[{\"tenants\":[\"anonymous\"],\"roles\":[\"push\"]}]"
#define SPAN_A  "00000000000000aa"
#define SPAN_B  "00000000000000bb"

/* These ingesters merge no exemplars, and list them; tests/cluster/out/test_scope.py has real ones.
 * All of team b has "pear" in its words and 7654321 in its values. Both teams have the service. */
static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "shop", "team=a,pod=apple-1", QBED_CPU, T(-60), "main;apple", 30, false,
      NULL },
    { QBED_BY_SERVICE, "shop", "team=b,pod=pear-1,pearlabel=x", QBED_CPU, T(-60), "main;pear",
      7654321, false, NULL },
    { QBED_BY_SERVICE, "apples", "team=a", GREEN, T(-50), "main;apple", 5, false, NULL },
    { QBED_BY_SERVICE, "pears", "team=b", PEARS, T(-80), "pearmain;pear", 7654321, false, NULL },
    { QBED_BY_SERVICE, "pears", "pearlabel=y", QBED_CPU, T(-40), "pearmain;pear", 7654321, false,
      NULL },
};
static const struct qbed_exemplar exemplars[] = {
    { 0, "span_id=" SPAN_A, "main;apple=20" },
    { 1, "span_id=" SPAN_B, "main;pear=7654321" },
};

/* @ stands for one more matcher, in the text of the URL or of JSON. */
struct row {
    const char *method, *path, *rest; /* the query of a URL, or a body */
    const char *has;                  /* in the answer, so that it is one */
    bool typed;                       /* with @: the same as a matcher that a user typed */
};
#define Q     "query=" QBED_CPU "%7B@%7D"
#define TIME  "&from=now-100s&until=now"
#define RANGE "\"start\":\"1749999900000\",\"end\":1750000000000"
#define SIDE  RANGE ",\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{@}\""
#define BOTH(p)                                                                      \
    "leftQuery=" p "%7B@%7D&rightQuery=" p "%7B@%7D&leftFrom=now-100s&leftUntil=now" \
    "&rightFrom=now-100s&rightUntil=now"
static const struct row rows[] = {
    { "GET", "/pyroscope/render", Q TIME, "apple", true },
    { "GET", "/pyroscope/render", Q TIME "&groupBy=pod", "apple-1", true },
    { "GET", "/pyroscope/render", Q TIME "&format=collapsed", "main;apple 30", true },
    { "GET", "/pyroscope/render", Q TIME "&format=dot", "apple", true },
    { "GET", "/pyroscope/render", Q TIME "&format=svg", "apple", true },
    { "GET", "/pyroscope/render", Q TIME "&format=html", "apple", true },
    { "GET", "/pyroscope/render", Q TIME "&format=tree", "apple", true },
    { "GET", "/pyroscope/render-diff", BOTH(QBED_CPU), "apple", true },
    { "GET", "/render", "query=shop.cpu%7B@%7D" TIME, "apple", true },
    { "GET", "/render", "query=pears.pears%7B@%7D" TIME, "numTicks\":0", true },
    { "GET", "/render-diff", BOTH("shop.cpu"), "apple", true },
    { "GET", "/api/exemplars:query", Q TIME "&minValue=1&maxValue=99999999", "[0,0,20,", true },
    { "POST", "/merge",
      "{\"appName\":\"shop.cpu{@}\",\"profiles\":[\"" SPAN_A "\",\"" SPAN_B
      "\"],\"startTime\":\"now-100s\",\"endTime\":\"now\"}",
      "[0,0,20,", false },
    { "POST", "/api/exemplars:merge",
      "{\"appName\":\"" QBED_CPU "{@}\",\"profiles\":[\"" SPAN_A "\",\"" SPAN_B
      "\"],\"startTime\":\"now-100s\",\"endTime\":\"now\"}",
      "[0,0,20,", false },
    { "GET", "/pyroscope/label-values", "label=pod&query=%7B@%7D", "apple-1", true },
    { "GET", "/pyroscope/label-values", "label=service_name", "apples", false },
    { "GET", "/label-values", "label=__name__", "shop.cpu", false },
    { "GET", "/label-values", "label=pod&query=%7B@%7D", "apple-1", true },
    { "GET", "/labels", "query=%7B@%7D", "pod", true },
    { "GET", "/api/apps", "", "shop.cpu", false },
    { "GET", "/api/v1/functions", Q TIME, "apple", true },
    { "GET", "/api/v1/functions", Q TIME "&groupBy=pod&name=apple&name=pear", "apple-1", false },
    { "GET", "/api/v1/functions/grew", Q TIME "&by=service", "apple", true },
    { "GET", "/api/v1/top", Q TIME, "apple", true },
    { "GET", "/api/v1/focus", Q TIME "&function=main", "apple", true },
    { "GET", "/api/v1/sandwich", Q TIME "&function=main", "apple", true },
    { "GET", "/api/v1/subtree", Q TIME "&path=main&tree=1", "apple", true },
    { "GET", "/api/v1/diff", Q TIME, "apple", true },
    { "POST", SERVICE "ProfileTypes", "{" RANGE "}", "greens", false },
    { "POST", SERVICE "LabelNames", "{" RANGE ",\"matchers\":[\"{@}\"]}", "pod", true },
    { "POST", SERVICE "LabelValues", "{" RANGE ",\"name\":\"service_name\"}", "apples", false },
    { "POST", SERVICE "LabelValues", "{" RANGE ",\"name\":\"pod\",\"matchers\":[\"{@}\"]}",
      "apple-1", true },
    { "POST", SERVICE "Series", "{" RANGE ",\"matchers\":[\"{@}\"]}", "apple-1", true },
    { "POST", SERVICE "SelectMergeStacktraces", "{" SIDE "}", "apple", true },
    { "POST", SERVICE "SelectSeries", "{" SIDE ",\"step\":10,\"groupBy\":[\"pod\"]}", "apple-1",
      true },
    { "POST", SERVICE "SelectSeries",
      "{" SIDE ",\"step\":10,\"groupBy\":[\"pod\"],\"stackTraceSelector\":{\"callSite\":[{\"name\":"
      "\"main\"}]}}",
      "apple-1", true },
    { "POST", SERVICE "SelectMergeSpanProfile",
      "{" SIDE ",\"spanSelector\":[\"" SPAN_A "\",\"" SPAN_B "\"]}", "{", true },
    { "POST", SERVICE "SelectMergeProfile", "{" SIDE "}", "apple", true },
    { "POST", SERVICE "SelectHeatmap",
      "{" SIDE ",\"step\":10,\"groupBy\":[\"pod\"],\"queryType\":\"HEATMAP_QUERY_TYPE_SPAN\"}", "",
      true },
    { "POST", SERVICE "Diff", "{\"left\":{" SIDE "},\"right\":{" SIDE "}}", "apple", true },
    { "POST", SERVICE "GetProfileStats", "{}", "1749999940000", false },
    { "POST", SERVICE "AnalyzeQuery", "{" RANGE ",\"query\":\"" QBED_CPU "{@}\"}", "\"", false },
};

static void with_matcher(const char *text, bool url, bool typed, char *to, size_t room)
{
    const char *put = !typed ? "" : url ? "team%3D%22a%22" : "team=\\\"a\\\"";
    size_t at = 0;

    for (; *text; text++) {
        size_t n = *text == '@' ? strlen(put) : 1;
        assert_true(at + n < room);
        memcpy(to + at, *text == '@' ? put : text, n);
        at += n;
    }
    to[at] = '\0';
}

/* The answer, to be freed. */
static char *ask(struct qbed *b, const struct row *r, bool typed)
{
    char rest[1024], target[1200];
    bool get = r->method[0] == 'G';

    with_matcher(r->rest, get, typed, rest, sizeof(rest));
    (void)snprintf(target, sizeof(target), "%s%s%s", r->path, get ? "?" : "", get ? rest : "");
    qbed_send(b, r->method, target, "Content-Type: application/json\r\nX-Scope-OrgID: one|two\r\n",
              get ? NULL : rest);
    net_pass(&b->world, 0);
    char *reply = xmemdup(qbed_reply(b), b->client->out.len + 1);
    for (size_t i = 0; i < b->client->out.len; i++) /* of formats that are no text */
        reply[i] = reply[i] ? reply[i] : '.';
    return reply;
}

/* Answers repeat the query: without the matcher that was typed. */
static char *without_matcher(const char *body)
{
    static const char *const texts[] = { "team=\"a\"", "team=\\\"a\\\"", "team=&quot;a&quot;",
                                         "team=&#34;a&#34;" };
    char *text = xmemdup(body, strlen(body) + 1);

    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        for (char *at; (at = strstr(text, texts[i]));)
            memmove(at, at + strlen(texts[i]), strlen(at + strlen(texts[i])) + 1);
    return text;
}

static void expect_same(size_t row, const char *scoped, const char *typed)
{
    char *a = without_matcher(scoped), *b = without_matcher(typed);

    if (strcmp(a, b) != 0)
        fail_msg("row %zu, %s: %s\nis not what a matcher gives: %s", row, rows[row].path, a, b);
    xfree(a);
    xfree(b);
}

static bool leaks(const char *reply)
{
    return strcasestr(reply, "pear") || strstr(reply, "76543") || strstr(reply, SPAN_B);
}

static void open_bed(struct qbed *b, const char *const *flags)
{
    qbed_init(b, 2, flags);
    qbed_data(b, pushes, ARRAY_LEN(pushes));
    b->exemplars = exemplars;
    b->exemplars_len = ARRAY_LEN(exemplars);
    for (size_t i = 0; i < b->ingesters_len; i++)
        b->ingesters[i].docs_at_once = true;
}

/* Rows whose question has words of the other team see them again in the answer: not theirs. */
static bool asks_for_other(const struct row *r)
{
    return strstr(r->rest, "pear") || strstr(r->rest, SPAN_B);
}

static void test_every_route(void **state)
{
    (void)state;
    struct key_record *a = fake_identity("aaaaaaaaaaaa", TEAM_A);
    struct qbed b;
    size_t seen = 0;

    open_bed(&b, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        b.door.who = a;
        char *scoped = ask(&b, r, false);
        b.door.who = NULL;
        char *typed = ask(&b, r, r->typed), *open = ask(&b, r, false);
        if (qbed_status(scoped) != 200 || !strstr(qbed_body(scoped), r->has))
            fail_msg("row %zu, %s: %s", i, r->path, scoped);
        if (asks_for_other(r) ? strstr(scoped, "76543") != NULL : leaks(scoped))
            fail_msg("row %zu, %s tells of team b: %s", i, r->path, scoped);
        if (r->typed)
            expect_same(i, qbed_body(scoped), qbed_body(typed));
        assert_non_null(strstr(scoped, "Cache-Control: private, no-store\r\n"));
        assert_non_null(strstr(scoped, "Vary: Authorization, Cookie, X-Scope-OrgID\r\n"));
        assert_null(strstr(open, "Cache-Control"));
        seen += leaks(open);
        xfree(scoped);
        xfree(typed);
        xfree(open);
    }
    assert_in_range(seen, 35, ARRAY_LEN(rows)); /* a request without an identity sees the words */
    record_key_unref(a);
    qbed_deinit(&b);
}

/* Sizes of whole services tell of series that the key may not see. */
static void test_sizes(void **state)
{
    (void)state;
    static const struct row r = { "POST", SERVICE "AnalyzeQuery",
                                  "{" RANGE ",\"query\":\"" QBED_CPU "{@}\"}", "", false };
    struct key_record *a = fake_identity("aaaaaaaaaaaa", TEAM_A);
    struct qbed b;

    open_bed(&b, NULL);
    char *typed = ask(&b, &r, true);
    b.door.who = a;
    char *scoped = ask(&b, &r, false);
    assert_non_null(strstr(typed, "indexBytes\":\"7\""));
    assert_non_null(strstr(typed, "symbolBytes\":\"9\""));
    assert_non_null(strstr(scoped, "queryScopes"));
    assert_null(strstr(scoped, "indexBytes\":\"7\""));
    assert_null(strstr(scoped, "symbolBytes\":\"9\""));
    xfree(typed);
    xfree(scoped);
    record_key_unref(a);
    qbed_deinit(&b);
}

/* Each route that joins matchers has a row; deletes have a test of their own. */
static void test_no_route_is_left_out(void **state)
{
    (void)state;
    size_t routes_len, doors_len;
    const struct query_route *routes = query_routes(&routes_len);
    const struct http_door *table = doors(&doors_len);

    for (size_t i = 0; i < routes_len; i++) {
        size_t k = 0, n = 0;
        while (k < doors_len && !(strcmp(table[k].path, routes[i].path) == 0 &&
                                  table[k].methods & routes[i].methods))
            k++;
        assert_true(k < doors_len);
        for (size_t at = 0; at < ARRAY_LEN(rows); at++)
            n += strcmp(rows[at].path, routes[i].path) == 0;
        if (table[k].scope == HTTP_SCOPE_CONJOIN && !n &&
            strcmp(routes[i].path, "/api/v1/delete") != 0)
            fail_msg("%s joins matchers and has no row", routes[i].path);
    }
}

/* What no grant allows is refused here, too, whatever the door said. */
static void test_without_a_grant(void **state)
{
    (void)state;
    struct key_record *none = fake_identity("cccccccccccc", NO_READ);
    struct key_record *all = fake_identity("dddddddddddd", ALL);
    struct qbed b;

    open_bed(&b, NULL);
    b.door.who = none;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *reply = ask(&b, &rows[i], false);
        if (qbed_status(reply) != 403 || leaks(reply))
            fail_msg("row %zu, %s: %s", i, rows[i].path, reply);
        xfree(reply);
    }
    b.door.who = all;
    char *reply = ask(&b, &rows[0], false);
    assert_int_equal(qbed_status(reply), 200);
    assert_true(leaks(reply));
    xfree(reply);
    record_key_unref(none);
    record_key_unref(all);
    qbed_deinit(&b);
}

/* Each tenant has matchers of its own. */
static void test_two_tenants(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    static const struct qbed_push both[] = {
        { QBED_BY_SERVICE, "shop", "team=a", QBED_CPU, T(-60), "apple", 1, false, "one" },
        { QBED_BY_SERVICE, "shop", "team=b", QBED_CPU, T(-60), "pear", 7654321, false, "one" },
        { QBED_BY_SERVICE, "shop", "team=a", QBED_CPU, T(-60), "pear", 7654321, false, "two" },
        { QBED_BY_SERVICE, "shop", "team=b", QBED_CPU, T(-60), "apple", 10, false, "two" },
    };
    struct key_record *k = fake_identity(
        "aaaaaaaaaaaa",
        "[{\"tenants\":[\"one\"],\"roles\":[\"read\"],\"match\":\"{team=\\\"a\\\"}\"},"
        "{\"tenants\":[\"two\"],\"roles\":[\"read\"],\"match\":\"{team=\\\"b\\\"}\"}]");
    struct qbed b;

    qbed_init(&b, 2, flags);
    qbed_data(&b, both, ARRAY_LEN(both));
    b.door = (struct fake_doorman){ .who = k, .tenants = { "one", "two" } };
    char *reply = ask(&b, &rows[0], false);
    assert_int_equal(qbed_status(reply), 200);
    assert_false(leaks(reply));
    assert_non_null(strstr(reply, "\"numTicks\":11"));
    xfree(reply);
    record_key_unref(k);
    qbed_deinit(&b);
}

/* ---- results that are fetched later ---------------------------------------------------------- */

#define ASYNC SERVICE "SelectMergeStacktraces"

static char *fetch(struct qbed *b, const char *id)
{
    char body[512];

    (void)snprintf(body, sizeof(body), "{" SIDE ",\"async\":{\"request_id\":\"%s\"}}", id);
    struct row r = { "POST", ASYNC, body, "", false };
    return ask(b, &r, false);
}

static void begin(struct qbed *b, char id[64])
{
    static const struct row r = { "POST", ASYNC, "{" SIDE ",\"async\":{\"type\":1}}", "", false };
    char *reply = ask(b, &r, false);
    const char *at = strstr(reply, "\"requestId\":\"");

    assert_non_null(at);
    at += strlen("\"requestId\":\"");
    size_t n = strcspn(at, "\"");
    assert_in_range(n, 16, 63);
    memcpy(id, at, n);
    id[n] = '\0';
    xfree(reply);
    net_pass(&b->world, 200);
}

static void hand_docs(struct qbed *from, struct qbed *to)
{
    struct fake_docs had = to->docs;

    to->docs = from->docs;
    from->docs = had;
}

static void expect_fetch(struct qbed *b, struct key_record *who, const char *id, int status,
                         const char *part)
{
    b->door.who = who;
    char *reply = fetch(b, id);
    if (qbed_status(reply) != status || !strstr(reply, part))
        fail_msg("want %d with %s: %s", status, part, reply);
    xfree(reply);
}

/* By the querier that has it, and by another one, which reads the shared document. */
static void test_results_belong_to_who_asked(void **state)
{
    (void)state;
    struct key_record *a = fake_identity("aaaaaaaaaaaa", TEAM_A);
    struct key_record *same = fake_identity("eeeeeeeeeeee", TEAM_A); /* another key, same grants */
    struct key_record *wider = fake_identity("aaaaaaaaaaaa", ALL);   /* the key, other grants */
    struct key_record *who[] = { same, wider, NULL };
    struct qbed b, other;
    char id[64], absent[64], theirs[64];

    open_bed(&b, NULL);
    open_bed(&other, NULL);
    b.door.who = a;
    begin(&b, id);
    b.door.who = wider;
    begin(&b, theirs);
    (void)snprintf(absent, sizeof(absent), "%024d", 0);
    struct qbed *beds[] = { &b, &other };
    for (size_t k = 0; k < ARRAY_LEN(beds); k++) {
        expect_fetch(beds[k], a, id, 200, "apple");
        expect_fetch(beds[k], wider, theirs, 200, "pear");
        expect_fetch(beds[k], a, theirs, 404, "there is no");
        for (size_t i = 0; i < ARRAY_LEN(who); i++) {
            beds[k]->door.who = who[i];
            char *mine = fetch(beds[k], id), *none = fetch(beds[k], absent);
            assert_int_equal(qbed_status(mine), 404);
            assert_null(strstr(mine, "apple"));
            /* But for the id itself, the words are those of an id that does not exist. */
            char *at = strstr(mine, id), *want = strstr(none, absent);
            assert_true(at && want);
            memcpy(at, absent, strlen(absent));
            assert_string_equal(qbed_body(mine), qbed_body(none));
            xfree(mine);
            xfree(none);
        }
        beds[k]->door.who = NULL;
        hand_docs(&b, &other); /* what ingesters have is there for all queriers */
    }
    hand_docs(&b, &other);
    record_key_unref(a);
    record_key_unref(same);
    record_key_unref(wider);
    net_pass(&b.world, 700000);
    net_pass(&other.world, 700000);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_route),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_no_route_is_left_out),
        cmocka_unit_test(test_without_a_grant),
        cmocka_unit_test(test_two_tenants),
        cmocka_unit_test(test_results_belong_to_who_asked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
