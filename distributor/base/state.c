/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: what every request takes from the distributor and gives back: a thread of the pool,
 * bytes of the budget, and its place among the requests that a drain waits for.
 */
#include "distributor/base/state.h"

/* Pushes and queries of a tenant have queues of their own: a query may run for seconds, and the
 * pushes of the same tenant must not wait for it. With one tenant the plain queue is enough, and
 * cheaper. */
bool distributor_submit(struct distributor *d, const struct tenant *tenant, pool_fn work,
                        pool_fn done, void *cookie)
{
    const struct role_ctx *ctx = d->ctx;

    if (!tenant || !ctx->tenancy->multi)
        return pool_submit(ctx->pool, ctx->loop, work, done, cookie);
    return pool_submit_for(ctx->pool, pool_tenant_writes(ctx->pool, tenant->name), ctx->loop, work,
                           done, cookie);
}

int distributor_reserve(struct distributor *d, struct tenant *tenant, size_t own, size_t n,
                        struct err *e)
{
    switch (share_take(tenant->share, &d->memory, own, n)) {
    case SHARE_TAKEN:
        return 0;
    case SHARE_OVER:
        return err_set(e, ERR_RATE,
                       "in_flight_limit: pushes of this tenant that are not answered yet hold %zu "
                       "KiB, its share of the %zu MiB of distributor.in_flight_bytes; send fewer "
                       "at once and try again",
                       share_held(tenant->share) / KIB, d->memory.max / MIB);
    case SHARE_FULL:
        break;
    }
    return err_set(e, ERR_BUSY,
                   "pushes in work hold all the memory they may (distributor.in_flight_bytes); "
                   "try again");
}

void distributor_end_drain(struct distributor *d)
{
    void (*done)(void *cookie) = d->drained;

    d->drained = NULL;
    rpc_node_drain(d->node, done, d->drained_cookie);
}

void distributor_left(struct distributor *d)
{
    d->working--;
    metric_set(d->metrics.working, (int64_t)d->working);
    if (d->drained && d->working == 0)
        distributor_end_drain(d);
}
