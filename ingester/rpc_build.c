/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_build: coarse nodes are merged elsewhere, and believed only if they prove themselves.
 *
 *   NEXT   loop ─> queue ─> pool: a view, the next due node, rows of its children ─> reply
 *                                  └─ sums of each series stay here: `expect`
 *   APPLY  loop ─> pool: unpack ─> loop: is this the job? ─> shard thread: check, write ─> reply
 *
 *     FREE ── NEXT ──> READING ──> GIVEN ── APPLY ──> APPLYING ──> FREE
 *       ^                 │ nothing due  │ time is up, or asked again
 *       └─────────────────┴──────────────┘
 *
 * A shard has one job out at most. What is lost on the way, in either direction, costs time only:
 * the node keeps its mark and is not read by queries until it is whole, so its job is given again,
 * to the same compactor as soon as it asks, to another one when the time is up. A sum that comes
 * back is written if and only if total, writes and F of each row are those of the children that
 * were given out, so a compactor that is broken, old or not ours cannot falsify anything but by a
 * collision of F, which it would have to look for (common/store/README.md).
 *
 * Memory: the rows of one job while they are read and sent, since one pool thread reads for all
 * shards at a time, and per shard the sums of its job: 48 bytes for each series of it.
 *
 * Queries and writes come first: nothing is given out while queries wait for their turn or sealing
 * is behind; the shard thread only compares and writes, at most one job a turn.
 *
 * Threads: everything here is the loop's, but what a pool job or a task of the shard thread was
 * given, which it has alone while the state says READING or APPLYING.
 */
#include "ingester/rpc_build.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/build.h"
#include "ingester/rpc_read.h"
#include "ingester/unpack.h"
#include "proto/build.pb-c.h"

#define VERSION        1
#define LEVEL_LOW      3
#define DUE_MAX        4096 /* nodes of one look */
#define SKIPPED_MAX    1024
#define SKIP_MS        60000
#define BYTES_MIN      (4 * KIB)
#define BYTES_DEFAULT  MIB
#define REQUEST_BYTES  (16 * KIB)
#define SEAL_BEHIND_MS 30000
#define BUSY_WAIT_MS   100
#define PAUSED_WAIT_MS 1000
#define IDLE_WAIT_MS   2000
#define STALE_TRIES    256 /* nodes of a look that are not due any more, before we look again */

enum site_state { SITE_FREE, SITE_READING, SITE_GIVEN, SITE_APPLYING };

struct skipped {
    struct build_node node;
    uint64_t until_ns;
};
/* What one shard has out. */
struct site {
    struct shard *shard;
    enum site_state state;
    uint64_t job, compactor, given_ns; /* GIVEN, APPLYING */
    struct build_job expect;           /* its sums; rows are gone */
    struct build_nodes due;            /* of the last look, in order of building */
    size_t due_at;
    uint64_t oldest_ms;
    bool has_node;
    struct build_node node;
    struct build_cursor cursor, next; /* before and behind the job that is out */
    uint32_t part;
    VEC(struct skipped) skipped; /* failed lately */
    uint64_t jobs, applied, failed;
    uint64_t due_shown, oldest_shown; /* the loop's copies, of the last look */
};
struct builds {
    struct site sites[SHARDS_MAX];
    struct list waiting; /* of struct next */
    bool reading;
    size_t running; /* requests that are not answered */
    uint64_t last_job;
};

struct next {
    struct ingester *in;
    struct rpc_call *call;
    struct site *site;
    struct list link;
    uint64_t compactor;
    size_t bytes_max;
    uint64_t wait_ms, due, oldest_ms; /* of the reply */
    bool found;
    struct buf reply;
    struct err err;
};
struct apply {
    struct shard_task task;
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    struct site *site;
    struct arena *arena;
    const Embertree__BuildApplyRequest *msg;
    struct build_result result;
    uint64_t bytes;
    struct err err;
};

