/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp: sockets by libuv.
 *
 * The listening socket is ours and only polled by libuv, because a libuv server that runs out of
 * file descriptors either closes clients itself or spins: here accept() failing means a pause, and
 * the clients wait in the kernel's queue. A burst is taken in portions, so that connections already
 * open get their turn.
 *
 * Leaving: a connection that the kernel made and the process did not accept is reset when the
 * socket closes, with the request that may already be on its way. So a filter first drops packets
 * that begin a new connection (the client tries again a second later, and by then a successor
 * listens, or the connection is refused). Connections in their handshake get LEAVE_MS for it, all
 * are accepted, and only then is the socket closed.
 *
 * All streams read into one buffer of the listener: libuv calls back with the bytes before it
 * reads again, and the protocol copies what it has to keep.
 */
#include "common/net/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include "common/net/local.h"

#define TCP_MAGIC       MAGIC('T', 'C', 'P', 'S')
#define READ_BYTES      (64 * KIB)
#define ACCEPTS_A_TURN  64
#define ACCEPT_PAUSE_MS 200
#define BACKLOG         1024
#define LEAVE_MS        250
#define KEEPALIVE_S     60

struct tcp_listener {
    uv_poll_t poll;
    struct http_server *server; /* borrowed; NULL once freed */
    struct timer *retry;        /* owned; accept again */
    struct timer *leave;        /* owned; close */
    char *read_buf;             /* owned; READ_BYTES */
    int fd;
    uint16_t port;
    const char *path; /* borrowed; of a Unix socket, else NULL */
    bool leaving, closing, closed;
};

struct tcp {
    struct stream stream;
    uint32_t magic;
    uv_tcp_t uv;
    uv_write_t write;
    uv_shutdown_t shut;
    char *read_buf; /* the listener's */
};

/* ---- streams */

static struct tcp *tcp_of(const struct stream *s)
{
    struct tcp *t = container_of((uintptr_t)s, struct tcp, stream);

    CHECK(t->magic == TCP_MAGIC);
    return t;
}

static uv_stream_t *uv_of(struct tcp *t)
{
    return (uv_stream_t *)(void *)&t->uv;
}

static void on_write(uv_write_t *w, int status)
{
    struct tcp *t = container_of(w, struct tcp, write);

    t->stream.up->on_written(t->stream.cookie, status == 0);
}

static enum stream_wrote tcp_write(struct stream *s, const struct str *v, size_t n)
{
    struct tcp *t = tcp_of(s);
    uv_buf_t bufs[STREAM_SLICES_MAX];
    unsigned first = 0, len = (unsigned)n;

    CHECK(n > 0 && n <= STREAM_SLICES_MAX);
    for (size_t i = 0; i < n; i++)
        bufs[i] = (uv_buf_t){ .base = (char *)(uintptr_t)v[i].ptr, .len = v[i].len };
    int wrote = uv_try_write(uv_of(t), bufs, len);
    if (wrote == UV_EAGAIN)
        wrote = 0;
    if (wrote < 0)
        return STREAM_BROKEN;
    while (first < len && (size_t)wrote >= bufs[first].len)
        wrote -= (int)bufs[first++].len;
    if (first == len)
        return STREAM_ALL;
    bufs[first].base += wrote;
    bufs[first].len -= (size_t)wrote;
    return uv_write(&t->write, uv_of(t), bufs + first, len - first, on_write) ? STREAM_BROKEN
                                                                              : STREAM_LATER;
}

static size_t tcp_unsent(const struct stream *s)
{
    return uv_stream_get_write_queue_size(uv_of(tcp_of(s)));
}

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    struct tcp *t = container_of(h, struct tcp, uv);

    (void)hint;
    *ret = uv_buf_init(t->read_buf, READ_BYTES);
}

static void on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct tcp *t = container_of(h, struct tcp, uv);

    if (n > 0)
        t->stream.up->on_bytes(t->stream.cookie, (struct str){ buf->base, (size_t)n });
    else if (n < 0)
        t->stream.up->on_end(t->stream.cookie, n != UV_EOF);
}

