/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_build_next: which node is built next, and its job as a message. A look finds the nodes that
 * are due; each gives as many jobs as its rows need.
 *
 * Thread: a pool thread, alone with the site while that is READING; build_skip is the loop's.
 */
#include <stdlib.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/kv/cold_read.h"
#include "ingester/base/unpack.h"
#include "ingester/build/rpc_build_impl.h"
#include "ingester/shard/read_load.h"
#include "proto/build.pb-c.h"

#define LEVEL_LOW      3
#define DUE_MAX        4096 /* nodes of one look */
#define SKIPPED_MAX    1024
#define SKIP_MS        60000
#define PAUSED_WAIT_MS 1000
#define IDLE_WAIT_MS   2000
#define FAR_MS         10000 /* children in the cold tier may take this long */
#define STALE_TRIES    256   /* nodes of a look that are not due any more, before we look again */

static bool same_node(const struct build_node *a, const struct build_node *b)
{
    return a->level == b->level && a->t == b->t && a->m.tenant == b->m.tenant &&
           a->m.scope == b->m.scope && a->m.ptype == b->m.ptype;
}

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
    struct build_search f = {
        .engine_ms = clock->engine_ms, .low = LEVEL_LOW, .high = KEY_LEVELS - 1, .max = DUE_MAX
    };
    struct site *st = n->site;
    int64_t oldest = INT64_MAX;
    int rc;

    st->due.at.len = st->due_at = 0;
    rc = store_build_due(v, &f, &st->due, e);
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
    struct build_room room = { .bytes_max = n->bytes_max, .rows_max = SIZE_MAX, .arena = a };
    struct site *st = n->site;
    uint64_t at_ns = build_now_ns(n->in);
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
        int rc = store_build_read(v, &st->node, &st->next, &room, job, e);
        n->found = !rc;
        if (rc != ERR_NOT_FOUND)
            return rc;
        st->has_node = false;
    }
    n->wait_ms = 0; /* there may be more: asked again at once */
    return 0;
}

void build_skip(struct ingester *in, struct site *st, const struct err *e)
{
    log_error("a coarse node cannot be built; its children are read instead",
              KV_U64("shard", shard_number(st->shard)), KV_U64("tenant", st->node.m.tenant),
              KV_U64("scope", st->node.m.scope), KV_U64("ptype", st->node.m.ptype),
              KV_U64("level", st->node.level), KV_U64("slot", st->node.t), KV_ERR(e));
    st->failed++;
    if (st->skipped.len < SKIPPED_MAX)
        vec_push(&st->skipped,
                 ((struct skipped){ st->node, build_now_ns(in) + SKIP_MS * 1000000ull }));
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

int build_pack_next(struct next *n, uint64_t job_id, const struct build_job *job, struct arena *a,
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

static bool far_enter(void *cookie)
{
    struct next *n = cookie;

    n->far = read_load_far_enter(n->in->read_load);
    return n->far;
}

void build_next_work(void *cookie)
{
    struct next *n = cookie;
    struct cold_read reach = { .deadline_ms = build_now_ns(n->in) / 1000000 + FAR_MS,
                               .enter = far_enter,
                               .cookie = n };
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
        rc = build_pack_next(n, 0, NULL, a, &n->err);
    } else {
        (void)cold_read_policy_set(&reach);
        v = store_view_get(s);
        rc = find_job(n, v, &clock, a, &st->expect, &n->err);
        store_view_put(v);
        (void)cold_read_policy_set(NULL);
        n->due = st->due.at.len - st->due_at + st->has_node;
        n->oldest_ms = st->oldest_ms;
        if (!rc)
            rc = build_pack_next(n, st->job, n->found ? &st->expect : NULL, a, &n->err);
    }
    n->err.code = rc;
    vec_free(&st->expect.rows);
    arena_free(a);
}
