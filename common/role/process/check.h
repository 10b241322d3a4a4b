/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: what a start would refuse in its options and in the files that they name, all of it at
 * once: said by a start before it opens anything, and by `check-config` (check_command.c). What
 * depends on where it runs is not looked at: ports, the data folder, peers.
 */
#ifndef COMMON_ROLE_PROCESS_CHECK_H
#define COMMON_ROLE_PROCESS_CHECK_H

#include "common/role/core/role.h"

struct role_checks {
    const struct conf *conf;
    bool all_in_one;
    /* An error of an option (""; the text names it). */
    void (*wrong)(void *cookie, const char *option, const struct err *e);
    /* A start takes it, and does something else than it says. */
    void (*odd)(void *cookie, const char *text);
    void *cookie;
    size_t said, files; /* errors; files that were read */
};
/* Of the whole process: what all roles share, then each role's own. */
void role_check(const struct role *const *list, struct role_checks *c);

/* For the `check` of roles (role.h). */
void role_check_said(struct role_checks *c, const char *option, const struct err *e);
typedef int (*role_check_fn)(const struct conf *conf, const char *file, struct str text,
                             struct err *e);
/* The text of the file that an option names, if it names one. */
void role_check_file(struct role_checks *c, const char *option, const char *file,
                     role_check_fn check);
/* An rpc address to listen on, as rpc_node_new and role_rpc_listen_check take it. */
void role_check_listen(struct role_checks *c, const char *option, const char *listen,
                       const char *advertise);

/* `PROGRAM check-config [--config=FILE] [--section.name=value ...]` for these roles. */
int role_check_main(const struct role *const *list, int argc, char **argv);

#endif
