/* SPDX-License-Identifier: Apache-2.0
 *
 * Queries whose answer is fetched later: ids, states, limits, memory.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "querier/base/state.h"
#include "tests/lib/roles/querier_bed.h"

#define T(s) (QBED_NOW + (s)*INT64_C(1000))
#define ASK(async)                                                                     \
    "{\"start\":\"1749999900000\",\"end\":1750000000000,\"profileTypeID\":\"" QBED_CPU \
    "\",\"labelSelector\":\"{service_name=\\\"shop\\\"}\"" async "}"
#define FORCE  ",\"async\":{\"type\":\"ASYNC_QUERY_TYPE_FORCE\"}"
#define METHOD "SelectMergeStacktraces"

static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "shop", "env=prod", QBED_CPU, T(-60), "main;serve", 30, false, NULL },
    { QBED_BY_SERVICE, "shop", "env=dev", QBED_CPU, T(-50), "main;idle", 7, false, NULL },
};

static void bed(struct qbed *b, const char *const *flags)
{
    qbed_init(b, 1, flags);
    qbed_data(b, pushes, ARRAY_LEN(pushes));
    b->ingesters[0].docs_at_once = true;
}

/* The id in a reply that must say IN_PROGRESS. */
static void id_of(const char *reply, char id[64])
{
    const char *at = strstr(qbed_body(reply), "\"requestId\":\"");

    assert_int_equal(qbed_status(reply), 200);
    assert_non_null(strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_IN_PROGRESS\""));
    assert_null(strstr(reply, "flamegraph"));
    assert_non_null(at);
    at += strlen("\"requestId\":\"");
    size_t n = strcspn(at, "\"");
    assert_in_range(n, 16, 63);
    memcpy(id, at, n);
    id[n] = '\0';
}

static const char *poll_id(struct qbed *b, const char *id)
{
    char json[1024];

    (void)snprintf(json, sizeof(json), ASK(",\"async\":{\"request_id\":\"%s\"}"), id);
    return qbed_connect(b, METHOD, json);
}

static size_t held(const struct qbed *b)
{
    const struct querier *qr = b->self;
    return qr->bytes.used;
}

static void test_a_result_is_fetched(void **state)
{
    (void)state;
    struct qbed b;
    char id[64], want[2048], proto[256];

    bed(&b, NULL);
    (void)snprintf(want, sizeof(want), "%s", qbed_body(qbed_connect(&b, METHOD, ASK(""))));
    want[strlen(want) - 1] = '\0'; /* the status stands behind what it is without */
    b.ingesters[0].delay_ms = 50;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    char other[64];
    id_of(poll_id(&b, id), other);
    assert_string_equal(other, id);
    net_pass(&b.world, 100);
    for (int i = 0; i < 2; i++) { /* it may be fetched again */
        const char *reply = poll_id(&b, id);
        assert_int_equal(qbed_status(reply), 200);
        assert_non_null(strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_SUCCESS\""));
        assert_int_equal(strncmp(qbed_body(reply), want, strlen(want)), 0);
    }
    /* In proto: field 9 { field 1: the id }. */
    size_t n = strlen(id);
    proto[0] = 0x4a;
    proto[1] = (char)(n + 2);
    proto[2] = 0x0a;
    proto[3] = (char)n;
    memcpy(proto + 4, id, n);
    const char *reply = qbed_post(&b, "/querier.v1.QuerierService/" METHOD,
                                  "Content-Type: application/proto\r\n", str_n(proto, n + 4));
    assert_int_equal(qbed_status(reply), 200);
    assert_int_equal(qbed_body(reply)[0], 0x0a);
    assert_true(held(&b) > 0);
    net_pass(&b.world, 70000);
    assert_int_equal(held(&b), 0);
    assert_int_equal(qbed_status(poll_id(&b, id)), 404);
    qbed_deinit(&b);
}

static void test_errors(void **state)
{
    (void)state;
    struct qbed b;
    char id[64];

    bed(&b, NULL);
    assert_int_equal(qbed_status(poll_id(&b, "absent")), 404);
    /* What is wrong with the request is said at once. */
    assert_int_equal(qbed_status(qbed_connect(&b, METHOD, "{\"async\":{\"type\":1}}")), 400);
    /* Not forced: as always. */
    assert_non_null(strstr(qbed_connect(&b, METHOD, ASK(",\"async\":{\"type\":0}")), "flamegraph"));
    b.ingesters[0].fail = ERR_BUSY;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    net_pass(&b.world, 100);
    const char *reply = poll_id(&b, id);
    assert_int_equal(qbed_status(reply), 200);
    assert_non_null(strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_FAILURE\""));
    assert_non_null(strstr(reply, "canned failure"));
    qbed_deinit(&b);
}

