/* SPDX-License-Identifier: Apache-2.0
 *
 * Settings, recording rules and what else user interfaces ask: a dialogue of requests and answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "tests/lib/roles/querier_bed.h"

#define SET   "settings.v1.SettingsService/"
#define RULES "settings.v1.RecordingRulesService/"
#define TYPE  "__profile_type__=\\\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\\\""
#define RULE  "\"metric_name\":\"profiles_recorded_cpu\",\"matchers\":[\"{" TYPE "}\"]"

struct turn {
    const char *method, *json;
    int status;
    const char *want; /* of the body: whole, or with a '~' in front a part of it */
};

static const struct turn settings[] = {
    { SET "Get", "{}", 200, "{}" },
    { SET "Set",
      "{\"setting\":{\"name\":\"b\",\"value\":\"{\\\"x\\\":1}\",\"modifiedAt\":\"100\"}}", 200,
      "{\"setting\":{\"name\":\"b\",\"value\":\"{\\\"x\\\":1}\",\"modifiedAt\":\"100\"}}" },
    { SET "Set", "{\"setting\":{\"name\":\"a\",\"value\":\"2\"}}", 200,
      "{\"setting\":{\"name\":\"a\",\"value\":\"2\",\"modifiedAt\":\"1750000000000\"}}" },
    { SET "Get", "{}", 200,
      "{\"settings\":[{\"name\":\"a\",\"value\":\"2\",\"modifiedAt\":\"1750000000000\"},"
      "{\"name\":\"b\",\"value\":\"{\\\"x\\\":1}\",\"modifiedAt\":\"100\"}]}" },
    { SET "Set", "{\"setting\":{\"name\":\"b\",\"value\":\"old\",\"modified_at\":99}}", 409,
      "~already_exists" },
    { SET "Set", "{\"setting\":{\"name\":\"b\",\"value\":\"new\",\"modified_at\":100}}", 200,
      "~\"new\"" },
    { SET "Set", "{\"setting\":{\"name\":\"\",\"value\":\"x\"}}", 400, "~invalid_argument" },
    { SET "Set", "{}", 400, "~setting is missing" },
    { SET "Set", "{\"setting\":{\"name\":\"c\",\"modifiedAt\":\"1750000000001\"}}", 200, "~\"c\"" },
    { SET "Delete", "{\"name\":\"c\"}", 409, "~already_exists" }, /* of a clock ahead of our own */
    { SET "Delete", "{\"name\":\"a\"}", 200, "{}" },
    { SET "Delete", "{\"name\":\"a\"}", 200, "{}" },
    { SET "Delete", "{}", 400, "~name" },
    { SET "Get", "{}", 200,
      "{\"settings\":[{\"name\":\"b\",\"value\":\"new\",\"modifiedAt\":\"100\"},"
      "{\"name\":\"c\",\"modifiedAt\":\"1750000000001\"}]}" },
    { SET "Nope", "{}", 501, "~unimplemented" },
};

