/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas: a small state machine per shard, moved by what the records say (are we one of its
 * replicas?), by what the protocol says (do we lead?), and by the ends of what was begun.
 *
 *   NOTHING ──replica_open──> OPENING ──open_done──> FOLLOWING ──replica_start──> STARTING
 *      ^                                               │ ^    ^                       │
 *      │                         replica_stop          │ │    └─ start_done: failed ──┤
 *      ├── on_stopped <── STOPPING <───────────────────┘ │                            │ start_done
 *      │       │ the record leaves this node out         │ on_closed                  v
 *      └── on_removed <── REMOVING                    CLOSING <──replica_close──── SERVING
 *
 * replica_start runs when the replica leads. replica_close runs when it leads no more, or not in
 * the epoch for which the store was opened. open_done returns to NOTHING if the replica could not
 * be opened. Orphaned data (replicas_orphaned.c) is removed in REMOVING as well.
 *
 * One function decides (replica_step); everything else notes a change and schedules it. So the
 * order in which records, roles and ends of jobs arrive does not matter, and a callback of the
 * protocol never calls back into it.
 *
 * While FOLLOWING the database belongs to the node: the log's entries are put into it, no store
 * looks at it. To serve, a store is opened over a handle that replicates what it writes. Such a
 * handle is good for one epoch of leading. When that ends, the store's writes fail, requests under
 * way end with ERR_UNAVAILABLE, and the store is closed before another one can be opened.
 *
 * Files go only when a record says that the shard belongs to others and everything was closed.
 */
#include "ingester/replicas/replicas.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/repl/kv_repl.h"
#include "common/role/core/memory.h"
#include "ingester/base/blocking_job.h"
#include "ingester/replicas/replicas_impl.h"
#include "ingester/replicas/shard_memory.h"
#include "ingester/replicas/shard_open.h"
#include "ingester/shard/placement_guard.h"

#define TICK_MS      50
#define PAUSE_MS     500
#define PAUSE_MAX_MS 30000
#define STEADY_MS    60000 /* served for so long: what failed before is forgotten */
#define PREFERS_TOLD 10

static void failed_once(struct replica_of *r)
{
    r->pause_ms = r->pause_ms ? MIN(r->pause_ms * 2, PAUSE_MAX_MS) : PAUSE_MS;
    r->retry_ms = replicas_now_ms(r->rs) + r->pause_ms;
}

struct replica_state replica_now(const struct replica_of *r)
{
    return r->node ? repl_node_state(r->node) : (struct replica_state){ 0 };
}

bool replica_is_named(const struct replica_of *r)
{
    int64_t rev;
    const struct repl_record *rec = view_record(r->rs->view, r->shard, &rev);

    return rec && str_eq(str_c(rec->leader), str_c(r->rs->self));
}

static bool leads(const struct replica_of *r)
{
    return r->node && !r->failed && replica_now(r).role == REPLICA_LEADING;
}

bool replica_path(const struct replica_of *r, const char *what, char dir[PATH_MAX])
{
    return snprintf(dir, PATH_MAX, "%s/%s-%" PRIu32, r->rs->in->ctx->data_dir, what, r->shard) <
           PATH_MAX;
}

/* ---- OPENING -------------------------------------------------------------------------------- */

static void on_role(void *cookie)
{
    struct replica_of *r = cookie;

    replicas_step_soon(r->rs);
}

static void on_establish(void *cookie, uint64_t record_term)
{
    const struct replica_of *r = cookie;

    cluster_established(r->rs, r->shard, record_term);
}

static void on_prefer(void *cookie, const char *name)
{
    struct replica_of *r = cookie;

    if (!replica_is_named(r))
        return;
    if (++r->prefers % PREFERS_TOLD == 0)
        log_warn("the members of a shard pass its lead on: no member that answers has all of its "
                 "log. The shard has a leader again when a complete member is back",
                 KV_U64("shard", r->shard), KV_CSTR("to", name), KV_U64("times", r->prefers));
    replicas_give_lead(r->rs, r->shard, name, "another member has a longer log");
}

static void on_failed(void *cookie, const struct err *why)
{
    struct replica_of *r = cookie;

    log_error("a replica failed; it is closed and opened again", KV_U64("shard", r->shard),
              KV_ERR(why));
    r->failed = true;
    r->trouble = *why;
    failed_once(r);
    if (replica_is_named(r) &&
        !replicas_give_lead_away(r, "the replica of the leader before failed"))
        log_warn("no other member can lead it", KV_U64("shard", r->shard));
    replicas_step_soon(r->rs);
}

