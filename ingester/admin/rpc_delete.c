/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_delete: a delete on its way to all shards of this ingester.
 *
 *   delete   loop: unpack ─> each shard's thread, quiet: store_delete ─> loop: reply when all did
 *   dry run, list   loop ─> pool: a view of each shard ─> loop: reply
 *
 * Where shards move a querier asks for each by itself, all at once: those that find DELETES_MAX at
 * work wait in a row, as calls.
 *
 * A shard that fails makes the whole call fail, though others may have deleted: the caller repeats
 * it under the same id, and who did it before only says so again (tomb.h).
 *
 * A timer looks after shards with ranges that were purged: a pool thread compacts them, some ranges
 * of one shard at a time, so that their bytes are freed within minutes and not when compaction
 * comes by. Where shards are replicated all copies do so by themselves (replicas_reclaim.c). It
 * also shows the counts.
 */
#include "ingester/admin/rpc_delete.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/mask/tomb.h"
#include "ingester/base/unpack.h"
#include "ingester/read/read_msg.h"
#include "ingester/replicas/replicas.h"
#include "ingester/shard/shards.h"
#include "proto/delete.pb-c.h"

#define DELETE_MAGIC    MAGIC('i', 'd', 'e', 'l')
#define DELETES_MAX     8
#define WAITING_MAX     (4 * SHARDS_MAX)
#define REQUEST_BYTES   (64 * KIB)
#define LIST_BYTES      (16 * MIB)
#define REPLY_BYTES_MAX (16 * MIB)
#define TICK_MS         1000
#define RANGES_MAX      64  /* of a shard in a job */
#define RANGES_MS       100 /* none is begun later: many have nothing in them */

enum op { OP_DELETE, OP_DRY_RUN, OP_LIST };

struct delete;
struct part { /* one shard of a delete */
    struct shard_task task;
    struct delete *d;
    struct shard *held; /* until the answer */
    uint32_t shard;
    struct tomb_result result;
    struct tomb_list list;
    uint64_t raw_rows; /* that went in parts, so far */
    struct err err;
};
struct delete
{
    uint32_t magic;
    struct ingester *in;
    struct rpc_call *call;
    struct str payload; /* the call's */
    struct arena *arena;
    enum op op;
    struct tomb_request request;
    const uint32_t *shards; /* named; none: all */
    size_t shards_len;
    struct selector selector;
    struct part parts[SHARDS_MAX];
    size_t parts_len, pending;
    struct err err;
};
struct waiting { /* a call in the row */
    struct list link;
    struct rpc_call *call;
    struct str payload; /* the call's */
};
struct deletes {
    struct timer *timer;
    struct list row; /* of struct waiting */
    size_t row_len;
    size_t running; /* calls at work */
    bool turning;
    bool reclaiming;                /* a pool job is at it */
    struct shard *held[SHARDS_MAX]; /* by it */
    size_t held_len;
    /* By place. */
    struct metric_cell *pending[SHARDS_MAX], *rows[SHARDS_MAX], *bytes[SHARDS_MAX],
        *total[SHARDS_MAX];
    struct tomb_stats shown[SHARDS_MAX];
    uint32_t number[SHARDS_MAX]; /* whose cells these are */
};

/* ---- the answer: loop ------------------------------------------------------------------------ */

static void put_result(const struct part *p, Embertree__DeleteShard *s)
{
    embertree__delete_shard__init(s);
    s->shard = p->shard;
    s->entry = p->result.entry;
    s->repeated = p->result.repeated;
    s->kind = (uint32_t)p->result.kind;
    s->services = p->result.services;
    s->series = p->result.series;
    s->raw_rows = p->result.raw_rows;
    s->bytes = p->result.bytes_estimate;
    s->from_ms = p->result.from_ms;
    s->to_ms = p->result.to_ms;
}

static void put_tomb(const struct delete *d, uint32_t shard, const struct tomb_info *i,
                     Embertree__DeleteTomb *t)
{
    embertree__delete_tomb__init(t);
    t->shard = shard;
    t->entry = i->entry;
    t->kind = (uint32_t)i->kind;
    t->state = (uint32_t)i->state;
    t->id = pack_str(i->id);
    t->tenant = pack_str(i->tenant);
    t->what = pack_str(i->what);
    t->created_ms = i->created_ms;
    t->ended_ms = i->ended_ms;
    t->from_ms = i->from_ms;
    t->to_ms = i->to_ms;
    t->services = i->services;
    t->series = i->series;
    t->raw_rows = i->raw_rows;
    t->rows = i->rows;
    t->bytes = i->bytes;
    t->done = i->done;
    t->of = i->of;
    t->phase = pack_str(str_c(i->phase));
    if (i->ranges_left && d->in->replicas)
        t->copies_behind = replicas_reclaim_behind(d->in->replicas, shard);
}

