/* SPDX-License-Identifier: Apache-2.0
 *
 * ctl.h: the commands of the all-in-one binary, one file each; allinone/roles.c lists them.
 */
#ifndef DEPLOY_CTL_CTL_H
#define DEPLOY_CTL_CTL_H

#include "common/role/core/command.h"

struct cli_table;

extern const struct command adopt_command;
extern const struct command check_config_command;
extern const struct command check_overrides_command;
extern const struct command fsck_command;
extern const struct command import_command;
extern const struct command restore_command;
extern const struct command upload_command;

/* All options and commands of embertreectl, for its main. */
extern const struct cli_table ctl_table;

#endif
