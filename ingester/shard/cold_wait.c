/* SPDX-License-Identifier: Apache-2.0
 *
 * far_turn: bounds the share of time that a thread waits, whatever the object store does: after a
 * wait of t that failed the thread does not wait for 10 t, and after a slow wait that succeeded not
 * for 3 t. The time allowed doubles with each failure up to ALLOWED_MOST_MS, since a request that
 * is cut off brings nothing: a store that needs two seconds for each piece is waited for in the
 * end. No t counts for more than was allowed: far reads end by then, and what else the work waited
 * for (a quorum that is away for minutes) says nothing of the object store.
 */
#include "ingester/shard/cold_wait.h"

#include "common/base/err.h"
#include "common/base/mem.h"

#define ALLOWED_MS      500
#define ALLOWED_MOST_MS 4000
#define SLOW_MS         100 /* a wait as long as this is followed by a pause, though it helped */
#define PAUSE_FAILED    10
#define PAUSE_SLOW      3

void cold_wait_init(struct cold_wait *f, const struct clock *clock)
{
    *f = (struct cold_wait){ .clock = clock, .allowed_ms = ALLOWED_MS };
}

/* Asked once a turn, before the first wait. */
static bool enter(void *cookie)
{
    struct cold_wait *f = cookie;
    uint64_t now = clock_mono_ms(f->clock);

    if (now < f->after_ms)
        return false;
    f->entered_ms = now;
    f->reach.deadline_ms = now + f->allowed_ms;
    return true;
}

void cold_wait_begin(struct cold_wait *f)
{
    if (!f->clock)
        return;
    f->reach = (struct cold_read){ .enter = enter, .cookie = f };
    f->before = cold_read_policy_set(&f->reach);
}

bool cold_wait_end(struct cold_wait *f, int code)
{
    bool late =
        code == ERR_UNAVAILABLE || code == ERR_TIMEOUT || code == ERR_BUSY || code == ERR_CANCELED;

    if (!f->clock)
        return false;
    (void)cold_read_policy_set(f->before);
    if (!f->reach.entered)
        return f->reach.refused && late;
    uint64_t now = clock_mono_ms(f->clock), took = MIN(now - f->entered_ms, f->allowed_ms);
    if (late) {
        f->after_ms = now + PAUSE_FAILED * MAX(took, ALLOWED_MS / 5u);
        f->allowed_ms = MIN(f->allowed_ms * 2, (uint64_t)ALLOWED_MOST_MS);
        return true;
    }
    if (took >= SLOW_MS)
        f->after_ms = now + PAUSE_SLOW * took;
    else
        f->allowed_ms = ALLOWED_MS;
    return false;
}

void cold_wait_over(struct cold_wait *f)
{
    bool late = f->clock && f->reach.entered && clock_mono_ms(f->clock) >= f->reach.deadline_ms;

    (void)cold_wait_end(f, late ? ERR_TIMEOUT : 0);
}

bool cold_wait_told(const struct cold_wait *f)
{
    return f->reach.entered;
}

uint64_t cold_wait_wait(const struct cold_wait *f, uint64_t now_ms)
{
    return f->after_ms > now_ms ? f->after_ms - now_ms : 0;
}
