/* SPDX-License-Identifier: Apache-2.0
 *
 * Views over several ingesters and tenants: hostile names, paths, limits, missing ingesters.
 * Shapes of answers stand in tests/golden/querier, sums are tested in common/render/test_views.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/net/json_in.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s)  (QBED_NOW + (s)*INT64_C(1000))
#define ASKED "query=" QBED_CPU "%7B%7D&from=now-100s&until=now"

static void expect(const char *reply, int status, const char *part)
{
    if (qbed_status(reply) != status || !strstr(reply, part))
        fail_msg("want %d and \"%s\", got:\n%s", status, part, reply);
}

static void test_names_that_mean_harm(void **state)
{
    (void)state;
    static const struct qbed_push pushes[] = {
        { 0, "a", "", QBED_CPU, T(-50), "total;other;\"};alert(1)//", 1, false, NULL },
        { 1, "b", "", QBED_CPU, T(-50), "total;other;</script>", 10, false, NULL },
        { 1, "b", "", QBED_CPU, T(-50), "other;total;other", 100, false, NULL },
        { 0, "a", "", QBED_CPU, T(-50), "\xff\xfe", 1000, false, NULL },
        { 0, "a", "", QBED_CPU, T(-50), "lib!0x1;f", 10000, false, NULL },
    };
    struct qbed b;
    const char *r;

    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    r = qbed_get(&b, "/api/v1/top?" ASKED "&search=total");
    expect(r, 200, "{\"name\":\"total\",\"self\":0,\"selfPercent\":0,\"total\":111,");
    r = qbed_get(&b, "/api/v1/top?" ASKED "&search=script%3E");
    expect(r, 200, "{\"name\":\"\\u003c/script>\",\"self\":10,");
    r = qbed_get(&b, "/api/v1/top?" ASKED);
    expect(r, 200, "\"name\":\"\\\"}\",");
    expect(r, 200, "\"name\":\"\xef\xbf\xbd\xef\xbf\xbd\"");
    r = qbed_get(&b, "/api/v1/sandwich?" ASKED "&function=total");
    expect(r, 200, "\"self\":0,\"selfPercent\":0,\"total\":111,");
    expect(r, 200,
           "\"callers\":{\"names\":[\"total\",\"other\"],\"levels\":[[0,111,0,0],"
           "[0,111,11,0],[11,100,100,1]],");
    r = qbed_get(&b, "/api/v1/focus?" ASKED "&function=other&max-nodes=1");
    expect(r, 200, "\"numTicks\":111,");
    r = qbed_get(&b, "/api/v1/subtree?" ASKED "&path=total&path=other&limit=1");
    expect(r, 200,
           "\"node\":{\"self\":0,\"total\":11,\"children\":2},\"matching\":2,\"offset\":0,"
           "\"rows\":[{\"name\":\"\\u003c/script>\",\"self\":10,\"total\":10,"
           "\"children\":0}],\"rest\":1}");
    /* A name that may have been made of an address is looked for here, not by the ingesters. */
    r = qbed_get(&b, "/api/v1/subtree?" ASKED "&path=lib!0x1&path=f");
    expect(r, 200, "\"node\":{\"self\":10000,\"total\":10000,\"children\":0}");
    r = qbed_get(&b, "/api/v1/diff?query=" QBED_CPU "%7B%7D&dir=grew&sort=name&search=OTHER");
    expect(r, 200, "\"matching\":1,");
    qbed_deinit(&b);
}

static void test_tenants_and_ingesters_add_up(void **state)
{
    (void)state;
    static const struct qbed_push pushes[] = {
        { 0, "a", "pod=1", QBED_CPU, T(-50), "f;g", 1, false, "x" },
        { 1, "a", "pod=2", QBED_CPU, T(-50), "f;g", 10, false, "x" },
        { 0, "a", "pod=1", QBED_CPU, T(-50), "g", 100, false, "y" },
        { 1, "a", "pod=3", QBED_CPU, T(-50), "f", 1000, false, "z" },
    };
    static const char *const flags[] = { "--tenancy.multi", NULL };
    struct qbed b;

    qbed_init(&b, 2, flags);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    qbed_send(&b, "GET", "/api/v1/top?" ASKED, "X-Scope-OrgID: x|y\r\n", NULL);
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 200,
           "\"rows\":[{\"name\":\"g\",\"self\":111,\"selfPercent\":100,\"total\":111,");
    qbed_send(&b, "GET", "/api/v1/diff?mode=instance&query=" QBED_CPU "%7B%7D&rightFrom=now-100s",
              "X-Scope-OrgID: x\r\n", NULL);
    net_pass(&b.world, 0);
    expect(qbed_reply(&b), 200, "\"total\":11,\"instances\":2,\"factor\":0.5}");
    qbed_deinit(&b);
}

