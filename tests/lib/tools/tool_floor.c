/* SPDX-License-Identifier: Apache-2.0
 *
 * tool_floor FILE: the least a durable push can cost. It prints its port, and of every POST it
 * reads the body, unzips it (libdeflate), appends the body to FILE, and answers 200 once the file
 * is synced: one fdatasync for all pushes that were there at once. One thread, one read and one
 * write a push, nothing is decoded, nothing checked, nothing is found again. bench_ingest.py sends
 * it what it sends to the server. It ends when its standard input does.
 *
 * For each line on its standard input it prints what unzipping took per push since the line before,
 * in microseconds of CPU: gunzip where a server meets it, among its reads and writes and beside its
 * clients. One push in UNZIP_TIMED is timed, since asking for the time costs some of it.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <libdeflate.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "common/base/mem.h"

enum { CONNS = 64, BODY_MAX = 4 * 1024 * 1024, PLAIN_MAX = 64 * 1024 * 1024 };

struct conn {
    int fd;
    size_t len; /* bytes of one request so far */
    char buf[BODY_MAX];
};

#define UNZIP_TIMED 4

static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/* Bytes of the whole request, 0: its head is not there yet. */
static size_t request_len(struct conn *c, size_t *ret_head)
{
    char *end = memmem(c->buf, c->len, "\r\n\r\n", 4);
    char *length = memmem(c->buf, c->len, "Content-Length: ", 16);

    if (!end || !length)
        return 0;
    *ret_head = (size_t)(end - c->buf) + 4;
    return *ret_head + strtoul(length + 16, NULL, 10);
}

/* True: a push is there in whole, *ret is its body. */
static bool take(struct conn *c, struct iovec *ret)
{
    size_t head = 0, all;
    ssize_t n = recv(c->fd, c->buf + c->len, sizeof(c->buf) - c->len, 0);

    if (n <= 0) {
        (void)close(c->fd);
        c->fd = -1;
        return false;
    }
    c->len += (size_t)n;
    all = request_len(c, &head);
    if (!all || c->len < all)
        return false;
    *ret = (struct iovec){ c->buf + head, all - head };
    c->len = 0;
    return true;
}

static void add_conn(int epoll, int listener, struct conn **conns)
{
    size_t i = 0;

    while (i < CONNS && conns[i] && conns[i]->fd >= 0)
        i++;
    CHECK(i < CONNS);
    if (!conns[i])
        conns[i] = xmalloc(sizeof(**conns));
    conns[i]->len = 0;
    conns[i]->fd = accept(listener, NULL, NULL);
    int on = 1;
    CHECK(conns[i]->fd >= 0);
    CHECK(setsockopt(conns[i]->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0);
    struct epoll_event add = { .events = EPOLLIN, .data.ptr = conns[i] };
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, conns[i]->fd, &add) == 0);
}

static int listen_at(uint16_t *port)
{
    struct sockaddr_in a = { .sin_family = AF_INET };
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(fd >= 0 && bind(fd, (struct sockaddr *)(void *)&a, sizeof(a)) == 0);
    CHECK(listen(fd, CONNS) == 0 && getsockname(fd, (struct sockaddr *)(void *)&a, &len) == 0);
    *port = ntohs(a.sin_port);
    return fd;
}

struct server {
    int epoll, listener, file;
    struct conn *conns[CONNS];
    struct libdeflate_decompressor *unzip;
    char *plain;
    uint64_t unzipped, timed;
    double timed_us, clock_us; /* clock_us: what timing nothing takes */
};

static double cpu_us(void)
{
    struct timespec t;

    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t) == 0);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static double clock_costs(void)
{
    double best = 1e9;

    for (int i = 0; i < 1000; i++) {
        double began = cpu_us();
        best = MIN(best, cpu_us() - began);
    }
    return best;
}

static void unzip(struct server *s, const struct iovec *body)
{
    bool timed = s->unzipped++ % UNZIP_TIMED == 0;
    double began = timed ? cpu_us() : 0;
    size_t n;

    CHECK(libdeflate_gzip_decompress(s->unzip, body->iov_base, body->iov_len, s->plain, PLAIN_MAX,
                                     &n) == LIBDEFLATE_SUCCESS);
    if (timed) {
        s->timed_us += cpu_us() - began - s->clock_us;
        s->timed++;
    }
}

/* False: standard input ended. */
static bool asked(struct server *s)
{
    char line[64];

    if (read(STDIN_FILENO, line, sizeof(line)) <= 0)
        return false;
    printf("%.2f\n", s->timed ? s->timed_us / (double)s->timed : 0);
    (void)fflush(stdout);
    s->timed = 0;
    s->timed_us = 0;
    return true;
}

/* All that is ready: read and unzipped, then one write and one sync, then the answers. */
static bool turn(struct server *s)
{
    struct epoll_event ev[CONNS + 2];
    struct iovec bodies[CONNS + 2];
    int to[CONNS + 2], len = 0, n = epoll_wait(s->epoll, ev, CONNS + 2, -1);

    for (int i = 0; i < n; i++) {
        if (!ev[i].data.ptr) {
            if (!asked(s))
                return false;
            continue;
        }
        if (ev[i].data.ptr == s) {
            add_conn(s->epoll, s->listener, s->conns);
            continue;
        }
        struct conn *c = ev[i].data.ptr;
        if (!take(c, &bodies[len]))
            continue;
        unzip(s, &bodies[len]);
        to[len++] = c->fd;
    }
    if (!len)
        return true;
    CHECK(writev(s->file, bodies, len) > 0 && fdatasync(s->file) == 0);
    for (int i = 0; i < len; i++)
        CHECK(send(to[i], ok, sizeof(ok) - 1, MSG_NOSIGNAL) > 0);
    return true;
}

int main(int argc, char **argv)
{
    struct server s = { .epoll = epoll_create1(EPOLL_CLOEXEC),
                        .plain = xmalloc(PLAIN_MAX),
                        .clock_us = clock_costs() };
    struct epoll_event in = { .events = EPOLLIN, .data.ptr = &s }, end = { .events = EPOLLIN };
    uint16_t port;

    if (argc != 2) {
        fprintf(stderr, "usage: tool_floor FILE\n");
        return 2;
    }
    s.file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    s.unzip = libdeflate_alloc_decompressor();
    s.listener = listen_at(&port);
    CHECK(s.file >= 0 && s.epoll >= 0 && s.unzip);
    CHECK(epoll_ctl(s.epoll, EPOLL_CTL_ADD, s.listener, &in) == 0);
    CHECK(epoll_ctl(s.epoll, EPOLL_CTL_ADD, STDIN_FILENO, &end) == 0);
    printf("%u\n", port);
    (void)fflush(stdout);
    while (turn(&s))
        ;
    for (size_t i = 0; i < CONNS; i++)
        xfree(s.conns[i]);
    libdeflate_free_decompressor(s.unzip);
    xfree(s.plain);
    return 0;
}
