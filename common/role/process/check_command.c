/* SPDX-License-Identifier: Apache-2.0
 *
 * check_command: `embertree-ingester check-config ...`: of the roles that a binary links.
 */
#include "common/role/core/command.h"
#include "common/role/process/check.h"

static int run(int argc, char **argv)
{
    return role_check_main(roles, argc, argv);
}

const struct command role_check_command = {
    .name = "check-config",
    .args = "[--config=FILE] [--section.name=value ...]",
    .help = "Says what is wrong with options and with the files that they name.",
    .run = run,
};
