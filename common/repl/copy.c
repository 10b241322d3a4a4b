/* SPDX-License-Identifier: Apache-2.0
 *
 * copy: where questions about copies come in.
 */
#include "common/repl/copy.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/repl/copy_impl.h"

void repl_copy_open(struct repl_node *n)
{
    struct repl_copy *c;

    if (!n->o.copy_dir)
        return;
    c = XNEW(struct repl_copy);
    c->n = n;
    if (snprintf(c->base, sizeof(c->base), "%s", n->o.copy_dir) >= (int)sizeof(c->base)) {
        xfree(c);
        return;
    }
    list_init(&c->outs);
    list_init(&c->offers);
    list_init(&c->waiting);
    n->copy = c;
    copy_give_open(c);
    copy_take_open(c);
}

void repl_copy_tick(struct repl_node *n)
{
    if (!n->copy)
        return;
    copy_give_tick(n->copy);
    copy_take_tick(n->copy);
}

void repl_copy_stop(struct repl_node *n)
{
    if (!n->copy)
        return;
    copy_give_stop(n->copy);
    copy_take_stop(n->copy);
}

void repl_copy_free(struct repl_node *n)
{
    if (!n->copy)
        return;
    copy_give_free(n->copy);
    copy_take_free(n->copy);
    xfree(n->copy);
    n->copy = NULL;
}

static void answer(struct rpc_call *call, enum copy_state state)
{
    struct copy_reply r = { .state = state };
    struct buf out;

    buf_init(&out, KIB);
    copy_reply_write(&r, &out);
    rpc_reply(call, &out);
}

void repl_copy_serve(void *cookie, struct rpc_call *call, struct str payload)
{
    struct copy_ask a;
    struct repl_node *n;
    struct err e;

    if (copy_ask_read(payload, &a, &e)) {
        rpc_fail(call, &e);
        return;
    }
    n = repl_hub_node(cookie, a.shard);
    if (!n || n->failed) {
        (void)err_set(&e, ERR_UNAVAILABLE, "no replica of shard %" PRIu32 " is here", a.shard);
        rpc_fail(call, &e);
    } else if (a.kind == COPY_OFFER) {
        answer(call, copy_can(n) ? file_copy_receive(n->copy, &a) : COPY_ROWS);
        node_settle(n);
    } else if (!n->copy) {
        (void)err_set(&e, ERR_NOT_FOUND, "no copies of shard %" PRIu32 " are made here", a.shard);
        rpc_fail(call, &e);
    } else {
        file_copy_send(n->copy, call, &a);
    }
}
