/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: what shards acked, by (shard, epoch, tenant), until they were asked about it.
 *
 *   ack ──> ack_log.h: sure {count, sums of hashes}, doubts ──due──> RPC_LEDGER ──> verdict
 *
 * Sure is what a shard said it stored now. In doubt is what it said it knew when we had tried it
 * before without an answer, and what it never answered: both may be in its sums, by the try that
 * was not answered. A write that the shard knew at our first try came from another distributor, and
 * is not in its sums under our id. A try that comes late, after a later one was answered, is a
 * duplicate there and changes nothing.
 *
 * A group of acks is asked for when no write of its epoch can be under way any more: two epochs and
 * the longest life of a push after its first ack. What falls due for one ingester goes in one
 * question, up to CALLS_MAX ingesters at once, one question each. A question about several shards
 * fails if one of them has moved away (or the ingester is of a version that knows only one): then
 * each is asked about alone. A shard that disagrees is asked twice more, since the first answer may
 * have come from a former leader; then the difference is logged as lost or doubled. Acks of a shard
 * that does not answer for most of the time that rows are kept count as not audited, as do acks
 * that did not fit into memory.
 */
#include "distributor/send/ack_audit.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/obs/log.h"
#include "distributor/base/state.h"
#include "distributor/send/ack_log.h"
#include "proto/ledger.pb-c.h"

#define BYTES_MAX   (24 * MIB) /* of acks that wait, or */
#define BYTES_SHARE 64         /* one in so many of the memory limit */
#define CALLS_MAX   16
#define DUE_MAX     1024 /* groups looked at together */
#define SHARDS_MAX  32   /* in one question */
#define ASKS_MAX    512
#define IDS_MAX     16384
#define ASK_MS      10000
#define AGAIN_MS    15000
#define LOOK_MS     1000
#define OLD_MS      600000 /* so long an ingester of an older version is asked shard by shard */
#define BAD_MAX     3
#define REQUEST_MAX (4 * MIB)
#define CLOCKS_MS   INT64_C(300000) /* ours and a shard's may differ by */

struct due {
    struct rpc_peer *peer;
    struct ack_log_group *g;
};
struct ask { /* a question under way */
    struct ledger_book *b;
    struct rpc_peer *peer; /* NULL: free */
    VEC(struct ack_log_group *) groups;
    VEC(struct ack_log_entry *) asked;
};
struct ledger_book {
    struct distributor *d;
    uint64_t id, epoch_ms;
    struct ack_log *acked;
    struct timer *timer;
    struct ask calls[CALLS_MAX];
    size_t running;
    VEC(struct due) due;
    uint64_t old_until_ms; /* no questions about several shards */
    struct metric_cell *audited, *unaudited, *lost, *doubled, *questions, *bytes, *behind;
};

static int64_t wall_ms(const struct ledger_book *b)
{
    return clock_wall_ms(b->d->ctx->env->clock);
}

static uint64_t now_ms(const struct ledger_book *b)
{
    return clock_mono_ms(b->d->ctx->env->clock);
}

uint64_t ledger_distributor(const struct ledger_book *b)
{
    return b ? b->id : 0;
}

uint32_t ledger_epoch(const struct ledger_book *b)
{
    return b ? (uint32_t)((uint64_t)MAX(wall_ms(b), 0) / b->epoch_ms) : 0;
}

/* ---- the verdict ---- */

static bool sums_equal(const struct acks *a, const struct acks *b)
{
    return a->count == b->count && a->high == b->high && a->low == b->low;
}

/* Is it the sum of some of the doubts? */
static bool some_add_up(const struct acks *rest, const struct ledger_doubt *doubts, size_t n)
{
    for (uint32_t set = 0; set < 1u << n; set++) {
        struct acks sum = { 0 };

        for (size_t i = 0; i < n; i++)
            if (set >> i & 1)
                acks_add(&sum, doubts[i].wid);
        if (sums_equal(&sum, rest))
            return true;
    }
    return false;
}