static void pack_reply(struct delete *d, struct buf *out)
{
    Embertree__DeleteReply r = EMBERTREE__DELETE_REPLY__INIT;
    VEC(Embertree__DeleteTomb) tombs = { 0 };
    VEC(void *) list = { 0 };
    Embertree__DeleteShard shards[SHARDS_MAX], *at[SHARDS_MAX];
    size_t n = d->parts_len;

    for (size_t i = 0; i < n; i++) {
        put_result(&d->parts[i], &shards[i]);
        at[i] = &shards[i];
        vec_for (k, &d->parts[i].list.at) {
            Embertree__DeleteTomb t;
            put_tomb(d, d->parts[i].shard, &d->parts[i].list.at.ptr[k], &t);
            vec_push(&tombs, t);
        }
    }
    vec_for (i, &tombs)
        vec_push(&list, &tombs.ptr[i]);
    if (d->op != OP_LIST) {
        r.shards = at;
        r.n_shards = n;
    }
    r.tombs = (Embertree__DeleteTomb **)list.ptr;
    r.n_tombs = list.len;
    buf_init(out, REPLY_BYTES_MAX);
    char *p = buf_room(out, embertree__delete_reply__get_packed_size(&r));
    if (p)
        out->len += embertree__delete_reply__pack(&r, (uint8_t *)(void *)p);
    vec_free(&tombs);
    vec_free(&list);
}

static void turn(struct ingester *in);

static void end(struct delete *d)
{
    struct ingester *in = d->in;
    struct buf reply;

    for (size_t i = 0; i < d->parts_len && !d->err.code; i++)
        if (d->parts[i].err.code) {
            d->err = d->parts[i].err;
            (void)err_wrap(&d->err, "shard %" PRIu32, d->parts[i].shard);
        }
    if (!d->err.code) {
        pack_reply(d, &reply);
        if (buf_ok(&reply))
            rpc_reply(d->call, &reply);
        else
            (void)err_set(&d->err, ERR_LIMIT, "the list of deletes has over %zu bytes",
                          REPLY_BYTES_MAX);
    }
    if (d->err.code) {
        ingester_refused(&in->metrics, d->err.code);
        rpc_fail(d->call, &d->err);
    }
    for (size_t i = 0; i < d->parts_len; i++) {
        tomb_list_deinit(&d->parts[i].list);
        shards_put(in->shards, d->parts[i].held);
    }
    selector_deinit(&d->selector);
    arena_free(d->arena);
    in->deletes->running--;
    d->magic = 0;
    xfree(d);
    turn(in);
}

/* ---- delete ---------------------------------------------------------------------------------- */

static void on_shard(struct shard_task *t, struct store *s)
{
    struct part *p = container_of(t, struct part, task);
    struct tomb_request r = p->d->request;

    r.raw_rows = p->raw_rows;
    if (store_delete(s, &r, &p->result, &p->err) == 0)
        err_clear(&p->err); /* what was tried on the way may have left its mark */
}

static void on_shard_done(struct shard_task *t)
{
    struct part *p = container_of(t, struct part, task);
    struct delete *d = p->d;

    CHECK(d->magic == DELETE_MAGIC);
    if (p->err.code == 0 && p->result.more) { /* writes that wait have their turn between */
        p->raw_rows += p->result.raw_rows;
        shard_run(p->held, t);
        return;
    }
    if (p->err.code == 0 && !p->result.repeated && p->result.series)
        log_info("data was deleted", KV_U64("shard", p->shard), KV_U64("entry", p->result.entry),
                 KV_U64("services", p->result.services), KV_U64("series", p->result.series));
    if (--d->pending == 0)
        end(d);
}

static void run_on_shards(struct delete *d)
{
    d->pending = d->parts_len;
    for (size_t i = 0; i < d->parts_len; i++) {
        struct part *p = &d->parts[i];
        p->task = (struct shard_task){ .quiet = true, .run = on_shard, .done = on_shard_done };
        shard_run(p->held, &p->task);
    }
}

/* ---- dry run, list: pool thread -------------------------------------------------------------- */

static void look(void *cookie)
{
    struct delete *d = cookie;

    CHECK(d->magic == DELETE_MAGIC);
    for (size_t i = 0; i < d->parts_len; i++) {
        struct part *p = &d->parts[i];
        struct store_view *v = store_view_get(shard_store(p->held));
        int code = d->op == OP_LIST
                       ? store_deletes(v, d->request.tenant, d->arena, &p->list, &p->err)
                       : store_delete_plan(v, &d->request, &p->result, &p->err);
        if (!code)
            err_clear(&p->err);
        store_view_put(v);
    }
}

