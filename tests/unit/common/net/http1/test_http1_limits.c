/* SPDX-License-Identifier: Apache-2.0
 *
 * The server over memory streams and a fake clock: limits, budgets, deadlines, clients that leave,
 * drain. Every deadline passes when the test says so.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/net/http_server.h"
#include "tests/lib/net/net_site.h"

/* ---- limits */

static void test_head_limit(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char text[5000];

    (void)state;
    site_open(&w);
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /", 5);
    m = net_connect(&w);
    net_send(m, (struct str){ text, 4095 });
    assert_string_equal(net_got(m), "");
    assert_true(w.budget.used >= 4095);
    net_send(m, (struct str){ text, 1 });
    EXPECT(net_got(m), "HTTP/1.1 431 ", "Connection: close", "resource_exhausted");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_body_limits(void **state)
{
    static const char *const requests[] = {
        "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 1025\r\n\r\n",
        "POST /hold HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n",
        "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n401\r\n",
        "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffff\r\n",
    };
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        m = net_connect(&w);
        net_send_c(m, requests[i]);
        EXPECT(net_got(m), "HTTP/1.1 413 Content Too Large", "Connection: close",
               "invalid_argument");
        site_finish(&w, m);
    }
    /* Many small chunks add up to one byte too many. */
    m = net_connect(&w);
    net_send_c(m, "POST /hold HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 1024; i++)
        net_send_c(m, "1\r\nx\r\n");
    assert_string_equal(net_got(m), "");
    net_send_c(m, "1\r\nx\r\n");
    EXPECT(net_got(m), "HTTP/1.1 413 ");
    site_finish(&w, m);
    assert_int_equal(seen.handled, 0);
    net_world_deinit(&w);
}

static void test_connection_limit(void **state)
{
    struct net_world w;
    struct net_mem *m[6];

    (void)state;
    site_open(&w);
    for (size_t i = 0; i < 4; i++)
        m[i] = net_connect(&w);
    for (size_t i = 4; i < 6; i++) {
        m[i] = net_connect(&w);
        EXPECT(net_got(m[i]), "HTTP/1.1 503 ", "Retry-After: 1\r\n", "Connection: close");
        site_finish(&w, m[i]);
    }
    site_finish(&w, m[0]);
    m[0] = net_connect(&w);
    net_send_c(m[0], "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    EXPECT(net_got(m[0]), "HTTP/1.1 200 OK");
    for (size_t i = 0; i < 4; i++)
        site_finish(&w, m[i]);
    net_world_deinit(&w);
}

static void test_budget(void **state)
{
    struct net_world w;
    struct net_mem *m, *n;
    char bytes[20000];

    (void)state;
    site_open(&w);
    memset(bytes, 'x', sizeof(bytes));
    w.budget.max = 48000;
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 40000\r\n\r\n");
    net_send(m, (struct str){ bytes, 20000 });
    net_send(m, (struct str){ bytes, 15000 });
    assert_true(w.budget.used >= 35000 && w.budget.used <= 48000);
    n = net_connect(&w);
    net_send_c(n, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 20000\r\n\r\n");
    net_send(n, (struct str){ bytes, 20000 });
    EXPECT(net_got(n), "HTTP/1.1 503 Service Unavailable", "Retry-After: 1\r\n",
           "Connection: close\r\n");
    site_finish(&w, n);
    net_send(m, (struct str){ bytes, 5000 });
    EXPECT(net_got(m), "HTTP/1.1 200 OK");
    assert_int_equal(w.budget.used, 0);
    /* No room even for a head. */
    w.budget.max = 5;
    net_send_c(m, "GET /p/x HTTP/1.1\r\n" HOST "\r\n");
    EXPECT(net_got(m), "HTTP/1.1 503 ", "Retry-After: 1\r\n", "Connection: close\r\n");
    site_finish(&w, m);
    /* Nor for the beginning of one. */
    m = net_connect(&w);
    net_send_c(m, "GET /p/xxxxxxxxxxxxxxxxxxxxxx HT");
    EXPECT(net_got(m), "HTTP/1.1 503 ");
    site_finish(&w, m);
    assert_int_equal(seen.handled, 1);
    net_world_deinit(&w);
}

#define BOB   "X-Scope-OrgID: bob\r\n"
#define ALICE "X-Scope-OrgID: alice\r\n"

/* Bodies of one tenant that are under way leave room for those of others, and its error says that
 * its own requests are the reason. With one tenant the budget alone decides. */
static void test_shares_of_the_budget(void **state)
{
    struct net_world w;
    struct net_mem *bob[10], *alice;
    const char *got = "";
    char bytes[20000];

    (void)state;
    memset(bytes, 'x', sizeof(bytes));
    for (int many = 0; many < 2; many++) {
        size_t held = 0, i = 0;
        site_open(&w);
        w.server->o.connections_max = 100; /* the connections are not what is tested */
        if (many)
            w.server->shares = http_shares_new();
        w.budget.max = 100000;
        for (; i < ARRAY_LEN(bob) && held == i; i++) {
            bob[i] = net_connect(&w);
            net_send_c(bob[i], "POST /echo HTTP/1.1\r\n" HOST BOB "Content-Length: 20000\r\n\r\n");
            net_send(bob[i], (struct str){ bytes, 19000 });
            got = net_got(bob[i]);
            held += got[0] == '\0';
        }
        assert_in_range(held, 3, 5);
        EXPECT(got, many ? "HTTP/1.1 429 " : "HTTP/1.1 503 ", "Retry-After: 1\r\n",
               many ? "in_flight_limit: " : "too many bytes");
        site_finish(&w, bob[i - 1]);
        alice = net_connect(&w);
        net_send_c(alice, "POST /echo HTTP/1.1\r\n" HOST ALICE "Content-Length: 20000\r\n\r\n");
        net_send(alice, (struct str){ bytes, 20000 });
        EXPECT(net_got(alice), many ? "HTTP/1.1 200 OK" : "HTTP/1.1 503 ");
        site_finish(&w, alice);
        for (size_t k = 0; k < held; k++) { /* what was let in ends well */
            net_send(bob[k], (struct str){ bytes, 1000 });
            EXPECT(net_got(bob[k]), "HTTP/1.1 200 OK");
            site_finish(&w, bob[k]);
        }
        assert_int_equal(w.budget.used, 0);
        net_world_deinit(&w);
    }
}

static void test_pipelined_input_is_bounded(void **state)
{
    struct net_world w;
    struct net_mem *m;
    const struct str one = STR("POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    int sent = 0;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    while (m->reading && sent < 100000) {
        net_send(m, one);
        sent++;
    }
    assert_false(m->reading);
    assert_true(sent * one.len >= 16 * KIB && sent * one.len < 20 * KIB);
    for (int i = 0; i < 1000; i++) /* waits with the client */
        net_send(m, one);
    assert_true(w.budget.used < 40 * KIB);
    assert_int_equal(seen.handled, 1);
    site_reply_held("held");
    net_settle(&w);
    assert_int_equal(seen.handled, 1 + sent + 1000);
    assert_int_equal(site_count(net_got(m), "HTTP/1.1 200 OK"), 1 + sent + 1000);
    site_finish(&w, m);
    net_world_deinit(&w);
}

/* ---- clients that leave, read slowly, or say nothing */

static void test_client_gone_while_running(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    assert_false(seen.held->gone);
    net_end(m, true);
    assert_int_equal(seen.gone, 1);
    assert_true(seen.held->gone && m->closed);
    assert_string_equal(seen.held->peer, "memory:1");
    net_mem_free(m);
    site_reply_held("too late");
    /* Half-closed: told the same, but the answer arrives. */
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_end(m, false);
    assert_int_equal(seen.gone, 2);
    assert_false(m->closed);
    site_reply_held("late but there");
    EXPECT(net_got(m), "HTTP/1.1 200 OK", "late but there");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_half_closed_after_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\nPOST /echo HTTP/1.1\r\n" HOST
                  "Content-Length: 1\r\n\r\nxGET /unfinished");
    net_end(m, false);
    site_reply_held("held");
    net_settle(&w);
    EXPECT(net_got(m), "\r\n\r\nheld", "\r\n\r\nx");
    assert_true(m->closed);
    site_finish(&w, m);
    /* A body that never came whole. */
    m = net_connect(&w);
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 9\r\n\r\nx");
    net_end(m, false);
    EXPECT(net_got(m), "HTTP/1.1 400 ", "ended before");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_deadlines(void **state)
{
    struct net_world w;
    struct net_mem *m;
    char bytes[9000];

    (void)state;
    memset(bytes, 'x', sizeof(bytes));
    site_open(&w);
    m = net_connect(&w); /* says nothing */
    net_pass(&w, 9000);
    assert_false(m->closed);
    net_pass(&w, 1500);
    assert_true(m->closed);
    assert_string_equal(net_got(m), "");
    net_mem_free(m);

    m = net_connect(&w); /* one byte of head every second */
    net_send_c(m, "GET /");
    for (int i = 0; i < 11; i++) {
        net_pass(&w, 1000);
        net_send_c(m, "a");
    }
    EXPECT(net_got(m), "HTTP/1.1 408 Request Timeout", "deadline_exceeded", "Connection: close");
    net_pass(&w, 3000); /* lingering ends, too */
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w); /* a body that moves may take its time */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\n");
    for (int i = 0; i < 6; i++) {
        net_pass(&w, 9000);
        net_send(m, (struct str){ bytes, 9000 });
    }
    net_pass(&w, 9000);
    net_send(m, (struct str){ bytes, 6000 });
    EXPECT(net_got(m), "HTTP/1.1 200 OK");
    net_pass(&w, 59000);
    assert_false(m->closed);
    net_pass(&w, 1500); /* idle */
    assert_true(m->closed);
    net_mem_free(m);

    m = net_connect(&w); /* a body that hardly moves may not */
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 60000\r\n\r\n");
    for (int i = 0; i < 21 && !m->shut; i++) {
        net_pass(&w, 1000);
        net_send_c(m, "x");
    }
    EXPECT(net_got(m), "HTTP/1.1 408 ");
    site_finish(&w, m);
    assert_int_equal(seen.handled, 1);
    net_world_deinit(&w);
}

static void test_no_deadline_while_a_handler_runs(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_pass(&w, 3600000);
    assert_false(m->closed || seen.gone);
    site_reply_held("after an hour");
    EXPECT(net_got(m), "after an hour");
    site_finish(&w, m);
    net_world_deinit(&w);
}

static void test_slow_reader(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w); /* reads, slowly: all of it arrives */
    m->room = 0;
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n");
    assert_true(w.budget.used > 100000);
    for (int i = 0; i < 12; i++) {
        net_pass(&w, 9000);
        net_take(m, 9000);
    }
    assert_true(m->out.len > 100000 && !m->closed);
    assert_int_equal(w.budget.used, 0);
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n"); /* stops reading */
    m->room = 0;
    net_pass(&w, 25000);
    assert_true(m->closed);
    assert_int_equal(w.budget.used, 0);
    net_mem_free(m);
    /* A reader that takes a byte per interval does not keep its connection either. */
    m = net_connect(&w);
    m->room = 0;
    net_send_c(m, "GET /big?n=100000 HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 25 && !m->closed; i++) {
        net_pass(&w, 1000);
        net_take(m, 1);
    }
    assert_true(m->closed);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* Pipelined replies to a slow reader do not pile up: the next request waits. */
static void test_slow_reader_holds_up_pipelining(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    site_open(&w);
    buf_init(&b, MIB);
    for (int i = 0; i < 50; i++)
        buf_add_str(&b, STR("GET /big?n=50000 HTTP/1.1\r\n" HOST "\r\n"));
    m = net_connect(&w);
    m->room = 0;
    net_send(m, buf_str(&b));
    assert_true(seen.handled <= 3);
    for (int i = 0; i < 60; i++)
        net_take(m, 50000);
    assert_int_equal(seen.handled, 50);
    assert_true(m->out.len > 50 * 50000);
    site_finish(&w, m);
    buf_deinit(&b);
    net_world_deinit(&w);
}

/* `out` is so many whole replies, with go-aheads between them; their bodies make up `want`. */
static void expect_bodies(struct str out, struct str want, int replies)
{
    while (replies) {
        size_t head = 0;
        uint64_t len = 0;

        while (memcmp(out.ptr + head, "\r\n\r\n", 4) != 0)
            head++;
        if (str_starts(out, STR("HTTP/1.1 200 OK\r\n"))) {
            const char *at = strstr(out.ptr, "Content-Length: ") + 16;
            assert_true(str_u64(str_n(at, (size_t)(strchr(at, '\r') - at)), &len));
            replies--;
        } else {
            assert_true(str_starts(out, STR("HTTP/1.1 100 Continue\r\n")));
        }
        out = str_sub(out, head + 4, out.len);
        assert_true(out.len >= len && want.len >= len);
        if (len)
            assert_memory_equal(out.ptr, want.ptr, len);
        want = str_sub(want, len, want.len);
        out = str_sub(out, len, out.len);
    }
    assert_int_equal(out.len, 0);
    assert_int_equal(want.len, 0);
}

/* Random requests in random pieces to a client that reads in random pieces: every reply arrives,
 * whole and in order. */
static void test_random_traffic(void **state)
{
    const uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 4242;
    struct prng p;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int round = 0; round < 60; round++) {
        struct net_world w;
        struct net_mem *m;
        struct buf in, want;
        uint64_t most = prng_chance(&p, 0.5) ? 200 : 20000;

        site_open(&w);
        buf_init(&in, 8 * MIB);
        buf_init(&want, 8 * MIB);
        for (int i = 0; i < 100; i++) {
            uint64_t n = prng_below(&p, most);
            bool expects = prng_chance(&p, 0.2);
            buf_addf(&in, "POST /echo HTTP/1.1\r\n" HOST "%sContent-Length: %" PRIu64 "\r\n\r\n",
                     expects ? "Expect: 100-continue\r\n" : "", n);
            for (uint64_t k = 0; k < n; k++)
                buf_add_c(&in, (char)('a' + (uint64_t)i % 26));
            for (uint64_t k = 0; k < n; k++)
                buf_add_c(&want, (char)('a' + (uint64_t)i % 26));
        }
        m = net_connect(&w);
        m->room = 0;
        for (size_t at = 0; at < in.len;) {
            size_t n = 1 + prng_below(&p, prng_chance(&p, 0.5) ? 100 : 60000);
            net_send(m, str_sub(buf_str(&in), at, at + n));
            at += n;
            net_take(m, prng_below(&p, 30000));
        }
        while (m->in.len || m->late_len)
            net_take(m, 1 + prng_below(&p, 100000));
        assert_int_equal(seen.handled, 100);
        size_t len = m->out.len;
        expect_bodies((struct str){ net_got(m), len }, buf_str(&want), 100);
        site_finish(&w, m);
        buf_deinit(&in);
        buf_deinit(&want);
        net_world_deinit(&w);
    }
}

static void test_broken_write(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    m->breaks = true;
    net_send_c(m, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nx");
    assert_true(m->closed);
    net_mem_free(m);
    net_world_deinit(&w);
}

/* ---- drain */

static void on_drained(void *cookie)
{
    ((struct net_world *)cookie)->drained = true;
}

static void test_drain(void **state)
{
    struct net_world w;
    struct net_mem *idle, *running, *reading;

    (void)state;
    site_open(&w);
    idle = net_connect(&w);
    running = net_connect(&w);
    reading = net_connect(&w);
    net_send_c(running, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_send_c(reading, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nx");
    http_server_drain(w.server, on_drained, &w);
    net_pass(&w, 300);
    assert_true(!idle->closed && !running->closed && !reading->closed && !w.drained);
    net_pass(&w, 300);
    assert_true(idle->closed && !running->closed && !reading->closed && !w.drained);
    net_mem_free(idle);
    net_send_c(reading, "y");
    EXPECT(net_got(reading), "HTTP/1.1 200 OK", "Connection: close", "\r\n\r\nxy");
    site_reply_held("done");
    EXPECT(net_got(running), "HTTP/1.1 200 OK", "Connection: close", "done");
    assert_false(w.drained);
    site_finish(&w, running);
    net_pass(&w, 3000);
    assert_true(reading->closed && w.drained);
    net_mem_free(reading);
    net_world_deinit(&w);
}

/* Requests on their way are served: on a connection without a request so far, on a used connection,
 * and on a connection that the kernel made before the port closed. Nothing comes after that. */
static void test_drain_serves_what_is_on_its_way(void **state)
{
    struct net_world w;
    struct net_mem *fresh, *kept, *late;

    (void)state;
    site_open(&w);
    fresh = net_connect(&w);
    kept = net_connect(&w);
    net_send_c(kept, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\na");
    EXPECT(net_got(kept), "HTTP/1.1 200 OK", "!Connection: close");
    http_server_drain(w.server, on_drained, &w);
    net_pass(&w, 300);
    late = net_connect(&w);
    net_send_c(fresh, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nb");
    EXPECT(net_got(fresh), "HTTP/1.1 200 OK", "Connection: close", "\r\n\r\nb");
    net_send_c(kept, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nc");
    EXPECT(net_got(kept), "HTTP/1.1 200 OK", "Connection: close", "\r\n\r\nc");
    net_pass(&w, 300);
    net_send_c(late, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1\r\n\r\nd");
    EXPECT(net_got(late), "HTTP/1.1 200 OK", "Connection: close", "\r\n\r\nd");
    assert_false(w.drained);
    site_finish(&w, fresh);
    site_finish(&w, kept);
    site_finish(&w, late);
    assert_true(w.drained);
    late = net_connect(&w);
    assert_true(late->closed);
    net_mem_free(late);
    net_world_deinit(&w);
}

/* The client of a running request left; draining still waits for the handler. */
static void test_drain_waits_for_handlers(void **state)
{
    struct net_world w;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    m = net_connect(&w);
    net_send_c(m, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    net_end(m, true);
    net_mem_free(m);
    http_server_drain(w.server, on_drained, &w);
    net_pass(&w, 10000);
    assert_false(w.drained);
    site_reply_held("");
    net_settle(&w);
    assert_true(w.drained);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head_limit),
        cmocka_unit_test(test_body_limits),
        cmocka_unit_test(test_connection_limit),
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_shares_of_the_budget),
        cmocka_unit_test(test_pipelined_input_is_bounded),
        cmocka_unit_test(test_client_gone_while_running),
        cmocka_unit_test(test_half_closed_after_pipelining),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_no_deadline_while_a_handler_runs),
        cmocka_unit_test(test_slow_reader),
        cmocka_unit_test(test_slow_reader_holds_up_pipelining),
        cmocka_unit_test(test_random_traffic),
        cmocka_unit_test(test_broken_write),
        cmocka_unit_test(test_drain),
        cmocka_unit_test(test_drain_serves_what_is_on_its_way),
        cmocka_unit_test(test_drain_waits_for_handlers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