struct ledger_verdict ledger_judge(const struct acks *sure, const struct ledger_doubt *doubts,
                                   size_t n, bool more, const struct acks *said)
{
    struct acks rest = { said->count - sure->count, said->high - sure->high,
                         said->low - sure->low };
    struct ledger_verdict v = { 0 };

    for (size_t i = 0; i < n; i++)
        v.lost += doubts[i].acked && !doubts[i].known;
    if (said->count < sure->count)
        v.lost += sure->count - said->count;
    else if (!more && rest.count > n)
        v.doubled += rest.count - n;
    else if (!more && n <= LEDGER_DOUBTS_SUMMED && !some_add_up(&rest, doubts, n))
        v.lost += 1; /* as many, but others */
    return v;
}

/* ---- acks ---- */

void ack_audit_add(struct ledger_book *b, const struct ledger_write *w, const struct acks *a)
{
    if (b && !(w->epoch && ack_log_add(b->acked, w, a, now_ms(b))))
        metric_add(b->unaudited, a->count);
}

void ledger_doubt(struct ledger_book *b, const struct ledger_write *w,
                  const uint8_t wid[WRITE_ID_BYTES], bool acked)
{
    struct ledger_doubt one = { .acked = acked };

    memcpy(one.wid, wid, WRITE_ID_BYTES);
    if (b && !(w->epoch && ack_log_doubt(b->acked, w, &one, now_ms(b))))
        metric_add(b->unaudited, acked);
}

/* ---- answers ---- */

static void pump(struct ledger_book *b);

static void say(struct ledger_book *b, const struct ack_log_entry *x,
                const struct ledger_verdict *v, const struct acks *said)
{
    metric_add(b->lost, v->lost);
    metric_add(b->doubled, v->doubled);
    log_error("a shard does not have what it acked, or has it twice", KV_STR("tenant", x->tenant),
              KV_U64("shard", x->group->shard), KV_U64("epoch", x->group->epoch),
              KV_U64("lost", v->lost), KV_U64("doubled", v->doubled),
              KV_U64("acked", x->sure.count), KV_U64("stored", said->count),
              KV_U64("in_doubt", x->doubts.len));
}

/* One entry and what its shard says. */
static void judge(struct ledger_book *b, struct ack_log_entry *x, const Embertree__LedgerAcks *m,
                  int64_t deleted_ms)
{
    struct acks said = { m->count, m->high, m->low };
    int64_t began = (int64_t)((uint64_t)x->group->epoch * b->epoch_ms);

    for (size_t i = 0; i < x->doubts.len; i++)
        x->doubts.ptr[i].known = i < m->n_known && m->known[i];
    struct ledger_verdict v =
        ledger_judge(&x->sure, x->doubts.ptr, x->doubts.len, x->unlisted > 0, &said);
    if (v.lost + v.doubled == 0) {
        metric_add(b->audited, x->sure.count + x->doubts.len);
        ack_log_drop(b->acked, x);
    } else if (deleted_ms > began - CLOCKS_MS) { /* with tenants go their rows, with data ids */
        metric_add(b->unaudited, x->sure.count + x->doubts.len);
        ack_log_drop(b->acked, x);
    } else if (++x->bad == BAD_MAX) {
        say(b, x, &v, &said);
        ack_log_drop(b->acked, x);
    }
}

/* Asks about the rest of a group again later. */
static void ask_later(struct ledger_book *b, struct ack_log_group *g, uint64_t wait_ms)
{
    uint64_t now = now_ms(b);

    if (now + wait_ms < g->born_ms + (uint64_t)(ACKS_KEPT_MS - CLOCKS_MS)) {
        ack_log_later(b->acked, g, now + wait_ms);
        return;
    }
    log_warn("acks were not audited: their shard did not answer for too long",
             KV_U64("shard", g->shard), KV_U64("epoch", g->epoch), KV_U64("tenants", g->len));
    list_for (l, &g->entries) {
        const struct ack_log_entry *x = container_of(l, struct ack_log_entry, link);
        metric_add(b->unaudited, x->sure.count + x->doubts.len);
    }
    ack_log_end(b->acked, g);
}