static void on_differs(void *cookie, const char *name, bool repaired)
{
    const struct replica_of *r = cookie;

    if (repaired)
        log_error(
            "a copy of a shard held other rows than most others, and fetches theirs: look at "
            "that node's disk and memory. Its files are kept there as differing-shard-<shard> "
            "until that folder is removed",
            KV_U64("shard", r->shard), KV_CSTR("node", name));
    else
        log_error("copies of a shard hold different rows, and no majority says which are right: "
                  "embertree fsck on each of them, stopped, tells more",
                  KV_U64("shard", r->shard), KV_CSTR("leader", r->rs->self), KV_CSTR("node", name));
}

static void open_work(void *cookie)
{
    struct replica_of *r = cookie;
    const struct role_ctx *ctx = r->rs->in->ctx;
    char dir[PATH_MAX];

    /* The folder of the log first: by it a database is known to be a copy (ingester.c). */
    if (!ctx->kv && replica_path(r, "log", dir) && fs_real()->mkdir_all(fs_real(), dir, &r->err)) {
        r->err.code = ERR_IO;
        return;
    }
    if (replica_path(r, "shard", dir) && copy_put_in_place(r, dir, &r->err))
        return;
    r->err.code = corrupt_open(r, dir);
}

static int open_node(struct replica_of *r, struct err *e)
{
    const struct role_ctx *ctx = r->rs->in->ctx;
    char dir[PATH_MAX], copies[PATH_MAX], keep[PATH_MAX];
    int64_t rev;
    const struct repl_record *rec = view_record(r->rs->view, r->shard, &rev);
    struct repl_node_opts o = {
        .hub = r->rs->hub,
        .shard = r->shard,
        .self = r->rs->self,
        .dir = dir,
        .fs = ctx->log_fs,
        .db = r->kv,
        .simulated = ctx->simulated,
        .mutants = ctx->mutants,
        .log_bytes_max = ctx->log_bytes,
        .segment_bytes = ctx->log_bytes / 8,
        .role = on_role,
        .establish = on_establish,
        .prefer = on_prefer,
        .failed = on_failed,
        .cookie = r,
        .admits = r->rs->o.coord != NULL,
        .differs = on_differs,
        .digest_every_ms = ctx->cluster->digest_every_ms,
        .copy_dir = copy_dir(r, copies) ? copies : NULL,
        .copy_faults = copy_faults(r),
        .keep_dir = !ctx->kv && replica_path(r, CORRUPT_KEPT, keep) ? keep : NULL,
        .room = copy_room_left,
        .copied = replicas_copy_present,
    };

    if (!replica_path(r, "log", dir)) {
        kv_close(r->kv);
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    }
    if (repl_node_new(&o, &r->node, e))
        return err_wrap(e, "%s", dir);
    if (rec)
        repl_node_record(r->node, rec);
    return 0;
}

static void open_done(void *cookie)
{
    struct replica_of *r = cookie;

    corrupt_opened(r);
    if (!r->err.code)
        r->err.code = open_node(r, &r->err);
    r->kv = NULL;
    r->at = r->err.code ? AT_NOTHING : AT_FOLLOWING;
    if (r->err.code) {
        log_error("a replica could not be opened; it is tried again", KV_U64("shard", r->shard),
                  KV_ERR(&r->err));
        r->trouble = r->err;
        damaged_look(r);
        failed_once(r);
    } else {
        err_clear(&r->trouble);
        log_info("replica open", KV_U64("shard", r->shard));
    }
    replica_step(r);
}

static void replica_open(struct replica_of *r)
{
    r->at = AT_OPENING;
    r->failed = false;
    r->shares = r->rs->in->shards_own;
    r->others_have = corrupt_others_have(r);
    err_clear(&r->err);
    blocking_job_run(r->rs->in->ctx->loop, r->rs->in->ctx->simulated, open_work, open_done, r);
}

/* ---- STARTING, SERVING, CLOSING ------------------------------------------------------------- */

static void start_work(void *cookie)
{
    struct replica_of *r = cookie;

    r->err.code = shard_open_store(r->rs->in, r->shard, r->shares, r->kv, &r->store, &r->err);
}

