/* SPDX-License-Identifier: Apache-2.0
 *
 * local.h: a Unix socket that listens at a path: only processes of the same user, and root's, can
 * connect. Thread: any.
 */
#ifndef COMMON_NET_LOCAL_H
#define COMMON_NET_LOCAL_H

#include "common/base/err.h"

/* A bound, listening, non-blocking socket of mode 0600. What an ended process left at the path is
 * replaced if it is a socket. The path may be longer than a socket's address can be. */
NODISCARD int local_listen(const char *path, int *ret_fd, struct err *e);
/* "unix:pid=12,uid=1000" of the other end. */
void local_peer(int fd, char *to, size_t size);

/* Writes a path that fits into the address of a socket: the same path, or if it is too long a short
 * one through *ret_fd, its open folder (else -1). False: the folder cannot be opened; errno says
 * why. */
bool local_path(const char *path, char *to, size_t size, int *ret_fd);

#endif
