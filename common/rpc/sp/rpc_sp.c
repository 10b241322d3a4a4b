/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp: tcp:// and ipc:// by libuv, in the bytes of nanomsg's PIPELINE sockets (rpc_sp_read.h):
 * an ear is a PULL, a pipe is a PUSH with one connection.
 *
 *   AWAY ──timer, open, reset──> LOOKING ──> CONNECTING ──> GREETING ──their hello──> READY
 *     ^────────────── refused, broken, strange, closed by the other side ───────────────┘
 *
 * Frames are gathered and written once a turn of the loop: one system call for all that a turn had
 * to say to a peer. Large ones go at once, from where they lie. `room` is false while more than
 * OUT_MAX bytes wait, or no connection is open; on_room follows when that has changed.
 *
 * A connection that breaks loses the written and the waiting bytes (at most OUT_MAX and a frame):
 * the receiver could not tell the rest of a torn frame from a new one, and calls have deadlines. A
 * host's name is looked up again each time: a pod that comes back has a new address.
 */
#include "common/rpc/sp/rpc_sp.h"

#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

#include "common/base/mem.h"
#include "common/rpc/rpc_framed.h"

enum {
    OUT_MAX = 256 * 1024, /* bytes that wait; one frame more is taken */
    AT_ONCE = 32 * 1024,  /* frames from this size are not copied if that can be helped */
    RETRY_MS = 20,
    RETRY_MS_MAX = 500,
    LOOKUPS_MAX = 16, /* threads of an ear */
};

/* A connection; outlives its pipe until libuv is through with it. */
struct out {
    struct sp_pipe *pipe; /* NULL: the pipe was closed */
    struct sp_listener *ear;
    union rpc_sp_handle h;
    struct rpc_sp_reader reader;
    uv_connect_t connect;
    uv_write_t write;
    struct buf flying; /* what libuv writes now */
    bool busy;         /* it does */
};

struct sp_pipe {
    struct rpc_pipe pipe;
    struct sp_listener *ear;
    struct list dirty; /* in ear.dirty */
    char addr[RPC_ADDR_MAX + 1];
    enum { AWAY, LOOKING, CONNECTING, GREETING, READY } state;
    struct sp_lookup *lookup;
    struct out *out; /* NULL: AWAY, LOOKING */
    struct buf wait; /* bytes for out, not given to it yet */
    struct timer *retry;
    uint32_t retry_ms, tries;
    bool waiting; /* on_room is owed */
    void (*on_room)(void *cookie);
    void *cookie;
};

static const struct rpc_pipe_ops sp_ops;

static void pipe_lost(struct sp_pipe *p);
static void pipe_flush(struct sp_pipe *p);

/* ---- a connection ---- */

static void out_on_closed(uv_handle_t *h)
{
    struct out *o = h->data;
    struct sp_listener *n = o->ear;

    rpc_sp_reader_deinit(&o->reader);
    buf_deinit(&o->flying);
    xfree(o);
    sp_listener_handle_gone(n);
}

static void out_give_up(struct out *o)
{
    o->pipe = NULL;
    uv_close(&o->h.handle, out_on_closed);
}

static void out_on_written(uv_write_t *w, int status)
{
    struct out *o = container_of(w, struct out, write);

    o->busy = false;
    if (!o->pipe)
        return;
    if (status < 0)
        pipe_lost(o->pipe);
    else
        pipe_flush(o->pipe);
}

/* What the kernel does not take now, libuv writes when it does. False: broken. */
static bool out_write(struct out *o, struct buf *bytes)
{
    uv_buf_t b = uv_buf_init(bytes->ptr, (unsigned)bytes->len);
    int wrote = uv_try_write(&o->h.stream, &b, 1);

    CHECK(!o->busy);
    if (wrote == UV_EAGAIN)
        wrote = 0;
    if (wrote < 0)
        return false;
    if ((size_t)wrote == bytes->len) {
        buf_reset(bytes);
        return true;
    }
    buf_move(&o->flying, bytes);
    b = uv_buf_init(o->flying.ptr + wrote, (unsigned)(o->flying.len - (size_t)wrote));
    o->busy = uv_write(&o->write, &o->h.stream, &b, 1, out_on_written) == 0;
    return o->busy;
}

