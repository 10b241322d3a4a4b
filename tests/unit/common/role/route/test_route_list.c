/* SPDX-License-Identifier: Apache-2.0
 *
 * Questions where shards stay with their ingester permanently: a restarting ingester is waited for,
 * a dead one is not.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "common/role/route/route.h"
#include "tests/lib/net/rpc_bed.h"

#define SILENT_MS  4000 /* so long an ingester is waited for from its last answer on */
#define REFUSES_MS 10000
#define DEAD_MS    300   /* of the bed */
#define PATIENT_MS 60000 /* a query's deadline */
#define HELD_MAX   8

struct bed {
    struct rpc_bed rpc;
    struct view *view;
    char addr[128];
    struct rpc_node *server, *client;
    struct route *route;
    bool holds, refuses;
    uint32_t again_s; /* what it says as it refuses: 1 as rpc does when it goes down */
    struct rpc_call *held[HELD_MAX];
    size_t held_len, asked;
    int lives; /* of the server */
    int ends, code;
    char reply[32], text[ERR_TEXT_MAX];
};

static void serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct bed *b = cookie;
    struct buf out;
    struct err e;

    b->asked++;
    assert_true(str_eqc(payload, "question"));
    if (b->holds) {
        assert_true(b->held_len < HELD_MAX);
        b->held[b->held_len++] = call;
    } else if (b->refuses) {
        (void)err_set_again(&e, ERR_UNAVAILABLE, b->again_s, "not now");
        rpc_fail(call, &e);
    } else {
        buf_init(&out, 64);
        (void)buf_addf(&out, "life %d", b->lives);
        rpc_reply(call, &out);
    }
}

static void server_up(struct bed *b)
{
    b->server = rpc_bed_node(&b->rpc, b->addr);
    b->lives++;
    rpc_serve(b->server, RPC_MERGE, serve, b);
    rpc_serve(b->server, RPC_DOC, serve, b);
}

/* As by kill -9. What it served is answered into the void. */
static void server_dies(struct bed *b)
{
    struct err e;

    rpc_node_free(b->server);
    b->server = NULL;
    (void)err_set(&e, ERR_INTERNAL, "no caller gets this");
    for (size_t i = 0; i < b->held_len; i++)
        rpc_fail(b->held[i], &e);
    b->held_len = 0;
}

static struct view *view_of_file(struct bed *b)
{
    struct map_node nodes[2] = { { .name = "a" }, { .name = "b" } };
    struct name_set of[2] = { 0 };
    struct map from = {
        .version = 1, .shards = 2, .replicas = 1, .nodes = nodes, .nodes_len = 2, .replicas_of = of
    };
    const struct map *m;
    struct view *v;
    struct err e;

    assert_true(name_set_add(&of[0], "a") && name_set_add(&of[1], "b"));
    memcpy(nodes[0].addr, b->addr, strlen(b->addr) + 1);
    rpc_bed_addr(&b->rpc, nodes[1].addr); /* no process is there */
    assert_int_equal(map_new(&from, &m, &e), 0);
    assert_int_equal(view_new_static(m, &v, &e), 0);
    map_unref(m);
    return v;
}

static void bed_open(struct bed *b, bool file)
{
    const char *addrs[1] = { b->addr };
    struct route_opts ro = { 0 };
    struct err e;

    *b = (struct bed){ 0 };
    rpc_bed_init(&b->rpc, RPC_BED_MEM, 1);
    rpc_bed_addr(&b->rpc, b->addr);
    b->view = file ? view_of_file(b) : view_new_list(addrs, 1, 4);
    server_up(b);
    b->client = rpc_bed_node(&b->rpc, "");
    ro.node = b->client;
    ro.loop = b->rpc.loop;
    ro.view = b->view;
    assert_int_equal(route_new(&ro, &b->route, &e), 0);
    rpc_bed_sleep(&b->rpc, 100);
}

static void bed_close(struct bed *b)
{
    if (b->server)
        server_dies(b);
    rpc_node_free(b->client);
    route_free(b->route);
    view_free(b->view);
    rpc_bed_deinit(&b->rpc);
}

