/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/eclock.h"

void eclock_init(struct eclock *c, const struct clock *clock, int64_t stored_ms)
{
    *c = (struct eclock){
        .clock = clock,
        .base_ms = stored_ms < 0 ? clock_wall_ms(clock) : stored_ms,
        .base_mono_ms = clock_mono_ms(clock),
    };
}

static void rebase(struct eclock *c, int64_t engine_ms, uint64_t mono_ms)
{
    c->base_ms = engine_ms;
    c->base_mono_ms = mono_ms;
}

int64_t eclock_now(struct eclock *c)
{
    int64_t wall = clock_wall_ms(c->clock);
    uint64_t mono = clock_mono_ms(c->clock);
    int64_t paced = c->base_ms + (int64_t)(mono - c->base_mono_ms);

    if (wall <= paced + ECLOCK_SLACK_MS) {
        c->paused = false;
        rebase(c, MAX(c->base_ms, wall), mono);
        return c->base_ms;
    }
    int64_t offset = wall - (int64_t)mono;
    int64_t moved = offset - c->jump_offset_ms;
    if (!c->paused || moved > ECLOCK_PACE_MS || moved < -ECLOCK_PACE_MS) {
        c->paused = true;
        c->jump_offset_ms = offset;
        c->jump_mono_ms = mono;
    } else if (mono - c->jump_mono_ms >= ECLOCK_SETTLE_MS) {
        c->paused = false;
        rebase(c, wall, mono);
        return wall;
    }
    c->ahead_ms = wall - paced;
    rebase(c, paced, mono);
    return paced;
}
