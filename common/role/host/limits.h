/* SPDX-License-Identifier: Apache-2.0
 *
 * limits.h: how much memory and processor time the cgroup of this process allows, and how many
 * files and sockets it may have open.
 */
#ifndef COMMON_ROLE_HOST_LIMITS_H
#define COMMON_ROLE_HOST_LIMITS_H

#include "common/base/base.h"

/* The least limit of our group and of those above it, v2 or v1; 0: none. `root` stands before
 * /proc and /sys: "" but in tests. */
uint64_t limits_memory(const char *root);
/* The same of processor time, in thousandths of a processor. */
uint64_t limits_cpu(const char *root);

#define LIMITS_FILES_BESIDE_HTTP 4096 /* database files, rpc, logs */

/* Raises the soft limit to `want` or as near as the hard one lets it; never lowers it. Returns the
 * limit that holds then. */
uint64_t limits_files_raise(uint64_t want);

#endif
