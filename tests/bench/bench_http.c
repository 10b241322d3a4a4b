/* SPDX-License-Identifier: Apache-2.0
 *
 * CPU of the HTTP server's thread per request, beside a server that does nothing but move the same
 * bytes: it knows the length of every request, reads that much and writes a fixed reply. What is
 * above 1 x is the price of HTTP.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/http.h"
#include "common/sys/thread.h"

enum { CONNS = 64, ROUNDS = 300, REPLY_MAX = 4096 };

static const char bare_reply[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

static double cpu_s(clockid_t clock)
{
    struct timespec t;

    CHECK(clock_gettime(clock, &t) == 0);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the load: every connection has one request under way */

static int dial(uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && connect(fd, (struct sockaddr *)(void *)&a, sizeof(a)) == 0);
    CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    return fd;
}

static void put_all(int fd, struct str s)
{
    while (s.len) {
        ssize_t n = send(fd, s.ptr, s.len, MSG_NOSIGNAL);
        CHECK(n > 0);
        s = str_sub(s, (size_t)n, s.len);
    }
}

/* An empty reply ends with its head. */
static void get_reply(int fd)
{
    char reply[REPLY_MAX];
    size_t len = 0;

    while (len < 4 || memcmp(reply + len - 4, "\r\n\r\n", 4) != 0) {
        ssize_t n = recv(fd, reply + len, sizeof(reply) - len, 0);
        CHECK(n > 0);
        len += (size_t)n;
    }
    CHECK(memcmp(reply, "HTTP/1.1 200", 12) == 0);
}

/* CPU seconds of `server` per request. */
static double load(uint16_t port, clockid_t server, struct str request)
{
    int fds[CONNS];
    double before = 0;

    for (size_t i = 0; i < CONNS; i++)
        fds[i] = dial(port);
    for (int r = -ROUNDS / 10; r < ROUNDS; r++) {
        if (r == 0)
            before = cpu_s(server);
        for (size_t i = 0; i < CONNS; i++)
            put_all(fds[i], request);
        for (size_t i = 0; i < CONNS; i++)
            get_reply(fds[i]);
    }
    double used = cpu_s(server) - before;
    for (size_t i = 0; i < CONNS; i++)
        (void)close(fds[i]);
    return used / (CONNS * ROUNDS);
}

/* ---- our server */

struct ours {
    struct loop *loop;
    struct http_server *server;
    struct thread thread;
};

static void on_push(struct http_req *r)
{
    CHECK(r->body.len > 0);
    http_reply(r, 200, NULL, NULL);
}

static void run_ours(void *cookie)
{
    loop_run(((struct ours *)cookie)->loop);
}

static void drained(void *cookie)
{
    loop_stop(((struct ours *)cookie)->loop);
}

static void drain(void *cookie)
{
    http_server_drain(((struct ours *)cookie)->server, drained, cookie);
}

static double bench_ours(struct str request)
{
    struct ours o = { .loop = loop_new(clock_real()) };
    struct http_server_opts opts = {
        .loop = o.loop,
        .listen = "127.0.0.1:0",
        .connections_max = 1000,
        .head_bytes_max = 64 * KIB,
        .head_ms = 10000,
        .body_ms = 10000,
        .idle_ms = 10000,
        .write_ms = 10000,
    };
    struct err e;
    clockid_t clock;

    if (http_server_new(&opts, &o.server, &e)) {
        fprintf(stderr, "%s\n", e.text);
        return -1;
    }
    http_route(o.server, HTTP_POST, "/ingest", MIB, on_push, NULL);
    thread_start(&o.thread, "server", run_ours, &o);
    CHECK(pthread_getcpuclockid(o.thread.id, &clock) == 0);
    double s = load(http_server_port(o.server), clock, request);
    loop_post(o.loop, drain, &o);
    thread_join(&o.thread);
    http_server_free(o.server);
    loop_free(o.loop);
    return s;
}

/* ---- the bare one */

struct bare {
    int fd;
    size_t request_len;
    size_t got[4096]; /* by file descriptor */
    struct thread thread;
    char buf[64 * 1024];
};

