/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_wire.h"

#include "common/base/mem.h"

struct rpc_msg *rpc_msg_new(enum rpc_kind kind, uint64_t id)
{
    struct rpc_msg *m = XNEW(struct rpc_msg);

    list_init(&m->link);
    m->kind = (uint8_t)kind;
    m->id = id;
    buf_init(&m->body, SIZE_MAX);
    return m;
}

void rpc_msg_free(struct rpc_msg *m)
{
    if (!m)
        return;
    list_del(&m->link);
    buf_deinit(&m->body);
    xfree(m);
}

void rpc_msgs_free(struct list *msgs)
{
    list_for (it, msgs)
        rpc_msg_free(container_of(it, struct rpc_msg, link));
}