static void test_a_missing_ingester_is_said(void **state)
{
    (void)state;
    static const char *const routes[] = { "top", "focus", "sandwich", "subtree", "diff" };
    static const struct qbed_push pushes[] = {
        { 0, "a", "", QBED_CPU, T(-50), "f", 1, false, NULL },
        { 1, "b", "", QBED_CPU, T(-50), "f", 10, false, NULL },
    };
    struct qbed b;
    char target[512];

    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    b.ingesters[1].fail = ERR_UNAVAILABLE;
    for (size_t i = 0; i < ARRAY_LEN(routes); i++) {
        (void)snprintf(target, sizeof(target), "/api/v1/%s?%s", routes[i], ASKED "&function=f");
        expect(qbed_get(&b, target), 503, "ingester 1");
        (void)snprintf(target, sizeof(target), "/api/v1/%s?%s", routes[i],
                       ASKED "&function=f&allow_partial=1");
        expect(qbed_get(&b, target), 200, "X-Embertree-Partial: 1 of 2");
        expect(qbed_get(&b, target), 200, "\"partial\":true");
    }
    qbed_deinit(&b);
}

static void test_memory_of_a_view_is_bounded(void **state)
{
    (void)state;
    static const char *const flags[] = { "--querier.query-bytes-max=1MiB", NULL };
    enum { STACKS = 3000 };
    struct qbed_push *pushes = XNEW_ARRAY(struct qbed_push, STACKS);
    char(*text)[64] = xcalloc(STACKS, sizeof(*text));
    struct qbed b;

    for (int i = 0; i < STACKS; i++) {
        (void)snprintf(text[i], sizeof(text[i]), "main;a%d;b%d;f", i, i);
        pushes[i] = (struct qbed_push){ 0, "a", "", QBED_CPU, T(-50), text[i], 1, false, NULL };
    }
    qbed_init(&b, 1, flags);
    qbed_data(&b, pushes, STACKS);
    expect(qbed_get(&b, "/api/v1/top?" ASKED), 400, "narrow");
    expect(qbed_get(&b, "/api/v1/sandwich?" ASKED "&function=f"), 400, "narrow");
    qbed_deinit(&b);
    qbed_init(&b, 1, NULL);
    qbed_data(&b, pushes, STACKS);
    expect(qbed_get(&b, "/api/v1/sandwich?" ASKED "&function=f&maxNodes=1048577"), 400, "limit");
    expect(qbed_get(&b, "/api/v1/sandwich?" ASKED "&function=f&maxNodes=10"), 200, "\"other\"");
    qbed_deinit(&b);
    xfree(pushes);
    xfree(text);
}

/* More services than are asked for at a time. Each has a function that grew by its number + 1, a
 * function that shrank, and a function that all share. */
