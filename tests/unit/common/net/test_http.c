/* SPDX-License-Identifier: Apache-2.0
 *
 * The server over real sockets: what memory streams cannot show.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/net/http.h"
#include "common/sys/thread.h"
#include "tests/lib/net/net_site.h"

struct rig {
    struct loop *loop;
    struct pool *pool;
    struct budget budget;
    struct metrics *metrics;
    struct http_server *server;
    struct thread thread;
    uint16_t port;
    bool v6;
    struct http_req *held; /* loop thread */
    _Atomic int handled, gone;
};

/* ---- handlers (loop thread) */

static void on_echo(struct http_req *r)
{
    struct rig *g = r->route_cookie;
    struct buf b;

    atomic_fetch_add(&g->handled, 1);
    buf_init(&b, 64 * MIB);
    buf_add_str(&b, r->body);
    http_reply(r, 200, "text/plain", &b);
}

static void on_big(struct http_req *r)
{
    struct str n;
    uint64_t len = 0;
    struct buf b;

    if (!http_param(r, "n", &n) || !str_u64(n, &len))
        len = 1;
    buf_init(&b, 64 * MIB);
    for (uint64_t i = 0; i < len; i++)
        buf_add_c(&b, (char)('a' + i % 23));
    http_reply(r, 200, "text/plain", &b);
}

static void on_gone(struct http_req *r)
{
    struct rig *g = r->route_cookie;

    atomic_fetch_add(&g->gone, 1);
}

static void on_hold(struct http_req *r)
{
    struct rig *g = r->route_cookie;

    g->held = r;
    r->on_gone = on_gone;
    atomic_fetch_add(&g->handled, 1);
}

static void release(void *cookie)
{
    struct rig *g = cookie;

    http_reply(g->held, 200, NULL, NULL);
    g->held = NULL;
}

/* ---- the rig */

static void run_loop(void *cookie)
{
    loop_run(((struct rig *)cookie)->loop);
}

static int rig_open(struct rig *g, const char *listen, struct err *e)
{
    *g = (struct rig){ 0 };
    g->loop = loop_new(clock_real());
    g->pool = pool_new("zip", 2, 16);
    g->metrics = metrics_new();
    budget_init(&g->budget, 64 * MIB);
    struct http_server_opts o = {
        .loop = g->loop,
        .pool = g->pool,
        .in_flight = &g->budget,
        .metrics = g->metrics,
        .listen = listen,
        .connections_max = 200,
        .head_bytes_max = 64 * KIB,
        .head_ms = 10000,
        .body_ms = 10000,
        .idle_ms = 10000,
        .write_ms = 10000,
    };
    int code = http_server_new(&o, &g->server, e);
    if (code == 0) {
        g->port = http_server_port(g->server);
        http_route(g->server, HTTP_POST, "/echo", 4 * MIB, on_echo, g);
        http_route(g->server, HTTP_GET, "/big", 0, on_big, g);
        http_route(g->server, HTTP_GET, "/hold", 0, on_hold, g);
        thread_start(&g->thread, "loop", run_loop, g);
    }
    return code;
}

static void drained(void *cookie)
{
    loop_stop(((struct rig *)cookie)->loop);
}

static void drain(void *cookie)
{
    struct rig *g = cookie;

    http_server_drain(g->server, drained, g);
}

static void rig_close(struct rig *g)
{
    if (g->server) {
        loop_post(g->loop, drain, g);
        thread_join(&g->thread);
        assert_int_equal(g->budget.used, 0);
        http_server_free(g->server);
    }
    pool_free(g->pool);
    loop_free(g->loop);
    metrics_free(g->metrics);
}

static void rig(struct rig *g)
{
    struct err e;

    if (rig_open(g, "127.0.0.1:0", &e))
        fail_msg("%s", e.text);
    assert_true(g->port != 0);
}

/* ---- the client */

