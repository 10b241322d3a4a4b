/* SPDX-License-Identifier: Apache-2.0
 *
 * known_counts.h: how far a session goes (known.h).
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_KNOWN_COUNTS_H
#define DISTRIBUTOR_FORMATS_PPROF_KNOWN_COUNTS_H

#include <stdint.h>

struct known_counts {
    uint32_t strings, frames, nodes; /* string 0 and the root included */
};
struct known;

#endif
