/* SPDX-License-Identifier: Apache-2.0
 *
 * replicas_reclaim: the bytes of purged deletes leave the files of every copy.
 *
 * What a purge deleted is the same rows on all copies, and so are the rows that say which ranges
 * of keys it touched (common/store/delete/reclaim.h). Each copy, leader or follower, looks for such
 * rows in its own database, compacts the ranges one by one on a pool thread, and says as of which
 * entry of the log it has nothing left (`reclaimed`, in its answers to the leader).
 *
 *   all copies     look ─> compact, some ranges a second ─> nothing left as of entry i ─> said
 *   leader         the ranges there were as of its own i: a round
 *                    all that answer have said i   ─> deletes without other ranges are done
 *                    all there are have said it    ─> rows of these ranges go
 *
 * So a copy that is down holds nothing up, and the rows wait for it: it does its part when it is
 * back, or they go when it is no member any more. One of an older version says nothing: while it
 * answers, deletes stay `purged`, which is true. A copy that is fetched again gets the rows with
 * the files. Compacted ranges are remembered in memory only: after a restart they are compacted
 * again. Last, the copy's log lets go of its entries, which all members must have for that.
 *
 * A range is not compacted while a reader has an older snapshot: RocksDB would keep the bytes that
 * the snapshot needs.
 */
#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/repl/apply.h"
#include "common/store/mask/tomb.h"
#include "ingester/replicas/replicas_impl.h"

#define LOOK_MS      1000 /* while there is something */
#define LOOK_IDLE_MS 5000
#define HEARD_TICKS  400 /* ten seconds */
#define RANGES_MAX   64  /* of a database in a job */
#define RANGES_MS    100 /* none is begun later */

struct reclaim_one { /* a database */
    struct replica_of *r;
    struct repl_node *node; /* held */
    bool settled;
    uint64_t index; /* as of which it was looked at; 0: it was not */
    size_t left;
    struct err err;
};
struct reclaim_job {
    struct replicas *rs;
    struct reclaim_one at[SHARDS_MAX];
    size_t len;
};

/* ---- one database: pool thread -------------------------------------------------------------- */

static int look(struct reclaim_one *o, struct err *e)
{
    struct kv *db = repl_node_db(o->node);
    struct kv_snap *snap = kv_snap_new(db);
    uint64_t index, term;
    int rc = apply_read_at(db, snap, &index, &term, e);

    if (!rc && index && index != APPLY_HALF) {
        rc = reclaim_look(&o->r->reclaim, db, snap, &o->left, e);
        o->index = index;
    }
    kv_snap_free(db, snap);
    return rc;
}

/* Compacts one range. Most are empty; a range with rows takes long. */
static int compact(struct reclaim_one *o, const struct clock *clock, struct err *e)
{
    uint64_t until_ms = clock_mono_ms(clock) + RANGES_MS;
    bool more = true;
    int rc = 0;

    for (int i = 0; !rc && more && i < RANGES_MAX && clock_mono_ms(clock) < until_ms; i++)
        rc = reclaim_one(&o->r->reclaim, repl_node_db(o->node), &more, e);
    return rc;
}

static void job_run(void *cookie)
{
    struct reclaim_job *j = cookie;

    for (size_t i = 0; i < j->len; i++) {
        struct reclaim_one *o = &j->at[i];
        int rc = look(o, &o->err);
        if (!rc && o->index && o->left && o->settled)
            rc = compact(o, j->rs->in->ctx->env->clock, &o->err);
        if (!rc)
            err_clear(&o->err);
    }
}

/* ---- rounds: loop --------------------------------------------------------------------------- */

static void round_end(struct replica_of *r)
{
    xfree(r->list.ptr);
    r->list = (struct reclaim_list){ 0 };
    r->round = 0;
    r->round_told = false;
}

static struct shard *served(const struct replica_of *r)
{
    struct shards *all = r->rs->in->shards;

    return r->at == AT_SERVING ? shards_at(all, shards_place(all, r->shard)) : NULL;
}

/* The next one, when nothing is left here. */
static void round_begin(struct replica_of *r)
{
    size_t n = r->reclaim.at.len;

    if (!served(r) || r->round_tells || (r->round && !r->round_told))
        return;
    round_end(r);
    if (!n)
        return;
    r->list.ptr = XNEW_ARRAY(struct reclaim_key, n);
    memcpy(r->list.ptr, r->reclaim.at.ptr, n * sizeof(*r->list.ptr));
    r->list.len = n;
    r->round = r->reclaimed;
}

/* How many other copies have not said what the round wants; *ret_answer: of those that answer. */
static uint32_t missing(const struct replica_of *r, uint32_t *ret_answer)
{
    struct replica_peer p;
    uint32_t n = 0;

    *ret_answer = 0;
    for (size_t i = 0; repl_node_peer(r->node, i, &p); i++) {
        if (p.former || (!p.member && !p.learner) || (r->round && p.reclaimed >= r->round))
            continue;
        n++;
        *ret_answer += p.silent_ticks < HEARD_TICKS;
    }
    return n;
}

struct telling {
    struct shard_task task;
    struct replica_of *r;
    struct shard *held;
    struct reclaim_list list; /* its own */
    bool all;
    struct err err;
};

