/* SPDX-License-Identifier: Apache-2.0
 *
 * The binary embertreectl.
 */
#include "deploy/ctl/cli/cli.h"

int main(int argc, char **argv)
{
    return cli_main(argc, argv);
}
