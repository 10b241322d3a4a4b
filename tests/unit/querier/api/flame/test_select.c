/* SPDX-License-Identifier: Apache-2.0
 *
 * SelectSeries below a call site with all that may stand beside it: averages, exemplars, ids,
 * groups. Without them: the golden replies of test_api.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/size.h"
#include "proto/query.pb-c.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s) (QBED_NOW + (s)*1000)
#define AA   "00000000000000aa"
#define BB   "00000000000000bb"
#define CC   "00000000000000cc"

static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "shop", "pod=a", QBED_CPU, T(-60), "main;serve", 30, false, NULL },
    { QBED_BY_SERVICE, "shop", "pod=a", QBED_CPU, T(-55), "main;idle", 7, false, NULL },
    { QBED_BY_SERVICE, "shop", "pod=b", QBED_CPU, T(-50), "main;serve", 20, false, NULL },
    { QBED_BY_SERVICE, "cart", "pod=x", QBED_CPU, T(-40), "loop", 9, false, NULL },
};
static const struct qbed_exemplar exemplars[] = {
    { 0, "span_id=" AA, "main;serve=10 main;idle=90" },
    { 0, "span_id=" BB, "main;serve=12" },
    { 1, "span_id=" AA, "main;idle=7" },
    { 2, "span_id=" CC, "main;serve=20" },
    { 2, "profile_id=p1", "main;serve=20" },
    { 3, "span_id=" AA, "loop=9" },
};

#define SITE     ",\"stackTraceSelector\":{\"callSite\":[{\"name\":\"main\"},{\"name\":\"serve\"}]}"
#define NOWHERE  ",\"stackTraceSelector\":{\"callSite\":[{\"name\":\"serve\"}]}"
#define ALL      ",\"labelSelector\":\"{}\""
#define SPAN_AA  ",\"labelSelector\":\"{span_id=\\\"" AA "\\\"}\""
#define SPANS    ",\"exemplarType\":\"EXEMPLAR_TYPE_SPAN\""
#define PROFILES ",\"exemplarType\":\"EXEMPLAR_TYPE_INDIVIDUAL\""
#define AVERAGE  ",\"aggregation\":\"TIME_SERIES_AGGREGATION_TYPE_AVERAGE\""
#define BY_POD   ",\"groupBy\":[\"pod\"]"
#define BY_NAME  ",\"groupBy\":[\"service_name\"]"
#define STEP(s)  ",\"step\":" #s

/* What is compared: of each point "<seconds before now>=<value>", and behind it its exemplar as
 * "<id>:<value>"; in front of a series the value of its label. */
static const struct row {
    const char *json, *want;
} rows[] = {
    /* The leaf of -60 has 30 of the site, and whole profiles of 30 and 7 in its slots. */
    { ALL STEP(10) SITE, "-60=24 -50=26" },
    { ALL STEP(10) SITE SPANS, "-60=24 " BB ":12 -50=26 " CC ":20" },
    { ALL STEP(10) SITE PROFILES, "-60=24 -50=26 p1:20" },
    { ALL STEP(10) SITE SPANS BY_POD, "a -60=24 " BB ":12 -50=6 b -50=20 " CC ":20" },
    { ALL STEP(10) SITE SPANS BY_POD ",\"limit\":1", "a -60=24 " BB ":12 -50=6" },
    { ALL STEP(10) NOWHERE SPANS AVERAGE BY_POD, "" },
    /* The mean over all pushes of the group in the point. */
    { ALL STEP(10) SITE AVERAGE, "-60=15 -50=20" },
    { ALL STEP(10) SITE AVERAGE BY_POD SPANS, "b -50=20 " CC ":20 a -60=15 " BB ":12" },
    { ALL STEP(60) SITE AVERAGE BY_NAME, "shop 0=16.666666666666668" },
    /* An exemplar stands in its first slot. */
    { SPAN_AA STEP(10), "-60=100 -50=7 -40=9" },
    { SPAN_AA STEP(10) SITE, "-60=10" },
    { SPAN_AA STEP(10) SITE SPANS, "-60=10 " AA ":10" },
    { SPAN_AA STEP(30) SITE, "-40=10" },
    { SPAN_AA STEP(30) SITE AVERAGE, "-40=3.3333333333333335" },
    { SPAN_AA STEP(30) SITE AVERAGE BY_NAME SPANS, "shop -40=5 " AA ":10" },
    { SPAN_AA STEP(30) BY_NAME SPANS, "shop -40=107 " AA ":100 cart -40=9 " AA ":9" },
    { SPAN_AA STEP(30) NOWHERE SPANS, "" },
    { SPAN_AA STEP(30) NOWHERE BY_NAME, "" },
    { ",\"labelSelector\":\"{profile_id=\\\"p1\\\"}\"" STEP(10) SITE, "-50=20" },
    /* From a minute on what lies on an edge counts in the next point, exemplars with it. */
    { ALL STEP(60) SPANS, "0=66 " AA ":100" },
    { ALL STEP(60) SITE SPANS, "0=50 " CC ":20" },
};

