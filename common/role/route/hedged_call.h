/* SPDX-License-Identifier: Apache-2.0
 *
 * hedged_call.h: one call to the leader of a shard, by the way that works.
 *
 * A call goes straight to the leader, or, while that way is known to be dead or slow, by another
 * ingester (relay.h). Where it is not answered in the time that such calls usually take, it may be
 * sent once more, by another way: the first good answer is taken, the other one never looked at.
 * An error ends the race only when no leg is under way any more; the error of the direct way is
 * returned.
 *
 * So a call may be served twice, at the same time: only what is idempotent may be given `more`.
 * Thread: the loop's.
 */
#ifndef COMMON_ROLE_ROUTE_HEDGED_CALL_H
#define COMMON_ROLE_ROUTE_HEDGED_CALL_H

#include "common/base/list.h"
#include "common/role/route/route.h"

struct way;
struct hedged_call;

struct hedged_call_leg {
    struct hedged_call *race;
    struct way *helper; /* NULL: straight */
    uint64_t id;        /* 0: not under way */
    uint64_t sent_ns;
    uint16_t method;
};

struct hedged_call_opts {
    struct route *route;
    size_t target;
    uint64_t deadline_ms; /* from now */
    /* NULL: never sent twice. Else it says that another copy would help: hedged_call_send_second
     * with one, now or later, or never. */
    void (*more)(void *cookie);
    rpc_done_fn done; /* never inside of hedged_call_begin or hedged_call_send_second */
    void *cookie;
};

/* Part of the caller's struct; its fields are private. */
struct hedged_call {
    struct hedged_call_opts o;
    struct list link; /* in ways.waiting: may ask for more */
    struct way *way;  /* the leader's */
    uint64_t until_ns, hedge_ns;
    struct hedged_call_leg legs[2];
    struct err *why; /* owned; the error that would be told */
    unsigned why_rank;
    bool running;
};

/* Moves *payload if it returns 0. ERR_UNAVAILABLE: no leader is known; nothing was sent. */
NODISCARD int hedged_call_begin(struct hedged_call *c, const struct hedged_call_opts *o,
                                enum rpc_method method, struct buf *payload, struct err *e);
/* The other copy, after `more` and before done; moves *payload. False: there is no other way any
 * more, nothing was sent. */
bool hedged_call_send_second(struct hedged_call *c, enum rpc_method method, struct buf *payload);
/* Neither done nor more is called from now on, and the peers get a cancel. A race that ended, or is
 * all zero, is fine. */
void hedged_call_cancel(struct hedged_call *c);
/* True if the first copy of a race that ended was relayed by another ingester. */
static inline bool hedged_call_went_round(const struct hedged_call *c)
{
    return c->legs[0].helper != NULL;
}
static inline bool hedged_call_runs(const struct hedged_call *c)
{
    return c->running;
}

#endif