static void tcp_read(struct stream *s, bool on)
{
    struct tcp *t = tcp_of(s);

    if (on)
        (void)uv_read_start(uv_of(t), on_alloc, on_read);
    else
        (void)uv_read_stop(uv_of(t));
}

static void on_shut(uv_shutdown_t *req, int status)
{
    (void)req;
    (void)status; /* a peer that is gone is noticed by reading */
}

static void tcp_shut(struct stream *s)
{
    struct tcp *t = tcp_of(s);

    (void)uv_shutdown(&t->shut, uv_of(t), on_shut);
}

static void on_close(uv_handle_t *h)
{
    struct tcp *t = container_of(h, struct tcp, uv);

    t->stream.up->on_closed(t->stream.cookie);
    t->magic = 0;
    xfree(t);
}

static void tcp_close(struct stream *s)
{
    uv_close((uv_handle_t *)(void *)&tcp_of(s)->uv, on_close);
}

static const struct stream_ops tcp_ops = {
    .write = tcp_write,
    .unsent = tcp_unsent,
    .read = tcp_read,
    .shut = tcp_shut,
    .close = tcp_close,
};

static void name_peer(const struct sockaddr_storage *a, char *to, size_t n)
{
    char host[INET6_ADDRSTRLEN] = "?";

    if (a->ss_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)a;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        (void)snprintf(to, n, "%s:%u", host, ntohs(v4->sin_port));
    } else {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)a;
        bool mapped = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
        (void)inet_ntop(mapped ? AF_INET : AF_INET6, &v6->sin6_addr.s6_addr[mapped ? 12 : 0], host,
                        sizeof(host));
        (void)snprintf(to, n, mapped ? "%s:%u" : "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

bool tcp_own(const struct sockaddr_storage *peer, const struct sockaddr_storage *here)
{
    if (peer->ss_family == AF_INET) {
        const struct sockaddr_in *p = (const struct sockaddr_in *)(const void *)peer;
        const struct sockaddr_in *h = (const struct sockaddr_in *)(const void *)here;
        return ntohl(p->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET ||
               (h->sin_family == AF_INET && h->sin_addr.s_addr == p->sin_addr.s_addr);
    }
    const struct sockaddr_in6 *p = (const struct sockaddr_in6 *)(const void *)peer;
    const struct sockaddr_in6 *h = (const struct sockaddr_in6 *)(const void *)here;
    return IN6_IS_ADDR_LOOPBACK(&p->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&p->sin6_addr) && p->sin6_addr.s6_addr[12] == IN_LOOPBACKNET) ||
           (h->sin6_family == AF_INET6 && IN6_ARE_ADDR_EQUAL(&h->sin6_addr, &p->sin6_addr));
}

static bool is_own(int fd, const struct sockaddr_storage *peer)
{
    struct sockaddr_storage here = { 0 };
    socklen_t len = sizeof(here);

    if (getsockname(fd, (struct sockaddr *)(void *)&here, &len))
        here.ss_family = AF_UNSPEC;
    return tcp_own(peer, &here);
}

static void take(struct tcp_listener *l, int fd, const struct sockaddr_storage *peer)
{
    struct tcp *t = XNEW(struct tcp);
    uv_loop_t *uv = loop_uv(l->server->o.loop);

    t->magic = TCP_MAGIC;
    t->stream.ops = &tcp_ops;
    t->read_buf = l->read_buf;
    t->stream.local = l->path;
    t->stream.own = l->path || is_own(fd, peer);
    if (l->path)
        local_peer(fd, t->stream.peer, sizeof(t->stream.peer));
    else
        name_peer(peer, t->stream.peer, sizeof(t->stream.peer));
    CHECK(uv_tcp_init(uv, &t->uv) == 0);
    CHECK(uv_tcp_open(&t->uv, fd) == 0);
    (void)uv_tcp_nodelay(&t->uv, 1);
    (void)uv_tcp_keepalive(&t->uv, 1, KEEPALIVE_S);
    http_server_attach(l->server, &t->stream);
}

/* ---- the listening socket */

static void on_acceptable(uv_poll_t *p, int status, int events);

static void on_retry(void *cookie)
{
    struct tcp_listener *l = cookie;

    if (!l->closing)
        CHECK(uv_poll_start(&l->poll, UV_READABLE, on_acceptable) == 0);
}

/* False: no connection waits, or none can be accepted now. */
static bool accept_one(struct tcp_listener *l)
{
    struct sockaddr_storage peer = { 0 };
    socklen_t len = sizeof(peer);
    int fd = accept4(l->fd, (struct sockaddr *)(void *)&peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);

    if (fd >= 0) {
        take(l, fd, &peer);
        return true;
    }
    if (errno == EINTR || errno == ECONNABORTED)
        return true;
    if (errno != EAGAIN) {
        /* Out of descriptors or memory: the client waits, we do not spin. */
        metric_add(l->server->refused[HTTP_REFUSED_ACCEPT], 1);
        (void)uv_poll_stop(&l->poll);
        loop_timer_start(l->retry, ACCEPT_PAUSE_MS, 0);
    }
    return false;
}

static void on_acceptable(uv_poll_t *p, int status, int events)
{
    struct tcp_listener *l = container_of(p, struct tcp_listener, poll);

    (void)status; /* accept() says it better */
    (void)events;
    for (int i = 0; i < ACCEPTS_A_TURN && !l->closing; i++) {
        if (!accept_one(l))
            return;
    }
}

/* Cuts "host:port", "[host]:port" or ":port" into NUL-terminated parts. */
static int split_addr(const char *addr, char *host, size_t host_max, char *port, size_t port_max,
                      struct err *e)
{
    struct str s = str_c(addr);
    ptrdiff_t colon = str_rfind(s, ':');
    uint64_t number;

    if (colon < 0 || !str_u64(str_sub(s, (size_t)colon + 1, s.len), &number) || number > 65535)
        return err_set(e, ERR_CONFIG, "listen address '%s' is not host:port", addr);
    struct str h = str_sub(s, 0, (size_t)colon);
    if (h.len >= 2 && h.ptr[0] == '[' && h.ptr[h.len - 1] == ']')
        h = str_sub(h, 1, h.len - 1);
    if (h.len >= host_max)
        return err_set(e, ERR_CONFIG, "listen address '%s' is too long", addr);
    (void)snprintf(host, host_max, "%.*s", STR_ARG(h));
    (void)snprintf(port, port_max, "%u", (unsigned)number & 0xffff);
    return 0;
}

int tcp_addr_check(const char *addr, struct err *e)
{
    char host[256], port[8];

    return split_addr(addr, host, sizeof(host), port, sizeof(port), e);
}

/* A bound, listening, non-blocking socket, or -1 with errno. */
static int open_socket(const struct addrinfo *a)
{
    int on = 1, off = 0;
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (a->ai_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int saved = errno;
    (void)close(fd);
    errno = saved;
    return -1;
}

static int bind_any(const char *addr, int *ret_fd, struct err *e)
{
    char host[256], port[8];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE };
    struct addrinfo *list = NULL;
    int code = split_addr(addr, host, sizeof(host), port, sizeof(port), e);
    int fd = -1, saved = 0;

    if (code)
        return code;
    code = getaddrinfo(host[0] ? host : NULL, port, &hints, &list);
    if (code)
        return err_set(e, ERR_CONFIG, "listen address '%s': %s", addr, gai_strerror(code));
    /* Without a host: the IPv6 socket takes both families, where there is IPv6. */
    for (int pass = host[0] ? 1 : 0; pass < 2 && fd < 0; pass++) {
        for (const struct addrinfo *a = list; a && fd < 0; a = a->ai_next) {
            if (pass == 0 && a->ai_family != AF_INET6)
                continue;
            fd = open_socket(a);
            saved = errno;
        }
    }
    freeaddrinfo(list);
    if (fd < 0)
        return err_errno(e, saved, "cannot listen on %s (http.listen chooses another)", addr);
    *ret_fd = fd;
    return 0;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);

    CHECK(getsockname(fd, (struct sockaddr *)(void *)&a, &len) == 0);
    if (a.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)(const void *)&a)->sin6_port);
    return ntohs(((const struct sockaddr_in *)(const void *)&a)->sin_port);
}