static void on_confirmed(void *cookie, const struct err *e)
{
    struct delete *d = cookie;

    CHECK(d->magic == DELETE_MAGIC);
    if (e)
        d->err = *e;
    end(d);
}

static void on_looked(void *cookie)
{
    struct delete *d = cookie;
    struct shard *held[SHARDS_MAX];

    CHECK(d->magic == DELETE_MAGIC);
    if (!d->in->replicas) {
        end(d);
        return;
    }
    for (size_t i = 0; i < d->parts_len; i++)
        held[i] = d->parts[i].held;
    replicas_confirm(d->in->replicas, held, d->parts_len, on_confirmed, d);
}

/* ---- requests: loop -------------------------------------------------------------------------- */

static int take(struct delete *d, struct err *e)
{
    ProtobufCAllocator alloc = unpack_allocator(d->arena);
    const Embertree__DeleteRequest *m = embertree__delete_request__unpack(
        &alloc, d->payload.len, (const uint8_t *)(const void *)d->payload.ptr);

    if (!m)
        return unpack_failed("delete request", d->payload, d->arena, e);
    if (m->op > OP_LIST)
        return err_set(e, ERR_UNIMPLEMENTED, "deletes have no operation %" PRIu32, m->op);
    if (m->from_ms < 0 || m->to_ms < 0)
        return err_set(e, ERR_INPUT, "times before 1970");
    d->op = (enum op)m->op;
    d->shards = m->shards;
    d->shards_len = m->n_shards;
    d->request = (struct tomb_request){
        .tenant = unpack_str(m->tenant),
        .id = unpack_str(m->id),
        .what = unpack_str(m->what),
        .selector = &d->selector,
        .from_ms = m->from_ms,
        .to_ms = m->to_ms,
    };
    return read_take_matchers(m->matchers, m->n_matchers, d->arena, &d->selector, e);
}

/* Holds the shards it is about. */
static int hold(struct delete *d, struct err *e)
{
    struct shard *all[SHARDS_MAX];
    int n = shards_get_all(d->in->shards, d->shards, d->shards_len, all, e);

    if (n < 0)
        return e->code;
    d->parts_len = (size_t)n;
    for (size_t i = 0; i < d->parts_len; i++)
        d->parts[i] = (struct part){ .d = d, .held = all[i], .shard = shard_number(all[i]) };
    return 0;
}

static int start(struct delete *d, struct err *e)
{
    struct ingester *in = d->in;

    if (in->draining)
        return err_set(e, ERR_UNAVAILABLE, "the ingester is stopping");
    if (atomic_load_explicit(rpc_call_canceled(d->call), memory_order_relaxed))
        return err_set(e, ERR_CANCELED, "the caller gave up");
    d->arena = arena_new(REQUEST_BYTES + LIST_BYTES + 24 * d->payload.len);
    if (take(d, e) || hold(d, e))
        return e->code;
    if (d->op == OP_DELETE) {
        run_on_shards(d);
        return 0;
    }
    if (!pool_submit(in->ctx->pool, in->ctx->loop, look, on_looked, d))
        return err_set(e, ERR_BUSY, "too many jobs wait for a processor");
    return 0;
}

static void begin(struct ingester *in, const struct waiting *w)
{
    struct delete *d = XNEW(struct delete);
    struct err e;

    *d = (struct delete){ .magic = DELETE_MAGIC, .in = in, .call = w->call, .payload = w->payload };
    in->deletes->running++;
    if (start(d, &e)) {
        d->err = e;
        end(d);
    }
}

/* Starts as many of the waiting deletes as may run at once. A delete that ends at once calls this
 * again. */
static void turn(struct ingester *in)
{
    struct deletes *ds = in->deletes;

    if (ds->turning)
        return;
    ds->turning = true;
    while (ds->running < DELETES_MAX && ds->row_len) {
        struct waiting *w = container_of(ds->row.next, struct waiting, link);

        list_del(&w->link);
        ds->row_len--;
        begin(in, w);
        xfree(w);
    }
    ds->turning = false;
}

static void on_delete(void *cookie, struct rpc_call *call, struct str payload)
{
    struct ingester *in = cookie;
    struct deletes *ds = in->deletes;
    struct waiting *w;
    struct err e;

    CHECK(in->magic == INGESTER_MAGIC);
    if (ds->row_len == WAITING_MAX) {
        (void)err_set(&e, ERR_BUSY, "%d deletes wait already", WAITING_MAX);
        ingester_refused(&in->metrics, e.code);
        rpc_fail(call, &e);
        return;
    }
    w = XNEW(struct waiting);
    w->call = call;
    w->payload = payload;
    list_add_tail(&ds->row, &w->link);
    ds->row_len++;
    turn(in);
}

/* ---- freeing bytes, counts ------------------------------------------------------------------- */

