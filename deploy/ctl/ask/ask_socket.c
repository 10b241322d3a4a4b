/* SPDX-License-Identifier: Apache-2.0
 *
 * ask_socket: a server that wants its operator says where its socket is
 * (common/role/core/access.h), and the question is asked again there.
 *
 * The program that listens on the port may be one of another user, which names a socket so that our
 * request is sent there. So a socket is taken only if it has the name that a server gives it and
 * belongs to this user (root: to any user), and only if there is no token, which could be stolen.
 */
#include "deploy/ctl/ask/ask_socket.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/net/local.h"
#include "common/role/core/options.h"

#define SCHEME   "unix:"
#define ADDR_MAX 108 /* of a socket's address, with its NUL */

void ask_socket_drop(struct cli *c)
{
    if (c->socket && c->socket_dir >= 0)
        (void)close(c->socket_dir);
    xfree(c->socket);
    c->socket = NULL;
}

static bool take(struct cli *c, const char *path)
{
    char text[ADDR_MAX];

    ask_socket_drop(c);
    if (!local_path(path, text, sizeof(text), &c->socket_dir))
        return false;
    c->socket = xstrdup(text);
    c->socket_drop = ask_socket_drop;
    return true;
}

bool ask_socket_named(struct cli *c)
{
    if (strncmp(c->o.server, SCHEME, sizeof(SCHEME) - 1) != 0)
        return false;
    return c->socket || take(c, c->o.server + sizeof(SCHEME) - 1);
}

bool ask_socket_offered(struct cli *c, const char *path)
{
    const char *name = strrchr(path, '/');
    struct stat st;

    if (c->socket || c->o.token || path[0] != '/' || strcmp(name + 1, ADMIN_SOCKET) != 0)
        return false;
    if (lstat(path, &st) || !S_ISSOCK(st.st_mode) || (geteuid() != 0 && st.st_uid != geteuid()))
        return false;
    return take(c, path);
}