/* The text between `key` and the next quote or comma, and *at behind it; false: not there, or
 * behind `before`. */
static bool take(const char **at, const char *key, const char *before, char *ret, size_t size)
{
    const char *found = strstr(*at, key);

    if (!found || (before && found > before))
        return false;
    found += strlen(key);
    size_t n = strcspn(found, "\",}");
    assert_true(n < size);
    memcpy(ret, found, n);
    ret[n] = '\0';
    *at = found + n;
    return true;
}

/* One more word: a, or a<between>b. */
static void add(struct buf *out, const char *a, const char *between, const char *b)
{
    if (out->len)
        buf_add_c(out, ' ');
    buf_add_str(out, str_c(a));
    buf_add_str(out, str_c(between));
    buf_add_str(out, str_c(b));
}

static void add_point(const char **at, struct buf *out)
{
    static const char *const keys[] = { "\"spanId\":\"", "\"profileId\":\"" };
    char value[64], time[64], id[64], cost[64], shown[96];

    assert_true(take(at, "\"value\":", NULL, value, sizeof(value)));
    assert_true(take(at, "\"timestamp\":\"", NULL, time, sizeof(time)));
    (void)snprintf(shown, sizeof(shown), "%" PRId64,
                   (int64_t)(strtoll(time, NULL, 10) - QBED_NOW) / 1000);
    add(out, shown, "=", value);
    const char *next = strstr(*at, "{\"value\":");
    const char *more = strstr(*at, "\"exemplars\":[");
    if (!more || (next && more > next))
        return;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        const char *from = more;
        if (!take(&from, keys[i], next, id, sizeof(id)))
            continue;
        assert_true(take(&from, "\"value\":\"", next, cost, sizeof(cost)));
        add(out, id, ":", cost);
    }
    *at = strchr(more, ']');
}

static const char *text_of(const char *body, struct buf *out)
{
    char label[64];

    out->len = 0;
    for (const char *at = body; at;) {
        const char *points = strstr(at, "\"points\":[");
        const char *next = strstr(at, "{\"value\":");
        if (points && take(&at, "\"value\":\"", points, label, sizeof(label)))
            add(out, label, "", "");
        at = points ? points + 1 : at;
        if (!next)
            break;
        /* Points up to the next series. */
        const char *series = strstr(at, "\"points\":[");
        const char *labels = strstr(at, "{\"labels\":");
        const char *end = labels && (!series || labels < series) ? labels : series;
        while ((next = strstr(at, "{\"value\":")) && (!end || next < end))
            add_point(&at, out);
        at = end;
    }
    buf_add_c(out, '\0');
    return out->ptr;
}

static void write_json(char *out, size_t size, const char *more)
{
    (void)snprintf(out, size,
                   "{\"profileTypeID\":\"" QBED_CPU "\",\"start\":%" PRId64 ",\"end\":%" PRId64
                   "%s}",
                   strstr(more, STEP(60)) ? T(-120) : T(-100), T(0), more);
}

static void test_answers(void **state)
{
    struct buf text;
    struct qbed b;
    int bad = 0;

    (void)state;
    buf_init(&text, KIB);
    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    b.exemplars = exemplars;
    b.exemplars_len = ARRAY_LEN(exemplars);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char json[1024];
        write_json(json, sizeof(json), rows[i].json);
        const char *reply = qbed_connect(&b, "SelectSeries", json);
        const char *got = text_of(qbed_body(reply), &text);
        if (qbed_status(reply) != 200 || strcmp(got, rows[i].want) != 0) {
            print_error("%s\n got %s\nwant %s\n%s\n", rows[i].json, got, rows[i].want, reply);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
    buf_deinit(&text);
    qbed_deinit(&b);
}

/* So many tenants that not all cells fit one round of calls. */
static void test_many_tenants(void **state)
{
    struct qbed_push many[16];
    char names[16][8], head[256];
    size_t n =
        (size_t)snprintf(head, sizeof(head), "Content-Type: application/json\r\nX-Scope-OrgID: ");
    struct buf text;
    struct qbed b;
    static const char *const flags[] = { "--tenancy.multi=true", NULL };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(many); i++) {
        (void)snprintf(names[i], sizeof(names[i]), "t%zu", i);
        many[i] = pushes[0];
        many[i].tenant = names[i];
        many[i].value = 1u << i;
        n += (size_t)snprintf(head + n, sizeof(head) - n, "%s%s", i ? "|" : "", names[i]);
    }
    (void)snprintf(head + n, sizeof(head) - n, "\r\n");
    qbed_init(&b, 4, flags);
    qbed_data(&b, many, ARRAY_LEN(many));
    char json[512];
    (void)snprintf(json, sizeof(json),
                   "{\"profileTypeID\":\"" QBED_CPU "\",\"start\":%" PRId64
                   ",\"end\":%" PRId64 ALL STEP(2) SITE AVERAGE "}",
                   T(-100), T(0));
    const char *reply = qbed_post(&b, "/querier.v1.QuerierService/SelectSeries", head, str_c(json));
    assert_int_equal(qbed_status(reply), 200);
    buf_init(&text, KIB);
    assert_string_equal(text_of(qbed_body(reply), &text), "-60=4095.9375"); /* 65535 / 16 */
    buf_deinit(&text);
    qbed_deinit(&b);
}

