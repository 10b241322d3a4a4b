/* SPDX-License-Identifier: Apache-2.0
 *
 * ingester_poll.h: asks every ingester how far its seal log is, again and again.
 */
#ifndef COMPACTOR_INGESTER_POLL_H
#define COMPACTOR_INGESTER_POLL_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc.h"
#include "common/sys/loop.h"

struct ingester_poll;

struct ingester_poll_opts {
    struct rpc_node *node; /* borrowed; outlives the watch */
    struct loop *loop;
    struct metrics *metrics;
    const struct view *view; /* its nodes are asked */
    uint64_t interval_ms;
    uint64_t lag_warn_ms;
};
/* Asks at once, then every interval_ms. */
NODISCARD int ingester_poll_new(const struct ingester_poll_opts *o, struct ingester_poll **ret,
                                struct err *e);
/* Asks no more; answers on their way are dropped. NULL is fine. */
void ingester_poll_free(struct ingester_poll *w);
/* True if every ingester answered when last asked; else *ret_why names an ingester that did not.
 * Where other ingesters take over the shards of a lost one, a single answer is enough. */
bool ingester_poll_ready(const struct ingester_poll *w, const char **ret_why);
/* Adds "peers" to a JSON object. */
void ingester_poll_ring(const struct ingester_poll *w, struct json *j);

#endif