static void take_answer(struct ask *c, const Embertree__LedgerReply *r)
{
    struct ledger_book *b = c->b;

    vec_for (i, &c->asked)
        judge(b, c->asked.ptr[i], r->acks[i],
              r->acks[i]->deleted_ms ? r->acks[i]->deleted_ms : r->deleted_ms);
    vec_for (i, &c->groups) {
        if (c->groups.ptr[i]->len)
            ask_later(b, c->groups.ptr[i], AGAIN_MS);
        else
            ack_log_end(b->acked, c->groups.ptr[i]);
    }
}

static void take_failure(struct ask *c, const struct err *err)
{
    struct ledger_book *b = c->b;
    struct route *route = b->d->route;
    bool alone = c->groups.len == 1;

    if (err && err->code == ERR_INPUT && !alone)
        b->old_until_ms = now_ms(b) + OLD_MS;
    if (alone && err && (err->code == ERR_UNAVAILABLE || err->code == ERR_TIMEOUT))
        route_failed(route, route_target(route, c->groups.ptr[0]->shard), false);
    vec_for (i, &c->groups) {
        c->groups.ptr[i]->alone = true;
        ask_later(b, c->groups.ptr[i], alone ? AGAIN_MS : LOOK_MS);
    }
}

static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct ask *c = cookie;
    struct ledger_book *b = c->b;
    Embertree__LedgerReply *r =
        err ? NULL
            : embertree__ledger_reply__unpack(NULL, reply.len,
                                              (const uint8_t *)(const void *)reply.ptr);

    if (r && r->n_acks == c->asked.len)
        take_answer(c, r);
    else
        take_failure(c, err);
    if (r)
        embertree__ledger_reply__free_unpacked(r, NULL);
    c->peer = NULL;
    c->groups.len = c->asked.len = 0;
    b->running--;
    pump(b);
}

/* ---- questions ---- */

static void fill_ask(const struct ack_log_entry *x, Embertree__LedgerAsk *m,
                     ProtobufCBinaryData *ids)
{
    embertree__ledger_ask__init(m);
    m->shard = x->group->shard;
    m->epoch = x->group->epoch;
    m->tenant = (ProtobufCBinaryData){ x->tenant.len, (uint8_t *)(uintptr_t)x->tenant.ptr };
    for (size_t i = 0; i < x->doubts.len; i++)
        ids[i] =
            (ProtobufCBinaryData){ WRITE_ID_BYTES, (uint8_t *)(uintptr_t)x->doubts.ptr[i].wid };
    m->write_ids = ids;
    m->n_write_ids = x->doubts.len;
}

static void send(struct ask *c)
{
    struct ledger_book *b = c->b;
    Embertree__LedgerRequest m = EMBERTREE__LEDGER_REQUEST__INIT;
    CLEANUP(xfreep) Embertree__LedgerAsk *asks = XNEW_ARRAY(Embertree__LedgerAsk, c->asked.len);
    CLEANUP(xfreep) Embertree__LedgerAsk **all = XNEW_ARRAY(Embertree__LedgerAsk *, c->asked.len);
    uint32_t shards[SHARDS_MAX];
    size_t doubts = 0;
    struct buf out;

    vec_for (i, &c->asked)
        doubts += c->asked.ptr[i]->doubts.len;
    CLEANUP(xfreep) ProtobufCBinaryData *ids = XNEW_ARRAY(ProtobufCBinaryData, doubts + 1);
    doubts = 0;
    vec_for (i, &c->asked) {
        fill_ask(c->asked.ptr[i], &asks[i], ids + doubts);
        doubts += asks[i].n_write_ids;
        all[i] = &asks[i];
    }
    vec_for (i, &c->groups) /* those of one shard are neighbours */
        if (!m.n_shards || shards[m.n_shards - 1] != c->groups.ptr[i]->shard)
            shards[m.n_shards++] = c->groups.ptr[i]->shard;
    m.distributor = b->id;
    m.shards = shards;
    m.asks = all;
    m.n_asks = c->asked.len;
    size_t size = embertree__ledger_request__get_packed_size(&m);
    buf_init(&out, REQUEST_MAX);
    char *p = buf_room(&out, size);
    CHECK(p); /* some 1,000 names and 25,000 ids of 18 bytes */
    out.len += embertree__ledger_request__pack(&m, (uint8_t *)(void *)p);
    metric_add(b->questions, 1);
    b->running++;
    (void)rpc_send(c->peer, RPC_LEDGER, &out, ASK_MS, on_reply, c);
}