/* In each round the answer names the missing ingesters, or it is an error. */
static void test_missing(void **state)
{
    static const char path[] = "/querier.v1.QuerierService/SelectSeries";
    static const char *const head[] = {
        "Content-Type: application/json\r\n",
        "Content-Type: application/json\r\nX-Embertree-Allow-Partial: 1\r\n",
    };
    struct qbed b;

    (void)state;
    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    b.exemplars = exemplars;
    b.exemplars_len = ARRAY_LEN(exemplars);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char json[1024];
        write_json(json, sizeof(json), rows[i].json);
        b.ingesters[1].fail = ERR_UNAVAILABLE;
        assert_int_equal(qbed_status(qbed_post(&b, path, head[0], str_c(json))), 503);
        const char *reply = qbed_post(&b, path, head[1], str_c(json));
        assert_int_equal(qbed_status(reply), 200);
        assert_non_null(strstr(reply, "X-Embertree-Partial: 1 of 2 ingesters missing"));
        b.ingesters[1].fail = 0;
        reply = qbed_post(&b, path, head[0], str_c(json));
        assert_int_equal(qbed_status(reply), 200);
        assert_null(strstr(reply, "X-Embertree-Partial"));
    }
    qbed_deinit(&b);
}

/* A node that is kept as one sum is never in two points. */
static void test_coarse(void **state)
{
    Embertree__MergeReply m = EMBERTREE__MERGE_REPLY__INIT;
    Embertree__Stacks stacks = EMBERTREE__STACKS__INIT;
    char json[1024];
    uint8_t bytes[256];
    struct str reply;
    struct qbed b;

    (void)state;
    m.stacks = &stacks;
    m.total = 5;
    m.start_ms = T(-150);
    m.end_ms = T(10);
    assert_true(embertree__merge_reply__get_packed_size(&m) <= sizeof(bytes));
    reply = str_n(bytes, embertree__merge_reply__pack(&m, bytes));
    qbed_init(&b, 1, NULL);
    b.ingesters[0].canned = &reply;
    write_json(json, sizeof(json), ALL STEP(30) SITE);
    const char *got = qbed_connect(&b, "SelectSeries", json);
    assert_int_equal(qbed_status(got), 200); /* edges moved until one point was left */
    const char *once = strstr(got, "\"value\":5,");
    assert_true(once && !strstr(once + 1, "\"value\":5,"));
    m.total = 0; /* there is nothing in it: then it is no sum twice */
    reply = str_n(bytes, embertree__merge_reply__pack(&m, bytes));
    assert_int_equal(qbed_status(qbed_connect(&b, "SelectSeries", json)), 200);
    m.total = 5; /* one point, whose bounds are what they are */
    reply = str_n(bytes, embertree__merge_reply__pack(&m, bytes));
    write_json(json, sizeof(json), ALL STEP(1000) SITE);
    assert_int_equal(qbed_status(qbed_connect(&b, "SelectSeries", json)), 200);
    qbed_deinit(&b);
}

/* Edges inside of a node that is kept as one sum move behind it; where leaves are kept they
 * stay. */
static void test_coarse_nodes(void **state)
{
    static const struct {
        int64_t node_s, until_s;
        const char *want;
    } nodes[] = {
        { 0, 0, "-60=24 -50=26" },
        { 60, 60, "-100=50" }, /* from -100 to -40 */
        { 60, -100, "-60=24 -50=26" },
        { 600, 600, "-100=50" }, /* from -400 on: the first edge goes back */
        { 86400, 1, "-100=50" },
    };
    char json[1024];
    struct buf text;
    struct qbed b;

    (void)state;
    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    write_json(json, sizeof(json), ALL STEP(10) SITE);
    for (size_t i = 0; i < ARRAY_LEN(nodes); i++) {
        b.coarse_ms = nodes[i].node_s * 1000;
        b.coarse_until_ms = T(nodes[i].until_s);
        buf_init(&text, KIB);
        const char *got = text_of(qbed_connect(&b, "SelectSeries", json), &text);
        if (strcmp(got, nodes[i].want) != 0)
            fail_msg("nodes of %" PRId64 " s: %s", nodes[i].node_s, got);
        buf_deinit(&text);
    }
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answers),      cmocka_unit_test(test_many_tenants),
        cmocka_unit_test(test_missing),      cmocka_unit_test(test_coarse),
        cmocka_unit_test(test_coarse_nodes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
