/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_metrics.h: what rpc counts; one set per rpc_net, shared by its nodes.
 */
#ifndef COMMON_RPC_RPC_METRICS_H
#define COMMON_RPC_RPC_METRICS_H

#include "common/obs/metrics.h"
#include "common/rpc/rpc_frame.h"

struct rpc_metrics;

struct rpc_metrics *rpc_metrics_new(struct metrics *registry);
void rpc_metrics_free(struct rpc_metrics *m);
void rpc_metrics_frame_out(struct rpc_metrics *m, size_t bytes);
void rpc_metrics_frame_in(struct rpc_metrics *m, size_t bytes);
void rpc_metrics_drop(struct rpc_metrics *m, enum rpc_drop why);
uint64_t rpc_metrics_dropped(const struct rpc_metrics *m, enum rpc_drop why);
void rpc_metrics_queued(struct rpc_metrics *m, int64_t bytes);
/* A call that this process made ended; code 0: with a reply. */
void rpc_metrics_call(struct rpc_metrics *m, uint16_t method, int code, uint64_t took_ns);
/* A request was answered; code 0: with a reply. */
void rpc_metrics_served(struct rpc_metrics *m, uint16_t method, int code);
void rpc_metrics_stale(struct rpc_metrics *m);
uint64_t rpc_metrics_stales(const struct rpc_metrics *m);
void rpc_metrics_peer(struct rpc_metrics *m, const char *addr, bool up);
void rpc_metrics_peer_gone(struct rpc_metrics *m, const char *addr);
/* The connection to a peer was reset and opened again. */
void rpc_metrics_reset(struct rpc_metrics *m);
const char *rpc_method_name(uint16_t method);

#endif
