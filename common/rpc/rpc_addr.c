/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_addr: check addresses before a transport sees them, and invent one for nodes that only call.
 *
 * Replies come back over a connection of their own, so a caller needs an address too. It has to be
 * known before the port is open; so for tcp a port is asked from the kernel, given back and bound
 * again by the transport, which tries another one if the port was taken meanwhile.
 */
#include "common/rpc/rpc_addr.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/buf.h"

static const struct str schemes[] = {
    [RPC_SCHEME_TCP] = { "tcp://", 6 },
    [RPC_SCHEME_IPC] = { "ipc://", 6 },
    [RPC_SCHEME_INPROC] = { "inproc://", 9 },
    [RPC_SCHEME_MEM] = { "mem://", 6 },
};
enum { IPC_PATH_MAX = 107 }; /* sockaddr_un */

/* "host:port" after tcp://; the host keeps its brackets. */
static bool split_host(struct str rest, struct str *ret_host, struct str *ret_port)
{
    ptrdiff_t colon = str_rfind(rest, ':');

    if (colon <= 0)
        return false;
    *ret_host = str_sub(rest, 0, (size_t)colon);
    *ret_port = str_sub(rest, (size_t)colon + 1, rest.len);
    return true;
}

static int check_tcp(struct str addr, struct str rest, struct err *e)
{
    struct str host, port;
    uint64_t n;

    if (!split_host(rest, &host, &port) || !str_u64(port, &n) || n == 0 || n > UINT16_MAX)
        return err_set(e, ERR_CONFIG, "rpc address %.*s: want tcp://host:port, port 1 to 65535",
                       STR_ARG(addr));
    if (str_find(host, ':') >= 0 && !(host.ptr[0] == '[' && host.ptr[host.len - 1] == ']'))
        return err_set(e, ERR_CONFIG, "rpc address %.*s: an IPv6 host goes in brackets",
                       STR_ARG(addr));
    return 0;
}

int rpc_addr_parse(struct str addr, enum rpc_scheme *ret, struct err *e)
{
    if (addr.len > RPC_ADDR_MAX)
        return err_set(e, ERR_CONFIG, "rpc address of %zu bytes, at most %d", addr.len,
                       RPC_ADDR_MAX);
    for (size_t i = 0; i < addr.len; i++) {
        if (addr.ptr[i] <= ' ' || addr.ptr[i] > '~')
            return err_set(e, ERR_CONFIG, "rpc address has byte 0x%02x at %zu",
                           (unsigned char)addr.ptr[i], i);
    }
    for (size_t i = 0; i < ARRAY_LEN(schemes); i++) {
        struct str rest;

        if (!str_starts(addr, schemes[i]))
            continue;
        rest = str_sub(addr, schemes[i].len, addr.len);
        if (!rest.len)
            break;
        if (i == RPC_SCHEME_TCP && check_tcp(addr, rest, e))
            return e->code;
        if (i == RPC_SCHEME_IPC && rest.len > IPC_PATH_MAX)
            return err_set(e, ERR_CONFIG, "rpc address %.*s: the path may have %d bytes",
                           STR_ARG(addr), IPC_PATH_MAX);
        *ret = (enum rpc_scheme)i;
        return 0;
    }
    return err_set(e, ERR_CONFIG,
                   "rpc address \"%.*s\": want tcp://host:port, ipc:///path or inproc://name",
                   STR_ARG(addr));
}

bool rpc_addr_wildcard(struct str addr)
{
    struct str host, port;

    if (!str_starts(addr, schemes[RPC_SCHEME_TCP]) ||
        !split_host(str_sub(addr, 6, addr.len), &host, &port))
        return false;
    return str_eqc(host, "*") || str_eqc(host, "0.0.0.0") || str_eqc(host, "[::]");
}

void rpc_addr_split(struct str addr, struct str *ret_host, struct str *ret_port)
{
    CHECK(split_host(str_sub(addr, 6, addr.len), ret_host, ret_port));
    if (ret_host->ptr[0] == '[')
        *ret_host = str_sub(*ret_host, 1, ret_host->len - 1);
}

