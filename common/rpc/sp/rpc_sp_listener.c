/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp_ear: the listening side: connections that only bring frames.
 *
 * All connections read into one buffer, since libuv hands bytes over before it reads again; an
 * incomplete frame is kept by the connection's reader. A connection that sends anything but a hello
 * and messages is closed. Our hello is the only answer; the kernel's keep-alive finds connections
 * whose peer vanished.
 *
 * Any client may connect and send a hello, or half a frame, and then nothing more. So connections
 * that have sent no valid frame have bounds of their own: they take no places from nodes, nor much
 * memory.
 *
 * Back-pressure is TCP's: what the loop has no time to read stays in the sender's queue.
 */
#include <errno.h>
#include <netdb.h>
#include <signal.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/rpc/sp/rpc_sp.h"

enum { BACKLOG = 1024, KEEPALIVE_S = 30 };

struct sp_conn {
    struct list link; /* in one of the lists of `ear` */
    struct sp_listener *ear;
    union rpc_sp_handle h;
    struct rpc_sp_reader reader;
    char hello[RPC_SP_HELLO];
    uv_write_t write;
    size_t bytes; /* counted in ear.strangers_bytes */
    bool known, closing;
};

void sp_listener_handle_gone(struct sp_listener *n)
{
    CHECK(n->handles > 0);
    if (--n->handles > 0)
        return;
    CHECK(n->closed && list_empty(&n->conns) && list_empty(&n->strangers));
    CHECK(list_empty(&n->dirty) && n->strangers_len == 0 && n->strangers_bytes == 0);
    xfree(n->scratch);
    xfree(n);
}

/* ---- connections ---- */

static void conn_on_closed(uv_handle_t *h)
{
    struct sp_conn *c = h->data;
    struct sp_listener *n = c->ear;

    rpc_sp_reader_deinit(&c->reader);
    xfree(c);
    sp_listener_handle_gone(n);
}

/* Out of its list. */
static void conn_take_out(struct sp_conn *c)
{
    list_del(&c->link);
    c->ear->conns_len--;
    c->ear->strangers_len -= !c->known;
    c->ear->strangers_bytes -= c->bytes;
    c->bytes = 0;
}

static void conn_close(struct sp_conn *c)
{
    if (c->closing)
        return;
    c->closing = true;
    conn_take_out(c);
    uv_close(&c->h.handle, conn_on_closed);
}

static void conn_is_known(struct sp_conn *c)
{
    conn_take_out(c);
    c->known = true;
    list_add_tail(&c->ear->conns, &c->link);
    c->ear->conns_len++;
}

static void bound_strangers(struct sp_listener *n)
{
    while (n->strangers_len > RPC_SP_STRANGERS_MAX || n->strangers_bytes > RPC_SP_STRANGERS_BYTES ||
           (n->conns_len > RPC_SP_CONNS_MAX && n->strangers_len))
        conn_close(container_of(n->strangers.next, struct sp_conn, link));
}

static void conn_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    const struct sp_conn *c = h->data;

    (void)hint;
    *ret = uv_buf_init(c->ear->scratch, RPC_SP_READ);
}

static bool conn_on_frame(void *cookie, struct str frame)
{
    struct sp_conn *c = cookie;

    if (c->ear->on_frame(c->ear->cookie, frame) && !c->known && !c->closing)
        conn_is_known(c);
    return !c->closing;
}

static void conn_on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct sp_conn *c = h->data;
    struct err e;

    if (n == 0)
        return;
    if (n < 0 ||
        rpc_sp_reader_take(&c->reader, str_n(buf->base, (size_t)n), conn_on_frame, c, &e) != 0)
        conn_close(c);
    if (c->known || c->closing)
        return;
    c->ear->strangers_bytes += c->reader.part.cap - c->bytes;
    c->bytes = c->reader.part.cap;
    bound_strangers(c->ear);
}

static void conn_on_hello_sent(uv_write_t *w, int status)
{
    struct sp_conn *c = container_of(w, struct sp_conn, write);

    if (status < 0)
        conn_close(c);
}

static int handle_init(struct sp_listener *n, union rpc_sp_handle *h)
{
    return n->ipc ? uv_pipe_init(n->uv, &h->pipe, 0) : uv_tcp_init(n->uv, &h->tcp);
}

