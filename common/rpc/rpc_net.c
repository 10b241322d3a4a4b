/* SPDX-License-Identifier: Apache-2.0 */
#include "common/rpc/rpc_net.h"

#include "common/base/mem.h"

struct rpc_net *rpc_net_new(struct env *env, struct metrics *metrics)
{
    struct rpc_net *n = XNEW(struct rpc_net);

    n->env = env;
    list_init(&n->all);
    if (!metrics)
        metrics = n->own_registry = metrics_new();
    n->metrics = rpc_metrics_new(metrics);
    return n;
}

void rpc_net_free(struct rpc_net *n)
{
    if (!n)
        return;
    CHECK(n->nodes == 0);
    if (n->inproc)
        rpc_inproc_free(n->inproc);
    if (n->mem)
        rpc_mem_free(n->mem);
    rpc_metrics_free(n->metrics);
    metrics_free(n->own_registry);
    xfree(n);
}

void rpc_net_seal(struct rpc_net *n, const struct rpc_keys *keys, bool optional)
{
    CHECK(n->nodes == 0);
    n->keys = keys;
    n->keys_optional = keys && optional;
}

void rpc_net_cluster(struct rpc_net *n, uint64_t cluster)
{
    n->cluster = cluster;
}

void rpc_net_say(struct rpc_net *n, uint32_t says)
{
    n->says = says;
}

void rpc_net_judge(struct rpc_net *n, rpc_judge_fn judge)
{
    n->judge = judge;
}

int rpc_net_judged(const struct rpc_net *n, uint64_t theirs, struct err *e)
{
    if (!n->cluster || !theirs || n->cluster == theirs)
        return 0;
    return n->judge ? n->judge(n->cluster, theirs, e)
                    : err_set(e, ERR_CONFLICT, "is in another cluster");
}

uint64_t rpc_net_refused(const struct rpc_net *n, enum rpc_drop why)
{
    return rpc_metrics_dropped(n->metrics, why);
}

struct rpc_metrics *rpc_net_metrics(struct rpc_net *n)
{
    return n->metrics;
}
