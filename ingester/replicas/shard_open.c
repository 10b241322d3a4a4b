/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_open: opens the database and the store of a shard with its part of the memory, and serves
 * it.
 *
 *   shard_open_kv ──> shard_open_store ──> shard_open_serve
 *   files or memory   cold tier, engine    retention, threads, entry in the table of shards
 *
 * A shard is opened at three places, and each must use the same settings: at the start where shards
 * do not move (ingester.c), when a replica begins to lead (replicas.c), and after a full disk
 * (store_recovery.c). `shares` is read on the loop and passed on, since records of the cluster
 * change shards_own while a database is opened on another thread.
 */
#include "ingester/replicas/shard_open.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/role/core/memory.h"
#include "ingester/background/retention.h"
#include "ingester/background/rollups.h"
#include "ingester/base/clocks.h"
#include "ingester/replicas/shard_memory.h"
#include "ingester/shard/shards.h"
#include "ingester/tier/tier.h"

int shard_open_kv(const struct ingester *in, uint32_t number, size_t shares, struct kv **ret,
                  struct err *e)
{
    const struct role_ctx *ctx = in->ctx;
    char dir[PATH_MAX];
    struct kv_opts o = {
        .dir = dir,
        .block_cache_bytes = memory_share(ctx->memory_limit, MEMORY_CACHE) / shares,
        .memtable_bytes = memory_share(ctx->memory_limit, MEMORY_MEMTABLES) / shares,
        .pool = shard_memory_pool(in->division),
    };

    if (snprintf(dir, sizeof(dir), "%s/shard-%" PRIu32, ctx->data_dir, number) >= PATH_MAX)
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    int code = ctx->kv ? ctx->kv->open(ctx->kv, &o, ret, e) : kv_rocks_open(&o, ret, e);
    return code ? err_wrap(e, "%s", dir) : 0;
}

int shard_open_store(const struct ingester *in, uint32_t number, size_t shares, struct kv *kv,
                     struct store **ret, struct err *e)
{
    const struct role_ctx *ctx = in->ctx;
    const struct exemplar_conf *xc = in->exemplars;
    struct store_opts so = {
        .clock = ctx->env->clock,
        .others = clocks_others(in->clocks),
        .shard = number,
        .dict_bytes_max = memory_share(ctx->memory_limit, MEMORY_DICTS) / shares,
        .hot_bytes_max = memory_share(ctx->memory_limit, MEMORY_HOT) / shares,
        .names_bytes_max = memory_share(ctx->memory_limit, MEMORY_NAMES) / shares,
        .seal_delay_ms = (uint32_t)in->conf->seal_delay_ms,
        .build_delay_ms = (uint32_t)in->conf->build_delay_ms,
        .build_pace_ms = (uint32_t)in->conf->build_pace_ms,
        .wid_horizon_ms = (uint32_t)in->conf->wid_horizon_ms,
        .delete_guard_ms = (uint32_t)in->conf->delete_guard_ms,
        .dict_cap = { in->conf->dict_service_nodes, in->conf->dict_tenant_nodes },
        .group_drop = rollups_drop,
        .group_cookie = in->rollups,
        .exm = { xc->retention_ms, xc->rows_per_minute, xc->bytes_per_minute },
    };
    int code;

    ctx->env->random(ctx->env, &so.seed, sizeof(so.seed));
    code = tier_wrap(in->tier, number, kv, &so.kv, e);
    if (!code)
        code = store_open(&so, ret, e);
    return code ? err_wrap(e, "shard %" PRIu32, number) : 0;
}

void shard_open_serve(struct ingester *in, uint32_t number, struct store *store)
{
    struct shard_opts o = {
        .number = number,
        .store = store,
        .loop = in->ctx->loop,
        .clock = in->ctx->env->clock,
        .writes_max = in->conf->writes_max,
        .group_bytes_max = in->conf->group_bytes_max,
        .group_wait_ms = in->conf->group_wait_ms,
        .seal_rows = in->conf->seal_rows,
        .tenants_max = in->ctx->tenancy->multi ? (uint32_t)in->conf->tenants_max : 0,
        .metrics = in->ctx->metrics,
        .simulated = in->ctx->simulated,
    };

    retention_open_shard(in, number, store);
    shards_open(in->shards, shard_new(&o));
    shard_memory_update_soon(in->division);
}
