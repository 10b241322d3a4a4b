/* SPDX-License-Identifier: Apache-2.0
 *
 * clock.h: time behind a struct, so that tests and simulation can set it.
 *
 * Wall time is milliseconds since 1970 and may jump; monotonic time is nanoseconds, only forward.
 * Thread: any.
 */
#ifndef COMMON_SYS_CLOCK_H
#define COMMON_SYS_CLOCK_H

#include <stdatomic.h>

#include "common/base/base.h"

struct clock {
    int64_t (*wall_ms)(const struct clock *c);
    uint64_t (*mono_ns)(const struct clock *c);
};
const struct clock *clock_real(void);

struct clock_fake {
    struct clock clock; /* pass &fake.clock */
    _Atomic int64_t wall_ms;
    _Atomic uint64_t mono_ns;
};
void clock_fake_init(struct clock_fake *f, int64_t wall_ms);
void clock_fake_advance(struct clock_fake *f, int64_t ms); /* both */
void clock_fake_jump(struct clock_fake *f, int64_t ms);    /* wall only, either way */

static inline int64_t clock_wall_ms(const struct clock *c)
{
    return c->wall_ms(c);
}
static inline uint64_t clock_mono_ns(const struct clock *c)
{
    return c->mono_ns(c);
}
static inline uint64_t clock_mono_ms(const struct clock *c)
{
    return c->mono_ns(c) / 1000000;
}

#endif