static bool is_asked(const struct ledger_book *b, const struct rpc_peer *peer)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (b->calls[i].peer == peer)
            return true;
    return false;
}

static struct ask *free_call(struct ledger_book *b)
{
    for (size_t i = 0; i < CALLS_MAX; i++)
        if (!b->calls[i].peer)
            return &b->calls[i];
    return NULL;
}

/* Groups of one ingester, as many as one question takes; returns how many. */
static size_t gather(struct ask *c, const struct due *due, size_t n, bool single)
{
    size_t ids = 0, shards = 0, i = 0;

    for (; i < n; i++) {
        struct ack_log_group *g = due[i].g;
        bool more = !i || due[i - 1].g->shard != g->shard;

        if (i && (single || g->alone || due[0].g->alone || shards + more > SHARDS_MAX ||
                  c->asked.len + g->len > ASKS_MAX || ids + g->doubts > IDS_MAX))
            break;
        shards += more;
        ids += g->doubts;
        vec_push(&c->groups, g);
        list_for (l, &g->entries)
            vec_push(&c->asked, container_of(l, struct ack_log_entry, link));
    }
    return i;
}

/* Makes one question of the groups that are due at one ingester. The rest waits for its answer,
 * after the questions to other ingesters. */
static void ask_peer(struct ledger_book *b, const struct due *due, size_t n)
{
    struct ask *c = is_asked(b, due[0].peer) ? NULL : free_call(b);
    uint64_t again = b->running < CALLS_MAX ? now_ms(b) + LOOK_MS / 4 : 0;
    size_t asked = 0;

    if (c) {
        c->peer = due[0].peer;
        asked = gather(c, due, n, now_ms(b) < b->old_until_ms);
        send(c);
    }
    for (size_t i = asked; i < n; i++)
        ack_log_later(b->acked, due[i].g, MAX(due[i].g->due_ms, again));
}

static int by_peer(const void *a, const void *b)
{
    const struct due *x = a, *y = b;

    if (x->peer != y->peer) /* not by where they lie: a simulated run is to be the same again */
        return strcmp(rpc_peer_addr(x->peer), rpc_peer_addr(y->peer));
    if (x->g->shard != y->g->shard)
        return x->g->shard < y->g->shard ? -1 : 1;
    return (x->g->epoch > y->g->epoch) - (x->g->epoch < y->g->epoch);
}

static void take_due(struct ledger_book *b)
{
    struct route *route = b->d->route;
    uint64_t now = now_ms(b);
    struct ack_log_group *g;

    b->due.len = 0;
    while (b->due.len < DUE_MAX && (g = ack_log_take(b->acked, now))) {
        struct err e;
        struct rpc_peer *peer = route_peer(route, route_target(route, g->shard), &e);

        if (!g->len)
            ack_log_end(b->acked, g);
        else if (!peer)
            ask_later(b, g, AGAIN_MS);
        else
            vec_push(&b->due, ((struct due){ peer, g }));
    }
    if (b->due.len)
        qsort(b->due.ptr, b->due.len, sizeof(*b->due.ptr), by_peer);
}

