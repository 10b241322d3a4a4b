/* SPDX-License-Identifier: Apache-2.0
 *
 * notify.h: words to the service manager that started us, if it asked for them.
 */
#ifndef COMMON_ROLE_HOST_NOTIFY_H
#define COMMON_ROLE_HOST_NOTIFY_H

#include "common/base/base.h"

struct notify {
    int fd; /* -1: not started by systemd */
    bool watchdog;
};
/* From NOTIFY_SOCKET and WATCHDOG_USEC. What cannot be used is as if it was not there: a service
 * manager that hears nothing says so itself. */
void notify_init(struct notify *n);
void notify_deinit(struct notify *n);
/* We serve. */
void notify_ready(const struct notify *n);
/* The process got a signal and ends. */
void notify_stopping(const struct notify *n);
/* One line for people; longer ones are cut. */
void notify_status(const struct notify *n, const char *text);
/* The loop turns. */
void notify_alive(const struct notify *n);

#endif