static void on_connection(uv_stream_t *listener, int status)
{
    struct sp_listener *n = listener->data;
    struct sp_conn *c;
    uv_buf_t hello;

    if (status < 0)
        return; /* for example out of descriptors; libuv tries again when there are some */
    c = XNEW(struct sp_conn);
    *c = (struct sp_conn){ .ear = n };
    rpc_sp_reader_init(&c->reader, n->ipc, RPC_SP_PUSH);
    CHECK(handle_init(n, &c->h) == 0);
    n->handles++;
    c->h.handle.data = c;
    list_add_tail(&n->strangers, &c->link);
    n->conns_len++;
    n->strangers_len++;
    if (uv_accept(listener, &c->h.stream) != 0) {
        conn_close(c);
        return;
    }
    bound_strangers(n); /* itself, where all others are nodes */
    if (c->closing)
        return;
    if (!n->ipc)
        (void)uv_tcp_keepalive(&c->h.tcp, 1, KEEPALIVE_S);
    rpc_sp_hello(RPC_SP_PULL, c->hello);
    hello = uv_buf_init(c->hello, sizeof(c->hello));
    if (uv_write(&c->write, &c->h.stream, &hello, 1, conn_on_hello_sent) != 0 ||
        uv_read_start(&c->h.stream, conn_on_alloc, conn_on_read) != 0)
        conn_close(c);
}

/* ---- listening ---- */

/* Removes a socket file that no process listens on any more. */
static void remove_stale(const char *path)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return;
    memcpy(a.sun_path, path, MIN(strlen(path), sizeof(a.sun_path) - 1));
    if (connect(fd, (const struct sockaddr *)(const void *)&a, sizeof(a)) != 0 &&
        errno == ECONNREFUSED)
        (void)unlink(path);
    (void)close(fd);
}

static int bind_ipc(struct sp_listener *n, const char *path)
{
    int rc = uv_pipe_bind(&n->listener.pipe, path);

    if (rc == UV_EADDRINUSE) {
        remove_stale(path);
        rc = uv_pipe_bind(&n->listener.pipe, path);
    }
    return rc;
}

static int bind_tcp(struct sp_listener *n, const char *listen)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    struct str host, port;
    char text[RPC_ADDR_MAX + 1], number[8];
    int rc;

    rpc_addr_split(str_c(listen), &host, &port);
    (void)snprintf(text, sizeof(text), "%.*s", STR_ARG(host));
    (void)snprintf(number, sizeof(number), "%.*s", STR_ARG(port));
    /* Once, at the start; mostly an address in digits. */
    if (getaddrinfo(str_eqc(host, "*") ? "0.0.0.0" : text, number, &hints, &found) != 0)
        return UV_EAI_NONAME;
    rc = uv_tcp_bind(&n->listener.tcp, found->ai_addr, 0);
    freeaddrinfo(found);
    return rc;
}

static void on_helper_closed(uv_handle_t *h)
{
    sp_listener_handle_gone(h->data);
}

static void on_flush(uv_prepare_t *h)
{
    sp_listener_flush(h->data);
}

int sp_listener_open(const struct rpc_ear_opts *o, const struct rpc_pipe_ops *ops,
                     struct rpc_ear **ret, struct err *e)
{
    const char *listen = o->listen;
    struct sp_listener *n;
    int rc;

    if (!loop_uv(o->loop))
        return err_set(e, ERR_CONFIG, "rpc address %s needs a real loop; simulation has mem://",
                       listen);
    (void)signal(SIGPIPE, SIG_IGN); /* a peer that is gone is an error of write() */
    n = XNEW(struct sp_listener);
    *n = (struct sp_listener){
        .ear = { ops }, .loop = o->loop, .on_frame = o->on_frame, .cookie = o->cookie
    };
    n->uv = loop_uv(o->loop);
    n->ipc = str_starts(str_c(listen), STR("ipc://"));
    n->scratch = XNEW_ARRAY(char, RPC_SP_READ);
    list_init(&n->conns);
    list_init(&n->strangers);
    list_init(&n->dirty);
    CHECK(handle_init(n, &n->listener) == 0);
    CHECK(uv_prepare_init(n->uv, &n->flush) == 0 && uv_idle_init(n->uv, &n->awake) == 0);
    n->listener.handle.data = n->flush.data = n->awake.data = n;
    n->handles = 3;
    rc = n->ipc ? bind_ipc(n, listen + 6) : bind_tcp(n, listen);
    if (rc == 0)
        rc = uv_listen(&n->listener.stream, BACKLOG, on_connection);
    if (rc == 0)
        rc = uv_prepare_start(&n->flush, on_flush);
    if (rc < 0) {
        sp_listener_close(&n->ear);
        return err_set(e, ERR_IO, "cannot listen on %s for rpc: %s", listen, uv_strerror(rc));
    }
    *ret = &n->ear;
    return 0;
}

void sp_listener_close(struct rpc_ear *ear)
{
    struct sp_listener *n = container_of(ear, struct sp_listener, ear);

    CHECK(!n->closed);
    n->closed = true;
    list_for (it, &n->conns)
        conn_close(container_of(it, struct sp_conn, link));
    list_for (it, &n->strangers)
        conn_close(container_of(it, struct sp_conn, link));
    uv_close(&n->listener.handle, on_helper_closed);
    uv_close((uv_handle_t *)(void *)&n->flush, on_helper_closed);
    uv_close((uv_handle_t *)(void *)&n->awake, on_helper_closed);
}