static void bare_serve(struct bare *b, int epoll, int fd)
{
    ssize_t n = recv(fd, b->buf, sizeof(b->buf), 0);

    if (n <= 0) {
        (void)epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        (void)close(fd);
        return;
    }
    b->got[fd] += (size_t)n;
    if (b->got[fd] == b->request_len) {
        b->got[fd] = 0;
        CHECK(send(fd, bare_reply, sizeof(bare_reply) - 1, MSG_NOSIGNAL) > 0);
    }
}

static void run_bare(void *cookie)
{
    struct bare *b = cookie;
    int epoll = epoll_create1(EPOLL_CLOEXEC), open = 0;
    struct epoll_event ev[CONNS], add = { .events = EPOLLIN };

    add.data.fd = b->fd;
    CHECK(epoll >= 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, b->fd, &add) == 0);
    while (open >= 0) {
        int n = epoll_wait(epoll, ev, CONNS, -1);
        for (int i = 0; i < n; i++) {
            if (ev[i].data.fd != b->fd) {
                bare_serve(b, epoll, ev[i].data.fd);
                continue;
            }
            int fd = accept(b->fd, NULL, NULL);
            if (fd < 0) { /* shut down: the bench is over */
                open = -1;
                break;
            }
            CHECK((size_t)fd < ARRAY_LEN(b->got));
            add.data.fd = fd;
            CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &add) == 0);
        }
    }
    (void)close(epoll);
}

static double bench_bare(struct str request)
{
    struct bare *b = XNEW(struct bare);
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof(a);
    clockid_t clock;

    b->request_len = request.len;
    b->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(bind(b->fd, (struct sockaddr *)(void *)&a, sizeof(a)) == 0 && listen(b->fd, CONNS) == 0);
    CHECK(getsockname(b->fd, (struct sockaddr *)(void *)&a, &len) == 0);
    thread_start(&b->thread, "bare", run_bare, b);
    CHECK(pthread_getcpuclockid(b->thread.id, &clock) == 0);
    double s = load(ntohs(a.sin_port), clock, request);
    CHECK(shutdown(b->fd, SHUT_RDWR) == 0);
    thread_join(&b->thread);
    (void)close(b->fd);
    xfree(b);
    return s;
}

int main(void)
{
    static const struct {
        const char *name;
        size_t body;
        bool chunked;
    } rows[] = {
        { "POST 1 KiB", 1024, false },
        { "POST 1 KiB, chunked", 1024, true },
        { "POST 32 KiB", 32 * 1024, false },
        { "POST 256 KiB", 256 * 1024, false },
    };
    struct buf b;

    buf_init(&b, MIB);
    printf("%d connections, one request each under way; CPU of the server's thread per request\n",
           CONNS);
    printf("%-22s %12s %12s %8s\n", "request", "http us", "bare us", "ratio");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&b);
        buf_add_str(&b,
                    STR("POST /ingest?name=app.cpu%7Benv%3Dprod%7D&from=1750000000&until=1750000010"
                        "&format=pprof&sampleRate=100&spyName=gospy HTTP/1.1\r\n"
                        "Host: 127.0.0.1:4040\r\nUser-Agent: bench/1\r\n"
                        "Content-Type: application/octet-stream\r\nAccept-Encoding: gzip\r\n"));
        if (rows[i].chunked)
            buf_addf(&b, "Transfer-Encoding: chunked\r\n\r\n%zx\r\n", rows[i].body);
        else
            buf_addf(&b, "Content-Length: %zu\r\n\r\n", rows[i].body);
        for (size_t k = 0; k < rows[i].body; k++)
            buf_add_c(&b, (char)k);
        if (rows[i].chunked)
            buf_add_str(&b, STR("\r\n0\r\n\r\n"));
        double bare = bench_bare(buf_str(&b)), http = bench_ours(buf_str(&b));
        if (http < 0)
            return 1;
        printf("%-22s %12.2f %12.2f %7.2f x\n", rows[i].name, http * 1e6, bare * 1e6, http / bare);
    }
    buf_deinit(&b);
    return 0;
}
