/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp.h: what the two halves of the transport for tcp:// and ipc:// share.
 */
#ifndef COMMON_RPC_SP_RPC_SP_H
#define COMMON_RPC_SP_RPC_SP_H

#include <uv.h>

#include "common/base/list.h"
#include "common/rpc/rpc_wire.h"
#include "common/rpc/sp/rpc_sp_read.h"

#define RPC_SP_READ      (64 * KIB) /* bytes of one read; one such buffer for all of an ear */
#define RPC_SP_CONNS_MAX 8192       /* connections that an ear takes */
/* Bounds of connections that have sent no valid frame yet, as every new one: their number, and the
 * bytes of their incomplete frames. Over a bound the oldest is closed. */
#define RPC_SP_STRANGERS_MAX   4096
#define RPC_SP_STRANGERS_BYTES (64 * MIB)

/* A stream of either kind, closed and freed by itself. */
union rpc_sp_handle {
    uv_handle_t handle;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct sp_listener {
    struct rpc_ear ear;
    struct loop *loop;
    uv_loop_t *uv;
    bool ipc, closed;
    size_t handles; /* of libuv that are not closed yet; the last one frees the ear */
    union rpc_sp_handle listener;
    char *scratch;                /* owned; RPC_SP_READ */
    struct list conns, strangers; /* oldest first; the second: sent no valid frame yet */
    size_t conns_len, strangers_len, strangers_bytes; /* the first: of both */
    bool (*on_frame)(void *cookie, struct str frame);
    void *cookie;
    /* Pipes that have something to write. They do so once a turn, before the loop sleeps. */
    struct list dirty;
    unsigned lookups; /* host names that are being looked up */
    uv_prepare_t flush;
    uv_idle_t awake; /* runs while some are left for the next turn */
};

NODISCARD int sp_listener_open(const struct rpc_ear_opts *o, const struct rpc_pipe_ops *ops,
                               struct rpc_ear **ret, struct err *e);
void sp_listener_close(struct rpc_ear *ear);
/* A handle that was counted in `handles` is closed. */
void sp_listener_handle_gone(struct sp_listener *n);
/* Writes what the pipes in `dirty` have. In rpc_sp.c. */
void sp_listener_flush(struct sp_listener *n);

/* Addresses of a host name, looked up on a thread of its own: a resolver may take half a minute. */
struct sp_lookup;
struct sp_lookup *sp_lookup_start(struct loop *loop, struct str host, struct str port,
                                  void (*done)(void *cookie, struct addrinfo *found), void *cookie);
void sp_lookup_cancel(struct sp_lookup *l); /* done is not called any more; NULL is fine */

#endif
