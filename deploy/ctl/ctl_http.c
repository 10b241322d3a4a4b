/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl_http: a connection per request, closed by the server behind its reply: no framing to get
 * wrong, and an import sends few large bodies.
 */
#include "deploy/ctl/ctl_http.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

static bool copy(char *to, size_t size, struct str s)
{
    if (s.len >= size)
        return false;
    if (s.len)
        memcpy(to, s.ptr, s.len);
    to[s.len] = '\0';
    return true;
}

int ctl_server_parse(const char *url, struct ctl_server *ret, struct err *e)
{
    struct str s = str_c(url), port = STR("80"), path = STR("");
    ptrdiff_t at;

    if (!str_starts(s, STR("http://")))
        return err_set(e, ERR_CONFIG, "\"%s\": want http://host:port", url);
    s = str_sub(s, 7, s.len);
    at = str_find(s, '/');
    if (at >= 0) {
        path = str_sub(s, (size_t)at, s.len);
        s = str_sub(s, 0, (size_t)at);
    }
    while (str_ends(path, STR("/")))
        path.len--;
    at = str_rfind(s, ':');
    if (at >= 0 && !str_ends(s, STR("]"))) {
        port = str_sub(s, (size_t)at + 1, s.len);
        s = str_sub(s, 0, (size_t)at);
    }
    if (str_starts(s, STR("[")) && str_ends(s, STR("]")))
        s = str_sub(s, 1, s.len - 1);
    for (size_t i = 0; i < path.len; i++)
        if (path.ptr[i] <= ' ' || path.ptr[i] == 0x7f)
            return err_set(e, ERR_CONFIG, "\"%s\" has a blank in it", url);
    if (!s.len || !port.len || !copy(ret->host, sizeof(ret->host), s) ||
        !copy(ret->port, sizeof(ret->port), port) || !copy(ret->prefix, sizeof(ret->prefix), path))
        return err_set(e, ERR_CONFIG, "\"%s\": want http://host:port", url);
    return 0;
}

static int connect_to(const struct ctl_server *s, uint32_t timeout_s, int *ret_fd, struct err *e)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *all = NULL;
    struct timeval limit = { .tv_sec = timeout_s };
    int rc = getaddrinfo(s->host, s->port, &hints, &all), last = 0;

    if (rc)
        return err_set(e, ERR_UNAVAILABLE, "%s: %s", s->host, gai_strerror(rc));
    for (const struct addrinfo *a = all; a; a = a->ai_next) {
        int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
            freeaddrinfo(all);
            *ret_fd = fd;
            return 0;
        }
        last = errno;
        (void)close(fd);
    }
    freeaddrinfo(all);
    (void)err_errno(e, last, "cannot connect to %s port %s", s->host, s->port);
    return e->code = ERR_UNAVAILABLE;
}

static bool send_all(int fd, struct str s)
{
    while (s.len) {
        ssize_t n = send(fd, s.ptr, s.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        s = str_sub(s, (size_t)n, s.len);
    }
    return true;
}

/* Until the server closes; what does not fit is read and dropped. */
static int recv_all(int fd, struct buf *all, struct err *e)
{
    char part[16384];

    for (;;) {
        ssize_t n = recv(fd, part, sizeof(part), 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            (void)err_errno(e, errno, "no answer");
            return e->code = ERR_UNAVAILABLE;
        }
        if (n == 0)
            return 0;
        (void)buf_add(all, part, (size_t)n);
    }
}

static void read_header(struct str line, struct ctl_reply *ret)
{
    ptrdiff_t colon = str_find(line, ':');
    uint64_t seconds;

    if (colon < 0 || !str_eq_nocase(str_sub(line, 0, (size_t)colon), STR("Retry-After")))
        return;
    if (str_u64(str_trim(str_sub(line, (size_t)colon + 1, line.len)), &seconds))
        ret->retry_after_s = (uint32_t)MIN(seconds, 3600u);
}

static int read_reply(struct str all, struct ctl_reply *ret, struct err *e)
{
    struct str line;
    bool more = true, first = true;
    uint64_t status;

    while (str_next(&all, '\n', &more, &line)) {
        line = str_trim(line);
        if (first) {
            if (!str_starts(line, STR("HTTP/1.")) || !str_u64(str_sub(line, 9, 12), &status))
                return err_set(e, line.len ? ERR_IO : ERR_UNAVAILABLE, "no HTTP answer");
            ret->status = (int)status;
        } else if (!line.len) {
            (void)buf_add_str(&ret->body, all);
            return 0;
        } else {
            read_header(line, ret);
        }
        first = false;
    }
    return err_set(e, ERR_UNAVAILABLE, "the connection broke before the answer was whole");
}

int ctl_post(const struct ctl_server *s, const char *path, const char *headers, struct str body,
             uint32_t timeout_s, struct ctl_reply *ret, struct err *e)
{
    struct buf head, all;
    int fd = -1, rc = connect_to(s, timeout_s, &fd, e);

    if (rc)
        return rc;
    buf_init(&head, 64 * KIB);
    buf_init(&all, MIB);
    buf_addf(&head,
             "POST %s%s HTTP/1.1\r\nHost: %s:%s\r\nConnection: close\r\nContent-Length: %zu\r\n"
             "%s\r\n",
             s->prefix, path, s->host, s->port, body.len, headers);
    ret->status = 0;
    ret->retry_after_s = 0;
    buf_reset(&ret->body);
    /* A server that refuses may answer before it has read all: its answer counts. */
    bool sent = buf_ok(&head) && send_all(fd, buf_str(&head)) && send_all(fd, body);
    rc = recv_all(fd, &all, e);
    if (!rc || all.len)
        rc = read_reply(buf_str(&all), ret, e);
    if (rc && !sent)
        rc = err_set(e, ERR_UNAVAILABLE, "the connection broke while sending");
    (void)close(fd);
    buf_deinit(&head);
    buf_deinit(&all);
    return rc;
}