static int dial(const struct rig *g)
{
    struct sockaddr_in v4 = { .sin_family = AF_INET, .sin_port = htons(g->port) };
    struct sockaddr_in6 v6 = { .sin6_family = AF_INET6, .sin6_port = htons(g->port) };
    struct timeval limit = { .tv_sec = 20 };
    int fd = socket(g->v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    v6.sin6_addr = in6addr_loopback;
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
    assert_int_equal(
        connect(fd, g->v6 ? (struct sockaddr *)(void *)&v6 : (struct sockaddr *)(void *)&v4,
                g->v6 ? sizeof(v6) : sizeof(v4)),
        0);
    return fd;
}

/* False if the server stopped taking bytes. */
static bool put(int fd, const void *p, size_t n)
{
    const char *at = p;

    while (n) {
        ssize_t w = send(fd, at, n, MSG_NOSIGNAL);
        if (w <= 0)
            return false;
        at += w;
        n -= (size_t)w;
    }
    return true;
}

static void put_c(int fd, const char *text)
{
    assert_true(put(fd, text, strlen(text)));
}

/* One whole reply with its Content-Length, into *b (NUL behind it); the status. */
static int get(int fd, struct buf *b, struct str *ret_body)
{
    size_t head = 0;
    uint64_t length = 0;

    buf_reset(b);
    for (;;) {
        char *to = buf_room(b, 64 * KIB);
        assert_non_null(to);
        ssize_t n = recv(fd, to, 1, 0);
        if (n <= 0)
            return 0;
        b->len++;
        head = b->len;
        if (head >= 4 && memcmp(b->ptr + head - 4, "\r\n\r\n", 4) == 0)
            break;
    }
    b->ptr[head] = '\0';
    const char *at = strstr(b->ptr, "Content-Length: ");
    if (at) {
        struct str digits = { at + 16, (size_t)(strchr(at, '\r') - at - 16) };
        assert_true(str_u64(digits, &length));
    }
    while (b->len < head + length) {
        char *to = buf_room(b, (size_t)(head + length - b->len) + 1);
        assert_non_null(to);
        ssize_t n = recv(fd, to, (size_t)(head + length - b->len), 0);
        if (n <= 0)
            fail_msg("reply ended after %zu of %zu bytes", b->len, (size_t)(head + length));
        b->len += (size_t)n;
    }
    b->ptr[b->len] = '\0';
    *ret_body = (struct str){ b->ptr + head, (size_t)length };
    return (b->ptr[9] - '0') * 100 + (b->ptr[10] - '0') * 10 + b->ptr[11] - '0';
}

static int ask(int fd, const char *request, struct buf *b, struct str *ret_body)
{
    put_c(fd, request);
    return get(fd, b, ret_body);
}

static void wait_for(_Atomic int *what, int value)
{
    for (int i = 0; i < 120000 && atomic_load(what) < value; i++)
        (void)usleep(1000);
    assert_int_equal(atomic_load(what), value);
}

/* ---- tests */

static void test_request(void **state)
{
    struct rig g;
    struct buf b;
    struct str body;

    (void)state;
    rig(&g);
    buf_init(&b, 64 * MIB);
    int fd = dial(&g);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            ask(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nhi", &b, &body), 200);
        assert_true(str_eqc(body, "hi"));
    }
    (void)close(fd);
    buf_deinit(&b);
    rig_close(&g);
}

static void test_addresses(void **state)
{
    static const char *const bad[] = { "127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "",
                                       "256.0.0.1:0" };
    struct rig g;
    struct err e;
    struct buf b;
    struct str body;
    char text[64];

    (void)state;
    buf_init(&b, MIB);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(rig_open(&g, bad[i], &e), ERR_CONFIG);
        assert_non_null(strstr(e.text, "listen address"));
        rig_close(&g);
    }
    for (int v6 = 0; v6 < 2; v6++) {
        int code = rig_open(&g, v6 ? "[::1]:0" : ":0", &e);
        if (v6 && code) {
            print_message("SKIPPED: no IPv6 loopback here: %s\n", e.text);
            rig_close(&g);
            continue;
        }
        assert_int_equal(code, 0);
        g.v6 = v6;
        int fd = dial(&g);
        assert_int_equal(ask(fd, "GET /big?n=3 HTTP/1.1\r\n" HOST "\r\n", &b, &body), 200);
        (void)close(fd);
        rig_close(&g);
    }
    struct rig other;
    rig(&g);
    (void)snprintf(text, sizeof(text), "127.0.0.1:%u", g.port);
    assert_int_equal(rig_open(&other, text, &e), ERR_IO);
    assert_non_null(strstr(e.text, "in use"));
    rig_close(&other);
    rig_close(&g);
    buf_deinit(&b);
}

