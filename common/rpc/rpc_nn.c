/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_nn: tcp:// and ipc:// by nanomsg PIPELINE sockets, the only file that knows nanomsg.
 *
 *   ear  = one PULL socket, bound       pipe = one PUSH socket with one connection
 *
 * Why PIPELINE: raw REP drops a reply when the connection is not writable and says it was sent;
 * PUSH says EAGAIN instead. What we work around, each with a test in test_rpc_nn.c:
 *
 * - A message over the receiver's NN_RCVMAXSIZE vanishes and costs the connection. So every ear
 * takes RPC_FRAME_MAX and nobody sends more (rpc_framed.c cuts).
 * - "Sent" means handed to a thread. So calls have deadlines and peers are pinged (rpc_peer.c), and
 * a node that leaves waits for an echo (rpc_drain.c), because nn_close does not linger.
 * - NN_RCVFD and NN_SNDFD are both eventfds that are READABLE when their side is ready; asking
 *   epoll for WRITABLE is always true. NN_SNDFD is watched only while something waits, since a
 *   socket with room is ready all the time.
 * - After a long partition TCP backs off for many seconds: pipe_reset connects anew.
 * - Small frames must not wait for acknowledgements of a stream that never answers: NN_TCP_NODELAY.
 * - nn_term is not called, ever: it does not come back from some states.
 * - nanomsg starts a thread with the first socket; a process that forked after that has none and
 *   hangs. Programs are started by posix_spawn or before the first node.
 * - A process has 512 sockets: RPC_PEERS_MAX counts on two a peer.
 *
 * Sockets belong to one loop each; nanomsg's own thread only signals the eventfds. Signals (the
 * profiler's SIGPROF) may interrupt any call: EINTR means again.
 */
#include <errno.h>
#include <nanomsg/nn.h>
#include <nanomsg/pipeline.h>
#include <nanomsg/tcp.h>
#include <poll.h>
#include <uv.h>

#include "common/base/mem.h"
#include "common/rpc/rpc_framed.h"
#include "common/rpc/rpc_net.h"

enum {
    MESSAGES_PER_WAKE = 64, /* then other sockets get their turn */
    RECONNECT_MS = 20,
    RECONNECT_MS_MAX = 500,
};

struct nn_ear {
    struct rpc_ear ear;
    int sock;
    struct loop *loop; /* borrowed */
    uv_poll_t *poll;   /* owned by libuv once closed */
    bool closed;       /* inside on_frame */
    bool busy;
    void (*on_frame)(void *cookie, struct str frame);
    void *cookie;
};

struct nn_pipe {
    struct rpc_pipe pipe;
    int sock, endpoint;
    char addr[RPC_ADDR_MAX + 1];
    uv_poll_t *poll;
    bool waiting; /* poll runs */
    void (*on_room)(void *cookie);
    void *cookie;
};

static const struct rpc_pipe_ops nn_pipe_ops;

static void on_poll_closed(uv_handle_t *h)
{
    xfree(h);
}

static int set_int(int sock, int level, int option, int value, const char *name, struct err *e)
{
    if (nn_setsockopt(sock, level, option, &value, sizeof(value)) < 0)
        return err_errno(e, nn_errno(), "nanomsg option %s", name);
    return 0;
}

/* A polling handle for the eventfd behind `option`, stopped. */
static int poll_new(struct loop *loop, int sock, int option, void *data, uv_poll_t **ret,
                    struct err *e)
{
    uv_poll_t *poll;
    size_t len;
    int fd, rc;

    len = sizeof(fd);
    if (nn_getsockopt(sock, NN_SOL_SOCKET, option, &fd, &len) < 0)
        return err_errno(e, nn_errno(), "event descriptor of a nanomsg socket");
    poll = XNEW(uv_poll_t);
    rc = uv_poll_init(loop_uv(loop), poll, fd);
    if (rc < 0) {
        xfree(poll);
        return err_set(e, ERR_IO, "polling a nanomsg socket: %s", uv_strerror(rc));
    }
    poll->data = data;
    *ret = poll;
    return 0;
}

static void poll_close(uv_poll_t *poll)
{
    if (!poll)
        return;
    CHECK(uv_poll_stop(poll) == 0);
    uv_close((uv_handle_t *)(void *)poll, on_poll_closed);
}