static struct site *site_of(struct ingester *in, uint32_t shard)
{
    for (size_t i = 0; i < in->shards_len; i++) {
        if (shard_number(in->shards[i]) == shard)
            return &in->builds->sites[i];
    }
    return NULL;
}

static uint64_t now_ns(const struct ingester *in)
{
    return clock_mono_ns(in->ctx->env->clock);
}

static bool same_node(const struct build_node *a, const struct build_node *b)
{
    return a->level == b->level && a->t == b->t && a->m.tenant == b->m.tenant &&
           a->m.scope == b->m.scope && a->m.ptype == b->m.ptype;
}

/* ---- which node: pool thread ---------------------------------------------------------------- */

/* Lowest level first; within it tenants take turns, each with its oldest node first. */
struct ranked {
    struct build_node node;
    size_t rank;
};

static int by_tenant(const void *a, const void *b)
{
    const struct build_node *x = &((const struct ranked *)a)->node;
    const struct build_node *y = &((const struct ranked *)b)->node;

    if (x->level != y->level)
        return x->level < y->level ? -1 : 1;
    if (x->m.tenant != y->m.tenant)
        return x->m.tenant < y->m.tenant ? -1 : 1;
    return x->t < y->t ? -1 : x->t > y->t;
}

static int by_rank(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->node.level != y->node.level)
        return x->node.level < y->node.level ? -1 : 1;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    if (x->node.t != y->node.t)
        return x->node.t < y->node.t ? -1 : 1;
    return x->node.m.tenant < y->node.m.tenant ? -1 : x->node.m.tenant > y->node.m.tenant;
}

static void order(struct build_nodes *due)
{
    struct ranked *r = XNEW_ARRAY(struct ranked, due->at.len + 1);

    vec_for (i, &due->at)
        r[i].node = due->at.ptr[i];
    qsort(r, due->at.len, sizeof(*r), by_tenant);
    for (size_t i = 1; i < due->at.len; i++) {
        const struct build_node *x = &r[i - 1].node, *y = &r[i].node;
        bool same = x->level == y->level && x->m.tenant == y->m.tenant;

        r[i].rank = same ? r[i - 1].rank + 1 : 0;
    }
    qsort(r, due->at.len, sizeof(*r), by_rank);
    vec_for (i, &due->at)
        due->at.ptr[i] = r[i].node;
    xfree(r);
}

static bool is_skipped(struct site *st, const struct build_node *n, uint64_t at_ns)
{
    size_t left = 0;
    bool found = false;

    vec_for (i, &st->skipped) {
        struct skipped s = st->skipped.ptr[i];

        if (s.until_ns <= at_ns)
            continue;
        found = found || same_node(&s.node, n);
        st->skipped.ptr[left++] = s;
    }
    st->skipped.len = left;
    return found;
}

static int look(struct next *n, struct store_view *v, const struct store_clock *clock,
                struct err *e)
{
    struct site *st = n->site;
    int64_t oldest = INT64_MAX;
    int rc;

    st->due.at.len = st->due_at = 0;
    rc = store_build_due(v, clock->engine_ms, LEVEL_LOW, KEY_LEVELS - 1, DUE_MAX, &st->due, e);
    order(&st->due);
    vec_for (i, &st->due.at)
        oldest = MIN(oldest, st->due.at.ptr[i].due_ms);
    st->oldest_ms =
        oldest < clock->engine_ms && st->due.at.len ? (uint64_t)(clock->engine_ms - oldest) : 0;
    return rc;
}

/* The next job into *job; n->found: there is one. */
static int find_job(struct next *n, struct store_view *v, const struct store_clock *clock,
                    struct arena *a, struct build_job *job, struct err *e)
{
    struct site *st = n->site;
    uint64_t at_ns = now_ns(n->in);
    bool looked = false;

