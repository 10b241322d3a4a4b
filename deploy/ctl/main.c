/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary embertreectl.
 */
#include "deploy/ctl/cli/cli.h"
#include "deploy/ctl/ctl.h"

int main(int argc, char **argv)
{
    return cli_main(&ctl_table, argc, argv);
}