static void reclaim(void *cookie)
{
    struct ingester *in = cookie;

    const struct deletes *ds = in->deletes;

    for (size_t i = 0; i < ds->held_len; i++) {
        const struct clock *clock = in->ctx->env->clock;
        uint64_t until_ms = clock_mono_ms(clock) + RANGES_MS;
        struct err e;
        bool more = true;
        int rc = 0;

        for (int n = 0; !rc && more && n < RANGES_MAX && clock_mono_ms(clock) < until_ms; n++)
            rc = store_reclaim(shard_store(ds->held[i]), &more, &e);
        if (rc)
            log_warn("ranges of deleted data could not be compacted; tried again",
                     KV_U64("shard", shard_number(ds->held[i])), KV_ERR(&e));
    }
}

static void on_reclaimed(void *cookie)
{
    struct ingester *in = cookie;

    shards_put_all(in->shards, in->deletes->held, in->deletes->held_len);
    in->deletes->reclaiming = false;
}

static void show(struct ingester *in, size_t i, const struct tomb_stats *now)
{
    struct deletes *ds = in->deletes;
    struct tomb_stats *was = &ds->shown[i];

    metric_set(ds->pending[i], (int64_t)(now->pending + now->purged));
    metric_add(ds->total[i], now->deletes - MIN(was->deletes, now->deletes));
    metric_add(ds->rows[i], now->rows - MIN(was->rows, now->rows));
    metric_add(ds->bytes[i], now->bytes - MIN(was->bytes, now->bytes));
    *was = *now;
}

static struct metric_cell *cell(struct ingester *in, enum metric_kind kind, const char *name,
                                const char *help, size_t i)
{
    char number[16];
    struct str label;

    label = str_n(
        number, (size_t)snprintf(number, sizeof(number), "%" PRIu32, shards_number(in->shards, i)));
    return metric_at(metric_new(in->ctx->metrics, kind, name, help, "shard"), &label, 1);
}

static void make_cells(struct ingester *in, size_t i)
{
    struct deletes *ds = in->deletes;

    ds->number[i] = shards_number(in->shards, i);
    ds->shown[i] = (struct tomb_stats){ 0 };
    ds->pending[i] = cell(in, METRIC_GAUGE, "embertree_ingester_deletes_pending",
                          "Deletes whose bytes are not all freed", i);
    ds->total[i] = cell(in, METRIC_COUNTER, "embertree_ingester_deletes_total",
                        "Deletes that were entered into the log", i);
    ds->rows[i] = cell(in, METRIC_COUNTER, "embertree_ingester_deleted_rows_total",
                       "Rows and ranges that purging deleted", i);
    ds->bytes[i] = cell(in, METRIC_COUNTER, "embertree_ingester_deleted_bytes_total",
                        "Bytes that purging deleted, estimated where whole ranges went", i);
}

static void on_tick(void *cookie)
{
    struct ingester *in = cookie;
    struct deletes *ds = in->deletes;
    bool wanted = false;
    int n;

    for (size_t i = 0; i < shards_len(in->shards); i++) {
        const struct shard *s = shards_at(in->shards, i);

        if (!s)
            continue;
        if (!ds->pending[i] || ds->number[i] != shards_number(in->shards, i))
            make_cells(in, i);
        show(in, i, &shard_state(s)->deletes);
        wanted |= shard_state(s)->deletes.purged > 0;
    }
    if (!wanted || ds->reclaiming || in->draining || in->replicas)
        return; /* of copies: replicas_reclaim.c */
    n = shards_get_all(in->shards, NULL, 0, ds->held, NULL);
    ds->held_len = n > 0 ? (size_t)n : 0;
    ds->reclaiming = pool_submit(in->ctx->pool, in->ctx->loop, reclaim, on_reclaimed, in);
    if (!ds->reclaiming)
        shards_put_all(in->shards, ds->held, ds->held_len);
}

void rpc_delete_serve(struct ingester *in)
{
    struct deletes *ds = XNEW(struct deletes);

    in->deletes = ds;
    list_init(&ds->row);
    ds->timer = loop_timer_new(in->ctx->loop, on_tick, in);
    loop_timer_start(ds->timer, TICK_MS, TICK_MS);
    rpc_serve(in->node, RPC_DELETE, on_delete, in);
}

bool rpc_delete_idle(const struct ingester *in)
{
    return !in->deletes ||
           (!in->deletes->running && !in->deletes->row_len && !in->deletes->reclaiming);
}

void rpc_delete_free(struct ingester *in)
{
    if (!in->deletes)
        return;
    CHECK(rpc_delete_idle(in));
    loop_timer_free(in->deletes->timer);
    xfree(in->deletes);
    in->deletes = NULL;
}
