/* SPDX-License-Identifier: Apache-2.0
 *
 * http_post: one POST over plain HTTP/1.1, on the calling thread, without libcurl.
 *
 * The self-profiler's thread uses it: `obs` may not include `net`, and an address in digits needs
 * no resolver. The socket does not block; each wait is a poll with the deadline of the whole call
 * and the descriptor that cancels it. Only the status is read, from at most 1 KiB of the head, and
 * the connection is closed after it. Thread: any.
 */
#include "common/obs/http_post.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/buf.h"
#include "common/sys/clock.h"

static bool set_v4(struct http_target *t, struct str host, uint16_t port)
{
    struct sockaddr_in *a = (void *)&t->addr;
    char text[64];

    if (host.len >= sizeof(text))
        return false;
    if (str_eq_nocase(host, STR("localhost")))
        host = STR("127.0.0.1");
    memcpy(text, host.ptr, host.len);
    text[host.len] = '\0';
    a->sin_family = AF_INET;
    a->sin_port = htons(port);
    t->addr_len = sizeof(*a);
    return inet_pton(AF_INET, text, &a->sin_addr) == 1 && ntohl(a->sin_addr.s_addr) >> 24 == 127;
}

static bool set_v6(struct http_target *t, struct str host, uint16_t port)
{
    struct sockaddr_in6 *a = (void *)&t->addr;

    a->sin6_family = AF_INET6;
    a->sin6_port = htons(port);
    a->sin6_addr = in6addr_loopback;
    t->addr_len = sizeof(*a);
    return str_eq(host, STR("::1"));
}

int http_target_parse(const char *url, struct http_target *ret, struct err *e)
{
    struct http_target t = { .addr_len = 0 };
    struct str s = str_c(url), host, path;
    ptrdiff_t slash, colon;
    uint64_t port = 80;
    bool ok;

    if (!str_starts(s, STR("http://")))
        return err_set(e, ERR_CONFIG, "\"%s\": want http://<loopback address>:<port>", url);
    s = str_sub(s, 7, s.len);
    slash = str_find(s, '/');
    path = slash < 0 ? STR("") : str_sub(s, (size_t)slash, s.len);
    s = slash < 0 ? s : str_sub(s, 0, (size_t)slash);
    while (str_ends(path, STR("/")))
        path.len--;
    if (s.len >= sizeof(t.host) || path.len >= sizeof(t.prefix))
        return err_set(e, ERR_CONFIG, "\"%s\" is too long", url);
    memcpy(t.host, s.ptr, s.len);
    if (path.len)
        memcpy(t.prefix, path.ptr, path.len);
    colon = str_rfind(s, ':');
    if (str_ends(s, STR("]")))
        colon = -1;
    host = colon < 0 ? s : str_sub(s, 0, (size_t)colon);
    if (colon >= 0 &&
        (!str_u64(str_sub(s, (size_t)colon + 1, s.len), &port) || port == 0 || port > UINT16_MAX))
        return err_set(e, ERR_CONFIG, "\"%s\" has no valid port", url);
    if (str_starts(host, STR("[")) && str_ends(host, STR("]")))
        ok = set_v6(&t, str_sub(host, 1, host.len - 1), (uint16_t)port);
    else
        ok = set_v4(&t, host, (uint16_t)port);
    for (size_t i = 0; i < path.len; i++)
        ok = ok && path.ptr[i] > ' ' && path.ptr[i] < 0x7f;
    if (!ok)
        return err_set(e, ERR_CONFIG, "\"%s\" is not on this machine's loopback interface", url);
    *ret = t;
    return 0;
}

struct call {
    const struct http_target *to;
    int fd, cancel_fd;
    uint64_t deadline_ms;
};

/* Waits until the socket is ready for `events`. */
static int wait_for(const struct call *c, short events, struct err *e)
{
    for (;;) {
        struct pollfd p[2] = { { c->fd, events, 0 }, { c->cancel_fd, POLLIN, 0 } };
        uint64_t now = clock_mono_ms(clock_real());
        int n;

        if (now >= c->deadline_ms)
            return err_set(e, ERR_TIMEOUT, "%s did not answer in time", c->to->host);
        n = poll(p, c->cancel_fd >= 0 ? 2 : 1, (int)MIN(c->deadline_ms - now, 60000u));
        if (n < 0 && errno != EINTR)
            return err_errno(e, errno, "poll");
        if (n > 0 && c->cancel_fd >= 0 && p[1].revents)
            return err_set(e, ERR_CANCELED, "stopping");
        if (n > 0 && p[0].revents)
            return 0;
    }
}