static void sock_close(int sock)
{
    while (sock >= 0 && nn_close(sock) < 0)
        CHECK(nn_errno() == EINTR);
}

/* ---- ear ------------------------------------------------------------------------------------- */

static void ear_free(struct nn_ear *n)
{
    poll_close(n->poll);
    sock_close(n->sock);
    xfree(n);
}

static void ear_on_readable(uv_poll_t *poll, int status, int events)
{
    struct nn_ear *n = poll->data;

    (void)events;
    CHECK(status == 0);
    n->busy = true;
    for (int i = 0; i < MESSAGES_PER_WAKE && !n->closed; i++) {
        void *bytes = NULL;
        int len = nn_recv(n->sock, &bytes, NN_MSG, NN_DONTWAIT);

        if (len < 0 && nn_errno() == EINTR)
            continue;
        if (len < 0) {
            CHECK(nn_errno() == EAGAIN);
            break;
        }
        n->on_frame(n->cookie, str_n(bytes, (size_t)len));
        CHECK(nn_freemsg(bytes) == 0);
    }
    n->busy = false;
    if (n->closed)
        ear_free(n);
}

static int ear_open(struct rpc_net *net, struct loop *loop, const char *listen,
                    void (*on_frame)(void *, struct str), void *cookie, struct rpc_ear **ret,
                    struct err *e)
{
    struct nn_ear *n;

    (void)net;
    if (!loop_uv(loop))
        return err_set(e, ERR_CONFIG, "rpc address %s needs a real loop; simulation has mem://",
                       listen);
    n = XNEW(struct nn_ear);
    *n = (struct nn_ear){ .ear = { &nn_pipe_ops }, .loop = loop, .on_frame = on_frame };
    n->cookie = cookie;
    n->sock = nn_socket(AF_SP, NN_PULL);
    if (n->sock < 0) {
        err_errno(e, nn_errno(), "nanomsg socket to listen on %s", listen);
        goto fail;
    }
    if (set_int(n->sock, NN_SOL_SOCKET, NN_RCVMAXSIZE, RPC_FRAME_MAX, "NN_RCVMAXSIZE", e) ||
        (rpc_addr_is_ip6(str_c(listen)) &&
         set_int(n->sock, NN_SOL_SOCKET, NN_IPV4ONLY, 0, "NN_IPV4ONLY", e)))
        goto fail;
    if (nn_bind(n->sock, listen) < 0) {
        err_errno(e, nn_errno(), "cannot listen on %s for rpc", listen);
        goto fail;
    }
    if (poll_new(loop, n->sock, NN_RCVFD, n, &n->poll, e))
        goto fail;
    CHECK(uv_poll_start(n->poll, UV_READABLE, ear_on_readable) == 0);
    *ret = &n->ear;
    return 0;
fail:
    ear_free(n);
    return e->code;
}

static void ear_close(struct rpc_ear *ear)
{
    struct nn_ear *n = container_of(ear, struct nn_ear, ear);

    CHECK(!n->closed);
    n->closed = true;
    if (!n->busy)
        ear_free(n);
}

/* ---- pipe ------------------------------------------------------------------------------------ */

static void pipe_on_writable(uv_poll_t *poll, int status, int events)
{
    struct nn_pipe *p = poll->data;

    (void)events;
    CHECK(status == 0);
    CHECK(uv_poll_stop(poll) == 0);
    p->waiting = false;
    p->on_room(p->cookie);
}

static void pipe_close(struct rpc_pipe *pipe)
{
    struct nn_pipe *p = container_of(pipe, struct nn_pipe, pipe);

    poll_close(p->poll);
    sock_close(p->sock);
    xfree(p);
}

static int pipe_open(struct rpc_ear *from, const char *addr, void (*on_room)(void *), void *cookie,
                     struct rpc_pipe **ret, struct err *e)
{
    struct nn_ear *n = container_of(from, struct nn_ear, ear);
    struct nn_pipe *p = XNEW(struct nn_pipe);