static void on_leave(void *cookie);

static struct tcp_listener *listener_new(struct http_server *s, int fd)
{
    struct tcp_listener *l = XNEW(struct tcp_listener);

    (void)signal(SIGPIPE, SIG_IGN);
    l->server = s;
    l->fd = fd;
    l->read_buf = xmalloc(READ_BYTES);
    l->retry = loop_timer_new(s->o.loop, on_retry, l);
    l->leave = loop_timer_new(s->o.loop, on_leave, l);
    CHECK(uv_poll_init(loop_uv(s->o.loop), &l->poll, fd) == 0);
    CHECK(uv_poll_start(&l->poll, UV_READABLE, on_acceptable) == 0);
    return l;
}

int tcp_listen(struct http_server *s, const char *addr, struct tcp_listener **ret, struct err *e)
{
    int fd = -1;
    int code;

    if (!loop_uv(s->o.loop))
        return err_set(e, ERR_CONFIG, "a simulated loop has no sockets to listen on %s", addr);
    code = bind_any(addr, &fd, e);
    if (code)
        return code;
    *ret = listener_new(s, fd);
    (*ret)->port = port_of(fd);
    return 0;
}

int tcp_listen_local(struct http_server *s, const char *path, struct tcp_listener **ret,
                     struct err *e)
{
    int fd = -1;
    int code = local_listen(path, &fd, e);