static bool out_on_frame(void *cookie, struct str frame)
{
    (void)cookie;
    (void)frame;
    return false; /* a PULL says nothing */
}

static void out_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *ret)
{
    const struct out *o = h->data;

    (void)hint;
    *ret = uv_buf_init(o->ear->scratch, RPC_SP_READ);
}

static void out_on_read(uv_stream_t *h, ssize_t n, const uv_buf_t *buf)
{
    struct out *o = h->data;
    struct sp_pipe *p = o->pipe;
    struct err e;

    if (!p || n == 0)
        return;
    if (n < 0 ||
        rpc_sp_reader_take(&o->reader, str_n(buf->base, (size_t)n), out_on_frame, p, &e) != 0) {
        pipe_lost(p);
        return;
    }
    if (p->state == GREETING && o->reader.greeted) {
        p->state = READY;
        p->retry_ms = RETRY_MS;
        p->tries = 0;
        pipe_flush(p);
    }
}

/* A port of the range for outgoing connections may, by chance, connect to itself. */
static bool is_self(const struct out *o)
{
    struct sockaddr_storage a = { 0 }, b = { 0 };
    int a_len = sizeof(a), b_len = sizeof(b);

    if (o->ear->ipc || uv_tcp_getsockname(&o->h.tcp, (struct sockaddr *)(void *)&a, &a_len) != 0 ||
        uv_tcp_getpeername(&o->h.tcp, (struct sockaddr *)(void *)&b, &b_len) != 0)
        return false;
    return a_len == b_len && memcmp(&a, &b, (size_t)a_len) == 0;
}

static void out_on_connect(uv_connect_t *r, int status)
{
    struct out *o = container_of(r, struct out, connect);
    struct sp_pipe *p = o->pipe;
    char hello[RPC_SP_HELLO];

    if (!p)
        return;
    if (status < 0 || is_self(o) || uv_read_start(&o->h.stream, out_on_alloc, out_on_read) != 0) {
        pipe_lost(p);
        return;
    }
    if (o->h.handle.type == UV_TCP)
        (void)uv_tcp_nodelay(&o->h.tcp, 1);
    p->state = GREETING;
    rpc_sp_hello(RPC_SP_PUSH, hello);
    CHECK(p->wait.len == 0 && buf_add(&p->wait, hello, sizeof(hello)));
    if (!out_write(o, &p->wait))
        pipe_lost(p);
}

static struct out *out_new(struct sp_pipe *p, bool ipc)
{
    struct out *o = XNEW(struct out);

    *o = (struct out){ .pipe = p, .ear = p->ear };
    rpc_sp_reader_init(&o->reader, ipc, RPC_SP_PULL);
    buf_init(&o->flying, SIZE_MAX);
    CHECK((ipc ? uv_pipe_init(p->ear->uv, &o->h.pipe, 0) : uv_tcp_init(p->ear->uv, &o->h.tcp)) ==
          0);
    o->h.handle.data = o;
    p->ear->handles++;
    p->out = o;
    p->state = CONNECTING;
    return o;
}

/* ---- a pipe ---- */

static void connect_tcp(struct sp_pipe *p, const struct sockaddr *to)
{
    (void)out_new(p, false);
    if (uv_tcp_connect(&p->out->connect, &p->out->h.tcp, to, out_on_connect) != 0)
        pipe_lost(p);
}

/* An address in digits needs no lookup. */
static bool connect_digits(struct sp_pipe *p, struct str host, struct str port)
{
    struct sockaddr_storage to;
    char text[RPC_ADDR_MAX + 1];
    uint64_t number;

    (void)snprintf(text, sizeof(text), "%.*s", STR_ARG(host));
    CHECK(str_u64(port, &number));
    if (uv_ip4_addr(text, (int)number, (struct sockaddr_in *)(void *)&to) != 0 &&
        uv_ip6_addr(text, (int)number, (struct sockaddr_in6 *)(void *)&to) != 0)
        return false;
    connect_tcp(p, (const struct sockaddr *)(const void *)&to);
    return true;
}

