/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sys/env.h"

#include <errno.h>
#include <pthread.h>
#include <sys/random.h>

static void real_random(struct env *env, void *p, size_t n)
{
    char *at = p;

    (void)env;
    while (n) {
        ssize_t got = getrandom(at, n, 0);

        if (got < 0) {
            CHECK(errno == EINTR);
            continue;
        }
        at += got;
        n -= (size_t)got;
    }
}

static struct env real_env;

static void real_fill(void)
{
    real_env.clock = clock_real();
    real_env.fs = fs_real();
    real_env.random = real_random;
}

struct env *env_real(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    CHECK(pthread_once(&once, real_fill) == 0);
    return &real_env;
}

static void sim_random(struct env *env, void *p, size_t n)
{
    struct env_sim *s = container_of(env, struct env_sim, env);
    char *at = p;

    while (n) {
        uint64_t v = prng_u64(&s->prng);
        size_t part = MIN(n, sizeof(v));

        memcpy(at, &v, part);
        at += part;
        n -= part;
    }
}

void env_sim_init(struct env_sim *s, const struct clock *clock, const struct fs *fs, uint64_t seed)
{
    s->env =
        (struct env){ .clock = clock, .fs = fs, .random = sim_random, .random_state = &s->prng };
    prng_init(&s->prng, seed);
}