    if (code)
        return code;
    *ret = listener_new(s, fd);
    (*ret)->path = path;
    return 0;
}

uint16_t tcp_listener_port(const struct tcp_listener *l)
{
    return l->port;
}

bool tcp_listener_closed(const struct tcp_listener *l)
{
    return l->closed;
}

static void on_poll_closed(uv_handle_t *h)
{
    struct tcp_listener *l = container_of(h, struct tcp_listener, poll);

    l->closed = true;
    if (l->server) {
        http_server_check_drained(l->server);
    } else {
        xfree(l->read_buf);
        xfree(l);
    }
}

static void listener_close(struct tcp_listener *l)
{
    if (l->closing)
        return;
    l->closing = true;
    loop_timer_free(l->retry);
    loop_timer_free(l->leave);
    uv_close((uv_handle_t *)(void *)&l->poll, on_poll_closed);
    (void)close(l->fd);
    if (l->path)
        (void)unlink(l->path); /* no process listens there now */
}

static void on_leave(void *cookie)
{
    struct tcp_listener *l = cookie;

    while (accept_one(l))
        ;
    listener_close(l);
}

/* The filter sees the TCP header: SYN without ACK is dropped. Without it (an old or unusual kernel)
 * a connection that comes in the last moment is lost. */
void tcp_listener_leave(struct tcp_listener *l)
{
    struct sock_filter drop_syn[] = {
        BPF_STMT(BPF_LD | BPF_B | BPF_ABS, 13), /* the flags */
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0x12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0x02, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, 0),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
    };
    struct sock_fprog program = { ARRAY_LEN(drop_syn), drop_syn };

    if (l->leaving || l->closing)
        return;
    l->leaving = true;
    if (!l->path)
        (void)setsockopt(l->fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
    loop_timer_start(l->leave, LEAVE_MS, 0);
}

void tcp_listener_free(struct tcp_listener *l)
{
    if (!l)
        return;
    listener_close(l);
    l->server = NULL;
    if (l->closed) {
        xfree(l->read_buf);
        xfree(l);
    }
}
