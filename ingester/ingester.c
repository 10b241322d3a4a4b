/* SPDX-License-Identifier: Apache-2.0
 *
 * ingester: start, readiness and end of the role.
 *
 * An ingester is the k-th address of cluster.ingesters and has the shards i with i mod n = k, each
 * a database in <data>/shard-<i>. A folder that was written with other settings is refused
 * (folder.c).
 *
 * Memory: its parts of the process's limit, as common/role/core/memory.h shares it out, in equal
 * parts for all shards.
 */
#include "ingester/ingester.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/cluster/rebuild/cluster_dump.h"
#include "common/cluster/view/view.h"
#include "common/cold/conf.h"
#include "common/obs/log.h"
#include "common/role/core/memory.h"
#include "common/role/route/relay.h"
#include "ingester/admin/rpc_accept.h"
#include "ingester/admin/rpc_delete.h"
#include "ingester/admin/rpc_doc.h"
#include "ingester/background/auditor.h"
#include "ingester/background/retention.h"
#include "ingester/background/rollups.h"
#include "ingester/background/scrubber.h"
#include "ingester/base/clocks.h"
#include "ingester/base/config_drift.h"
#include "ingester/base/folder.h"
#include "ingester/base/incarnation.h"
#include "ingester/base/reserve_file.h"
#include "ingester/base/state.h"
#include "ingester/base/unpack.h"
#include "ingester/build/rpc_build.h"
#include "ingester/check.h"
#include "ingester/read/rpc_read.h"
#include "ingester/replicas/replicas.h"
#include "ingester/replicas/shard_memory.h"
#include "ingester/replicas/shard_open.h"
#include "ingester/replicas/store_recovery.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/read_load.h"
#include "ingester/shard/shards.h"
#include "ingester/shard/top_services.h"
#include "ingester/tier/tier.h"
#include "ingester/write/rpc_write.h"
#include "ingester/write/writers.h"
#include "proto/query.pb-c.h"

#define DRAIN_POLL_MS 5

/* ---- configuration -------------------------------------------------------------------------- */

static int check_conf(struct ingester *in, struct err *e)
{
    if (role_rpc_listen_check(in->ctx, "ingester.listen", in->conf->listen, e))
        return e->code;
    return in->moves ? 0 : ingester_check_index(in->ctx->cluster, in->conf, &in->index, e);
}

/* ---- start ---------------------------------------------------------------------------------- */

static int open_own(struct ingester *in, uint32_t number, struct store **ret, struct err *e)
{
    struct kv *kv;
    int code = shard_open_kv(in, number, in->shards_own, &kv, e);

    if (code == ERR_CORRUPT) {
        struct err why = *e;
        return err_set(e, ERR_CORRUPT,
                       "the database of shard %" PRIu32
                       " is damaged, and there is no other copy: restore it (embertree restore), "
                       "or look at it with embertree fsck: %.300s",
                       number, why.text);
    }
    if (code)
        return err_wrap(e, "shard %" PRIu32, number);
    return shard_open_store(in, number, in->shards_own, kv, ret, e);
}

static int open_stores(struct ingester *in, struct store *ret[SHARDS_OWN_MAX], size_t *ret_len,
                       struct err *e)
{
    const struct cluster_conf *c = in->ctx->cluster;
    size_t n = c->ingesters.len;
    size_t shards = ((size_t)c->shards - in->index + n - 1) / n;

    CHECK(shards > 0 && shards <= SHARDS_OWN_MAX);
    in->shards_own = shards;
    for (size_t i = 0; i < shards; i++) {
        int code = open_own(in, u32_from(in->index + i * n), &ret[i], e);

        if (code)
            return code;
        *ret_len = i + 1;
    }
    return 0;
}

