/* SPDX-License-Identifier: Apache-2.0
 *
 * A posted call and not a timer of 0 ms: libuv runs timers that are due until none is, so two nodes
 * that answer each other at once would keep it there and starve the sockets; posted calls of one
 * round run once. The posted call holds the struct, so it outlives an owner that frees it early.
 */
#include "common/rpc/rpc_soon.h"

#include "common/base/mem.h"

struct rpc_soon {
    struct loop *loop; /* borrowed */
    loop_fn fn;        /* NULL: freed by its owner */
    void *cookie;
    bool posted;
};

struct rpc_soon *rpc_soon_new(struct loop *l, loop_fn fn, void *cookie)
{
    struct rpc_soon *s = XNEW(struct rpc_soon);

    *s = (struct rpc_soon){ .loop = l, .fn = fn, .cookie = cookie };
    return s;
}

static void soon_on_post(void *cookie)
{
    struct rpc_soon *s = cookie;

    s->posted = false;
    if (s->fn)
        s->fn(s->cookie); /* may free s */
    else
        xfree(s);
}

void rpc_soon_kick(struct rpc_soon *s)
{
    CHECK(s->fn);
    if (s->posted)
        return;
    s->posted = true;
    loop_post(s->loop, soon_on_post, s);
}

void rpc_soon_free(struct rpc_soon *s)
{
    if (!s)
        return;
    s->fn = NULL;
    if (!s->posted)
        xfree(s);
}