static void start_done(void *cookie)
{
    struct replica_of *r = cookie;

    r->kv = NULL; /* the store's, or closed */
    if (r->err.code) {
        r->at = AT_FOLLOWING;
        failed_once(r);
        log_warn("a shard could not be opened to serve it", KV_U64("shard", r->shard),
                 KV_ERR(&r->err));
        cluster_unfit(r);
    } else {
        /* Also if it leads no more: the next step closes what was opened. */
        r->at = AT_SERVING;
        r->prefers = 0;
        r->unfit_ms = 0;
        r->served_ms = replicas_now_ms(r->rs);
        metric_add(r->rs->m_started, 1);
        log_info("shard served", KV_U64("shard", r->shard), KV_U64("epoch", r->epoch),
                 KV_U64("term", replica_record_of(replica_now(r).term)));
        placement_guard_begins(r->rs->in->placed, r->shard, store_newest_ms(r->store));
        shard_open_serve(r->rs->in, r->shard, r->store);
    }
    r->store = NULL;
    replica_step(r);
}

static void replica_start(struct replica_of *r)
{
    r->at = AT_STARTING;
    r->epoch = replica_now(r).epoch;
    r->shares = r->rs->in->shards_own;
    err_clear(&r->err);
    r->kv = kv_repl_new(r->node);
    blocking_job_run(r->rs->in->ctx->loop, r->rs->in->ctx->simulated, start_work, start_done, r);
}

static void on_closed(void *cookie)
{
    struct replica_of *r = cookie;

    hooks_closed(&r->rs->in->hooks, r->shard);
    shard_memory_update_soon(r->rs->in->division);
    r->at = AT_FOLLOWING;
    replica_step(r);
}

static void replica_close(struct replica_of *r)
{
    log_info("shard not served any more", KV_U64("shard", r->shard), KV_U64("epoch", r->epoch));
    r->at = AT_CLOSING;
    shards_close(r->rs->in->shards, r->shard, on_closed, r);
}

/* True if a write was refused though the replica leads: its batch was too large for the log, for
 * example. The batch is stored nowhere, but the state of the store in memory may refer to it, so
 * the store is closed and opened again. The pause before that doubles if it happens again. */
static bool refused(struct replica_of *r)
{
    const struct shards *all = r->rs->in->shards;
    size_t place = shards_place(r->rs->in->shards, r->shard);
    const struct shard *s = place < SHARDS_MAX ? shards_at(all, place) : NULL;

    if (!s || !shard_read_only(s)) {
        if (replicas_now_ms(r->rs) >= r->served_ms + STEADY_MS)
            r->pause_ms = 0;
        return false;
    }
    failed_once(r);
    log_warn("a shard takes no writes since one was refused; it is closed and opened again",
             KV_U64("shard", r->shard), KV_U64("after_ms", r->pause_ms));
    return true;
}

/* ---- STOPPING, REMOVING --------------------------------------------------------------------- */

void replica_remove_folder(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    if (!d)
        return;
    while ((entry = readdir(d)) != NULL)
        (void)unlinkat(dirfd(d), entry->d_name, 0);
    (void)closedir(d);
    (void)rmdir(dir);
}

void replica_remove_files(const struct replica_of *r)
{
    const struct kv_source *kv = r->rs->in->ctx->kv;
    static const char *const what[] = { "log", "shard" };
    char dir[PATH_MAX];

    for (size_t i = 0; i < ARRAY_LEN(what); i++) {
        if (!replica_path(r, what[i], dir))
            continue;
        if (!kv)
            replica_remove_folder(dir);
        else if (kv->remove)
            kv->remove(kv, dir);
    }
    copy_remove_folder(r);
}

static void remove_work(void *cookie)
{
    replica_remove_files(cookie);
}

static void on_removed(void *cookie)
{
    struct replica_of *r = cookie;

    log_info("replica removed", KV_U64("shard", r->shard));
    r->at = AT_NOTHING;
    replica_step(r);
}

static void on_stopped(void *cookie)
{
    struct replica_of *r = cookie;
    struct replicas *rs = r->rs;

    r->node = NULL;
    r->at = AT_NOTHING;
    reclaim_forget(r);
    if (!r->wanted && !rs->stopping) {
        r->at = AT_REMOVING;
        blocking_job_run(rs->in->ctx->loop, rs->in->ctx->simulated, remove_work, on_removed, r);
        return;
    }
    replica_step(r);
}

static void replica_stop(struct replica_of *r)
{
    cluster_forget(r);
    r->at = AT_STOPPING;
    repl_node_stop(r->node, on_stopped, r);
}

/* ---- the next step -------------------------------------------------------------------------- */

static void all_stopped(struct replicas *rs)
{
    void (*done)(void *cookie) = rs->stopped;

    for (size_t i = 0; i < rs->len; i++)
        if (rs->at[i]->at != AT_NOTHING)
            return;
    rs->stopped = NULL;
    if (done)
        done(rs->stopped_cookie);
}

