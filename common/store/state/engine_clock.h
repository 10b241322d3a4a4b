/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_clock.h: engine time: what retention, write-id expiry and the levels believe the time to
 * be. Never goes back, also over restarts, and does not follow a wall clock that is wrong.
 *
 *   engine = max(base, min(wall, base + monotonic elapsed since + 5 min))
 *
 * `base` is the last engine time seen, at first the one on disk. While the wall clock is further
 * ahead than that, engine time runs on by the monotonic clock: it is `held`, and nothing is
 * forgotten for its age. Such a jump is believed when the wall clock has stood there, at the pace
 * of the monotonic one, while this ran, over restarts, too, for
 *
 *   2 minutes              a jump of a day at most: what that deletes would go tomorrow anyway
 *   a 60th of the jump     else: a week off is 3 hours, a month 12 hours
 *   a week                 at most
 *
 * So a machine that was off continues by itself, and a clock that is years ahead leaves the
 * operator a week to correct it before any harm is done. Engine time that followed a wrong clock
 * cannot be taken back: floors and write ids went with it.
 *
 * Sealing deletes nothing, and does not wait as long: two minutes after a jump of any size it goes
 * by the wall clock (engine_clock_seal_ahead).
 *
 * Others: where clocks of other processes are known and the own one is off the time that was on
 * disk, the clock in the middle of all, the own one too, is taken in its place, if it is not off
 * itself; else the lower of the two in the middle. So one wrong clock among several neither holds
 * nor moves engine time, either way. Others cannot shorten the wait: they may stand on the same
 * machine, or ask the same time server.
 *
 * Thread: the shard's; engine_clock_others_* any.
 */
#ifndef COMMON_STORE_STATE_ENGINE_CLOCK_H
#define COMMON_STORE_STATE_ENGINE_CLOCK_H

#include "common/sys/clock.h"

#define ENGINE_CLOCK_SLACK_MS    (INT64_C(5) * 60 * 1000)
#define ENGINE_CLOCK_SETTLE_MS   (2 * 60 * 1000)
#define ENGINE_CLOCK_PACE_MS     2000 /* a settled clock differs by less */
#define ENGINE_CLOCK_DAY_MS      (INT64_C(24) * 3600 * 1000)
#define ENGINE_CLOCK_SHARE       60
#define ENGINE_CLOCK_HELD_MAX_MS (7 * ENGINE_CLOCK_DAY_MS)

/* What a process knows of the clocks of others. */
struct engine_clock_others {
    _Atomic int64_t low, high; /* less the monotonic clock; INT64_MIN: no other clock is known */
};
void engine_clock_others_init(struct engine_clock_others *o);
/* Clocks of others, and the own one, less the monotonic clock; len 0 or 1: no other clock is
 * known. Sorts them. */
void engine_clock_others_set(struct engine_clock_others *o, int64_t *less_mono_ms, size_t len);

struct engine_clock {
    const struct clock *clock;                /* borrowed */
    const struct engine_clock_others *others; /* borrowed; NULL: no other clock is ever known */
    int64_t base_ms;
    uint64_t base_mono_ms;
    bool held;              /* the wall clock is not followed: it is ahead, or far behind */
    bool paused;            /* nor does sealing follow it: it has not settled */
    int64_t ahead_ms;       /* while held: wall over engine; below 0: behind */
    int64_t wall_ms;        /* gone by last: the own one, or that of others */
    int64_t jump_offset_ms; /* while held ahead: wall - monotonic when the jump was seen */
    uint64_t jump_mono_ms;  /* and when that was */
    uint64_t stood_mono_ms; /* up to here it is counted in */
    int64_t stood_ms;       /* how long the jump stood, earlier runs with it */
};
/* stored_ms < 0: nothing is stored, the wall clock is right. */
void engine_clock_init(struct engine_clock *c, const struct clock *clock, int64_t stored_ms);
/* After init: how long an earlier run saw the clock ahead, which showed wall_ms at last. */
void engine_clock_stood(struct engine_clock *c, int64_t stood_ms, int64_t wall_ms);
int64_t engine_clock_now(struct engine_clock *c);
/* By how much sealing is ahead of engine time, as of the last engine_clock_now; not while paused.
 */
int64_t engine_clock_seal_ahead(const struct engine_clock *c);
/* How long a jump so far must stand. */
int64_t engine_clock_wait_ms(int64_t ahead_ms);

#endif
