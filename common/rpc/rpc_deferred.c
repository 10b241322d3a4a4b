/* SPDX-License-Identifier: Apache-2.0
 *
 * A posted call and not a timer of 0 ms: libuv runs timers that are due until none is, so two nodes
 * that answer each other at once would keep it there and starve the sockets; posted calls of one
 * round run once. The posted call holds the struct, so it outlives an owner that frees it early.
 */
#include "common/rpc/rpc_deferred.h"

#include "common/base/mem.h"

struct rpc_deferred {
    struct loop *loop; /* borrowed */
    loop_fn fn;        /* NULL: freed by its owner */
    void *cookie;
    bool posted;
};

struct rpc_deferred *rpc_deferred_new(struct loop *l, loop_fn fn, void *cookie)
{
    struct rpc_deferred *s = XNEW(struct rpc_deferred);

    *s = (struct rpc_deferred){ .loop = l, .fn = fn, .cookie = cookie };
    return s;
}

static void soon_on_post(void *cookie)
{
    struct rpc_deferred *s = cookie;

    s->posted = false;
    if (s->fn)
        s->fn(s->cookie); /* may free s */
    else
        xfree(s);
}

void rpc_deferred_schedule(struct rpc_deferred *s)
{
    CHECK(s->fn);
    if (s->posted)
        return;
    s->posted = true;
    loop_post(s->loop, soon_on_post, s);
}

void rpc_deferred_free(struct rpc_deferred *s)
{
    if (!s)
        return;
    s->fn = NULL;
    if (!s->posted)
        xfree(s);
}