void replica_step(struct replica_of *r)
{
    struct replicas *rs = r->rs;
    bool keep = r->wanted && !r->failed && !rs->stopping;
    bool now = replicas_now_ms(rs) >= r->retry_ms;

    if ((r->at == AT_FOLLOWING || r->at == AT_SERVING) && keep && !replica_now(r).silent)
        cluster_note(r);
    if (r->at == AT_FOLLOWING || r->at == AT_SERVING)
        corrupt_look(r);

    switch (r->at) {
    case AT_NOTHING:
        if (r->wanted && !rs->stopping && now)
            replica_open(r);
        break;
    case AT_FOLLOWING:
        if (!keep)
            replica_stop(r);
        else if (leads(r) && now && repl_node_drained(r->node))
            replica_start(r);
        else if (replica_now(r).silent)
            cluster_admit(r);
        break;
    case AT_SERVING:
        if (!keep || !leads(r) || replica_now(r).epoch != r->epoch || refused(r))
            replica_close(r);
        break;
    case AT_OPENING:
    case AT_STARTING:
    case AT_CLOSING:
    case AT_STOPPING:
    case AT_REMOVING:
        break; /* its end comes here again */
    }
    if (rs->stopping)
        all_stopped(rs);
}

static void show(const struct replicas *rs)
{
    int64_t open = 0, serving = 0;

    for (size_t i = 0; i < rs->len; i++) {
        open += rs->at[i]->node != NULL;
        serving += rs->at[i]->at == AT_SERVING;
    }
    metric_set(rs->m_replicas, open);
    metric_set(rs->m_leading, serving);
}

static void on_view(void *cookie);

/* Those whose copy left make room for others. */
static void forget_gone(struct replicas *rs)
{
    size_t left = 0;

    for (size_t i = 0; i < rs->len; i++) {
        struct replica_of *r = rs->at[i];

        if (r->at == AT_NOTHING && !r->wanted && !r->must_return && !r->asking) {
            shards_leave(rs->in->shards, r->shard);
            xfree(r);
        } else {
            rs->at[left++] = r;
        }
    }
    if (left == rs->len)
        return;
    rs->len = left;
    if (!rs->too_many)
        return;
    rs->too_many = false;
    on_view(rs);
}

static void step_all(void *cookie)
{
    struct replicas *rs = cookie;

    rs->step_posted = false;
    if (rs->freed) {
        xfree(rs);
        return;
    }
    for (size_t i = 0; i < rs->len; i++)
        replica_step(rs->at[i]);
    if (!rs->stopping)
        forget_gone(rs);
    show(rs);
}

void replicas_step_soon(struct replicas *rs)
{
    if (rs->step_posted || rs->freed)
        return;
    rs->step_posted = true;
    loop_post(rs->in->ctx->loop, step_all, rs);
}

/* ---- records -------------------------------------------------------------------------------- */

struct replica_of *replica_find(const struct replicas *rs, uint32_t shard)
{
    for (size_t i = 0; i < rs->len; i++)
        if (rs->at[i]->shard == shard)
            return rs->at[i];
    return NULL;
}

void replica_add(struct replicas *rs, uint32_t shard)
{
    struct replica_of *r;

    if (rs->len == SHARDS_MAX || shards_place(rs->in->shards, shard) == SHARDS_MAX) {
        if (!rs->too_many)
            log_error("more shards are placed here than one node can have", KV_U64("shard", shard),
                      KV_U64("most", SHARDS_MAX));
        rs->too_many = true;
        return;
    }
    r = XNEW(struct replica_of);
    r->rs = rs;
    r->shard = shard;
    rs->at[rs->len++] = r;
}

bool replica_concerns(const struct replicas *rs, const struct repl_record *rec)
{
    return name_set_has(&rec->members, rs->self) || name_set_has(&rec->learners, rs->self) ||
           name_set_has(&rec->prev_members, rs->self);
}

/* What was remembered of the coordination service's store is of another one. */
static void store_anew(struct replicas *rs)
{
    rs->store = view_store(rs->view);
    hooks_coord_replaced(&rs->in->hooks);
    for (size_t i = 0; i < rs->len; i++)
        cluster_store_anew(rs->at[i]);
}

