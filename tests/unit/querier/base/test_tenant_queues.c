/* SPDX-License-Identifier: Apache-2.0
 *
 * Turns of tenants: when each is served, what is refused, and that the flood of a tenant does not
 * touch another's: by the order of service, first of the module alone, then of whole queries
 * through HTTP in front of an ingester that takes its time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "querier/base/state.h"
#include "querier/base/tenant_queues.h"
#include "tests/lib/roles/querier_bed.h"

/* ---- the module -------------------------------------------------------------------------------*/

struct client {
    struct tenant_queues *turns;
    struct tenant_queue turn;
    char name;
    bool ends_at_once;
};
static char served[1000];
static size_t served_len;

static void go(void *cookie)
{
    struct client *c = cookie;

    CHECK(served_len + 1 < sizeof(served));
    served[served_len++] = c->name;
    served[served_len] = 0;
    if (c->ends_at_once)
        tenant_queue_leave(c->turns, &c->turn, 0);
}

static int enter(struct tenant_queues *t, struct client *c, char name, bool *waits, struct err *e)
{
    *c = (struct client){ .turns = t, .name = name };
    c->turn.go = go;
    c->turn.cookie = c;
    return tenant_queue_enter(t, str_n(&c->name, 1), &c->turn, waits, e);
}

static const struct tenant_queues_opts opts = {
    .running_max = 2,
    .waiting_max = 100,
    .seed = 1,
    .limits = { .running = 2, .waiting = 50, .bytes = 1000 },
};

