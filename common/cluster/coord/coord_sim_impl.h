/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_sim_impl.h: what the simulated service holds, for its files.
 */
#ifndef COMMON_CLUSTER_COORD_COORD_SIM_IMPL_H
#define COMMON_CLUSTER_COORD_COORD_SIM_IMPL_H

#include "common/base/list.h"
#include "common/base/vec.h"
#include "common/cluster/coord/coord_sim.h"

enum { SIM_RETRY_MS = 100 };

struct sim_lease {
    int64_t id;
    uint64_t ttl_ms, deadline_ms;
};
struct coord_site {
    uint32_t magic;
    struct loop *loop;
    struct prng prng;
    struct coord_faults faults;
    bool mute;                    /* watches */
    VEC(struct coord_kv) keys;    /* sorted; owned bytes */
    VEC(struct coord_kv) history; /* by mod_rev; owned bytes */
    VEC(struct sim_lease) leases;
    int64_t rev, compacted, next_lease;
    struct timer *lease_timer;
    struct list clients;
    bool away;
};

static inline uint64_t sim_now_ms(const struct coord_site *s)
{
    return clock_mono_ms(loop_clock(s->loop));
}
struct coord_kv sim_kv_copy(const struct coord_kv *kv);
void sim_kv_drop(struct coord_kv *kv);
/* Whole revisions. */
void sim_forget(struct coord_site *s, int64_t upto);
void sim_pump_soon(struct coord_site *s); /* watches continue */

#endif