static void on_view(void *cookie)
{
    struct replicas *rs = cookie;
    size_t wanted = 0;

    if (rs->store != view_store(rs->view))
        store_anew(rs);
    for (uint32_t i = 0; i < view_shards(rs->view); i++) {
        int64_t rev;
        const struct repl_record *rec = view_record(rs->view, i, &rev);
        struct replica_of *r = replica_find(rs, i);

        if (!rec)
            continue; /* nothing is known: nothing changes */
        if (!r && replica_concerns(rs, rec)) {
            replica_add(rs, i);
            r = replica_find(rs, i);
        }
        if (!r)
            continue;
        r->wanted = replica_concerns(rs, rec);
        wanted += r->wanted;
        if (r->node)
            repl_node_record(r->node, rec);
    }
    rs->in->shards_own = MAX(wanted, 1u);
    replicas_step_soon(rs);
}

static const char *addr_of(void *cookie, const char *name)
{
    const struct replicas *rs = cookie;
    struct view_node n;

    return view_node_find(rs->view, name, &n) && n.addr[0] ? n.addr : NULL;
}

static void on_tick(void *cookie)
{
    struct replicas *rs = cookie;

    replicas_look_at_disk(rs);
    replicas_sweep(rs);
    replicas_copy_scan(rs);
    reclaim_tick(rs);
    step_all(rs);
    cluster_tick(rs);
    replicas_look_behind(rs);
}

void replicas_log_memory(struct replicas *rs, uint64_t bytes_max)
{
    repl_hub_log_bytes(rs->hub, bytes_max);
}

uint64_t replicas_log_used(const struct replicas *rs)
{
    return repl_hub_log_used(rs->hub);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct metric_cell *cell(const struct replicas *rs, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(rs->in->ctx->metrics, kind, name, help, NULL), NULL, 0);
}

static void make_metrics(struct replicas *rs)
{
    rs->m_replicas = cell(rs, METRIC_GAUGE, "embertree_ingester_replicas_open",
                          "Copies of shards this node keeps, open");
    rs->m_leading =
        cell(rs, METRIC_GAUGE, "embertree_ingester_shards_serving", "Shards it leads and serves");
    rs->m_started = cell(rs, METRIC_COUNTER, "embertree_ingester_shards_served_total",
                         "Times a shard began to be served here");
}

struct replicas *replicas_new(const struct replicas_opts *o)
{
    struct replicas *rs = XNEW(struct replicas);
    const struct role_ctx *ctx = o->in->ctx;
    struct repl_hub_opts ho = {
        .rpc = o->in->node,
        .loop = ctx->loop,
        .metrics = ctx->metrics,
        .addr = addr_of,
        .known = replicas_known,
        .told = replicas_promises_served,
        .cookie = rs,
        .digest_rate = ctx->cluster->digest_rate,
        .snapshot_rate = ctx->cluster->snapshot_rate,
        .log_bytes = memory_share(ctx->memory_limit, MEMORY_LOGS),
    };

    rs->o = *o;
    rs->in = o->in;
    rs->view = ctx->view;
    CHECK(snprintf(rs->self, sizeof(rs->self), "%s", o->self) < (int)sizeof(rs->self));
    ctx->env->random(ctx->env, &rs->life, sizeof(rs->life));
    make_metrics(rs);
    rs->hub = repl_hub_new(&ho);
    if (o->coord)
        cluster_join(rs);
    rs->timer = loop_timer_new(ctx->loop, on_tick, rs);
    loop_timer_start(rs->timer, TICK_MS, TICK_MS);
    rs->catch_up_until_ms = replicas_now_ms(rs) + ctx->cluster->catch_up_ms;
    view_watch(rs->view, on_view, rs);
    on_view(rs);
    return rs;
}

void replicas_halt(struct replicas *rs)
{
    for (size_t i = 0; i < rs->len; i++)
        if (rs->at[i]->node && rs->at[i]->at != AT_STOPPING)
            repl_node_halt(rs->at[i]->node);
    cluster_leave(rs);
    replicas_step_soon(rs);
}

void replicas_stop(struct replicas *rs, void (*done)(void *cookie), void *cookie)
{
    rs->stopping = true;
    rs->stopped = done;
    rs->stopped_cookie = cookie;
    replicas_step_soon(rs);
    if (rs->len == 0) {
        rs->stopped = NULL;
        loop_post(rs->in->ctx->loop, done, cookie);
    }
}

void replicas_free(struct replicas *rs)
{
    if (!rs)
        return;
    view_unwatch(rs->view, on_view, rs);
    cluster_free(rs);
    loop_timer_free(rs->timer);
    for (size_t i = 0; i < rs->len; i++) {
        CHECK(rs->at[i]->at == AT_NOTHING);
        xfree(rs->at[i]);
    }
    repl_hub_free(rs->hub);
    rs->freed = true;
    if (!rs->step_posted)
        xfree(rs);
}