static void on_done(void *cookie, struct str reply, const struct err *err)
{
    struct bed *b = cookie;

    b->ends++;
    b->code = err ? err->code : 0;
    assert_true(reply.len < sizeof(b->reply));
    memset(b->reply, 0, sizeof(b->reply));
    if (reply.len)
        memcpy(b->reply, reply.ptr, reply.len);
    (void)snprintf(b->text, sizeof(b->text), "%s", err ? err->text : "");
}

static struct route_call *ask(struct bed *b, enum rpc_method method, uint64_t deadline_ms)
{
    struct buf payload;

    b->ends = 0;
    buf_init(&payload, 16);
    (void)buf_add_str(&payload, STR("question"));
    return route_ask(b->route,
                     &(struct route_query){ .target = route_target(b->route, 0),
                                            .method = method,
                                            .deadline_ms = deadline_ms,
                                            .done = on_done,
                                            .cookie = b },
                     &payload);
}

/* Ends within limit_ms, and how long that took. */
static uint64_t ended_after(struct bed *b, uint64_t limit_ms)
{
    uint64_t ms = 0;

    for (; !b->ends && ms < limit_ms; ms += 10)
        rpc_bed_sleep(&b->rpc, 10);
    assert_int_equal(b->ends, 1);
    return ms;
}

static void answered_by(struct bed *b, const char *who)
{
    (void)ended_after(b, 2000);
    assert_int_equal(b->code, 0);
    assert_string_equal(b->reply, who);
}

/* ---- an ingester that restarts -------------------------------------------------------------- */

static void on_drained(void *cookie)
{
    (void)cookie;
}

static void restart_in_mid_call(bool file, enum rpc_method method, uint64_t away_ms)
{
    struct bed b;

    bed_open(&b, file);
    b.holds = true;
    (void)ask(&b, method, PATIENT_MS);
    rpc_bed_sleep(&b.rpc, 50);
    assert_int_equal(b.asked, 1);
    server_dies(&b);
    rpc_bed_sleep(&b.rpc, away_ms);
    assert_int_equal(b.ends, 0);
    b.holds = false;
    server_up(&b);
    answered_by(&b, "life 2");
    bed_close(&b);
}

static void test_restart_in_mid_call(void **state)
{
    (void)state;
    restart_in_mid_call(false, RPC_MERGE, 20);
    restart_in_mid_call(false, RPC_DOC, 20);
    restart_in_mid_call(false, RPC_MERGE, 10 * DEAD_MS); /* it is known to be down meanwhile */
    restart_in_mid_call(true, RPC_MERGE, 20);
    restart_in_mid_call(true, RPC_MERGE, 10 * DEAD_MS);
}

/* Asked while the ingester is away, before and after that is known, and while it refuses calls. */
static void test_asked_while_it_is_away(void **state)
{
    struct bed b;

    (void)state;
    for (uint64_t away_ms = 50; away_ms < 2000; away_ms *= 30) {
        bed_open(&b, false);
        server_dies(&b);
        rpc_bed_sleep(&b.rpc, away_ms);
        (void)ask(&b, RPC_MERGE, PATIENT_MS);
        rpc_bed_sleep(&b.rpc, 300);
        assert_int_equal(b.ends, 0);
        server_up(&b);
        answered_by(&b, "life 2");
        bed_close(&b);
    }
    bed_open(&b, false);
    rpc_node_drain(b.server, on_drained, NULL); /* it goes down in order */
    (void)ask(&b, RPC_MERGE, PATIENT_MS);
    rpc_bed_sleep(&b.rpc, 1000);
    assert_int_equal(b.ends + (int)b.asked, 0);
    server_dies(&b);
    rpc_bed_sleep(&b.rpc, 1000);
    server_up(&b);
    answered_by(&b, "life 2");
    bed_close(&b);
}

/* ---- an ingester that does not come back ---------------------------------------------------- */