static void tell(struct shard_task *t, struct store *s)
{
    struct telling *x = container_of(t, struct telling, task);

    if (store_reclaimed(s, x->list.ptr, x->list.len, x->all, &x->err) == 0)
        err_clear(&x->err);
}

static void told(struct shard_task *t)
{
    struct telling *x = container_of(t, struct telling, task);
    struct replica_of *r = x->r;

    shards_put(r->rs->in->shards, x->held);
    r->round_tells = false;
    if (!x->err.code && x->all)
        round_end(r);
    if (x->err.code && x->err.code != ERR_UNAVAILABLE)
        log_warn("it could not be noted that deleted data are gone from files; tried again",
                 KV_U64("shard", r->shard), KV_ERR(&x->err));
    xfree(x->list.ptr);
    xfree(x);
}

static void round_look(struct replica_of *r)
{
    const struct shard *s = served(r);
    uint32_t answer, all;
    struct err e;

    if (!s) {
        round_end(r);
        return;
    }
    if (!r->round || r->round_tells)
        return;
    all = missing(r, &answer);
    if (answer)
        return;
    r->round_told = true;
    if (all && !shard_state(s)->deletes.purged)
        return;
    struct telling *x = XNEW(struct telling);
    x->held = shards_get(r->rs->in->shards, r->shard, &e);
    if (!x->held) {
        xfree(x);
        return;
    }
    x->r = r;
    x->all = !all;
    x->list.len = r->list.len;
    x->list.ptr = XNEW_ARRAY(struct reclaim_key, r->list.len);
    memcpy(x->list.ptr, r->list.ptr, r->list.len * sizeof(*x->list.ptr));
    x->task = (struct shard_task){ .run = tell, .done = told };
    r->round_tells = true;
    shard_run(x->held, &x->task);
}

uint32_t replicas_reclaim_behind(const struct replicas *rs, uint32_t shard)
{
    const struct replica_of *r = replica_find(rs, shard);
    uint32_t answer;

    if (!r || !r->node)
        return 0;
    return missing(r, &answer) + (r->round == 0);
}

/* ---- jobs: loop ----------------------------------------------------------------------------- */

static void job_end_one(struct reclaim_one *o, uint64_t now)
{
    struct replica_of *r = o->r;

    if (o->err.code)
        log_warn("ranges of deleted data could not be compacted; tried again",
                 KV_U64("shard", r->shard), KV_ERR(&o->err));
    r->reclaim_ms = now + (o->left || r->reclaim.at.len ? LOOK_MS : LOOK_IDLE_MS);
    r->reclaim_shed |= o->left > 0;
    if (!o->err.code && o->index && !o->left && o->settled && r->at != AT_STOPPING) {
        r->reclaimed = o->index;
        repl_node_reclaimed(o->node, o->index);
        if (r->reclaim_shed)
            repl_node_shed(o->node);
        r->reclaim_shed = false;
        round_begin(r);
    }
    repl_node_release(o->node); /* it may be gone behind this */
}

static void job_end(void *cookie)
{
    struct reclaim_job *j = cookie;
    struct replicas *rs = j->rs;
    uint64_t now = replicas_now_ms(rs);

    rs->reclaiming = NULL;
    for (size_t i = 0; i < j->len; i++)
        job_end_one(&j->at[i], now);
    xfree(j);
}

/* True if no reader has a snapshot that is older than the purges. */
static bool settled(const struct replica_of *r)
{
    struct shard *s = served(r);

    return !repl_node_reads_past(r->node) && (!s || store_reclaim_settled(shard_store(s)));
}

static bool due(const struct replica_of *r, uint64_t now)
{
    bool open = r->at == AT_FOLLOWING || r->at == AT_STARTING || r->at == AT_SERVING;

    return open && !r->failed && now >= r->reclaim_ms;
}

static void take(struct reclaim_job *j, struct replica_of *r)
{
    if (repl_node_hold(r->node))
        j->at[j->len++] = (struct reclaim_one){ .r = r, .node = r->node, .settled = settled(r) };
}

void reclaim_tick(struct replicas *rs)
{
    uint64_t now = replicas_now_ms(rs);
    struct reclaim_job *j;
    bool any = false;

    for (size_t i = 0; i < rs->len; i++) {
        round_look(rs->at[i]);
        any |= due(rs->at[i], now);
    }
    if (rs->reclaiming || rs->stopping || !any)
        return;
    j = XNEW(struct reclaim_job);
    j->rs = rs;
    for (size_t i = 0; i < rs->len; i++)
        if (due(rs->at[i], now))
            take(j, rs->at[i]);
    if (j->len && pool_submit(rs->in->ctx->pool, rs->in->ctx->loop, job_run, job_end, j)) {
        rs->reclaiming = j;
        return;
    }
    for (size_t i = 0; i < j->len; i++)
        repl_node_release(j->at[i].node);
    xfree(j);
}

void reclaim_forget(struct replica_of *r)
{
    reclaim_deinit(&r->reclaim);
    r->reclaim = (struct reclaim){ 0 };
    r->reclaimed = 0;
    r->reclaim_ms = 0;
    round_end(r);
}
