/* SPDX-License-Identifier: Apache-2.0
 *
 * engine_clock: computes engine time, and whether the wall clock is to be believed (the header).
 *
 * The state is a handful of numbers that store_put_clock saves with each batch. Other nodes' clocks
 * come in through engine_clock_others: the middle of what they say decides which clock is wrong, so
 * a single wrong clock of three moves nothing.
 *
 * Threads: the shard's; engine_clock_others is atomic, and the loop writes it.
 */
#include "common/store/state/engine_clock.h"

#include <stdlib.h>

/* ---- others ---------------------------------------------------------------------------------- */

void engine_clock_others_init(struct engine_clock_others *o)
{
    atomic_init(&o->low, INT64_MIN);
    atomic_init(&o->high, INT64_MIN);
}

static int by_time(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

void engine_clock_others_set(struct engine_clock_others *o, int64_t *less_mono_ms, size_t len)
{
    int64_t low = INT64_MIN, high = INT64_MIN;

    if (len > 1) {
        qsort(less_mono_ms, len, sizeof(*less_mono_ms), by_time);
        low = less_mono_ms[(len - 1) / 2];
        high = less_mono_ms[len / 2];
    }
    /* A reader between the two stores gets one old value, of two seconds ago. */
    atomic_store(&o->low, low);
    atomic_store(&o->high, high);
}

/* ---- engine time ----------------------------------------------------------------------------- */

void engine_clock_init(struct engine_clock *c, const struct clock *clock, int64_t stored_ms)
{
    *c = (struct engine_clock){
        .clock = clock,
        .base_ms = stored_ms < 0 ? clock_wall_ms(clock) : stored_ms,
        .base_mono_ms = clock_mono_ms(clock),
    };
}

void engine_clock_stood(struct engine_clock *c, int64_t stood_ms, int64_t wall_ms)
{
    if (clock_wall_ms(c->clock) >= wall_ms - ENGINE_CLOCK_SLACK_MS)
        c->stood_ms = MIN(MAX(stood_ms, 0), ENGINE_CLOCK_HELD_MAX_MS);
}

int64_t engine_clock_wait_ms(int64_t ahead_ms)
{
    if (ahead_ms <= ENGINE_CLOCK_DAY_MS)
        return ENGINE_CLOCK_SETTLE_MS;
    return MIN(ahead_ms / ENGINE_CLOCK_SHARE, ENGINE_CLOCK_HELD_MAX_MS);
}

static void rebase(struct engine_clock *c, int64_t engine_ms, uint64_t mono_ms)
{
    c->base_ms = engine_ms;
    c->base_mono_ms = mono_ms;
}

static bool keeps_pace(int64_t wall_ms, int64_t paced_ms)
{
    return wall_ms <= paced_ms + ENGINE_CLOCK_SLACK_MS &&
           wall_ms >= paced_ms - ENGINE_CLOCK_SLACK_MS;
}

/* The clock to go by. */
static int64_t wall_of(const struct engine_clock *c, int64_t paced_ms, uint64_t mono_ms)
{
    int64_t own = clock_wall_ms(c->clock);
    int64_t low = c->others ? atomic_load(&c->others->low) : INT64_MIN;
    int64_t high = c->others ? atomic_load(&c->others->high) : INT64_MIN;

    if (low == INT64_MIN || high == INT64_MIN || keeps_pace(own, paced_ms))
        return own;
    low += (int64_t)mono_ms;
    high += (int64_t)mono_ms;
    return keeps_pace(high, paced_ms) ? high : low;
}

/* It is not ahead: what it says holds, but that engine time does not go back. */
static int64_t follow(struct engine_clock *c, int64_t wall, uint64_t mono)
{
    rebase(c, MAX(c->base_ms, wall), mono);
    c->paused = false;
    c->held = wall < c->base_ms - ENGINE_CLOCK_DAY_MS; /* a little is waited for and not worth a
    word */
    c->ahead_ms = c->held ? wall - c->base_ms : 0;
    c->jump_mono_ms = 0;
    c->stood_ms = 0;
    return c->base_ms;
}

/* Has it settled? Counts for how long it stands. */
static void settle(struct engine_clock *c, int64_t wall, uint64_t mono)
{
    int64_t offset = wall - (int64_t)mono, moved = offset - c->jump_offset_ms;
    int64_t most = c->paused ? ENGINE_CLOCK_PACE_MS : ENGINE_CLOCK_SLACK_MS;

    if (c->jump_mono_ms && moved >= -most && moved <= most) {
        c->stood_ms += (int64_t)(mono - c->stood_mono_ms);
        c->stood_mono_ms = mono;
        c->paused = c->paused && mono - c->jump_mono_ms < ENGINE_CLOCK_SETTLE_MS;
        return;
    }
    if (c->jump_mono_ms && moved < 0)
        c->stood_ms = 0; /* what it showed was wrong: it begins again */
    c->paused = true;
    c->jump_offset_ms = offset;
    c->jump_mono_ms = c->stood_mono_ms = MAX(mono, 1u);
}

int64_t engine_clock_now(struct engine_clock *c)
{
    uint64_t mono = clock_mono_ms(c->clock);
    int64_t paced = c->base_ms + (int64_t)(mono - c->base_mono_ms);
    int64_t wall = c->wall_ms = wall_of(c, paced, mono);

    if (wall <= paced + ENGINE_CLOCK_SLACK_MS)
        return follow(c, wall, mono);
    settle(c, wall, mono);
    c->held = true;
    c->ahead_ms = wall - paced;
    if (!c->paused && c->stood_ms >= engine_clock_wait_ms(c->ahead_ms))
        return follow(c, wall, mono);
    rebase(c, paced, mono);
    return paced;
}

int64_t engine_clock_seal_ahead(const struct engine_clock *c)
{
    return c->held && !c->paused ? MAX(c->ahead_ms, 0) : 0;
}
