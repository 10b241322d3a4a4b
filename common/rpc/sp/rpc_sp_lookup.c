/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp_lookup: getaddrinfo on a thread of its own, which the loop does not wait for: a loop that
 * ends must not hang on a name server that does not answer. The loop or the thread, whichever ends
 * last, frees the lookup.
 */
#include "common/rpc/sp/rpc_sp.h"

#include <netdb.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/sys/thread.h"

struct sp_lookup {
    struct mutex lock;
    enum { LOOKING, POSTED, CANCELED } state;
    struct loop *loop;
    char host[RPC_ADDR_MAX + 1], port[8];
    struct addrinfo *found; /* owned */
    void (*done)(void *cookie, struct addrinfo *found);
    void *cookie;
};

static void lookup_free(struct sp_lookup *l)
{
    if (l->found)
        freeaddrinfo(l->found);
    mutex_deinit(&l->lock);
    xfree(l);
}

static void on_posted(void *cookie)
{
    struct sp_lookup *l = cookie;
    bool canceled;

    mutex_lock(&l->lock); /* the thread that posted is still in there, maybe */
    canceled = l->state == CANCELED;
    mutex_unlock(&l->lock);
    if (!canceled)
        l->done(l->cookie, l->found);
    lookup_free(l);
}

static void run(void *cookie)
{
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found = NULL;
    struct sp_lookup *l = cookie;
    bool canceled;

    if (getaddrinfo(l->host, l->port, &hints, &found) != 0)
        found = NULL;
    mutex_lock(&l->lock);
    l->found = found;
    canceled = l->state == CANCELED;
    if (!canceled) {
        l->state = POSTED;
        loop_post(l->loop, on_posted, l);
    }
    mutex_unlock(&l->lock);
    if (canceled)
        lookup_free(l);
}

struct sp_lookup *sp_lookup_start(struct loop *loop, struct str host, struct str port,
                                  void (*done)(void *cookie, struct addrinfo *found), void *cookie)
{
    struct sp_lookup *l = XNEW(struct sp_lookup);
    struct thread t = { 0 };

    CHECK(host.len <= RPC_ADDR_MAX && port.len < sizeof(l->port));
    *l = (struct sp_lookup){ .loop = loop, .done = done, .cookie = cookie };
    mutex_init(&l->lock);
    memcpy(l->host, host.ptr, host.len);
    memcpy(l->port, port.ptr, port.len);
    thread_start(&t, "rpc-lookup", run, l);
    thread_detach(&t);
    return l;
}

void sp_lookup_cancel(struct sp_lookup *l)
{
    if (!l)
        return;
    mutex_lock(&l->lock); /* the posted call sees it, and the thread does before it posts */
    l->state = CANCELED;
    mutex_unlock(&l->lock);
}
