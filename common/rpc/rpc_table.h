/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_table.h: calls under way: by id, and by deadline.
 */
#ifndef COMMON_RPC_RPC_TABLE_H
#define COMMON_RPC_RPC_TABLE_H

#include "common/base/err.h"
#include "common/base/list.h"
#include "common/rpc/rpc.h"

#define RPC_PENDING_MAX (1u << 20)

/* A call that this node made, from rpc_send to its end. */
struct rpc_out {
    struct list link; /* in peer.calls, or in node.ended */
    uint64_t id;
    struct rpc_peer *peer;
    uint16_t method;
    uint64_t began_ns, deadline_ns;
    rpc_done_fn done;
    void *cookie;
    struct err *err; /* owned; set in node.ended */
    size_t heap_at;  /* of the table */
};

struct rpc_table;

struct rpc_table *rpc_table_new(size_t max); /* 1 .. RPC_PENDING_MAX */
void rpc_table_free(struct rpc_table *t);    /* empty; NULL is fine */
/* Gives c an id, never 0 and never used before by this table. False if `max` are under way; c has
 * an id then too. */
bool rpc_table_add(struct rpc_table *t, struct rpc_out *c);
struct rpc_out *rpc_table_get(const struct rpc_table *t, uint64_t id); /* NULL if not under way */
void rpc_table_del(struct rpc_table *t, struct rpc_out *c);
struct rpc_out *rpc_table_first(const struct rpc_table *t); /* earliest deadline; NULL if empty */
size_t rpc_table_len(const struct rpc_table *t);

#endif