    for (size_t tries = 0; tries < STALE_TRIES; tries++) {
        if (!st->has_node && st->due_at == st->due.at.len) {
            if (looked)
                return 0;
            looked = true;
            if (look(n, v, clock, e))
                return e->code;
            continue;
        }
        if (!st->has_node) {
            st->node = st->due.at.ptr[st->due_at++];
            st->cursor = (struct build_cursor){ 0 };
            st->part = 0;
            st->has_node = !is_skipped(st, &st->node, at_ns);
            continue;
        }
        st->next = st->cursor;
        int rc = store_build_read(v, &st->node, &st->next, n->bytes_max, a, job, e);
        n->found = !rc;
        if (rc != ERR_NOT_FOUND)
            return rc;
        st->has_node = false;
    }
    n->wait_ms = 0; /* there may be more: asked again at once */
    return 0;
}

static void skip_node(struct ingester *in, struct site *st, const struct err *e)
{
    log_error("a coarse node cannot be built; its children are read instead",
              KV_U64("shard", shard_number(st->shard)), KV_U64("tenant", st->node.m.tenant),
              KV_U64("scope", st->node.m.scope), KV_U64("ptype", st->node.m.ptype),
              KV_U64("level", st->node.level), KV_U64("slot", st->node.t), KV_ERR(e));
    st->failed++;
    if (st->skipped.len < SKIPPED_MAX)
        vec_push(&st->skipped, ((struct skipped){ st->node, now_ns(in) + SKIP_MS * 1000000ull }));
    st->has_node = false;
}

static bool pack_rows(const struct build_row *rows, size_t n, struct arena *a,
                      Embertree__BuildRow ***ret)
{
    Embertree__BuildRow **list = ARENA_ARRAY(a, Embertree__BuildRow *, n + 1);
    Embertree__BuildRow *out = ARENA_ARRAY(a, Embertree__BuildRow, n + 1);

    if (!list || !out)
        return false;
    for (size_t i = 0; i < n; i++) {
        embertree__build_row__init(&out[i]);
        out[i].cf = (uint32_t)rows[i].cf;
        out[i].id = rows[i].id;
        out[i].t = rows[i].t;
        out[i].value = pack_str(rows[i].bytes);
        list[i] = &out[i];
    }
    *ret = list;
    return true;
}

static int pack_next(struct next *n, uint64_t job_id, const struct build_job *job, struct arena *a,
                     struct err *e)
{
    Embertree__BuildNextReply r = EMBERTREE__BUILD_NEXT_REPLY__INIT;
    char *p;

    r.due = n->due;
    r.oldest_ms = n->oldest_ms;
    r.wait_ms = n->wait_ms;
    if (job) {
        r.job = job_id;
        r.tenant = job->node.m.tenant;
        r.scope = job->node.m.scope;
        r.ptype = job->node.m.ptype;
        r.level = job->node.level;
        r.t = job->node.t;
        r.part = n->site->part;
        r.last = job->last;
        r.timeout_ms = n->in->conf->build_timeout_ms;
        r.n_rows = job->rows.len;
        if (!pack_rows(job->rows.ptr, job->rows.len, a, &r.rows))
            return err_set(e, ERR_LIMIT, "a job of %zu rows needs over %zu bytes", job->rows.len,
                           arena_limit(a));
    }
    p = buf_room(&n->reply, embertree__build_next_reply__get_packed_size(&r));
    if (!p)
        return err_set(e, ERR_LIMIT,
                       "a job of %zu rows does not fit a message of %zu bytes "
                       "(cluster.rpc_message_bytes_max)",
                       job ? job->rows.len : 0, n->reply.max);
    n->reply.len += embertree__build_next_reply__pack(&r, (uint8_t *)(void *)p);
    return 0;
}

