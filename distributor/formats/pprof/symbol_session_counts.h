/* SPDX-License-Identifier: Apache-2.0
 *
 * symbol_session_counts.h: how far a session goes (symbol_session.h).
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_SYMBOL_SESSION_COUNTS_H
#define DISTRIBUTOR_FORMATS_PPROF_SYMBOL_SESSION_COUNTS_H

#include <stdint.h>

struct symbol_session_counts {
    uint32_t strings, frames, nodes; /* string 0 and the root included */
};
struct symbol_session;

#endif