static void test_growth_over_many_services(void **state)
{
    (void)state;
    enum { SERVICES = 40, PUSHES = 4 * SERVICES };
    static struct qbed_push pushes[PUSHES];
    static char service[SERVICES][16], grew[SERVICES][32], shrank[SERVICES][32];
    struct qbed b;
    const char *r;

    for (int i = 0; i < SERVICES; i++) {
        struct qbed_push p = { QBED_BY_SERVICE, service[i], "",    QBED_CPU, T(-50),
                               grew[i],         1,          false, NULL };
        (void)snprintf(service[i], sizeof(service[i]), "service-%02d", i);
        (void)snprintf(grew[i], sizeof(grew[i]), "main;up%02d", i);
        (void)snprintf(shrank[i], sizeof(shrank[i]), "main;down%02d", i);
        pushes[4 * i] = p;
        p.ms = T(-30);
        p.value = (uint64_t)i + 2;
        pushes[4 * i + 1] = p;
        p.folded = shrank[i];
        pushes[4 * i + 2] = p;
        p.ms = T(-50);
        p.value = 1000;
        pushes[4 * i + 3] = p;
    }
    qbed_init(&b, 3, NULL);
    qbed_data(&b, pushes, PUSHES);
#define GREW                                                                                 \
    "/api/v1/functions/grew?query=" QBED_CPU "%7B%7D&beforeFrom=now-60s&from=now-40s&until=" \
    "now-20s&mode=absolute&by="
    r = qbed_get(&b, GREW "service&limit=3");
    expect(r, 200,
           "\"services\":40,\"functions\":120,\"matching\":40,\"offset\":0,\"rows\":["
           "{\"name\":\"up39\",\"service\":\"service-39\",\"self\":{\"before\":1,"
           "\"after\":41,\"shown\":[1,41],\"delta\":40,\"change\":40}");
    expect(r, 200, "{\"name\":\"up38\",\"service\":\"service-38\"");
    r = qbed_get(&b, GREW "service&offset=39&limit=5");
    expect(r, 200, "\"rows\":[{\"name\":\"up00\",\"service\":\"service-00\",");
    r = qbed_get(&b, GREW "function&dir=shrank&sort=total&limit=1");
    expect(r, 200, "\"functions\":81,\"matching\":41,\"offset\":0,\"rows\":[{\"name\":\"main\"");
    expect(r, 200, "\"total\":{\"before\":40040,\"after\":1720,");
    r = qbed_get(&b, GREW "service&dir=all&limit=0");
    expect(r, 200, "\"matching\":120,\"offset\":0,\"rows\":[]}");
    b.ingesters[2].fail = ERR_UNAVAILABLE;
    expect(qbed_get(&b, GREW "service"), 503, "ingester 2");
    expect(qbed_get(&b, GREW "service&allow_partial=1"), 200, "\"partial\":true");
    qbed_deinit(&b);

    static const char *const few[] = { "--querier.labels-max=39", NULL };
    qbed_init(&b, 3, few);
    qbed_data(&b, pushes, PUSHES);
    expect(qbed_get(&b, GREW "service"), 400, "labels_max");
    qbed_deinit(&b);
}

static void test_many_groups_and_instances(void **state)
{
    (void)state;
    enum { PODS = 3000 };
    struct qbed_push *pushes = XNEW_ARRAY(struct qbed_push, PODS);
    char(*labels)[200] = xcalloc(PODS, sizeof(*labels));
    struct qbed b;
    const char *r;

    for (int i = 0; i < PODS; i++) {
        (void)snprintf(labels[i], sizeof(labels[i]), "pod=%0150d", i);
        pushes[i] = (struct qbed_push){ QBED_BY_SERVICE,   "a",   labels[i], QBED_CPU, T(-50), "f",
                                        (uint64_t)(i + 1), false, NULL };
    }
    qbed_init(&b, 2, NULL);
    qbed_data(&b, pushes, PODS);
    r = qbed_get(&b, "/api/v1/functions?" ASKED "&name=f&groupBy=pod&groups=3");
    expect(r, 200, "\"groupsOmitted\":2997,\"groups\":[");
    expect(r, 200,
           "2999\"},\"all\":3000,\"allAt\":[3000],\"functions\":[{\"name\":\"f\","
           "\"self\":3000,");
    r = qbed_get(&b, "/api/v1/diff?" ASKED "&mode=instance&limit=1");
    expect(r, 200, "\"instances\":3000,");
    qbed_deinit(&b);
    xfree(pushes);
    xfree(labels);
}

/* Where the range before is not said, no leaf is in both, though edges lie within leaves. */
static void test_default_ranges_do_not_meet(void **state)
{
    (void)state;
    static const struct qbed_push pushes[] = {
        { 0, "a", "", QBED_CPU, T(-60), "f", 1, false, NULL },
        { 0, "a", "", QBED_CPU, T(-50), "f", 10, false, NULL },
        { 0, "a", "", QBED_CPU, T(-40), "f", 100, false, NULL },
        { 0, "a", "", QBED_CPU, T(-30), "f", 1000, false, NULL },
    };
    struct qbed b;

    qbed_init(&b, 1, NULL);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    expect(qbed_get(&b, "/api/v1/functions/grew?query=" QBED_CPU "%7B%7D"
                        "&from=now-36s&until=now-25s&mode=absolute"),
           200, "\"self\":{\"before\":11,\"after\":1100,");
    expect(qbed_get(&b, "/api/v1/diff?query=" QBED_CPU "%7B%7D"
                        "&rightFrom=now-36s&rightUntil=now-25s"),
           200, "\"self\":{\"left\":11,\"right\":1100,");
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_that_mean_harm),
        cmocka_unit_test(test_tenants_and_ingesters_add_up),
        cmocka_unit_test(test_a_missing_ingester_is_said),
        cmocka_unit_test(test_memory_of_a_view_is_bounded),
        cmocka_unit_test(test_growth_over_many_services),
        cmocka_unit_test(test_default_ranges_do_not_meet),
        cmocka_unit_test(test_many_groups_and_instances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
