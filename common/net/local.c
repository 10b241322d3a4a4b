/* SPDX-License-Identifier: Apache-2.0
 *
 * local: the socket through which the operator of a server reaches it without a token.
 *
 * "From this machine" cannot be told from a TCP connection: a reverse proxy on the machine connects
 * from there for the whole world. A Unix socket of mode 0600 in the data folder can only be opened
 * by a process of the server's user or of root, which could as well read and change the folder.
 *
 * The mode is set on the socket before it is bound (Linux takes it over), and it listens last, so
 * that there is no moment in which others could connect. An address holds 107 bytes; a longer path
 * is named through /proc/self/fd of its folder.
 */
#include "common/net/local.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define BACKLOG 64

bool local_path(const char *path, char *to, size_t size, int *ret_fd)
{
    const char *slash = strrchr(path, '/');
    char dir[4096];

    *ret_fd = -1;
    if (strlen(path) < size) {
        memcpy(to, path, strlen(path) + 1);
        return true;
    }
    errno = ENAMETOOLONG;
    if (!slash || (size_t)(slash - path) >= sizeof(dir))
        return false;
    memcpy(dir, path, (size_t)(slash - path));
    dir[slash - path] = 0;
    *ret_fd = open(dir[0] ? dir : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (*ret_fd < 0)
        return false;
    if ((size_t)snprintf(to, size, "/proc/self/fd/%d%s", *ret_fd, slash) < size)
        return true;
    (void)close(*ret_fd);
    *ret_fd = -1;
    errno = ENAMETOOLONG;
    return false;
}

/* Removes the socket of a process that ended; nothing else. */
static int remove_old(const char *path, struct err *e)
{
    struct stat st;

    if (lstat(path, &st))
        return errno == ENOENT ? 0 : err_errno(e, errno, "cannot look at %s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_CONFIG,
                       "%s is there and is not a socket; move it, or name another "
                       "path with http.admin_socket",
                       path);
    return unlink(path) && errno != ENOENT ? err_errno(e, errno, "cannot remove %s", path) : 0;
}

static int bind_and_listen(int fd, const char *path, struct err *e)
{
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    int dir, code = 0;

    if (!local_path(path, a.sun_path, sizeof(a.sun_path), &dir))
        return err_errno(e, errno, "cannot listen on %s", path);
    if (fchmod(fd, 0600) || bind(fd, (const struct sockaddr *)(const void *)&a, sizeof(a)) ||
        chmod(path, 0600) || listen(fd, BACKLOG))
        code = err_errno(e, errno, "cannot listen on %s (http.admin_socket)", path);
    if (dir >= 0)
        (void)close(dir);
    return code;
}

int local_listen(const char *path, int *ret_fd, struct err *e)
{
    int fd;

    if (remove_old(path, e))
        return e->code;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, errno, "cannot make a Unix socket");
    if (bind_and_listen(fd, path, e)) {
        (void)close(fd);
        return e->code;
    }
    *ret_fd = fd;
    return 0;
}

void local_peer(int fd, char *to, size_t size)
{
    struct ucred c = { 0 };
    socklen_t len = sizeof(c);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &len))
        (void)snprintf(to, size, "unix:");
    else
        (void)snprintf(to, size, "unix:pid=%ld,uid=%ld", (long)c.pid, (long)c.uid);
}