static const struct turn rules[] = {
    { RULES "ListRecordingRules", "{}", 200, "{}" },
    { RULES "GetRecordingRule", "{\"id\":\"abc\"}", 404, "~not_found" },
    { RULES "GetRecordingRule", "{}", 400, "~id is missing" },
    { RULES "UpsertRecordingRule",
      "{\"id\":\"abc\"," RULE ",\"groupBy\":[\"pod\"],\"external_labels\":[{\"name\":\"a\","
      "\"value\":\"b\"}],\"stacktraceFilter\":{\"functionName\":{\"functionName\":\"f\","
      "\"metricType\":\"TOTAL\"}}}",
      200,
      "{\"rule\":{\"id\":\"abc\",\"metricName\":\"profiles_recorded_cpu\",\"profileType\":"
      "\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\",\"matchers\":[\"{" TYPE "}\"],\"groupBy\":"
      "[\"pod\"],\"externalLabels\":[{\"name\":\"a\",\"value\":\"b\"}],\"generation\":\"1\","
      "\"stacktraceFilter\":{\"functionName\":{\"functionName\":\"f\"}}}}" },
    { RULES "GetRecordingRule", "{\"id\":\"abc\"}", 200, "~\"groupBy\":[\"pod\"]" },
    { RULES "UpsertRecordingRule", "{\"id\":\"abc\",\"generation\":\"2\"," RULE "}", 409,
      "~already_exists" },
    { RULES "UpsertRecordingRule", "{\"id\":\"abc\",\"generation\":1," RULE "}", 200,
      "~\"generation\":\"2\"" },
    { RULES "GetRecordingRule", "{\"id\":\"abc\"}", 200,
      "{\"rule\":{\"id\":\"abc\",\"metricName\":\"profiles_recorded_cpu\",\"profileType\":"
      "\"process_cpu:cpu:nanoseconds:cpu:nanoseconds\",\"matchers\":[\"{" TYPE
      "}\"],\"generation\":\"2\"}}" },
    { RULES "UpsertRecordingRule", "{" RULE "}", 200, "~\"generation\":\"1\"" },
    { RULES "UpsertRecordingRule", "{\"id\":\"a1\"," RULE "}", 400, "~letters" },
    { RULES "UpsertRecordingRule", "{\"metric_name\":\"cpu\",\"matchers\":[\"{" TYPE "}\"]}", 400,
      "~profiles_recorded_" },
    { RULES "UpsertRecordingRule",
      "{\"metric_name\":\"profiles_recorded_x\",\"matchers\":[\"{a=\\\"b\\\"}\"]}", 400,
      "~exactly one" },
    { RULES "UpsertRecordingRule",
      "{\"metric_name\":\"profiles_recorded_x\",\"matchers\":[\"{" TYPE "}\",\"{" TYPE "}\"]}", 400,
      "~there are 2" },
    { RULES "UpsertRecordingRule",
      "{\"metric_name\":\"profiles_recorded_x\",\"matchers\":[\"{" TYPE ",a=~\\\"(\\\"}\"]}", 400,
      "~matchers[0]" },
    { RULES "UpsertRecordingRule", "{" RULE ",\"group_by\":[\"k8s.pod\"]}", 400, "~groupBy[0]" },
    { RULES "UpsertRecordingRule", "{" RULE ",\"externalLabels\":[{\"name\":\"\"}]}", 400,
      "~externalLabels[0]" },
    { RULES "DeleteRecordingRule", "{\"id\":\"abc\"}", 200, "{}" },
    { RULES "GetRecordingRule", "{\"id\":\"abc\"}", 404, "~not_found" },
    { RULES "DeleteRecordingRule", "{\"id\":\"abc\"}", 200, "{}" },
};

static const struct turn others[] = {
    { "version.v1.Version/Version", "{}", 200, "{\"QuerierAPI\":\"1\"}" },
    { "capabilities.v1.FeatureFlagsService/GetFeatureFlags", "{}", 200,
      "~{\"featureFlags\":[{\"name\":\"v2StorageLayer\",\"enabled\":true,\"description\":" },
    { "capabilities.v1.FeatureFlagsService/Nope", "{}", 501, "~unimplemented" },
    { "vcs.v1.VCSService/GithubApp", "{}", 501, "~unimplemented" },
    { "vcs.v1.VCSService/GetFile", "{}", 501, "~unimplemented" },
};

static const char *post(struct qbed *b, const char *method, const char *headers, const char *json)
{
    char target[128], all[256];

    (void)snprintf(target, sizeof(target), "/%s", method);
    (void)snprintf(all, sizeof(all), "Content-Type: application/json\r\n%s", headers);
    return qbed_post(b, target, all, str_c(json));
}