static int start_node(struct ingester *in, struct err *e)
{
    const struct cluster_conf *c = in->ctx->cluster;
    struct rpc_node_opts o = {
        .net = in->ctx->rpc,
        .loop = in->ctx->loop,
        .listen = in->conf->listen,
        .advertise = in->conf->advertise[0] ? in->conf->advertise : NULL,
        .message_max = c->rpc_message_bytes_max,
        .pending_max = c->rpc_pending_max,
        .heartbeat_ms = (uint32_t)c->heartbeat_ms,
        .pool = in->ctx->pool,
        .dead_ms = (uint32_t)c->dead_ms,
    };

    return rpc_node_new(&o, &in->node, e) ? err_wrap(e, "ingester.listen") : 0;
}

static int start_disk(struct ingester *in, struct err *e)
{
    struct disk_opts o = {
        .fs = in->ctx->env->fs,
        .loop = in->ctx->loop,
        .pool = in->ctx->pool,
        .dir = in->ctx->data_dir,
        .reserve = in->ctx->data->disk_reserve,
        .metrics = &in->metrics,
        .spare = !in->ctx->kv,
    };

    return disk_new(&o, &in->disk, e);
}

/* What waits for the disk: copies of shards say it of their logs and databases, a shard without
 * copies of its commits. */
static void look_at_disk(void *cookie, struct disk_watch *w)
{
    struct ingester *in = cookie;

    if (in->replicas)
        replicas_note_stalls(in->replicas, w);
    for (size_t i = 0; !in->moves && i < shards_len(in->shards); i++) {
        const struct shard *s = shards_at(in->shards, i);

        if (s)
            disk_watch_note(w, "a commit", shard_number(s), shard_commit_ms(s));
    }
}

static void on_disk_hangs(void *cookie, bool hangs)
{
    if (hangs)
        rpc_write_disk_hangs(cookie);
}

static void start_disk_watch(struct ingester *in)
{
    struct disk_watch_opts o = {
        .loop = in->ctx->loop,
        .metrics = in->ctx->metrics,
        .dir = in->ctx->data_dir,
        .limit_ms = in->conf->disk_timeout_ms,
        .look = look_at_disk,
        .changed = on_disk_hangs,
        .cookie = in,
    };

    in->disk_watch = disk_watch_new(&o);
}

static void start_shards(struct ingester *in)
{
    struct shards_opts o = { .loop = in->ctx->loop,
                             .simulated = in->ctx->simulated,
                             .moves = in->moves };

    in->shards = shards_new(&o);
    start_disk_watch(in);
}

/* All zero where no shard is served. */
static const struct shard_state *state_of(const struct ingester *in, size_t place)
{
    static const struct shard_state none;
    const struct shard *s = shards_at(in->shards, place);

    return s ? shard_state(s) : &none;
}

static int copies_ready(const struct ingester *in, struct err *e)
{
    if (in->replicas)
        return replicas_ready(in->replicas, e);
    if (in->moves)
        return err_set(e, ERR_UNAVAILABLE,
                       "it is not known yet whether another process is this node: etcd is asked");
    return 0;
}

static void on_status(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    Embertree__StatusReply reply = EMBERTREE__STATUS_REPLY__INIT;
    struct err e = { 0 };
    struct buf out;
    char *p;

    (void)payload; /* StatusRequest has no fields */
    CHECK(in->magic == INGESTER_MAGIC);
    reply.ready = rpc_write_accepting(in, &e) == 0 && copies_ready(in, &e) == 0;
    reply.read_only = !reply.ready && !in->draining;
    reply.reason = pack_str(str_c(e.text));
    reply.shards = u32_from(shards_serving(in->shards));
    for (size_t i = 0; i < shards_len(in->shards); i++) {
        const struct shard_state *st = state_of(in, i);

        reply.applied += st->stats.applied;
        reply.raw_rows += st->stats.raw_rows;
        reply.seal_lag_ms = MAX(reply.seal_lag_ms, st->seal_lag_ms);
    }
    buf_init(&out, 64 * KIB);
    p = buf_room(&out, embertree__status_reply__get_packed_size(&reply));
    CHECK(p);
    out.len += embertree__status_reply__pack(&reply, (uint8_t *)(void *)p);
    rpc_reply(call, &out);
}

