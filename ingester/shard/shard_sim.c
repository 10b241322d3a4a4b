/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_sim: the steps of a shard on a simulated loop, without threads.
 */
#include "ingester/shard/shard_impl.h"

#include "common/sys/fiber.h"

/* In a fiber: a write that waits for other nodes gives the loop back. */
static void simulated_turn(void *cookie)
{
    struct shard *s = cookie;
    void *msgs[TAKE_MAX];
    size_t n = chan_take(s->inbox, msgs, TAKE_MAX);
    uint64_t wait = shard_step(s, msgs, n);

    s->in_step = false;
    if (!s->stopping)
        loop_timer_start(s->timer, chan_len(s->inbox) ? 0 : wait, 0);
}

void shard_simulated_step(void *cookie)
{
    struct shard *s = cookie;

    CHECK(s->magic == SHARD_MAGIC);
    s->step_posted = false;
    if (s->in_step || s->stopping)
        return; /* it looks at the inbox when it ends */
    s->in_step = true;
    fiber_run(simulated_turn, s);
}

void shard_simulated_wake(void *cookie)
{
    struct shard *s = cookie;

    if (s->step_posted)
        return;
    s->step_posted = true;
    loop_post(s->o.loop, shard_simulated_step, s);
}
