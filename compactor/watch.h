/* SPDX-License-Identifier: Apache-2.0
 *
 * watch.h: asks every ingester how far its seal log is, again and again.
 */
#ifndef COMPACTOR_WATCH_H
#define COMPACTOR_WATCH_H

#include "common/base/json.h"
#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/rpc/rpc.h"
#include "common/sys/loop.h"

struct watch;

struct watch_opts {
    struct rpc_node *node; /* borrowed; outlives the watch */
    struct loop *loop;
    struct metrics *metrics;
    const struct view *view; /* its nodes are asked */
    uint64_t interval_ms;
    uint64_t lag_warn_ms;
};
/* Asks at once, then every interval_ms. */
NODISCARD int watch_new(const struct watch_opts *o, struct watch **ret, struct err *e);
/* Asks no more; answers on their way are dropped. NULL is fine. */
void watch_free(struct watch *w);
/* True if every ingester answered when last asked; else *ret_why names an ingester that did not.
 * Where other ingesters take over the shards of a lost one, a single answer is enough. */
bool watch_ready(const struct watch *w, const char **ret_why);
/* Adds "peers" to a JSON object. */
void watch_ring(const struct watch *w, struct json *j);

#endif