static void on_lookup(void *cookie, struct addrinfo *found)
{
    struct sp_pipe *p = cookie;
    const struct addrinfo *a = found;
    uint32_t n = 0;

    p->lookup = NULL;
    p->ear->lookups--;
    for (const struct addrinfo *it = found; it; it = it->ai_next)
        n++;
    if (!n) {
        pipe_lost(p);
        return;
    }
    /* The next one at each attempt. */
    for (uint32_t skip = p->tries++ % n; skip; skip--)
        a = a->ai_next;
    connect_tcp(p, a->ai_addr);
}

static void pipe_connect(void *cookie)
{
    struct sp_pipe *p = cookie;
    struct str host, port;

    CHECK(p->state == AWAY);
    if (str_starts(str_c(p->addr), STR("ipc://"))) {
        (void)out_new(p, true);
        uv_pipe_connect(&p->out->connect, &p->out->h.pipe, p->addr + 6, out_on_connect);
        return;
    }
    rpc_addr_split(str_c(p->addr), &host, &port);
    if (connect_digits(p, host, port))
        return;
    if (p->ear->lookups >= LOOKUPS_MAX) {
        loop_timer_start(p->retry, RETRY_MS, 0);
        return;
    }
    p->state = LOOKING;
    p->ear->lookups++;
    p->lookup = sp_lookup_start(p->ear->loop, host, port, on_lookup, p);
}

static void pipe_drop(struct sp_pipe *p)
{
    if (p->lookup) {
        sp_lookup_cancel(p->lookup);
        p->lookup = NULL;
        p->ear->lookups--;
    }
    if (p->out)
        out_give_up(p->out);
    p->out = NULL;
    p->state = AWAY;
    list_del(&p->dirty);
    buf_reset(&p->wait);
    loop_timer_stop(p->retry);
}

static void pipe_lost(struct sp_pipe *p)
{
    pipe_drop(p);
    loop_timer_start(p->retry, p->retry_ms, 0);
    p->retry_ms = MIN(2 * p->retry_ms, (uint32_t)RETRY_MS_MAX);
}

static void pipe_reset(struct rpc_pipe *pipe)
{
    struct sp_pipe *p = container_of(pipe, struct sp_pipe, pipe);

    pipe_drop(p);
    p->retry_ms = RETRY_MS;
    pipe_connect(p);
}

static int pipe_open(struct rpc_ear *from, const char *addr, void (*on_room)(void *), void *cookie,
                     struct rpc_pipe **ret, struct err *e)
{
    struct sp_pipe *p = XNEW(struct sp_pipe);

    (void)e;
    *p = (struct sp_pipe){ .pipe = { &sp_ops }, .on_room = on_room, .cookie = cookie };
    CHECK(strlen(addr) <= RPC_ADDR_MAX);
    memcpy(p->addr, addr, strlen(addr));
    p->ear = container_of(from, struct sp_listener, ear);
    p->retry = loop_timer_new(p->ear->loop, pipe_connect, p);
    p->retry_ms = RETRY_MS;
    p->waiting = true;
    buf_init(&p->wait, SIZE_MAX);
    list_init(&p->dirty);
    pipe_connect(p);
    *ret = &p->pipe;
    return 0;
}

static void pipe_close(struct rpc_pipe *pipe)
{
    struct sp_pipe *p = container_of(pipe, struct sp_pipe, pipe);

    /* Frames of this turn are still written: the kernel sends them after we closed. */
    if (p->state == READY && !p->out->busy && p->wait.len)
        (void)out_write(p->out, &p->wait);
    pipe_drop(p);
    loop_timer_free(p->retry);
    buf_deinit(&p->wait);
    xfree(p);
}