static void talk(const struct turn *turns, size_t n)
{
    struct qbed b;

    qbed_init(&b, 3, NULL);
    for (size_t i = 0; i < n; i++) {
        const struct turn *t = &turns[i];
        const char *reply = post(&b, t->method, "", t->json), *body = qbed_body(reply);
        bool part = t->want[0] == '~';
        if (qbed_status(reply) != t->status ||
            (part ? !strstr(body, t->want + 1) : strcmp(body, t->want) != 0))
            fail_msg("turn %zu: %s %s: want %d %s, got\n%s", i, t->method, t->json, t->status,
                     t->want, reply);
    }
    qbed_deinit(&b);
}

static void test_settings(void **state)
{
    (void)state;
    talk(settings, ARRAY_LEN(settings));
}

/* A delete that is sent again while the one before is on its way, and listed what that deleted. */
static void test_deleted_meanwhile(void **state)
{
    struct qbed b;
    (void)state;

    qbed_init(&b, 3, NULL);
    assert_int_equal(
        qbed_status(post(&b, RULES "UpsertRecordingRule", "", "{\"id\":\"abc\"," RULE "}")), 200);
    assert_int_equal(
        qbed_status(post(&b, SET "Set", "", "{\"setting\":{\"name\":\"a\",\"value\":\"2\"}}")),
        200);
    b.docs.raced = true;
    assert_string_equal(qbed_body(post(&b, RULES "DeleteRecordingRule", "", "{\"id\":\"abc\"}")),
                        "{}");
    assert_string_equal(qbed_body(post(&b, SET "Delete", "", "{\"name\":\"a\"}")), "{}");
    assert_int_equal(b.docs.at.len, 0);
    qbed_deinit(&b);
}

static void test_rules(void **state)
{
    (void)state;
    talk(rules, ARRAY_LEN(rules));
}

static void test_others(void **state)
{
    (void)state;
    talk(others, ARRAY_LEN(others));
}

static void test_tenants_do_not_see_each_other(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    struct qbed b;

    qbed_init(&b, 2, flags);
    assert_int_equal(qbed_status(post(&b, SET "Set", "X-Scope-OrgID: a\r\n",
                                      "{\"setting\":{\"name\":\"n\",\"value\":\"of a\"}}")),
                     200);
    assert_string_equal(qbed_body(post(&b, SET "Get", "X-Scope-OrgID: b\r\n", "{}")), "{}");
    assert_non_null(strstr(post(&b, SET "Get", "X-Scope-OrgID: a\r\n", "{}"), "of a"));
    assert_int_equal(qbed_status(post(&b, SET "Get", "X-Scope-OrgID: a|b\r\n", "{}")), 400);
    assert_int_equal(qbed_status(post(&b, SET "Get", "", "{}")), 401);
    assert_int_equal(qbed_status(post(&b, "querier.v1.QuerierService/GetProfileStats",
                                      "X-Scope-OrgID: a|b\r\n", "{}")),
                     400);
    qbed_deinit(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct qbed b;
    char json[256];

    qbed_init(&b, 2, NULL);
    for (int i = 0; i < 101; i++) {
        (void)snprintf(json, sizeof(json), "{\"setting\":{\"name\":\"n%d\",\"value\":\"x\"}}", i);
        assert_int_equal(qbed_status(post(&b, SET "Set", "", json)), i < 100 ? 200 : 429);
    }
    char *large = malloc(40000), *at = large;
    at += snprintf(at, 100, "{\"setting\":{\"name\":\"n1\",\"value\":\"");
    memset(at, 'x', 15 * 1024 + 1);
    (void)snprintf(at + 15 * 1024 + 1, 8, "\"}}");
    assert_int_equal(qbed_status(post(&b, SET "Set", "", large)), 400);
    (void)snprintf(at + 15 * 1024, 8, "\"}}");
    assert_int_equal(qbed_status(post(&b, SET "Set", "", large)), 200);
    free(large);
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings), cmocka_unit_test(test_rules),
        cmocka_unit_test(test_others),   cmocka_unit_test(test_tenants_do_not_see_each_other),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_deleted_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