static void test_order_of_service(void **state)
{
    struct tenant_queues *t = tenant_queues_new(&opts);
    struct client h[12], q[3];
    size_t nh = 0, nq = 0;
    struct err e;
    bool waits;

    (void)state;
    served_len = 0;
    for (int i = 0; i < 12; i++) {
        assert_int_equal(enter(t, &h[i], 'h', &waits, &e), 0);
        assert_int_equal(waits, i >= 2);
        assert_int_equal(tenant_queue_waits(&h[i].turn), i >= 2);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(enter(t, &q[i], 'q', &waits, &e), 0);
    assert_string_equal(served, "hh");
    assert_int_equal(tenant_queues_waiting(t), 13);
    /* Each takes as long as the others: the newcomer is served next, then both by turns. */
    for (size_t n = 0; n < 15; n++)
        tenant_queue_leave(t, served[n] == 'h' ? &h[nh++].turn : &q[nq++].turn, 10000);
    assert_string_equal(served, "hhqqhqhhhhhhhhh");
    assert_int_equal(tenant_queues_running(t) + tenant_queues_waiting(t), 0);
    tenant_queues_free(t);
}

static void other_limits(void *cookie, struct str tenant, struct tenant_queue_limits *l)
{
    (void)tenant;
    *l = *(const struct tenant_queue_limits *)cookie;
}

/* Limits that change while queries run and wait. */
static void test_limits_change(void **state)
{
    struct tenant_queue_limits now = { .running = 1, .waiting = 2, .bytes = 500, .read_bytes = 5 };
    struct tenant_queues_opts o = opts;
    struct client h[6];
    struct err e;
    bool waits;

    (void)state;
    o.running_max = 5;
    struct tenant_queues *t = tenant_queues_new(&o);
    served_len = 0;
    for (int i = 0; i < 3; i++)
        assert_int_equal(enter(t, &h[i], 'h', &waits, &e), 0);
    assert_int_equal(tenant_queues_running(t), 2);
    assert_int_equal(tenant_queue_bytes_take(&h[0].turn, 800, &e), 0);
    tenant_queues_limits(t, other_limits, &now);
    assert_int_equal(tenant_queue_bytes_take(&h[1].turn, 1, &e), ERR_RATE); /* over 500 is held
    already */
    assert_int_equal(enter(t, &h[3], 'h', &waits, &e), 0);
    assert_int_equal(tenant_queue_limits_of(&h[0].turn)->read_bytes, 0); /* as it came */
    assert_int_equal(tenant_queue_limits_of(&h[3].turn)->read_bytes, 5);
    assert_int_equal(enter(t, &h[4], 'h', &waits, &e), ERR_RATE); /* two wait */
    tenant_queue_bytes_give(&h[0].turn, 800);
    assert_int_equal(tenant_queue_bytes_take(&h[1].turn, 500, &e), 0);
    tenant_queue_bytes_give(&h[1].turn, 500);
    tenant_queue_leave(t, &h[0].turn, 1);
    assert_int_equal(tenant_queues_running(t), 1); /* one runs, that is all now */
    now.running = 3;
    tenant_queues_limits(t, other_limits, &now);
    assert_int_equal(tenant_queues_running(t), 3); /* those that waited begin at once */
    tenant_queues_limits(t, NULL, NULL);
    for (int i = 1; i < 4; i++)
        tenant_queue_leave(t, &h[i].turn, 1);
    tenant_queues_free(t);
}

/* A tenant with one query that took long pays with its next turns. */
static void test_long_queries_are_paid_for(void **state)
{
    struct tenant_queues_opts o = opts;
    struct client h[10], q[10], *running;
    struct err e;
    bool waits;

    (void)state;
    o.running_max = 1;
    struct tenant_queues *t = tenant_queues_new(&o);
    served_len = 0;
    for (int i = 0; i < 10; i++)
        assert_int_equal(enter(t, &h[i], 'h', &waits, &e), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(enter(t, &q[i], 'q', &waits, &e), 0);
    tenant_queue_leave(t, &h[0].turn, 50000);
    for (size_t n = 1, nh = 1, nq = 0; n < 20; n++) {
        running = served[served_len - 1] == 'h' ? &h[nh++] : &q[nq++];
        tenant_queue_leave(t, &running->turn, 10000);
    }
    assert_string_equal(served, "hqqqqqhqhqhqhqhqhhhh");
    tenant_queues_free(t);
}

static void test_limits(void **state)
{
    struct tenant_queues_opts o = opts;
    struct client h[10], q[2];
    struct err e;
    bool waits;

    (void)state;
    o.running_max = 3;
    o.waiting_max = 4;
    o.limits.waiting = 3;
    struct tenant_queues *t = tenant_queues_new(&o);
    for (int i = 0; i < 5; i++)
        assert_int_equal(enter(t, &h[i], 'h', &waits, &e), 0);
    assert_int_equal(tenant_queues_running(t), 2); /* a place is left, but not for this tenant */
    assert_int_equal(enter(t, &h[5], 'h', &waits, &e), ERR_RATE);
    assert_non_null(strstr(e.text, "tenant h"));
    assert_non_null(strstr(e.text, "querier.tenant_queue"));
    assert_int_equal(enter(t, &q[0], 'q', &waits, &e), 0);
    assert_false(waits);
    assert_int_equal(enter(t, &q[1], 'q', &waits, &e), 0);
    assert_true(waits);
    struct client x;
    assert_int_equal(enter(t, &x, 'x', &waits, &e), ERR_BUSY);
    assert_non_null(strstr(e.text, "querier.queue_max"));
    /* A client that waits may leave, and so makes room. */
    tenant_queue_leave(t, &h[3].turn, 0);
    tenant_queue_leave(t, &h[3].turn, 0); /* twice is fine */
    assert_int_equal(enter(t, &h[5], 'h', &waits, &e), 0);
    for (int i = 0; i < 6; i++)
        tenant_queue_leave(t, &h[i].turn, 1);
    for (int i = 0; i < 2; i++)
        tenant_queue_leave(t, &q[i].turn, 1);
    tenant_queues_free(t);
}

static void test_memory_of_a_tenant(void **state)
{
    struct tenant_queues *t = tenant_queues_new(&opts);
    struct client h, q;
    struct err e;
    bool waits;

    (void)state;
    assert_int_equal(enter(t, &h, 'h', &waits, &e), 0);
    assert_int_equal(enter(t, &q, 'q', &waits, &e), 0);
    assert_int_equal(tenant_queue_bytes_take(&h.turn, 900, &e), 0);
    assert_int_equal(tenant_queue_bytes_take(&h.turn, 200, &e), ERR_RATE);
    assert_non_null(strstr(e.text, "querier.tenant_bytes_max"));
    assert_int_equal(tenant_queue_bytes_take(&q.turn, 1000, &e), 0);
    tenant_queue_bytes_give(&h.turn, 900);
    tenant_queue_bytes_give(&q.turn, 1000);
    tenant_queue_leave(t, &h.turn, 1);
    tenant_queue_leave(t, &q.turn, 1);
    tenant_queues_free(t);
}

static void test_limits_of_some(void **state)
{
    struct tenant_queues *t = tenant_queues_new(&opts);
    struct tenant_queue_limits l = opts.limits;
    struct client h[4], q[4];
    struct str tenant;
    struct err e;
    bool waits;

    (void)state;
    assert_int_equal(tenant_queue_limits_parse(
                         STR("h=queries:1 queue:1 bytes:2KiB read_bytes:1GiB"), &tenant, &l, &e),
                     0);
    assert_true(str_eqc(tenant, "h"));
    assert_true(l.running == 1 && l.waiting == 1 && l.bytes == 2048 && l.read_bytes == GIB);
    tenant_queues_override(t, tenant, &l);
    assert_int_equal(enter(t, &h[0], 'h', &waits, &e), 0);
    assert_false(waits);
    assert_int_equal(tenant_queue_limits_of(&h[0].turn)->read_bytes, GIB);
    assert_int_equal(tenant_queue_bytes_take(&h[0].turn, 2000, &e), 0);
    tenant_queue_bytes_give(&h[0].turn, 2000);
    assert_int_equal(enter(t, &h[1], 'h', &waits, &e), 0);
    assert_true(waits);
    assert_int_equal(enter(t, &h[2], 'h', &waits, &e), ERR_RATE);
    assert_int_equal(enter(t, &q[0], 'q', &waits, &e), 0);
    assert_false(waits);
    tenant_queue_leave(t, &h[0].turn, 1);
    tenant_queue_leave(t, &h[1].turn, 1);
    tenant_queue_leave(t, &q[0].turn, 1);
    static const char *const bad[] = { "",          "h",           "=queries:1",
                                       "h=queries", "h=queries:0", "h=bytes:0",
                                       "h=x:1",     "h=queue:-1",  "h=bytes:99999999TiB",
                                       "h=:1",      "a/b=queue:1", "..=queue:1" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(tenant_queue_limits_parse(str_c(bad[i]), &tenant, &l, &e), ERR_CONFIG);
    tenant_queues_free(t);
}

/* Queries that end inside of go do not make the stack grow, and no query is forgotten. */
static void test_queries_that_end_at_once(void **state)
{
    struct tenant_queues_opts o = opts;
    struct client first, c[500];
    struct err e;
    bool waits;

    (void)state;
    o.running_max = 1;
    o.waiting_max = o.limits.waiting = 1000;
    struct tenant_queues *t = tenant_queues_new(&o);
    served_len = 0;
    assert_int_equal(enter(t, &first, 'f', &waits, &e), 0);
    for (int i = 0; i < 500; i++) {
        assert_int_equal(enter(t, &c[i], (char)('a' + i % 5), &waits, &e), 0);
        c[i].ends_at_once = true;
    }
    tenant_queue_leave(t, &first.turn, 1);
    assert_int_equal(served_len, 501);
    assert_int_equal(tenant_queues_running(t) + tenant_queues_waiting(t), 0);
    tenant_queues_free(t);
}

/* ---- whole queries ----------------------------------------------------------------------------*/

struct conn {
    struct net_mem *m;
    char got[2000]; /* so far */
};

static void ask(struct qbed *b, struct conn *c, const char *text)
{
    *c = (struct conn){ .m = net_connect(&b->world) };
    net_send_c(c->m, text);
    net_pass(&b->world, 0);
}

static void ask_labels(struct qbed *b, struct conn *c, const char *tenant)
{
    char text[256];

    snprintf(text, sizeof(text), "GET /labels HTTP/1.1\r\nHost: h\r\nX-Scope-OrgID: %s\r\n\r\n",
             tenant);
    ask(b, c, text);
}

static const char *got(struct conn *c)
{
    size_t len = strlen(c->got);

    snprintf(c->got + len, sizeof(c->got) - len, "%s", net_got(c->m));
    return c->got;
}

/* The status, 0 for none yet. */
static int status(struct conn *c)
{
    return strncmp(got(c), "HTTP/1.1 ", 9) == 0 ? (int)strtol(c->got + 9, NULL, 10) : 0;
}

static void hang_up(struct qbed *b, struct conn *c)
{
    net_end(c->m, true);
    net_settle(&b->world);
    net_mem_free(c->m);
}

static void test_a_flood_does_not_delay_others(void **state)
{
    static const char *const flags[] = { "--tenancy.multi=true", "--querier.queries_max=1",
                                         "--querier.tenant_queue=1", NULL };
    struct conn h[2], q;
    struct qbed b;

    (void)state;
    qbed_init(&b, 1, flags);
    b.ingesters[0].delay_ms = 100;
    qbed_send(&b, "GET", "/labels", "X-Scope-OrgID: hostile\r\n", NULL);
    ask_labels(&b, &h[0], "hostile"); /* waits */
    ask_labels(&b, &h[1], "hostile");
    assert_int_equal(status(&h[1]), 429);
    assert_non_null(strstr(h[1].got, "resource_exhausted"));
    assert_non_null(strstr(h[1].got, "Retry-After: "));
    hang_up(&b, &h[1]);
    ask_labels(&b, &q, "quiet"); /* came last */
    assert_int_equal(status(&q), 0);
    assert_int_equal(qbed_metric(&b, "embertree_querier_queries_waiting"), 2);
    assert_int_equal(qbed_metric(&b, "embertree_querier_queries"), 1);
    net_pass(&b.world, 110);
    assert_int_equal(qbed_status(qbed_reply(&b)), 200);
    net_pass(&b.world, 100);
    assert_int_equal(status(&q), 200); /* and was served second */
    assert_int_equal(status(&h[0]), 0);
    net_pass(&b.world, 100);
    assert_int_equal(status(&h[0]), 200);
    hang_up(&b, &h[0]);
    hang_up(&b, &q);
    qbed_deinit(&b);
}

/* A client that waits for its turn is answered at its deadline, and is removed when it leaves. */
static void test_waiting_ends(void **state)
{
    static const char *const flags[] = { "--tenancy.multi=true", "--querier.queries_max=1",
                                         "--querier.timeout=1s", NULL };
    static struct conn first, gone, late;
    const struct querier *qr;
    struct qbed b;

    (void)state;
    qbed_init(&b, 1, flags);
    qr = b.self;
    b.ingesters[0].delay_ms = 900;
    ask_labels(&b, &first, "t");
    ask_labels(&b, &gone, "t");
    ask(&b, &late,
        "POST /querier.v1.QuerierService/LabelNames HTTP/1.1\r\nHost: h\r\n"
        "X-Scope-OrgID: t\r\nContent-Type: application/json\r\n"
        "Connect-Timeout-Ms: 300\r\nContent-Length: 2\r\n\r\n{}");
    assert_int_equal(qr->running, 3);
    hang_up(&b, &gone);
    assert_int_equal(qr->running, 2);
    net_pass(&b.world, 250);
    assert_int_equal(status(&late), 0);
    net_pass(&b.world, 100);
    assert_int_equal(status(&late), 504);
    assert_non_null(strstr(late.got, "waited for its turn"));
    assert_int_equal(qr->running, 1);
    net_pass(&b.world, 700);
    assert_int_equal(status(&first), 200);
    assert_int_equal(b.ingesters[0].calls, 1);
    hang_up(&b, &first);
    hang_up(&b, &late);
    qbed_deinit(&b);
}

static void test_memory_of_one_tenant_is_not_anothers(void **state)
{
    static const char *const flags[] = { "--tenancy.multi=true", "--querier.bytes_max=64MiB",
                                         "--querier.tenants=small=bytes:1KiB", NULL };
    static const struct qbed_push pushes[] = {
        { 0, "a", "", QBED_CPU, QBED_NOW - 50000, "x;y", 1, false, "small" },
        { 0, "a", "", QBED_CPU, QBED_NOW - 50000, "x;y", 2, false, "other" },
    };
    struct conn c;
    char text[256];
    struct qbed b;

    (void)state;
    qbed_init(&b, 1, flags);
    qbed_data(&b, pushes, ARRAY_LEN(pushes));
    for (int i = 0; i < 2; i++) {
        snprintf(text, sizeof(text),
                 "GET /pyroscope/render?from=now-100s&query=" QBED_CPU "%%7B%%7D HTTP/1.1\r\n"
                 "Host: h\r\nX-Scope-OrgID: %s\r\n\r\n",
                 i ? "other" : "small");
        ask(&b, &c, text);
        net_pass(&b.world, 10);
        assert_int_equal(status(&c), i ? 200 : 429);
        assert_non_null(strstr(c.got, i ? "\"numTicks\":2" : "querier.tenant_bytes_max"));
        hang_up(&b, &c);
    }
    qbed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_of_service),
        cmocka_unit_test(test_long_queries_are_paid_for),
        cmocka_unit_test(test_limits_change),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_memory_of_a_tenant),
        cmocka_unit_test(test_limits_of_some),
        cmocka_unit_test(test_queries_that_end_at_once),
        cmocka_unit_test(test_a_flood_does_not_delay_others),
        cmocka_unit_test(test_waiting_ends),
        cmocka_unit_test(test_memory_of_one_tenant_is_not_anothers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