static int unavailable(const struct call *c, int errnum, struct err *e)
{
    (void)err_errno(e, errnum, "cannot connect to %s", c->to->host);
    return e->code = ERR_UNAVAILABLE;
}

static int connect_to(const struct call *c, struct err *e)
{
    int failed = 0;
    socklen_t len = sizeof(failed);

    if (connect(c->fd, (const struct sockaddr *)(const void *)&c->to->addr, c->to->addr_len) == 0)
        return 0;
    if (errno != EINPROGRESS && errno != EINTR)
        return unavailable(c, errno, e);
    if (wait_for(c, POLLOUT, e))
        return e->code;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failed, &len))
        failed = errno;
    return failed ? unavailable(c, failed, e) : 0;
}

static int send_all(const struct call *c, struct str s, struct err *e)
{
    while (s.len) {
        ssize_t n = send(c->fd, s.ptr, s.len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return err_errno(e, errno, "cannot send to %s", c->to->host);
        if (n < 0 && wait_for(c, POLLOUT, e))
            return e->code;
        if (n > 0)
            s = str_sub(s, (size_t)n, s.len);
    }
    return 0;
}

/* "HTTP/1.1 204 No Content\r\n": three digits behind the first blank, within the first line. */
static bool parse_status(struct str s, int *ret)
{
    ptrdiff_t end = str_find(s, '\n');
    uint64_t status;

    if (end < 0 || !str_starts(s, STR("HTTP/1.")) || s.ptr[8] != ' ' ||
        !str_u64(str_sub(s, 9, 12), &status) || status < 100)
        return false;
    *ret = (int)status;
    return true;
}

static int read_status(const struct call *c, int *ret_status, struct err *e)
{
    char head[1024];
    size_t len = 0;

    while (len < sizeof(head)) {
        ssize_t n = recv(c->fd, head + len, sizeof(head) - len, MSG_DONTWAIT);

        if (n == 0)
            return err_set(e, ERR_IO, "%s closed without an answer", c->to->host);
        if (n < 0 && errno != EINTR && errno != EAGAIN)
            return err_errno(e, errno, "cannot read from %s", c->to->host);
        if (n < 0 && wait_for(c, POLLIN, e))
            return e->code;
        len += n > 0 ? (size_t)n : 0;
        if (memchr(head, '\n', len))
            break;
    }
    if (!parse_status(str_n(head, len), ret_status))
        return err_set(e, ERR_IO, "%s does not speak HTTP/1", c->to->host);
    return 0;
}

static int converse(const struct call *c, const struct http_post *p, int *ret_status, struct err *e)
{
    struct buf head;
    int result;

    buf_init(&head, 64 * KIB);
    (void)buf_addf(&head,
                   "POST %s%s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n"
                   "Content-Length: %zu\r\n%s\r\n",
                   c->to->prefix, p->path, c->to->host, p->body.len, p->headers);
    if (!buf_ok(&head))
        result = err_set(e, ERR_LIMIT, "request head over 64 KiB");
    else
        result = connect_to(c, e);
    if (!result)
        result = send_all(c, buf_str(&head), e);
    if (!result)
        result = send_all(c, p->body, e);
    /* A server that refuses a body may answer and close before it read all: its answer counts. */
    if (!result || result == ERR_IO)
        result = read_status(c, ret_status, e);
    buf_deinit(&head);
    return result;
}

int http_post(const struct http_target *t, const struct http_post *p, int *ret_status,
              struct err *e)
{
    struct call c = { t, socket(t->addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                      p->cancel_fd, clock_mono_ms(clock_real()) + p->timeout_ms };
    int result;

    if (c.fd < 0)
        return err_errno(e, errno, "no socket");
    result = converse(&c, p, ret_status, e);
    (void)close(c.fd);
    return result;
}
