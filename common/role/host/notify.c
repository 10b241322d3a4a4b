/* SPDX-License-Identifier: Apache-2.0
 *
 * notify: systemd's readiness protocol, which is a datagram of lines "NAME=value" to a Unix socket
 * named in the environment ("@name" is in the abstract namespace). Never waits: the socket does not
 * block, and a lost word is repeated or of no matter.
 */
#include "common/role/host/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define STATUS_MAX 512

static void send_text(const struct notify *n, const char *text)
{
    if (n->fd >= 0)
        (void)send(n->fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void notify_init(struct notify *n)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = { .sun_family = AF_UNIX };
    size_t len = path ? strlen(path) : 0;

    *n = (struct notify){ .fd = -1 };
    if (len < 2 || len >= sizeof(to.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(to.sun_path, path, len);
    if (path[0] == '@')
        to.sun_path[0] = '\0';
    n->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (n->fd < 0)
        return;
    if (connect(n->fd, (const struct sockaddr *)(const void *)&to,
                (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len)) != 0) {
        notify_deinit(n);
        return;
    }
    n->watchdog = getenv("WATCHDOG_USEC") != NULL;
}

void notify_deinit(struct notify *n)
{
    if (n->fd >= 0)
        (void)close(n->fd);
    n->fd = -1;
}

void notify_ready(const struct notify *n)
{
    send_text(n, "READY=1\n");
}

void notify_stopping(const struct notify *n)
{
    send_text(n, "STOPPING=1\nSTATUS=draining\n");
}

void notify_status(const struct notify *n, const char *text)
{
    char line[STATUS_MAX];

    (void)snprintf(line, sizeof(line), "STATUS=%.*s", STATUS_MAX - 16, text);
    for (char *p = line; *p; p++) {
        if (*p == '\n')
            *p = ' '; /* a line of its own would be another word */
    }
    send_text(n, line);
}

void notify_alive(const struct notify *n)
{
    if (n->watchdog)
        send_text(n, "WATCHDOG=1\n");
}