/* Every trick, in one piece and byte by byte: one refusal, then the end, and nothing ran. */
static void test_smuggling(void **state)
{
    struct rig g;
    struct buf b;
    struct str body;

    (void)state;
    rig(&g);
    buf_init(&b, MIB);
    for (size_t i = 0; i < 2 * site_tricks_len; i++) {
        const struct site_trick *t = &site_tricks[i / 2];
        size_t step = i % 2 ? 1 : t->text.len;
        int fd = dial(&g), on = 1;

        assert_int_equal(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
        for (size_t at = 0; at < t->text.len; at += step)
            (void)put(fd, t->text.ptr + at, step);
        int status = get(fd, &b, &body);
        if (status != t->status)
            fail_msg("%s: want %d, got %d", t->name, t->status, status);
        assert_non_null(strstr(b.ptr, "Connection: close"));
        assert_int_equal(get(fd, &b, &body), 0);
        (void)close(fd);
    }
    assert_int_equal(g.handled, 0);
    buf_deinit(&b);
    rig_close(&g);
}

/* The refusal arrives although the client is still sending. */
static void test_refused_while_sending(void **state)
{
    struct rig g;
    struct buf b;
    struct str body;
    char *bytes = xcalloc(1, MIB);

    (void)state;
    rig(&g);
    buf_init(&b, MIB);
    for (int i = 0; i < 5; i++) {
        int fd = dial(&g);
        put_c(fd, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 100000000\r\n\r\n");
        for (int k = 0; k < 16; k++)
            if (!put(fd, bytes, MIB))
                break;
        assert_int_equal(get(fd, &b, &body), 413);
        (void)close(fd);
    }
    assert_int_equal(g.handled, 0);
    xfree(bytes);
    buf_deinit(&b);
    rig_close(&g);
}

static void test_large_replies(void **state)
{
    struct rig g;
    struct buf b, plain;
    struct str body;
    const struct inflate_limits l = { .bytes_max = 32 * MIB };
    struct err e;

    (void)state;
    rig(&g);
    buf_init(&b, 64 * MIB);
    buf_init(&plain, 64 * MIB);
    int fd = dial(&g);
    assert_int_equal(ask(fd, "GET /big?n=20000000 HTTP/1.1\r\n" HOST "\r\n", &b, &body), 200);
    assert_int_equal(body.len, 20000000);
    for (size_t i = 0; i < body.len; i++) {
        if (body.ptr[i] != (char)('a' + i % 23))
            fail_msg("byte %zu differs", i);
    }
    assert_int_equal(
        ask(fd, "GET /big?n=3000000 HTTP/1.1\r\n" HOST "Accept-Encoding: gzip\r\n\r\n", &b, &body),
        200);
    assert_true(body.len < 1000000);
    assert_int_equal(gunzip(body, &l, &plain, &e), 0);
    assert_int_equal(plain.len, 3000000);
    (void)close(fd);
    buf_deinit(&b);
    buf_deinit(&plain);
    rig_close(&g);
}

static void test_client_gone(void **state)
{
    struct rig g;

    (void)state;
    rig(&g);
    for (int i = 1; i <= 3; i++) {
        int fd = dial(&g);
        put_c(fd, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
        wait_for(&g.handled, i);
        (void)close(fd);
        wait_for(&g.gone, i);
        loop_post(g.loop, release, &g);
    }
    /* Gone in the middle of a large reply: no signal, no leak. */
    for (int i = 0; i < 5; i++) {
        int fd = dial(&g);
        char some[1000];
        put_c(fd, "GET /big?n=20000000 HTTP/1.1\r\n" HOST "\r\n");
        assert_true(recv(fd, some, sizeof(some), 0) > 0);
        (void)close(fd);
    }
    rig_close(&g);
}

static void test_drain_with_open_connections(void **state)
{
    struct rig g;
    struct buf b;
    struct str body;

    (void)state;
    rig(&g);
    buf_init(&b, MIB);
    int idle = dial(&g), running = dial(&g);
    assert_int_equal(ask(idle, "GET /big?n=3 HTTP/1.1\r\n" HOST "\r\n", &b, &body), 200);
    put_c(running, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
    wait_for(&g.handled, 1);
    loop_post(g.loop, drain, &g);
    assert_int_equal(recv(idle, b.ptr, 1, 0), 0);
    loop_post(g.loop, release, &g);
    assert_int_equal(get(running, &b, &body), 200);
    assert_non_null(strstr(b.ptr, "Connection: close"));
    (void)close(idle);
    (void)close(running);
    thread_join(&g.thread);
    http_server_free(g.server);
    g.server = NULL;
    rig_close(&g);
    buf_deinit(&b);
}

/* Connections that are made, whether accepted yet or not, whether they have asked yet or not, are
 * all served; then the port is closed. */
static void test_drain_loses_nobody(void **state)
{
    struct rig g;
    struct buf b;
    struct str body;
    int fds[20];

    (void)state;
    rig(&g);
    buf_init(&b, MIB);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = dial(&g);
    loop_post(g.loop, drain, &g);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
        assert_int_equal(ask(fds[i], "GET /big?n=3 HTTP/1.1\r\n" HOST "\r\n", &b, &body), 200);
        assert_non_null(strstr(b.ptr, "Connection: close"));
        (void)close(fds[i]);
    }
    thread_join(&g.thread);
    http_server_free(g.server);
    g.server = NULL;
    rig_close(&g);
    buf_deinit(&b);
}

/* Out of file descriptors: the client waits and is served once there are some. */
static void test_accept_out_of_descriptors(void **state)
{
    struct rig g;
    struct buf b, text;
    struct str body;
    struct rlimit old, low;
    int fds[256];
    size_t n = 0;

    (void)state;
    rig(&g);
    buf_init(&b, MIB);
    buf_init(&text, MIB);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 128;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    while (n < ARRAY_LEN(fds) && (fds[n] = dup(0)) >= 0)
        n++;
    assert_true(n > 0 && errno == EMFILE);
    (void)close(fds[--n]);
    int fd = dial(&g);
    put_c(fd, "GET /big?n=3 HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 120000 && (!text.ptr || !strstr(text.ptr, "accept_failed\"} 1")); i++) {
        (void)usleep(1000);
        buf_reset(&text);
        metrics_render(g.metrics, &text);
        buf_add_c(&text, '\0');
    }
    assert_non_null(strstr(text.ptr, "reason=\"accept_failed\"} 1"));
    while (n)
        (void)close(fds[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    assert_int_equal(get(fd, &b, &body), 200);
    (void)close(fd);
    buf_deinit(&b);
    buf_deinit(&text);
    rig_close(&g);
}

/* ---- many at once */

enum { CLIENTS = 4, ROUNDS = 300 };

struct client {
    struct rig *rig;
    struct thread thread;
    uint64_t seed;
    int wrong;
};

static size_t piece(struct prng *p, uint64_t most, size_t left)
{
    uint64_t n = 1 + prng_below(p, most);

    return MIN(n, left);
}

/* Random pieces of random requests; every answer is the echo of its body. */
static void run_client(void *cookie)
{
    struct client *c = cookie;
    struct prng p;
    struct buf b, req;
    struct str body;
    int fd = dial(c->rig);

    prng_init(&p, c->seed);
    buf_init(&b, MIB);
    buf_init(&req, MIB);
    for (int i = 0; i < ROUNDS; i++) {
        size_t len = prng_below(&p, prng_chance(&p, 0.1) ? 100000 : 500);
        bool chunked = prng_chance(&p, 0.5);
        buf_reset(&req);
        buf_addf(&req, "POST /echo HTTP/1.1\r\n" HOST);
        if (chunked)
            buf_add_str(&req, STR("Transfer-Encoding: chunked\r\n\r\n"));
        else
            buf_addf(&req, "Content-Length: %zu\r\n\r\n", len);
        for (size_t at = 0; at < len;) {
            size_t n = piece(&p, 2000, len - at);
            if (chunked)
                buf_addf(&req, "%zx\r\n", n);
            for (size_t k = 0; k < n; k++)
                buf_add_c(&req, (char)('a' + (at + k) % 26));
            if (chunked)
                buf_add_str(&req, STR("\r\n"));
            at += n;
        }
        if (chunked)
            buf_add_str(&req, STR("0\r\n\r\n"));
        for (size_t at = 0; at < req.len;) {
            size_t n = piece(&p, 20000, req.len - at);
            c->wrong += !put(fd, req.ptr + at, n);
            at += n;
        }
        c->wrong += get(fd, &b, &body) != 200 || body.len != len ||
                    (len && body.ptr[len - 1] != (char)('a' + (len - 1) % 26));
        if (prng_chance(&p, 0.05)) {
            (void)close(fd);
            fd = dial(c->rig);
        }
    }
    (void)close(fd);
    buf_deinit(&b);
    buf_deinit(&req);
}

static void test_many_clients(void **state)
{
    struct rig g;
    struct client c[CLIENTS] = { 0 };
    const uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : 77;

    (void)state;
    print_message("SEED=%" PRIu64 "\n", seed);
    rig(&g);
    for (size_t i = 0; i < CLIENTS; i++) {
        c[i] = (struct client){ .rig = &g, .seed = seed + i };
        thread_start(&c[i].thread, "client", run_client, &c[i]);
    }
    for (size_t i = 0; i < CLIENTS; i++) {
        thread_join(&c[i].thread);
        assert_int_equal(c[i].wrong, 0);
    }
    assert_int_equal(g.handled, CLIENTS * ROUNDS);
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_smuggling),
        cmocka_unit_test(test_refused_while_sending),
        cmocka_unit_test(test_large_replies),
        cmocka_unit_test(test_client_gone),
        cmocka_unit_test(test_drain_with_open_connections),
        cmocka_unit_test(test_drain_loses_nobody),
        cmocka_unit_test(test_accept_out_of_descriptors),
        cmocka_unit_test(test_many_clients),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