/* Asks about groups that are due while calls are free. */
static void pump(struct ledger_book *b)
{
    if (b->d->closing || b->running == CALLS_MAX || !route_shards(b->d->route))
        return;
    take_due(b);
    for (size_t i = 0, end; i < b->due.len; i = end) {
        for (end = i + 1; end < b->due.len && b->due.ptr[end].peer == b->due.ptr[i].peer;)
            end++;
        ask_peer(b, &b->due.ptr[i], end - i);
    }
}

static void on_timer(void *cookie)
{
    struct ledger_book *b = cookie;
    uint64_t due = ack_log_due_ms(b->acked), now = now_ms(b);

    metric_set(b->bytes, (int64_t)ack_log_bytes(b->acked));
    metric_set(b->behind, due < now ? (int64_t)((now - due) / 1000) : 0);
    pump(b);
}

/* ---- life ---- */

static struct metric_cell *cell(struct ledger_book *b, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(b->d->ctx->metrics, kind, name, help, NULL), NULL, 0);
}

static void make_metrics(struct ledger_book *b)
{
    b->audited = cell(b, METRIC_COUNTER, "embertree_ledger_acks_audited_total",
                      "Acked series that their shard has, asked later");
    b->unaudited = cell(b, METRIC_COUNTER, "embertree_ledger_acks_unaudited_total",
                        "Acked series that could not be asked about");
    b->lost = cell(b, METRIC_COUNTER, "embertree_ledger_acks_lost_total",
                   "Acked series that their shard does not have; must be 0");
    b->doubled = cell(b, METRIC_COUNTER, "embertree_ledger_acks_doubled_total",
                      "Series that a shard stored twice, or that no distributor sent; must be 0");
    b->questions = cell(b, METRIC_COUNTER, "embertree_ledger_acks_questions_total",
                        "Questions to ingesters about acks, each about some shards");
    b->bytes = cell(b, METRIC_GAUGE, "embertree_ledger_acks_bytes",
                    "Memory of acks that no ingester was asked about yet");
    b->behind = cell(b, METRIC_GAUGE, "embertree_ledger_acks_behind_seconds",
                     "How long the oldest acks wait to be asked about beyond their time");
}

struct ledger_book *ledger_book_new(struct distributor *d)
{
    struct env *env = d->ctx->env;
    struct ack_log_opts o = { .epoch_ms = d->conf->ledger_epoch_ms,
                              .settle_ms = d->conf->ack_ms,
                              .bytes_max = BYTES_MAX };

    if (!d->conf->ledger_epoch_ms)
        return NULL;
    struct ledger_book *b = XNEW(struct ledger_book);
    b->d = d;
    b->epoch_ms = d->conf->ledger_epoch_ms;
    while (!b->id)
        env->random(env, &b->id, sizeof(b->id));
    env->random(env, &o.seed, sizeof(o.seed));
    if (d->ctx->memory_limit)
        o.bytes_max = (size_t)MIN(o.bytes_max, MAX(d->ctx->memory_limit / BYTES_SHARE, MIB));
    b->acked = ack_log_new(&o);
    for (size_t i = 0; i < CALLS_MAX; i++)
        b->calls[i].b = b;
    make_metrics(b);
    b->timer = loop_timer_new(d->ctx->loop, on_timer, b);
    loop_timer_start(b->timer, LOOK_MS, LOOK_MS);
    return b;
}

void ledger_book_free(struct ledger_book *b)
{
    if (!b)
        return;
    CHECK(b->running == 0); /* the node is gone, and has ended its calls */
    loop_timer_free(b->timer);
    for (size_t i = 0; i < CALLS_MAX; i++) {
        vec_free(&b->calls[i].groups);
        vec_free(&b->calls[i].asked);
    }
    vec_free(&b->due);
    ack_log_free(b->acked);
    xfree(b);
}
