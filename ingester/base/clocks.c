/* SPDX-License-Identifier: Apache-2.0
 *
 * clocks: each process that this one calls has one vote on the time, and so has this one. A process
 * that sent no time lately (it is down, or its build sends none) has no vote.
 */
#include "ingester/base/clocks.h"

#include "common/base/hash.h"
#include "common/base/mem.h"

#define LOOK_MS    2000
#define VOICES_MAX 64

struct clocks {
    const struct rpc_net *rpc;
    const struct clock *own;
    struct timer *timer;
    struct engine_clock_others others;
};
struct voices {
    uint64_t of[VOICES_MAX]; /* hashes of addresses */
    int64_t less_mono_ms[VOICES_MAX + 1];
    size_t len;
};

static void on_told(void *cookie, const struct rpc_told *t)
{
    struct voices *v = cookie;
    uint64_t of = hash64(t->addr, strlen(t->addr), 0);

    for (size_t i = 0; i < v->len; i++)
        if (v->of[i] == of)
            return; /* two nodes of this process call it */
    if (v->len == VOICES_MAX)
        return;
    v->of[v->len] = of;
    v->less_mono_ms[v->len++] = t->less_mono_ms;
}

static void on_timer(void *cookie)
{
    struct clocks *c = cookie;
    struct voices v = { .len = 0 };

    rpc_net_told(c->rpc, on_told, &v);
    v.less_mono_ms[v.len] = clock_wall_ms(c->own) - (int64_t)clock_mono_ms(c->own);
    engine_clock_others_set(&c->others, v.less_mono_ms, v.len + 1);
}

struct clocks *clocks_new(struct loop *loop, const struct rpc_net *rpc, const struct clock *own)
{
    struct clocks *c = XNEW(struct clocks);

    c->rpc = rpc;
    c->own = own;
    engine_clock_others_init(&c->others);
    c->timer = loop_timer_new(loop, on_timer, c);
    loop_timer_start(c->timer, LOOK_MS, LOOK_MS);
    return c;
}

void clocks_free(struct clocks *c)
{
    if (!c)
        return;
    loop_timer_free(c->timer);
    xfree(c);
}

const struct engine_clock_others *clocks_others(const struct clocks *c)
{
    return c ? &c->others : NULL;
}
