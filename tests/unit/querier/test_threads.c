/* SPDX-License-Identifier: Apache-2.0
 *
 * A querier with a real loop, pool threads, a listener on loopback and an ingester over inproc://;
 * clients ask from threads of their own, and some hang up in the middle. Meant for TSan and ASan.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/cluster/view/view.h"
#include "common/role/core/options.h"
#include "common/sys/thread.h"
#include "querier/base/state.h"
#include "tests/lib/roles/querier_fake.h"

#define CLIENTS  3
#define REQUESTS 40
#define T(s)     (QBED_NOW + (s)*INT64_C(1000))

static const struct qbed_push pushes[] = {
    { QBED_BY_SERVICE, "a", "env=x", QBED_CPU, T(-50), "main;x", 1, false, NULL },
    { QBED_BY_SERVICE, "b", "env=y", QBED_CPU, T(-50), "main;y", 10, false, NULL },
};
static const char *const targets[] = {
    "/pyroscope/render?query=" QBED_CPU "%7B%7D&from=1749999900&until=1750000000",
    "/render?query=a.cpu&from=1749999900&until=1750000000&groupBy=env",
    "/label-values?label=env",
    "/api/apps",
};

struct bed {
    struct env env;
    struct metrics *metrics;
    struct loop *loop;
    struct pool *pool;
    struct budget in_flight;
    struct http_server *http;
    struct rpc_net *rpc;
    struct rpc_node *ingester;
    struct conf *conf;
    struct role_ctx ctx;
    void *self;
    uint16_t port;
    _Atomic int answered, clients_left;
    bool drained;
};

static void answer(enum rpc_method method, struct rpc_call *call, struct str payload)
{
    struct err e = { 0 };
    struct buf out;

    buf_init(&out, MIB);
    if (fake_answer(&(struct fake){ pushes, ARRAY_LEN(pushes), NULL, 0, 0, 0, 0, 1 }, method,
                    payload, &out, &e)) {
        buf_deinit(&out);
        rpc_fail(call, &e);
        return;
    }
    rpc_reply(call, &out);
}

static void on_merge(void *cookie, struct rpc_call *call, struct str payload)
{
    (void)cookie;
    answer(RPC_MERGE, call, payload);
}

static void on_timeline(void *cookie, struct rpc_call *call, struct str payload)
{
    (void)cookie;
    answer(RPC_TIMELINE, call, payload);
}

static void on_labels(void *cookie, struct rpc_call *call, struct str payload)
{
    (void)cookie;
    answer(RPC_LABELS, call, payload);
}

/* ---- a blocking client ------------------------------------------------------------------------*/

static int dial(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && connect(fd, (const struct sockaddr *)(const void *)&a, sizeof(a)) == 0);
    return fd;
}

/* Reads to the end of the connection; true if it begins with 200. */
static bool read_reply(int fd)
{
    char text[16384];
    size_t n = 0;

    for (;;) {
        ssize_t got = read(fd, text + n, sizeof(text) - n);
        if (got <= 0)
            break;
        n += (size_t)got;
        if (n == sizeof(text))
            n = sizeof(text) / 2; /* enough of it */
    }
    return n > 12 && memcmp(text, "HTTP/1.1 200", 12) == 0;
}

/* The whole reply of a POST of JSON; NUL-terminated. */
static void post(uint16_t port, const char *json, char *reply, size_t size)
{
    char request[1024];
    int fd = dial(port);
    int n =
        snprintf(request, sizeof(request),
                 "POST /querier.v1.QuerierService/SelectMergeStacktraces HTTP/1.1\r\nHost: h\r\n"
                 "Connection: close\r\nContent-Type: application/json\r\n"
                 "Content-Length: %zu\r\n\r\n%s",
                 strlen(json), json);
    size_t at = 0;
    ssize_t got;

    CHECK(n > 0 && (size_t)n < sizeof(request) && write(fd, request, (size_t)n) == n);
    while (at < size - 1 && (got = read(fd, reply + at, size - 1 - at)) > 0)
        at += (size_t)got;
    reply[at] = '\0';
    close(fd);
}

/* Starts a query in the background and asks for it until it is there. */
static bool ask_async(uint16_t port)
{
#define ASK                                                                        \
    "{\"start\":1749999900000,\"end\":1750000000000,\"profileTypeID\":\"" QBED_CPU \
    "\",\"labelSelector\":\"{}\",\"async\":{"
    char reply[8192], json[512], id[64] = "";

    post(port, ASK "\"type\":1}}", reply, sizeof(reply));
    const char *at = strstr(reply, "\"requestId\":\"");
    if (!at)
        return false;
    at += strlen("\"requestId\":\"");
    memcpy(id, at, MIN(strcspn(at, "\""), sizeof(id) - 1));
    (void)snprintf(json, sizeof(json), ASK "\"requestId\":\"%s\"}}", id);
    do
        post(port, json, reply, sizeof(reply));
    while (strstr(reply, "ASYNC_QUERY_STATUS_IN_PROGRESS"));
    return strstr(reply, "ASYNC_QUERY_STATUS_SUCCESS") && strstr(reply, "\"total\":\"11\"");
}

