/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_cluster.h: a whole replicated cluster in one process and one thread: ingesters (the role),
 * their members, leads and controllers, a coordination service, the network, databases and logs
 * that lose power, all simulated; a client that pushes and reads; an oracle that knows what was
 * pushed, acked and read. A run is a function of its seed.
 */
#ifndef TESTS_LIB_SIM_CLUSTER_H
#define TESTS_LIB_SIM_CLUSTER_H

#include "common/base/base.h"

struct sim_stats {
    uint64_t pushes, acked, reads, crashes, cuts, away; /* what happened */
    uint64_t simulated_ms;
};
/* Mutants: what must be found. */
enum sim_mutant {
    SIM_NONE,
    SIM_NEW_IDS, /* pushes are repeated under other write ids */
};
/* NULL: all went right; else what broke, and `text` says more. */
const char *sim_run(uint64_t seed, enum sim_mutant mutant, struct sim_stats *ret, char *text,
                    size_t text_size);

#endif