/* Writes the waiting frames; notifies senders that had no room. */
static void pipe_flush(struct sp_pipe *p)
{
    list_del(&p->dirty);
    if (p->state != READY || p->out->busy)
        return;
    if (p->wait.len && !out_write(p->out, &p->wait)) {
        pipe_lost(p);
        return;
    }
    if (!p->waiting || p->out->busy)
        return;
    p->waiting = false;
    p->on_room(p->cookie);
}

static void on_awake(uv_idle_t *h)
{
    (void)h; /* its being there keeps the loop from sleeping */
}

void sp_listener_flush(struct sp_listener *n)
{
    struct list now;

    list_init(&now);
    list_for (it, &n->dirty) {
        list_del(it);
        list_add_tail(&now, it);
    }
    while (!list_empty(&now))
        pipe_flush(container_of(now.next, struct sp_pipe, dirty));
    /* A sender that was notified of room may have queued more: it is written in the next turn,
     * which must not sleep. */
    if (list_empty(&n->dirty))
        (void)uv_idle_stop(&n->awake);
    else
        (void)uv_idle_start(&n->awake, on_awake);
}

static bool has_room(struct sp_pipe *p)
{
    if (p->state == READY && p->wait.len + (p->out->busy ? p->out->flying.len : 0) < OUT_MAX)
        return true;
    p->waiting = true;
    return false;
}

static bool pipe_room(struct rpc_pipe *pipe, size_t bytes)
{
    (void)bytes; /* it takes one frame of any size, or none */
    return has_room(container_of(pipe, struct sp_pipe, pipe));
}

/* Straight to the kernel: true if at least the head went, and what did not go waits. */
static bool send_at_once(struct sp_pipe *p, const uv_buf_t parts[3])
{
    int wrote = uv_try_write(&p->out->h.stream, parts, 3);
    size_t skip;

    if (wrote <= 0)
        return false; /* the error is reported again by the next write */
    skip = (size_t)wrote;
    for (int i = 0; i < 3; i++) {
        size_t n = MIN(skip, parts[i].len);

        CHECK(buf_add(&p->wait, parts[i].base + n, parts[i].len - n));
        skip -= n;
    }
    return true;
}

static bool pipe_send(struct rpc_pipe *pipe, struct str head, struct str body)
{
    struct sp_pipe *p = container_of(pipe, struct sp_pipe, pipe);
    char size[RPC_SP_HEAD_MAX];
    size_t len = head.len + body.len;
    uv_buf_t parts[3];
    bool ipc;

    CHECK(len > 0 && len <= RPC_FRAME_MAX);
    if (!has_room(p))
        return false;
    ipc = p->out->h.handle.type == UV_NAMED_PIPE;
    parts[0] = uv_buf_init(size, (unsigned)rpc_sp_head(ipc, len, size));
    parts[1] = uv_buf_init((char *)(uintptr_t)head.ptr, (unsigned)head.len);
    parts[2] = uv_buf_init((char *)(uintptr_t)body.ptr, (unsigned)body.len);
    if (len < AT_ONCE || p->wait.len || p->out->busy || !send_at_once(p, parts)) {
        for (int i = 0; i < 3; i++)
            CHECK(buf_add(&p->wait, parts[i].base, parts[i].len));
    }
    if (p->wait.len && !p->out->busy && list_empty(&p->dirty))
        list_add_tail(&p->ear->dirty, &p->dirty);
    return true;
}

static int ear_open(const struct rpc_ear_opts *o, struct rpc_ear **ret, struct err *e)
{
    return sp_listener_open(o, &sp_ops, ret, e);
}

static const struct rpc_pipe_ops sp_ops = {
    .ear_open = ear_open,
    .ear_close = sp_listener_close,
    .open = pipe_open,
    .close = pipe_close,
    .reset = pipe_reset,
    .room = pipe_room,
    .send = pipe_send,
};

static int sp_open(const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e)
{
    /* Within one machine copying is cheaper than compressing. */
    return rpc_framed_open(&sp_ops, str_starts(str_c(o->listen), STR("tcp://")), o, ret, e);
}

const struct rpc_wire_ops rpc_sp_ops = { .open = sp_open };