/* Numeric hosts only: a name would have to be resolved here, on the loop. */
static int peer_sockaddr(struct str peer, struct sockaddr_storage *ret, socklen_t *ret_len,
                         struct err *e)
{
    struct str host, port;
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_DGRAM }, *found;
    char text[RPC_ADDR_MAX + 1];

    rpc_addr_split(peer, &host, &port);
    if (str_eqc(host, "localhost"))
        host = STR("127.0.0.1");
    (void)snprintf(text, sizeof(text), "%.*s", STR_ARG(host));
    if (getaddrinfo(text, "9", &hints, &found) != 0)
        return err_set(
            e, ERR_CONFIG,
            "to call %.*s by name this node needs an rpc listen address of its own, such "
            "as tcp://10.0.0.7:9097, for the answers",
            STR_ARG(peer));
    memcpy(ret, found->ai_addr, found->ai_addrlen);
    *ret_len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

/* A free port on `local`, whose own port is 0. */
static int free_port(const struct sockaddr_storage *local, socklen_t len, uint16_t *ret,
                     struct err *e)
{
    struct sockaddr_storage got = *local;
    int fd = socket(local->ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int rc = 0;

    if (fd < 0)
        return err_errno(e, errno, "socket for an rpc address");
    if (bind(fd, (const struct sockaddr *)(const void *)local, len) != 0 ||
        getsockname(fd, (struct sockaddr *)(void *)&got, &len) != 0)
        rc = err_errno(e, errno, "port for an rpc address");
    (void)close(fd);
    if (rc)
        return rc;
    *ret = ntohs(got.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&got)->sin6_port
                                           : ((struct sockaddr_in *)(void *)&got)->sin_port);
    return 0;
}

static int anonymous_tcp(struct str peer, char ret[RPC_ADDR_MAX + 1], struct err *e)
{
    struct sockaddr_storage to, local;
    socklen_t to_len = 0, len = sizeof(local);
    char host[INET6_ADDRSTRLEN];
    uint16_t port = 0;
    int fd, rc = 0;

    if (peer_sockaddr(peer, &to, &to_len, e))
        return e->code;
    /* Connecting a datagram socket sends nothing: it asks the routing table for our side. */
    fd = socket(to.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, errno, "socket towards %.*s", STR_ARG(peer));
    if (connect(fd, (struct sockaddr *)(void *)&to, to_len) != 0 ||
        getsockname(fd, (struct sockaddr *)(void *)&local, &len) != 0)
        rc = err_errno(e, errno, "route to %.*s", STR_ARG(peer));
    (void)close(fd);
    if (rc)
        return rc;
    if (getnameinfo((struct sockaddr *)(void *)&local, len, host, sizeof(host), NULL, 0,
                    NI_NUMERICHOST) != 0)
        return err_set(e, ERR_IO, "no local address towards %.*s", STR_ARG(peer));
    if (local.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&local)->sin6_port = 0;
    else
        ((struct sockaddr_in *)(void *)&local)->sin_port = 0;
    if (free_port(&local, len, &port, e))
        return e->code;
    (void)snprintf(ret, RPC_ADDR_MAX + 1,
                   local.ss_family == AF_INET6 ? "tcp://[%s]:%u" : "tcp://%s:%u", host, port);
    return 0;
}

/* In the folder of the peer's socket. */
static void anonymous_ipc(struct str peer, uint64_t nonce, struct buf *out)
{
    ptrdiff_t slash = str_rfind(peer, '/');

    buf_add_str(out, str_sub(peer, 0, (size_t)slash + 1));
    buf_addf(out, "caller-%016" PRIx64, nonce);
}

int rpc_addr_anonymous(struct str peer, uint64_t nonce, char ret[RPC_ADDR_MAX + 1], struct err *e)
{
    enum rpc_scheme scheme;
    struct buf out;
    int rc = 0;

    if (rpc_addr_parse(peer, &scheme, e))
        return e->code;
    if (scheme == RPC_SCHEME_TCP)
        return anonymous_tcp(peer, ret, e);
    buf_init(&out, RPC_ADDR_MAX);
    if (scheme == RPC_SCHEME_IPC)
        anonymous_ipc(peer, nonce, &out);
    else
        buf_addf(&out, "%scaller-%016" PRIx64, schemes[scheme].ptr, nonce);
    if (!buf_ok(&out) || rpc_addr_parse(buf_str(&out), &scheme, e)) {
        rc = err_set(e, ERR_CONFIG,
                     "the folder of %.*s is too long for a socket of this node: configure its rpc "
                     "listen address",
                     STR_ARG(peer));
    } else {
        memcpy(ret, out.ptr, out.len);
        ret[out.len] = 0;
    }
    buf_deinit(&out);
    return rc;
}