static void next_work(void *cookie)
{
    struct next *n = cookie;
    struct site *st = n->site;
    struct store *s = shard_store(st->shard);
    size_t message = n->in->ctx->cluster->rpc_message_bytes_max;
    struct arena *a = arena_new(2 * message);
    struct store_clock clock;
    struct store_view *v;
    int rc;

    store_clock(s, &clock);
    buf_init(&n->reply, message);
    n->wait_ms = clock.paused ? PAUSED_WAIT_MS : IDLE_WAIT_MS;
    if (clock.paused) {
        rc = pack_next(n, 0, NULL, a, &n->err);
    } else {
        v = store_view_get(s);
        rc = find_job(n, v, &clock, a, &st->expect, &n->err);
        store_view_put(v);
        n->due = st->due.at.len - st->due_at + st->has_node;
        n->oldest_ms = st->oldest_ms;
        if (!rc)
            rc = pack_next(n, st->job, n->found ? &st->expect : NULL, a, &n->err);
    }
    n->err.code = rc;
    vec_free(&st->expect.rows);
    arena_free(a);
}

/* ---- NEXT: loop ----------------------------------------------------------------------------- */

static void next_start(struct ingester *in);

static void next_end(struct next *n)
{
    if (n->err.code) {
        ingester_refused(&n->in->metrics, n->err.code);
        rpc_fail(n->call, &n->err);
    } else {
        rpc_reply(n->call, &n->reply);
    }
    buf_deinit(&n->reply);
    n->in->builds->running--;
    xfree(n);
}

static void next_done(void *cookie)
{
    struct next *n = cookie;
    struct ingester *in = n->in;
    struct site *st = n->site;

    CHECK(st->state == SITE_READING);
    st->state = SITE_FREE;
    st->due_shown = n->due;
    st->oldest_shown = n->oldest_ms;
    if (n->err.code && st->has_node)
        skip_node(in, st, &n->err);
    if (!n->err.code && n->found) {
        st->state = SITE_GIVEN;
        st->given_ns = now_ns(in);
        st->compactor = n->compactor;
        st->jobs++;
        metric_add(in->metrics.build_jobs, 1);
    }
    in->builds->reading = false;
    next_end(n);
    next_start(in);
}

/* True if the reply is a wait: the job of somebody else is out, or there is better to do. */
static bool must_wait(struct next *n)
{
    const struct site *st = n->site;
    uint64_t out_ms = (now_ns(n->in) - st->given_ns) / 1000000;

    if (st->state == SITE_READING || st->state == SITE_APPLYING)
        n->wait_ms = BUSY_WAIT_MS;
    else if (st->state == SITE_GIVEN && st->compactor != n->compactor &&
             out_ms < n->in->conf->build_timeout_ms)
        n->wait_ms = n->in->conf->build_timeout_ms - out_ms;
    else if (shard_state(st->shard)->seal_lag_ms > SEAL_BEHIND_MS || rpc_read_waiting(n->in))
        n->wait_ms = BUSY_WAIT_MS;
    return n->wait_ms > 0;
}

static void next_wait(struct next *n)
{
    struct arena *a = arena_new(REQUEST_BYTES);

    n->due = n->site->due_shown;
    n->oldest_ms = n->site->oldest_shown;

    buf_init(&n->reply, REQUEST_BYTES);
    n->err.code = pack_next(n, 0, NULL, a, &n->err);
    arena_free(a);
    next_end(n);
}

static void next_start(struct ingester *in)
{
    struct builds *b = in->builds;

    while (!b->reading && !list_empty(&b->waiting)) {
        struct next *n = container_of(b->waiting.next, struct next, link);

        list_del(&n->link);
        if (must_wait(n)) {
            next_wait(n);
            continue;
        }
        build_job_deinit(&n->site->expect);
        n->site->expect = (struct build_job){ 0 };
        n->site->state = SITE_READING;
        n->site->job = ++b->last_job;
        if (pool_submit(in->ctx->pool, in->ctx->loop, next_work, next_done, n)) {
            b->reading = true;
            return;
        }
        n->site->state = SITE_FREE;
        n->wait_ms = BUSY_WAIT_MS;
        next_wait(n);
    }
}

