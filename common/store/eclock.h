/* SPDX-License-Identifier: Apache-2.0
 *
 * eclock.h: engine time: what sealing and write-id expiry believe the time to be. Never goes back,
 * also over restarts, and does not follow a jump of the wall clock.
 *
 *   engine = max(base, min(wall, base + monotonic elapsed since + 5 min))
 *
 * `base` is the last engine time seen, at first the one on disk. While the wall clock is further
 * ahead than that, engine time runs on by the monotonic clock and `paused` is set. A jump is
 * believed once the wall clock has kept pace with the monotonic one for two minutes: so a machine
 * that was off for a day goes on soon, and a clock that was wrong for a moment did no harm.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_ECLOCK_H
#define COMMON_STORE_ECLOCK_H

#include "common/sys/clock.h"

#define ECLOCK_SLACK_MS  (INT64_C(5) * 60 * 1000)
#define ECLOCK_SETTLE_MS (2 * 60 * 1000)
#define ECLOCK_PACE_MS   2000 /* a settled clock differs by less */

struct eclock {
    const struct clock *clock; /* borrowed */
    int64_t base_ms;
    uint64_t base_mono_ms;
    bool paused;
    int64_t ahead_ms;       /* while paused: wall over the limit */
    int64_t jump_offset_ms; /* while paused: wall - monotonic when the jump was seen */
    uint64_t jump_mono_ms;  /* and when that was */
};
/* stored_ms < 0: nothing is stored, the wall clock is right. */
void eclock_init(struct eclock *c, const struct clock *clock, int64_t stored_ms);
int64_t eclock_now(struct eclock *c);

#endif
