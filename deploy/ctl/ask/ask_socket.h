/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_socket.h: the Unix socket of a server on this machine, on which its operator needs no token:
 * named by --server=unix:PATH, or by the server when it refuses.
 */
#ifndef DEPLOY_CTL_ASK_ASK_SOCKET_H
#define DEPLOY_CTL_ASK_ASK_SOCKET_H

#include "deploy/ctl/cli/cli.h"

/* Takes the socket of --server=unix:PATH into use. False: it names no socket. */
bool ask_socket_named(struct cli *c);
/* Takes the socket that a refusal names into use, if it belongs to this user. True: try again. */
bool ask_socket_offered(struct cli *c, const char *path);
void ask_socket_drop(struct cli *c); /* none any more; safe at any time */

#endif