static void on_next(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct arena *a = arena_new(REQUEST_BYTES + 24 * MIN(payload.len, REQUEST_BYTES));
    ProtobufCAllocator allocator = unpack_allocator(a);
    const Embertree__BuildNextRequest *r;
    struct site *st = NULL;
    struct err e = { 0 };
    struct next *n;

    CHECK(in->magic == INGESTER_MAGIC);
    r = embertree__build_next_request__unpack(&allocator, payload.len,
                                              (const uint8_t *)(const void *)payload.ptr);
    if (!r)
        (void)unpack_failed("BuildNextRequest", payload, a, &e);
    else if (r->version != VERSION)
        (void)err_set(&e, ERR_UNIMPLEMENTED,
                      "builds of version %" PRIu32 " are asked for, this is %d", r->version,
                      VERSION);
    else if (!(st = site_of(in, r->shard)))
        (void)err_set(&e, ERR_INPUT, "shard %" PRIu32 " is not here", r->shard);
    if (e.code) {
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        arena_free(a);
        return;
    }
    n = XNEW(struct next);
    *n = (struct next){ .in = in, .call = call, .site = st, .compactor = r->compactor };
    n->bytes_max = r->bytes_max ? (size_t)MIN(r->bytes_max, (uint64_t)SIZE_MAX) : BYTES_DEFAULT;
    n->bytes_max = MIN(MAX(n->bytes_max, BYTES_MIN), in->ctx->cluster->rpc_message_bytes_max / 2);
    arena_free(a);
    in->builds->running++;
    list_add_tail(&in->builds->waiting, &n->link);
    next_start(in);
}

/* ---- APPLY ---------------------------------------------------------------------------------- */

static void apply_end(struct apply *p)
{
    Embertree__BuildApplyReply r = EMBERTREE__BUILD_APPLY_REPLY__INIT;
    struct ingester *in = p->in;
    struct buf out;

    if (p->err.code) {
        ingester_refused(&in->metrics, p->err.code);
        rpc_fail(p->call, &p->err);
    } else {
        char *room;

        r.rows = p->result.rows.len;
        r.bytes = p->bytes;
        r.node_done = !p->site->has_node;
        buf_init(&out, REQUEST_BYTES);
        room = buf_room(&out, embertree__build_apply_reply__get_packed_size(&r));
        CHECK(room);
        out.len += embertree__build_apply_reply__pack(&r, (uint8_t *)(void *)room);
        rpc_reply(p->call, &out);
    }
    build_result_deinit(&p->result);
    arena_free(p->arena);
    in->builds->running--;
    xfree(p);
}

static void apply_run(struct shard_task *t, struct store *s)
{
    struct apply *p = container_of(t, struct apply, task);

    p->err.code = store_build_apply(s, &p->site->expect, &p->result, &p->err);
}

static void apply_done(struct shard_task *t)
{
    struct apply *p = container_of(t, struct apply, task);
    struct site *st = p->site;

    CHECK(st->state == SITE_APPLYING);
    st->state = SITE_FREE;
    if (p->err.code == ERR_NOT_FOUND) {
        st->has_node = false; /* dirtied since it was read, or gone: it becomes due again */
    } else if (p->err.code) {
        skip_node(p->in, st, &p->err);
    } else {
        st->applied++;
        metric_add(p->in->metrics.build_rows, p->result.rows.len);
        metric_add(p->in->metrics.build_bytes, p->bytes);
        st->has_node = !st->expect.last;
        st->cursor = st->next;
        st->part++;
    }
    apply_end(p);
}

