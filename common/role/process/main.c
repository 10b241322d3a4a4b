/* SPDX-License-Identifier: Apache-2.0
 *
 * main: the only main of the product. What runs is decided by the `roles` table a binary links.
 */
#include "common/role/core/role.h"

/* Read by jemalloc before main, in the builds that link it. Freed memory goes back to the system
 * within seconds even when nothing more is allocated: while the process is over its memory mark it
 * refuses writes, and must come below it without them. */
extern const char *const malloc_conf;
EXPORTED const char *const malloc_conf =
    "background_thread:true,dirty_decay_ms:2000,muzzy_decay_ms:0";

int main(int argc, char **argv)
{
    return role_main(argc, argv);
}
