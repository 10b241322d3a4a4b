/* SPDX-License-Identifier: Apache-2.0
 *
 * command.h: `embertree fsck DIR`: what a binary does besides running its roles. A first argument
 * without dashes names a command; it gets the rest and says with what code the process exits.
 */
#ifndef COMMON_ROLE_CORE_COMMAND_H
#define COMMON_ROLE_CORE_COMMAND_H

struct command {
    const char *name; /* "fsck" */
    const char *args; /* "DIR" */
    const char *help; /* one sentence, ends with a full stop */
    /* argv[0] is the name. 2: called in a wrong way; the rest is the command's own. */
    int (*run)(int argc, char **argv);
};
/* NULL-ended; beside `roles` in each binary. */
extern const struct command *const commands[];
/* check-config, of the roles that the binary links: check_command.c */
extern const struct command role_check_command;

#endif