static void ingester_free(void *self)
{
    struct ingester *in = self;

    if (!in)
        return;
    CHECK(in->magic == INGESTER_MAGIC);
    shard_memory_stop(in->division);
    memory_forget(in->ctx->memory, &in->write_bytes);
    config_drift_free(in->as_made);
    incarnation_free(in->sole);
    replicas_free(in->replicas);
    in->replicas = NULL;
    rpc_node_free(in->node);
    writers_free(in->writers);
    relay_free(in->relay);
    rpc_read_free(in);
    rpc_build_free(in);
    rpc_delete_free(in);
    tier_free(in->tier);
    shards_free(in->shards);
    store_recovery_free(in->recover);
    scrubber_free(in->scrubber);
    rpc_accept_free(in);
    auditor_free(in->auditor);
    retention_free(in);
    rollups_free(in->rollups);
    disk_watch_free(in->disk_watch);
    disk_free(in->disk);
    placement_guard_free(in->placed);
    top_services_free(in->busy);
    shard_memory_free(in->division);
    clocks_free(in->clocks);
    read_load_free(in->read_load);
    in->magic = 0;
    xfree(in);
}

static void start_replicas(struct ingester *in)
{
    const struct role_ctx *ctx = in->ctx;
    struct replicas_opts o = {
        .in = in,
        .coord = ctx->coord,
        .prefix = ctx->cluster->etcd_prefix,
        .self = ctx->node,
        .addr = rpc_node_addr(in->node),
        .zone = ctx->cluster->zone,
        .id = ctx->node_id,
        .lease_ms = ctx->cluster->lease_ttl_ms,
    };

    in->replicas = replicas_new(&o);
}

static void on_may_begin(void *cookie)
{
    struct ingester *in = cookie;

    if (!in->drained)
        start_replicas(in);
}

/* No other process may be this node. In a simulated world none is. */
static int start_sole(struct ingester *in, struct err *e)
{
    struct incarnation_opts o = {
        .in = in, .addr = rpc_node_addr(in->node), .begin = on_may_begin, .cookie = in
    };

    if (!in->moves || !in->ctx->coord || in->ctx->kv)
        return 0;
    return incarnation_new(&o, &in->sole, e);
}

static const char *follows(void *cookie, uint32_t shard)
{
    const struct ingester *in = cookie;

    return in->replicas ? replicas_follows(in->replicas, shard) : NULL;
}

static void start_relay(struct ingester *in)
{
    struct relay_opts o = { .node = in->node,
                            .view = in->ctx->view,
                            .self = in->ctx->node ? in->ctx->node : "",
                            .follows = follows,
                            .cookie = in,
                            .metrics = in->ctx->metrics };

    in->relay = relay_new(&o);
}

/* What one process can know of it; in others the reference tells (store/mask/tomb_late_push.c). */
static void look_at_guard(const struct ingester *in)
{
    uint64_t guard_ms = in->conf->delete_guard_ms, ack_ms;

    if (guard_ms && conf_number(in->ctx->conf, "distributor", "ack_timeout", &ack_ms) &&
        guard_ms <= ack_ms)
        log_warn(
            "ingester.delete_guard is not longer than distributor.ack_timeout: what is deleted "
            "while it is pushed may come back by a late copy; set a longer guard",
            KV_U64("delete_guard_ms", guard_ms), KV_U64("ack_timeout_ms", ack_ms));
}

static void start_writers(struct ingester *in)
{
    struct writers_opts o = { .bytes = &in->write_bytes,
                              .writes_max = in->conf->writes_max,
                              .many = in->ctx->tenancy->multi };

    budget_init(&in->write_bytes, memory_share(in->ctx->memory_limit, MEMORY_WRITES));
    in->writers = writers_new(&o);
}

static struct ingester *ingester_new(const struct role_ctx *ctx)
{
    struct ingester *in = XNEW(struct ingester);
    struct view_shard first;

