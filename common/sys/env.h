/* SPDX-License-Identifier: Apache-2.0
 *
 * env.h: what a role may know of the world. Tests and simulation hand in another one.
 */
#ifndef COMMON_SYS_ENV_H
#define COMMON_SYS_ENV_H

#include "common/base/prng.h"
#include "common/sys/clock.h"
#include "common/sys/fs.h"

struct env {
    const struct clock *clock;
    const struct fs *fs;
    /* Fills n bytes: getrandom(2) in production, a seeded prng in simulation. */
    void (*random)(struct env *env, void *p, size_t n);
    void *random_state;
};
struct env *env_real(void); /* static; shared by the process */

/* A world of its own for tests and simulation: any clock, any files, seeded randomness. */
struct env_sim {
    struct env env; /* pass &sim.env */
    struct prng prng;
};
void env_sim_init(struct env_sim *s, const struct clock *clock, const struct fs *fs, uint64_t seed);

#endif