    *p = (struct nn_pipe){ .pipe = { &nn_pipe_ops }, .on_room = on_room, .cookie = cookie };
    CHECK(strlen(addr) <= RPC_ADDR_MAX);
    memcpy(p->addr, addr, strlen(addr));
    p->sock = nn_socket(AF_SP, NN_PUSH);
    if (p->sock < 0) {
        err_errno(e, nn_errno(), "nanomsg socket to call %s (a process has 512)", addr);
        goto fail;
    }
    if (set_int(p->sock, NN_SOL_SOCKET, NN_RECONNECT_IVL, RECONNECT_MS, "NN_RECONNECT_IVL", e) ||
        set_int(p->sock, NN_SOL_SOCKET, NN_RECONNECT_IVL_MAX, RECONNECT_MS_MAX,
                "NN_RECONNECT_IVL_MAX", e) ||
        set_int(p->sock, NN_TCP, NN_TCP_NODELAY, 1, "NN_TCP_NODELAY", e) ||
        (rpc_addr_is_ip6(str_c(addr)) &&
         set_int(p->sock, NN_SOL_SOCKET, NN_IPV4ONLY, 0, "NN_IPV4ONLY", e)))
        goto fail;
    p->endpoint = nn_connect(p->sock, addr);
    if (p->endpoint < 0) {
        err_errno(e, nn_errno(), "cannot connect to %s", addr);
        goto fail;
    }
    if (poll_new(n->loop, p->sock, NN_SNDFD, p, &p->poll, e))
        goto fail;
    *ret = &p->pipe;
    return 0;
fail:
    pipe_close(&p->pipe);
    return e->code;
}

static void pipe_wait(struct nn_pipe *p)
{
    if (p->waiting)
        return;
    p->waiting = true;
    CHECK(uv_poll_start(p->poll, UV_READABLE, pipe_on_writable) == 0);
}

static void pipe_reset(struct rpc_pipe *pipe)
{
    struct nn_pipe *p = container_of(pipe, struct nn_pipe, pipe);

    while (p->endpoint >= 0 && nn_shutdown(p->sock, p->endpoint) < 0) {
        if (nn_errno() != EINTR)
            break; /* gone already */
    }
    do {
        p->endpoint = nn_connect(p->sock, p->addr);
    } while (p->endpoint < 0 && nn_errno() == EINTR);
    /* A refused connect (no descriptors left) is tried again by the next reset. */
}

static bool pipe_room(struct rpc_pipe *pipe, size_t bytes)
{
    struct nn_pipe *p = container_of(pipe, struct nn_pipe, pipe);
    struct pollfd fd = { .events = POLLIN };

    (void)bytes; /* it takes one frame of any size, or none */
    if (uv_fileno((const uv_handle_t *)(const void *)p->poll, &fd.fd) == 0 && poll(&fd, 1, 0) == 1)
        return true;
    pipe_wait(p);
    return false;
}

static bool pipe_send(struct rpc_pipe *pipe, struct str head, struct str body)
{
    struct nn_pipe *p = container_of(pipe, struct nn_pipe, pipe);
    struct nn_iovec parts[2] = {
        { (void *)(uintptr_t)head.ptr, head.len },
        { (void *)(uintptr_t)body.ptr, body.len },
    };
    struct nn_msghdr hdr = { .msg_iov = parts, .msg_iovlen = body.len ? 2 : 1 };
    int rc;

    CHECK(head.len + body.len <= RPC_FRAME_MAX);
    do {
        rc = nn_sendmsg(p->sock, &hdr, NN_DONTWAIT);
    } while (rc < 0 && nn_errno() == EINTR);
    if (rc >= 0)
        return true;
    CHECK(nn_errno() == EAGAIN);
    pipe_wait(p);
    return false;
}

static const struct rpc_pipe_ops nn_pipe_ops = {
    .ear_open = ear_open,
    .ear_close = ear_close,
    .open = pipe_open,
    .close = pipe_close,
    .reset = pipe_reset,
    .room = pipe_room,
    .send = pipe_send,
};

static int nn_open(const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e)
{
    /* Within one machine copying is cheaper than compressing. */
    return rpc_framed_open(&nn_pipe_ops, str_starts(str_c(o->listen), STR("tcp://")), o, ret, e);
}

const struct rpc_wire_ops rpc_nn_ops = { .open = nn_open };
