/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_net.h: inside struct rpc_net, for the transports.
 */
#ifndef COMMON_RPC_RPC_NET_H
#define COMMON_RPC_RPC_NET_H

#include "common/base/list.h"
#include "common/rpc/rpc.h"
#include "common/rpc/rpc_metrics.h"

struct rpc_inproc; /* the names inproc:// knows; see rpc_inproc.c */
struct rpc_mem;    /* the simulated network; see rpc_mem.h */

struct rpc_net {
    struct env *env; /* borrowed */
    struct rpc_metrics *metrics;
    const struct rpc_keys *keys; /* borrowed; NULL: frames are not sealed */
    bool keys_optional;
    uint64_t keys_frames_max;     /* for tests: frames until a run is over; 0: 2^32 - 1 */
    struct metrics *own_registry; /* NULL if the caller gave one */
    uint64_t cluster;             /* said in every frame; 0: not known */
    uint32_t says;                /* RPC_SAYS_ */
    rpc_judge_fn judge;           /* NULL: numbers that differ do not go together */
    size_t nodes;
    struct list all;           /* of them */
    struct rpc_inproc *inproc; /* NULL until used */
    struct rpc_mem *mem;       /* NULL until used */
};

struct rpc_metrics *rpc_net_metrics(struct rpc_net *n);
/* As rpc_judge_fn, of a number in a frame, which may be 0. */
NODISCARD int rpc_net_judged(const struct rpc_net *n, uint64_t theirs, struct err *e);
struct rpc_inproc *rpc_inproc_new(void);
void rpc_inproc_free(struct rpc_inproc *p);
void rpc_mem_free(struct rpc_mem *m);

#endif