/* The client leaves: the query does not. */
static void test_it_outlives_its_connection(void **state)
{
    (void)state;
    struct qbed b;
    char id[64];

    bed(&b, NULL);
    b.ingesters[0].delay_ms = 50;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    qbed_hang_up(&b);
    net_pass(&b.world, 100);
    assert_int_equal(b.ingesters[0].canceled, 0);
    assert_non_null(strstr(poll_id(&b, id), "ASYNC_QUERY_STATUS_SUCCESS"));
    net_pass(&b.world, 70000);
    qbed_deinit(&b);
}

static void test_five_at_once(void **state)
{
    (void)state;
    /* One works, the others wait for it: all of them run in the background. */
    static const char *const flags[] = { "--querier.queries_max=1", NULL };
    struct qbed b;
    char id[6][64];

    bed(&b, flags);
    b.ingesters[0].delay_ms = 50;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id[0]);
    net_pass(&b.world, 60);
    for (int i = 1; i < 6; i++) {
        id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id[i]);
        net_pass(&b.world, 60);
    }
    for (int i = 0; i < 6; i++)
        assert_non_null(strstr(poll_id(&b, id[i]), "ASYNC_QUERY_STATUS_SUCCESS"));
    net_pass(&b.world, 70000);
    assert_int_equal(held(&b), 0);
    qbed_deinit(&b);
}

static void test_one_more_is_refused(void **state)
{
    (void)state;
    static const struct qbed_push spread[] = {
        { QBED_BY_SERVICE, "shop", "", QBED_CPU, T(-60), "a", 1, false, NULL },
    };
    struct qbed b;
    char id[64];

    qbed_init(&b, 1, NULL);
    qbed_data(&b, spread, 1);
    b.ingesters[0].docs_at_once = true;
    b.ingesters[0].forever = true;
    for (int i = 0; i < 5; i++)
        id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    const char *reply = qbed_connect(&b, METHOD, ASK(FORCE));
    assert_int_equal(qbed_status(reply), 429);
    assert_non_null(strstr(reply, "resource_exhausted"));
    net_pass(&b.world, 70000); /* their deadline */
    assert_non_null(strstr(poll_id(&b, id), "ASYNC_QUERY_STATUS_FAILURE"));
    net_pass(&b.world, 700000);
    assert_int_equal(qbed_status(poll_id(&b, id)), 404);
    qbed_deinit(&b);
}

static void test_ids_are_of_a_tenant(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    struct qbed b;
    char id[64], json[1024];

    qbed_init(&b, 1, flags);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    const char *target = "/querier.v1.QuerierService/" METHOD;
#define HEAD(t) "Content-Type: application/json\r\nX-Scope-OrgID: " t "\r\n"
    id_of(qbed_post(&b, target, HEAD("a"), str_c(ASK(FORCE))), id);
    net_pass(&b.world, 10);
    (void)snprintf(json, sizeof(json), ASK(",\"async\":{\"requestId\":\"%s\"}"), id);
    assert_int_equal(qbed_status(qbed_post(&b, target, HEAD("b"), str_c(json))), 404);
    assert_int_equal(qbed_status(qbed_post(&b, target, HEAD("a|b"), str_c(json))), 404);
    assert_int_equal(qbed_status(qbed_post(&b, target, HEAD("a"), str_c(json))), 200);
    net_pass(&b.world, 70000);
    qbed_deinit(&b);
}

/* What ingesters keep, seen by another querier. */
static void hand_docs(struct qbed *from, struct qbed *to)
{
    struct fake_docs had = to->docs;

    to->docs = from->docs;
    from->docs = had;
}

static const char *poll_elsewhere(struct qbed *b, struct qbed *other, const char *id)
{
    hand_docs(b, other);
    const char *reply = poll_id(other, id);
    hand_docs(other, b);
    return reply;
}

