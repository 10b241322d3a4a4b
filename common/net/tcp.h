/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp.h: the listening socket, and streams on accepted ones.
 */
#ifndef COMMON_NET_TCP_H
#define COMMON_NET_TCP_H

#include <sys/socket.h>

#include "common/net/http_server.h"

struct tcp_listener;

/* "127.0.0.1:4040", "[::1]:0", "localhost:80", ":4040" (every address, both families). */
/* Is it host:port? ERR_CONFIG. */
NODISCARD int tcp_addr_check(const char *addr, struct err *e);
NODISCARD int tcp_listen(struct http_server *s, const char *addr, struct tcp_listener **ret,
                         struct err *e);
/* The same on a Unix socket at this path (local.h), which is removed when it closes; borrowed. */
NODISCARD int tcp_listen_local(struct http_server *s, const char *path, struct tcp_listener **ret,
                               struct err *e);
uint16_t tcp_listener_port(const struct tcp_listener *l);
/* No further connections, none lost that exist. Closes a moment later; the server hears
 * check_drained then. */
void tcp_listener_leave(struct tcp_listener *l);
bool tcp_listener_closed(const struct tcp_listener *l);
/* Closes if that was not done; memory goes when libuv has let go of it. NULL is fine. */
void tcp_listener_free(struct tcp_listener *l);

/* Is the other end on this machine? Loopback is, and our own end's address: no connection from
 * elsewhere ends under it. */
bool tcp_own(const struct sockaddr_storage *peer, const struct sockaddr_storage *here);

#endif