/* A caller in the first SILENT_MS waits until their end; later callers get the error at once. */
static void test_dead_for_good(void **state)
{
    (void)state;
    for (int file = 0; file < 2; file++) {
        struct bed b;

        bed_open(&b, file);
        (void)ask(&b, RPC_MERGE, PATIENT_MS);
        answered_by(&b, "life 1");
        server_dies(&b);
        rpc_bed_sleep(&b.rpc, 1000);
        (void)ask(&b, RPC_MERGE, PATIENT_MS);
        uint64_t ms = ended_after(&b, PATIENT_MS);
        assert_true(ms > SILENT_MS - 2000 && ms < SILENT_MS - 1000 + 500);
        assert_int_equal(b.code, ERR_UNAVAILABLE);
        assert_non_null(strstr(b.text, b.addr));
        assert_non_null(strstr(b.text, "is down"));
        for (int i = 0; i < 3; i++) {
            (void)ask(&b, RPC_MERGE, PATIENT_MS);
            assert_true(ended_after(&b, PATIENT_MS) < 100);
            assert_int_equal(b.code, ERR_UNAVAILABLE);
            rpc_bed_sleep(&b.rpc, 20000);
        }
        server_up(&b); /* after all */
        rpc_bed_sleep(&b.rpc, 5000);
        (void)ask(&b, RPC_MERGE, PATIENT_MS);
        answered_by(&b, "life 2");
        bed_close(&b);
    }
}

/* It answers pings and goes down without end; a query that has less time ends earlier, and a
 * refusal for another reason is the answer. */
static void test_refuses_for_good(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false);
    b.refuses = true;
    b.again_s = 1;
    (void)ask(&b, RPC_MERGE, PATIENT_MS);
    uint64_t ms = ended_after(&b, PATIENT_MS);
    assert_true(ms > REFUSES_MS - 1000 && ms <= REFUSES_MS + 500);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_string_equal(b.text, "not now");
    assert_true(b.asked < 50);
    (void)ask(&b, RPC_MERGE, 1000);
    assert_true(ended_after(&b, PATIENT_MS) <= 1000);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    b.again_s = 0;
    (void)ask(&b, RPC_MERGE, PATIENT_MS);
    assert_true(ended_after(&b, PATIENT_MS) < 100);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    bed_close(&b);
}

/* A question that two processes did not survive goes to no third. */
static void test_deadly_question(void **state)
{
    struct bed b;

    (void)state;
    bed_open(&b, false);
    b.holds = true;
    (void)ask(&b, RPC_MERGE, PATIENT_MS);
    for (int i = 0; i < 3; i++) {
        rpc_bed_sleep(&b.rpc, 500);
        server_dies(&b);
        rpc_bed_sleep(&b.rpc, 100);
        server_up(&b);
    }
    (void)ended_after(&b, 1000);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    assert_non_null(strstr(b.text, b.addr));
    assert_non_null(strstr(b.text, "restarted 2 times"));
    assert_int_equal(b.asked, 2);
    bed_close(&b);
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void test_ends(void **state)
{
    struct route_call *c;
    struct bed b;

    (void)state;
    bed_open(&b, false);
    server_dies(&b);
    c = ask(&b, RPC_MERGE, PATIENT_MS);
    rpc_bed_sleep(&b.rpc, 50);
    route_cancel(c); /* on its way */
    c = ask(&b, RPC_MERGE, PATIENT_MS);
    rpc_bed_sleep(&b.rpc, 2 * DEAD_MS);
    route_cancel(c); /* waiting to be sent again */
    rpc_bed_sleep(&b.rpc, 2 * SILENT_MS);
    assert_int_equal(b.ends, 0);

    server_up(&b);
    rpc_bed_sleep(&b.rpc, 3000);
    b.holds = true;
    (void)ask(&b, RPC_MERGE, PATIENT_MS);
    rpc_bed_sleep(&b.rpc, 50);
    assert_int_equal(b.held_len, 1);
    rpc_node_free(b.client); /* ends what is under way: no more attempts */
    b.client = NULL;
    assert_int_equal(b.ends, 1);
    assert_int_equal(b.code, ERR_UNAVAILABLE);
    bed_close(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_restart_in_mid_call), cmocka_unit_test(test_asked_while_it_is_away),
        cmocka_unit_test(test_dead_for_good),       cmocka_unit_test(test_refuses_for_good),
        cmocka_unit_test(test_deadly_question),     cmocka_unit_test(test_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