static void test_another_querier_tells(void **state)
{
    (void)state;
    struct qbed b, other;
    char id[64], same[64], want[2048];

    bed(&b, NULL);
    bed(&other, NULL);
    (void)snprintf(want, sizeof(want), "%s", qbed_body(qbed_connect(&b, METHOD, ASK(""))));
    want[strlen(want) - 1] = '\0';
    b.ingesters[0].delay_ms = 50;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    id_of(poll_elsewhere(&b, &other, id), same); /* from the first moment */
    assert_string_equal(same, id);
    net_pass(&b.world, 100);
    for (int i = 0; i < 2; i++) {
        const char *reply = poll_elsewhere(&b, &other, id);
        assert_int_equal(qbed_status(reply), 200);
        assert_non_null(strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_SUCCESS\""));
        assert_non_null(strstr(reply, id));
        assert_int_equal(strncmp(qbed_body(reply), want, strlen(want)), 0);
    }
    assert_int_equal(qbed_status(poll_elsewhere(&b, &other, "0123456789abcdef01234567")), 404);
    b.ingesters[0].delay_ms = 0;
    net_pass(&b.world, 610000); /* its time is over: the documents go, too */
    assert_int_equal(b.docs.at.len, 0);
    assert_int_equal(qbed_status(poll_elsewhere(&b, &other, id)), 404);
    assert_int_equal(held(&b) + held(&other), 0);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

/* A sum of several collectors: each querier that sends the result says so in the header of such
 * sums. */
static void test_a_notice_is_told(void **state)
{
    static const struct qbed_push collected[] = {
        { QBED_BY_SERVICE, "shop", "source=sdk", QBED_CPU, T(-60), "main;serve", 30, false, NULL },
        { QBED_BY_SERVICE, "shop", "source=ebpf", QBED_CPU, T(-50), "main;serve", 30, false, NULL },
    };
    (void)state;
    struct qbed b, other;
    char id[64];

    bed(&b, NULL);
    bed(&other, NULL);
    qbed_data(&b, collected, ARRAY_LEN(collected));
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    net_pass(&b.world, 100);
    for (int i = 0; i < 2; i++) {
        const char *reply = i ? poll_id(&b, id) : poll_elsewhere(&b, &other, id);
        assert_non_null(strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_SUCCESS\""));
        assert_non_null(strstr(reply, "X-Embertree-Notice: several-collectors\r\n"));
        assert_null(strstr(reply, "errorMessage"));
    }
    net_pass(&b.world, 610000); /* the result has gone */
    qbed_deinit(&b);
    qbed_deinit(&other);
}

static void test_another_querier_tells_failures(void **state)
{
    (void)state;
    struct qbed b, other;
    char id[64], lost[64];

    bed(&b, NULL);
    bed(&other, NULL);
    b.ingesters[0].mute = true;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id);
    net_pass(&b.world, 70000);
    assert_non_null(strstr(poll_elsewhere(&b, &other, id), "ASYNC_QUERY_STATUS_FAILURE"));
    /* Its querier dies: what runs is lost, and others say so after a while; then it is swept. */
    b.ingesters[0].mute = false;
    b.ingesters[0].forever = true;
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), lost);
    hand_docs(&b, &other);
    assert_non_null(strstr(poll_id(&other, lost), "ASYNC_QUERY_STATUS_IN_PROGRESS"));
    net_pass(&other.world, 200000); /* its clock was 70 s behind */
    const char *reply = poll_id(&other, lost);
    assert_non_null(strstr(reply, "ASYNC_QUERY_STATUS_FAILURE"));
    assert_non_null(strstr(reply, "went away"));
    net_pass(&other.world, 800000);
    assert_int_equal(qbed_status(poll_id(&other, lost)), 404);
    assert_int_equal(other.docs.at.len, 2);
    id_of(qbed_connect(&other, METHOD, ASK(FORCE)), id);
    net_pass(&other.world, 1000);
    assert_int_equal(other.docs.at.len, 1); /* its own */
    net_pass(&b.world, 700000);
    net_pass(&other.world, 700000);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