static void apply_unpack(void *cookie)
{
    struct apply *p = cookie;
    ProtobufCAllocator allocator = unpack_allocator(p->arena);

    p->msg = embertree__build_apply_request__unpack(&allocator, p->payload.len,
                                                    (const uint8_t *)(const void *)p->payload.ptr);
    if (!p->msg) {
        (void)unpack_failed("BuildApplyRequest", p->payload, p->arena, &p->err);
        return;
    }
    for (size_t i = 0; i < p->msg->n_rows; i++) {
        const Embertree__BuildRow *r = p->msg->rows[i];
        struct build_row row = {
            .cf = (enum kv_cf)r->cf, .id = r->id, .t = r->t, .bytes = unpack_str(r->value)
        };

        if (r->cf >= KV_CFS) {
            (void)err_set(&p->err, ERR_INPUT, "row %zu is of column family %" PRIu32, i, r->cf);
            return;
        }
        p->bytes += row.bytes.len;
        vec_push(&p->result.rows, row);
    }
}

static void apply_unpacked(void *cookie)
{
    struct apply *p = cookie;
    struct site *st = NULL;

    if (!p->err.code && p->msg->version != VERSION)
        (void)err_set(&p->err, ERR_UNIMPLEMENTED, "builds of version %" PRIu32 ", this is %d",
                      p->msg->version, VERSION);
    if (!p->err.code && !(st = site_of(p->in, p->msg->shard)))
        (void)err_set(&p->err, ERR_INPUT, "shard %" PRIu32 " is not here", p->msg->shard);
    if (!p->err.code && (st->state != SITE_GIVEN || st->job != p->msg->job))
        (void)err_set(&p->err, ERR_NOT_FOUND,
                      "job %" PRIu64
                      " is not out: it took too long, or the ingester was restarted; "
                      "it is given again",
                      p->msg->job);
    if (p->err.code) {
        apply_end(p);
        return;
    }
    p->site = st;
    p->task = (struct shard_task){ .run = apply_run, .done = apply_done };
    st->state = SITE_APPLYING;
    shard_run(st->shard, &p->task);
}

static void on_apply(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct apply *p = XNEW(struct apply);

    CHECK(in->magic == INGESTER_MAGIC);
    *p = (struct apply){ .in = in, .call = call, .payload = payload };
    p->arena = arena_new(REQUEST_BYTES + 24 * payload.len);
    in->builds->running++;
    if (pool_submit(in->ctx->pool, in->ctx->loop, apply_unpack, apply_unpacked, p))
        return;
    (void)err_set(&p->err, ERR_BUSY, "too many jobs wait for a processor");
    apply_end(p);
}

/* ---- life ----------------------------------------------------------------------------------- */

void rpc_build_serve(struct ingester *in)
{
    struct builds *b = XNEW(struct builds);
    uint64_t first;

    /* An ingester that was restarted must not take an old job for one of its own. */
    in->ctx->env->random(in->ctx->env, &first, sizeof(first));
    b->last_job = first >> 1;
    list_init(&b->waiting);
    for (size_t i = 0; i < in->shards_len; i++)
        b->sites[i].shard = in->shards[i];
    in->builds = b;
    rpc_serve(in->node, RPC_BUILD_NEXT, on_next, in);
    rpc_serve(in->node, RPC_BUILD_APPLY, on_apply, in);
}

bool rpc_build_idle(const struct ingester *in)
{
    return !in->builds || in->builds->running == 0;
}

void rpc_build_free(struct ingester *in)
{
    if (!in->builds)
        return;
    CHECK(rpc_build_idle(in));
    for (size_t i = 0; i < in->shards_len; i++) {
        build_job_deinit(&in->builds->sites[i].expect);
        vec_free(&in->builds->sites[i].due.at);
        vec_free(&in->builds->sites[i].skipped);
    }
    xfree(in->builds);
    in->builds = NULL;
}

void rpc_build_ring(const struct ingester *in, size_t shard, struct json *j)
{
    const struct site *st = &in->builds->sites[shard];

    json_key(j, "buildNodesDue");
    json_u64(j, st->due_shown);
    json_key(j, "buildOldestMs");
    json_u64(j, st->oldest_shown);
    json_key(j, "buildJobs");
    json_u64(j, st->jobs);
    json_key(j, "buildJobsApplied");
    json_u64(j, st->applied);
    json_key(j, "buildJobsFailed");
    json_u64(j, st->failed);
}
