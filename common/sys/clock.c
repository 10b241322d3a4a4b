/* SPDX-License-Identifier: Apache-2.0 */
#include "common/sys/clock.h"

#include <time.h>

static int64_t real_wall_ms(const struct clock *c)
{
    struct timespec t;

    (void)c;
    CHECK(clock_gettime(CLOCK_REALTIME, &t) == 0);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static uint64_t real_mono_ns(const struct clock *c)
{
    struct timespec t;

    (void)c;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &t) == 0);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

const struct clock *clock_real(void)
{
    static const struct clock real = { real_wall_ms, real_mono_ns };

    return &real;
}

static int64_t fake_wall_ms(const struct clock *c)
{
    const struct clock_fake *f = (const struct clock_fake *)(const void *)c;

    return atomic_load(&f->wall_ms);
}

static uint64_t fake_mono_ns(const struct clock *c)
{
    const struct clock_fake *f = (const struct clock_fake *)(const void *)c;

    return atomic_load(&f->mono_ns);
}
static_assert(offsetof(struct clock_fake, clock) == 0, "a fake clock is found from its clock");

void clock_fake_init(struct clock_fake *f, int64_t wall_ms)
{
    f->clock = (struct clock){ fake_wall_ms, fake_mono_ns };
    atomic_init(&f->wall_ms, wall_ms);
    /* Not 0, which some code takes for "never". */
    atomic_init(&f->mono_ns, 1000000000);
}

void clock_fake_advance(struct clock_fake *f, int64_t ms)
{
    CHECK(ms >= 0);
    atomic_fetch_add(&f->wall_ms, ms);
    atomic_fetch_add(&f->mono_ns, (uint64_t)ms * 1000000);
}

void clock_fake_jump(struct clock_fake *f, int64_t ms)
{
    atomic_fetch_add(&f->wall_ms, ms);
}
