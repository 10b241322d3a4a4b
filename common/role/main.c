/* SPDX-License-Identifier: Apache-2.0
 *
 * main: the only main of the product. What runs is decided by the `roles` table a binary links.
 */
#include "common/role/role.h"

int main(int argc, char **argv)
{
    return role_main(argc, argv);
}
