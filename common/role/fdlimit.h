/* SPDX-License-Identifier: Apache-2.0
 *
 * fdlimit.h: how many files and sockets the process may have open.
 */
#ifndef COMMON_ROLE_FDLIMIT_H
#define COMMON_ROLE_FDLIMIT_H

#include "common/base/base.h"

#define FDLIMIT_BESIDE_HTTP 4096 /* database files, rpc, logs */

/* Raises the soft limit to `want` or as near as the hard one lets it; never lowers it. Returns the
 * limit that holds then. */
uint64_t fdlimit_raise(uint64_t want);

#endif
