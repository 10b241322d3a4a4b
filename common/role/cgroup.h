/* SPDX-License-Identifier: Apache-2.0
 *
 * cgroup.h: how much memory and processor time the cgroup of this process allows.
 */
#ifndef COMMON_ROLE_CGROUP_H
#define COMMON_ROLE_CGROUP_H

#include "common/base/base.h"

/* The least limit of our group and of those above it, v2 or v1; 0: none. `root` stands before
 * /proc and /sys: "" but in tests. */
uint64_t cgroup_memory_limit(const char *root);
/* The same of processor time, in thousandths of a processor. */
uint64_t cgroup_cpu_limit(const char *root);

#endif