/* A call that timed out is carried out late, after the call that stored the end. */
static void test_late_news_are_none(void **state)
{
    (void)state;
    struct qbed b, other;
    char id[64];
    struct buf out;
    struct err e;

    bed(&b, NULL);
    bed(&other, NULL);
    id_of(qbed_connect(&b, METHOD, ASK(FORCE)), id); /* it sweeps, the next one does not */
    net_pass(&b.world, 1000);
    b.ingesters[0].doc_late = true;
    (void)qbed_connect(&b, METHOD, ASK(FORCE));
    net_pass(&b.world, 10000);
    id_of(qbed_reply(&b), id); /* though no other querier knew of it */
    assert_non_null(strstr(poll_elsewhere(&b, &other, id), "ASYNC_QUERY_STATUS_SUCCESS"));
    assert_true(b.ingesters[0].late_doc.len > 0);
    buf_init(&out, MIB);
    assert_int_equal(fake_docs_answer(&b.docs, buf_str(&b.ingesters[0].late_doc), &out, &e),
                     ERR_CONFLICT);
    buf_deinit(&out);
    assert_non_null(strstr(poll_elsewhere(&b, &other, id), "ASYNC_QUERY_STATUS_SUCCESS"));
    net_pass(&b.world, 700000);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

/* A partial result is marked as partial, as it is without async: by the querier that worked on it,
 * and by others. */
static void test_a_part_is_told(void **state)
{
    (void)state;
    static const char all[] =
        "{\"start\":\"1749999900000\",\"end\":1750000000000,"
        "\"profileTypeID\":\"" QBED_CPU "\",\"labelSelector\":\"{}\"" FORCE "}";
    static const struct qbed_push both[] = {
        { QBED_BY_SERVICE, "shop", "", QBED_CPU, T(-60), "a", 1, false, NULL },
        { 1, "till", "", QBED_CPU, T(-60), "b", 2, false, NULL },
    };
    static const char *const said[] = { "\nX-Embertree-Partial: 1 of 2 ingesters missing\r\n",
                                        "\"errorMessage\":\"partial: 1 of 2 ingesters missing\"" };
    struct qbed b, other;
    char id[64];

    qbed_init(&b, 2, NULL);
    qbed_init(&other, 2, NULL);
    qbed_data(&b, both, ARRAY_LEN(both));
    for (int i = 0; i < 2; i++)
        b.ingesters[i].docs_at_once = other.ingesters[i].docs_at_once = true;
    for (int whole = 0; whole < 2; whole++) {
        b.ingesters[0].fail = whole ? 0 : ERR_BUSY; /* the other one has the documents */
        id_of(qbed_post(&b, "/querier.v1.QuerierService/" METHOD,
                        "Content-Type: application/json\r\nX-Embertree-Allow-Partial: 1\r\n",
                        str_c(all)),
              id);
        net_pass(&b.world, 10);
        for (int i = 0; i < 2; i++) {
            const char *reply = i ? poll_elsewhere(&b, &other, id) : poll_id(&b, id);
            if (!strstr(reply, "\"status\":\"ASYNC_QUERY_STATUS_SUCCESS\"") ||
                !strstr(reply, "flamegraph"))
                fail_msg("querier %d: %s", i, reply);
            for (size_t k = 0; k < ARRAY_LEN(said); k++)
                if ((strstr(reply, said[k]) != NULL) == whole)
                    fail_msg("%s of querier %d: %s", whole ? "all" : "a part", i, reply);
        }
    }
    net_pass(&b.world, 610000);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

/* No ingester takes documents: then it is as with one querier. */
static void test_what_cannot_be_shared(void **state)
{
    (void)state;
    static const char *const flags[] = { "--tenancy.multi=true", NULL };
    struct qbed b, other;
    char id[64], json[1024];

    bed(&b, flags);
    bed(&other, flags);
    const char *target = "/querier.v1.QuerierService/" METHOD;
    id_of(qbed_post(&b, target, HEAD("a|b"), str_c(ASK(FORCE))), id); /* of two tenants */
    net_pass(&b.world, 10);
    assert_int_equal(b.docs.at.len, 0);
    (void)snprintf(json, sizeof(json), ASK(",\"async\":{\"requestId\":\"%s\"}"), id);
    assert_int_equal(qbed_status(qbed_post(&b, target, HEAD("a|b"), str_c(json))), 200);
    assert_int_equal(qbed_status(qbed_post(&other, target, HEAD("a|b"), str_c(json))), 404);
    b.ingesters[0].docs_at_once = false;
    b.ingesters[0].fail = ERR_BUSY;
    id_of(qbed_post(&b, target, HEAD("a"), str_c(ASK(FORCE))), id);
    net_pass(&b.world, 70000);
    qbed_deinit(&b);
    qbed_deinit(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_result_is_fetched),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_it_outlives_its_connection),
        cmocka_unit_test(test_five_at_once),
        cmocka_unit_test(test_one_more_is_refused),
        cmocka_unit_test(test_ids_are_of_a_tenant),
        cmocka_unit_test(test_another_querier_tells),
        cmocka_unit_test(test_a_notice_is_told),
        cmocka_unit_test(test_another_querier_tells_failures),
        cmocka_unit_test(test_late_news_are_none),
        cmocka_unit_test(test_a_part_is_told),
        cmocka_unit_test(test_what_cannot_be_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
