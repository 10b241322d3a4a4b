/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_object.h: the bucket of a simulated cluster's cold tier: one for all nodes. It takes its
 * time, fails, loses answers, does late what it was asked for, when no caller waits any more, and
 * is away.
 */
#ifndef TESTS_LIB_SIM_SIM_OBJECT_H
#define TESTS_LIB_SIM_SIM_OBJECT_H

#include "common/role/core/role.h"
#include "tests/lib/sim/sim.h"

struct sim_bucket;
struct sim_bucket_faults {
    bool away;
    uint32_t slow_ms;   /* a request takes up to so long; 0: a few ms */
    double fails, lost; /* chance of each request: not done; done and not answered */
    double late;        /* of each change: done seconds after its caller stopped waiting */
};
struct sim_bucket *sim_bucket_new(struct loop *loop, uint64_t seed, int mutant,
                                  struct sim_stats *stats);
void sim_bucket_free(struct sim_bucket *b); /* NULL is fine */
struct sim_bucket_faults *sim_bucket_faults(struct sim_bucket *b);

/* How a node gets at it. */
struct sim_objects {
    struct object_source source; /* hand out this */
    struct sim_bucket *bucket;
    bool dead; /* the node crashed: it asks for nothing and hears nothing */
};
void sim_objects_init(struct sim_objects *s, struct sim_bucket *b);

#endif