    in->magic = INGESTER_MAGIC;
    in->ctx = ctx;
    in->placed = placement_guard_new(ctx->view, ctx->env->clock, ctx->mutants);
    in->conf = conf_get(ctx->conf, &ingester_options);
    in->exemplars = conf_get(ctx->conf, &exemplar_options);
    ingester_metrics_init(&in->metrics, ctx->metrics);
    in->clocks = clocks_new(ctx->loop, ctx->rpc, ctx->env->clock);
    in->division = shard_memory_new(in);
    in->read_load = read_load_new();
    list_init(&in->hooks);
    start_writers(in);
    in->moves = !view_ready(ctx->view) || !view_shard(ctx->view, 0, &first) || first.term > 0;
    return in;
}

/* All that can fail. */
static int open_parts(struct ingester *in, struct store *ret[SHARDS_OWN_MAX], size_t *ret_len,
                      struct err *e)
{
    const struct role_ctx *ctx = in->ctx;
    int code = check_conf(in, e);

    if (!code && !ctx->kv) {
        reserve_file_release(ctx->data_dir);
        code = folder_check(in, e);
    }
    if (!code)
        code = start_disk(in, e);
    if (!code)
        code = retention_open(in, e);
    if (!code)
        code = rollups_new(conf_get(ctx->conf, &rollup_options), &in->rollups, e);
    if (!code)
        code = tier_open(in, &in->tier, e);
    if (!code && !in->moves)
        code = open_stores(in, ret, ret_len, e);
    if (!code)
        code = start_node(in, e);
    return code ? code : start_sole(in, e);
}

/* What can fail comes first; shard threads start when nothing can fail any more. */
static int ingester_start(const struct role_ctx *ctx, void **ret_self, struct err *e)
{
    struct ingester *in = ingester_new(ctx);
    struct store *stores[SHARDS_OWN_MAX];
    size_t n = 0;

    if (open_parts(in, stores, &n, e)) {
        for (size_t i = 0; i < n; i++)
            store_close(stores[i]);
        ingester_free(in);
        return e->code;
    }
    retention_begin(in);
    start_shards(in);
    for (size_t i = 0; i < n; i++)
        shard_open_serve(in, u32_from(in->index + i * ctx->cluster->ingesters.len), stores[i]);
    in->recover = store_recovery_new(in);
    in->scrubber = scrubber_new(in);
    in->auditor = auditor_new(in);
    tier_begin(in->tier);
    memory_watch_budget(ctx->memory, MEMORY_WRITES, &in->write_bytes);
    shard_memory_start(in->division);
    rpc_write_serve(in);
    rpc_read_serve(in);
    rpc_build_serve(in);
    rpc_delete_serve(in);
    rpc_accept_serve(in);
    rpc_doc_serve(in);
    replicas_doubt_serve(in);
    rpc_serve(in->node, RPC_STATUS, on_status, in);
    start_relay(in);
    if (in->moves && !in->sole)
        start_replicas(in);
    if (ctx->coord)
        in->as_made = config_drift_new(ctx->view, ctx->cluster);
    look_at_guard(in);
    log_info("shards open", KV_U64("shards", n), KV_CSTR("listen", in->conf->listen));
    *ret_self = in;
    return 0;
}

/* ---- running and end ------------------------------------------------------------------------ */

static bool ingester_ready(void *self, const char **ret_why)
{
    struct ingester *in = self;
    struct err e;

    CHECK(in->magic == INGESTER_MAGIC);
    if (rpc_write_accepting(in, &e) == 0 && copies_ready(in, &e) == 0) {
        metric_set(in->metrics.read_only, 0);
        if (tier_trouble(in->tier, &e)) {
            memcpy(in->why, e.text, sizeof(in->why));
            *ret_why = in->why;
        }
        return true;
    }
    metric_set(in->metrics.read_only, 1);
    memcpy(in->why, e.text, sizeof(in->why));
    *ret_why = in->why;
    return false;
}

