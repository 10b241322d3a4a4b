/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_world.h: replicas of a shard (common/repl/protocol/replica.h) with their logs (rlog.h, on
 * files that lose power), in a world of faults that is a function of the seed, watched by an
 * oracle.
 */
#ifndef TESTS_LIB_REPL_REPL_WORLD_H
#define TESTS_LIB_REPL_REPL_WORLD_H

#include "common/base/base.h"

struct repl_world_stats {
    uint64_t acked, reads, leaders, snapshots, copies, wiped;
    uint64_t unmarked; /* acked in terms that were not marked as established */
};
/* NULL: all went right; else what broke (static bytes). */
const char *repl_world_run(uint64_t seed, uint32_t mutants, struct repl_world_stats *ret);

#endif