static void client_main(void *cookie)
{
    struct bed *b = cookie;

    for (int i = 0; i < REQUESTS; i++) {
        char request[512];
        int fd = dial(b->port);
        int n = snprintf(request, sizeof(request),
                         "GET %s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
                         targets[(size_t)i % ARRAY_LEN(targets)]);
        CHECK(write(fd, request, (size_t)n) == n);
        if (i % 5 != 4) /* else hang up */
            atomic_fetch_add(&b->answered, read_reply(fd));
        close(fd);
        if (i % 8 == 3)
            CHECK(ask_async(b->port));
    }
    if (atomic_fetch_sub(&b->clients_left, 1) == 1)
        loop_stop(b->loop);
}

/* ---- the bed ----------------------------------------------------------------------------------*/

static const struct role *const bed_roles[] = { &querier_role, NULL };

static void open_bed(struct bed *b)
{
    const struct conf_table *tables[OPTIONS_TABLES_MAX];
    size_t n = options_collect(bed_roles, tables);
    char *argv[] = { (char *)(uintptr_t) "test",
                     (char *)(uintptr_t) "--cluster.ingesters=inproc://i0" };
    struct err e;

    b->env = *env_real();
    b->metrics = metrics_new();
    b->loop = loop_new(b->env.clock);
    b->pool = pool_new("querier-test", 3, 256);
    budget_init(&b->in_flight, 16 * MIB);
    struct http_server_opts ho = { .loop = b->loop,
                                   .pool = b->pool,
                                   .in_flight = &b->in_flight,
                                   .metrics = b->metrics,
                                   .listen = "127.0.0.1:0",
                                   .connections_max = 64,
                                   .head_bytes_max = 8192,
                                   .head_ms = 10000,
                                   .body_ms = 10000,
                                   .idle_ms = 10000,
                                   .write_ms = 10000 };
    CHECK(http_server_new(&ho, &b->http, &e) == 0);
    b->port = http_server_port(b->http);
    b->rpc = rpc_net_new(&b->env, b->metrics);
    struct rpc_node_opts ro = { .net = b->rpc,
                                .loop = b->loop,
                                .listen = "inproc://i0",
                                .message_max = MIB,
                                .pending_max = 1000,
                                .heartbeat_ms = 50,
                                .dead_ms = 5000 };
    CHECK(rpc_node_new(&ro, &b->ingester, &e) == 0);
    rpc_serve(b->ingester, RPC_MERGE, on_merge, b);
    rpc_serve(b->ingester, RPC_TIMELINE, on_timeline, b);
    rpc_serve(b->ingester, RPC_LABELS, on_labels, b);
    CHECK(conf_load(tables, n, 2, argv, &b->conf, &e) == 0);
    b->ctx = (struct role_ctx){ .env = &b->env,
                                .loop = b->loop,
                                .pool = b->pool,
                                .http = b->http,
                                .rpc = b->rpc,
                                .metrics = b->metrics,
                                .in_flight = &b->in_flight,
                                .conf = b->conf,
                                .common = conf_get(b->conf, &http_options),
                                .cluster = conf_get(b->conf, &cluster_options),
                                .view = options_view(conf_get(b->conf, &cluster_options)),
                                .tenancy = conf_get(b->conf, &tenancy_options),
                                .data = conf_get(b->conf, &data_options),
                                .data_dir = "none",
                                .memory_limit = 512 * MIB };
    CHECK(querier_role.start(&b->ctx, &b->self, &e) == 0);
}

static void on_drained(void *cookie)
{
    struct bed *b = cookie;

    b->drained = true;
    loop_stop(b->loop);
}

static void close_bed(struct bed *b)
{
    http_server_drain(b->http, on_drained, b);
    loop_run(b->loop);
    querier_role.drain(b->self, on_drained, b);
    loop_run(b->loop);
    const struct querier *qr = b->self;
    assert_int_equal(qr->running, 0);
    assert_int_equal(qr->bytes.used, 0);
    rpc_node_free(b->ingester);
    querier_role.free(b->self);
    pool_free(b->pool);
    http_server_free(b->http);
    view_free(b->ctx.view);
    rpc_net_free(b->rpc);
    loop_free(b->loop);
    metrics_free(b->metrics);
    conf_free(b->conf);
}

static void test_many_clients(void **state)
{
    (void)state;
    struct thread threads[CLIENTS] = { 0 };
    struct bed b = { 0 };

    open_bed(&b);
    atomic_store(&b.clients_left, CLIENTS);
    for (int i = 0; i < CLIENTS; i++)
        thread_start(&threads[i], "client", client_main, &b);
    loop_run(b.loop);
    for (int i = 0; i < CLIENTS; i++)
        thread_join(&threads[i]);
    assert_int_equal(atomic_load(&b.answered), CLIENTS * REQUESTS * 4 / 5);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_many_clients),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