static void ingester_ring(void *self, struct json *j)
{
    const struct ingester *in = self;

    json_put_cstr(j, "listen", in->conf->listen);
    json_key(j, "shards");
    json_arr(j);
    for (size_t i = 0; i < shards_len(in->shards); i++) {
        const struct shard_state *st = state_of(in, i);

        if (!shards_at(in->shards, i))
            continue;
        json_obj(j);
        json_put_u64(j, "shard", shards_number(in->shards, i));
        json_put_u64(j, "sealLogEntries", st->stats.applied);
        json_put_u64(j, "rawRows", st->stats.raw_rows);
        json_put_u64(j, "sealLagMs", st->seal_lag_ms);
        json_put_u64(j, "buildLagMs", (uint64_t)st->stats.build_lag_ms);
        json_put_u64(j, "buildLagCoarseMs", (uint64_t)st->stats.build_lag_coarse_ms);
        json_put_bool(j, "readOnly", st->read_only);
        json_put_bool(j, "clockHeld", st->clock.held);
        json_put_i64(j, "clockAheadMs", st->clock.jump_ms);
        rpc_build_ring(in, i, j);
        json_obj_end(j);
    }
    json_arr_end(j);
    disk_watch_ring(in->disk_watch, j);
    if (in->replicas)
        replicas_ring(in->replicas, j);
    tier_ring(in->tier, j);
}

static void ingester_kept(void *self, struct cluster_dump *k)
{
    const struct ingester *in = self;

    k->keeps = in->moves; /* also before it is known that it may open them: the dump has its view */
    if (in->replicas)
        replicas_kept(in->replicas, k);
}

static void part_drained(void *cookie)
{
    struct ingester *in = cookie;

    CHECK(in->drains_pending > 0);
    if (--in->drains_pending == 0)
        in->drained(in->drained_cookie);
}

/* No request comes in any more. Those whose callers gave up may still be at work. */
static void drain_parts(void *cookie)
{
    struct ingester *in = cookie;

    if (in->writes_pending > 0 || !rpc_read_idle(in) || !rpc_build_idle(in) ||
        !rpc_accept_idle(in) || !rpc_delete_idle(in) || !rpc_doc_idle(in) ||
        !store_recovery_idle(in->recover) || !scrubber_idle(in->scrubber) ||
        !auditor_idle(in->auditor) || !retention_idle(in) || !tier_idle(in->tier)) {
        loop_timer_start(in->drain_poll, DRAIN_POLL_MS, 0);
        return;
    }
    loop_timer_free(in->drain_poll);
    in->drain_poll = NULL;
    if (in->replicas) {
        in->drains_pending = 2;
        disk_drain(in->disk, part_drained, in);
        replicas_stop(in->replicas, part_drained, in);
        return;
    }
    in->drains_pending = shards_serving(in->shards) + 1;
    disk_drain(in->disk, part_drained, in);
    for (size_t i = 0; i < shards_len(in->shards); i++)
        if (shards_at(in->shards, i))
            shards_close(in->shards, shards_number(in->shards, i), part_drained, in);
}

/* Others lead now, as far as there are any: what comes is refused from here on. */
static void drain_begin(void *cookie)
{
    struct ingester *in = cookie;

    in->draining = true;
    if (in->replicas)
        replicas_halt(in->replicas);
    in->drain_poll = loop_timer_new(in->ctx->loop, drain_parts, in);
    rpc_node_drain(in->node, drain_parts, in);
}

static void ingester_drain(void *self, void (*done)(void *cookie), void *cookie)
{
    struct ingester *in = self;

    CHECK(in->magic == INGESTER_MAGIC && !in->draining && !in->drained);
    retention_stop(in);
    tier_stop(in->tier);
    in->drained = done;
    in->drained_cookie = cookie;
    incarnation_free(in->sole);
    in->sole = NULL;
    if (in->replicas)
        replicas_hand_over(in->replicas, drain_begin, in);
    else
        drain_begin(in);
}

const struct role ingester_role = {
    .name = "ingester",
    .keeps_shards = true,
    .conf = ingester_tables,
    .conf_len = INGESTER_TABLES,
    .check = ingester_check,
    .start = ingester_start,
    .ready = ingester_ready,
    .drain = ingester_drain,
    .free = ingester_free,
    .ring = ingester_ring,
    .kept = ingester_kept,
};
