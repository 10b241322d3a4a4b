/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_wire.h: the interface between the calls (rpc.c and its parts) and the transports.
 *
 *   rpc.c ── whole messages ──> rpc_inproc.c                       moves the pointer
 *                          └──> rpc_framed.c ── frames ──> rpc_sp.c    tcp, ipc
 *                                                     └──> rpc_mem.c   simulated
 *
 * A transport may lose messages and may fail to say so; it never damages, repeats or invents one
 * (rpc_framed.c sees to that). Thread: the loop's.
 */
#ifndef COMMON_RPC_RPC_WIRE_H
#define COMMON_RPC_RPC_WIRE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/list.h"
#include "common/rpc/rpc_addr.h"
#include "common/rpc/rpc_frame.h"
#include "common/sys/loop.h"
#include "common/sys/pool.h"

struct rpc_net;

/* One message, on its way out or just received. Owned by whoever holds it; in one list at most. */
struct rpc_msg {
    struct list link;
    uint8_t kind; /* enum rpc_kind */
    uint8_t lane; /* enum rpc_lane; out: set by the transport but for fins */
    uint8_t flags;
    uint16_t method, code;
    uint64_t id;
    uint64_t to_epoch;    /* 0, or the epoch of the node this answers */
    uint64_t deadline_ns; /* loop clock; 0: none. Travels as time left */
    uint32_t raw;         /* bytes before compression, while compressed */
    uint32_t again_s;     /* errors: err.again_s */
    struct buf body;
    size_t charged; /* bytes of a queue it takes */
    /* received: */
    uint8_t speaks_min, speaks_max;
    uint64_t epoch;              /* sender's */
    uint64_t cluster;            /* sender's, or the number that replaces it; 0: unknown */
    char from[RPC_ADDR_MAX + 1]; /* sender's address */
    bool sealed;                 /* received, or (pongs) to be sent, under a cluster key */
    uint64_t ticket;             /* received sealed pongs: what to bind with */
};
struct rpc_msg *rpc_msg_new(enum rpc_kind kind, uint64_t id);
void rpc_msg_free(struct rpc_msg *m); /* NULL is fine */
void rpc_msgs_free(struct list *msgs);

struct rpc_wire_opts {
    struct rpc_net *net;
    struct loop *loop;
    struct pool *pool; /* may be NULL: compress on the loop */
    const char *listen, *advertise;
    uint64_t epoch;
    size_t message_max;  /* bytes */
    size_t queue_max;    /* bytes waiting per link and lane */
    size_t assembly_max; /* bytes of messages that are not whole yet */
    uint8_t speaks_min, speaks_max;
    void (*on_msg)(void *cookie, struct rpc_msg *m); /* moved */
    /* A message could not be taken in; m has everything but a body, and is borrowed. */
    void (*on_refused)(void *cookie, const struct rpc_msg *m, const struct err *e);
    void *cookie;
};

struct rpc_wire_ops;
struct rpc_port { /* one listening address */
    const struct rpc_wire_ops *ops;
};
struct rpc_link { /* the way to one address */
    const struct rpc_wire_ops *ops;
};
struct rpc_wire_ops {
    int (*open)(const struct rpc_wire_opts *o, struct rpc_port **ret, struct err *e) NODISCARD;
    void (*close)(struct rpc_port *p);     /* its links are closed */
    void (*tick)(struct rpc_port *p);      /* each heartbeat: drop expired messages */
    size_t (*packing)(struct rpc_port *p); /* messages in the hands of the pool */
    int (*link_open)(struct rpc_port *p, const char *addr, struct rpc_link **ret,
                     struct err *e) NODISCARD;
    void (*link_close)(struct rpc_link *l);
    void (*link_reset)(struct rpc_link *l); /* connect again; waiting frames may be lost */
    void (*link_speaks)(struct rpc_link *l, uint8_t max); /* newest version the peer reads */
    /* A pong to our own recent ping: the peer's process, and how it takes frames. */
    void (*link_bind)(struct rpc_link *l, const struct rpc_msg *pong);
    /* Moves m unless it returns ERR_BUSY: the queue is full. */
    int (*link_send)(struct rpc_link *l, struct rpc_msg *m, struct err *e) NODISCARD;
    void (*link_forget)(struct rpc_link *l, uint64_t id); /* unsent requests of this id */
    size_t (*link_queued)(struct rpc_link *l);            /* bytes */
};

/* A pipe carries whole frames one way. */
struct rpc_pipe_ops;
struct rpc_ear { /* listening */
    const struct rpc_pipe_ops *ops;
};
struct rpc_ear_opts {
    struct rpc_net *net; /* outlives the ear, as the loop does */
    struct loop *loop;
    const char *listen; /* address; borrowed for the call */
    /* Returns false if the frame is not of our cluster, or not sealed as it must be: a peer that
     * sends no other frames counts as unauthenticated. */
    bool (*on_frame)(void *cookie, struct str frame);
    void *cookie;
};
struct rpc_pipe {
    const struct rpc_pipe_ops *ops;
};
struct rpc_pipe_ops {
    int (*ear_open)(const struct rpc_ear_opts *o, struct rpc_ear **ret, struct err *e) NODISCARD;
    void (*ear_close)(struct rpc_ear *e);
    int (*open)(struct rpc_ear *from, const char *addr, void (*on_room)(void *cookie), void *cookie,
                struct rpc_pipe **ret, struct err *e) NODISCARD;
    void (*close)(struct rpc_pipe *p);
    void (*reset)(struct rpc_pipe *p);
    /* False: send of that many bytes would probably return false, too. */
    bool (*room)(struct rpc_pipe *p, size_t bytes) NODISCARD;
    /* False: no room now, on_room will be called. */
    bool (*send)(struct rpc_pipe *p, struct str head, struct str body) NODISCARD;
};

extern const struct rpc_wire_ops rpc_inproc_ops, rpc_sp_ops, rpc_mem_ops;

#endif
