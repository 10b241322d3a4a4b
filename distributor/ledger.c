/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: what shards acked, by (shard, epoch, tenant), until they were asked about it.
 *
 *   ack ──> entry: sure {count, sums of hashes}, doubts ──epoch is over──> RPC_LEDGER ──> verdict
 *
 * Sure is what a shard said it stored now. In doubt is what it said it knew when we had tried it
 * before without an answer, and what it never answered: both may be in its sums, by the try that
 * was not answered. Known at the first try is somebody else's, and not in its sums under our name.
 * A try that comes late, after a later one was answered, is a duplicate there and changes nothing.
 *
 * An epoch is asked for when no write of it can be under way any more: an epoch and the longest
 * life of a push after its end. Who disagrees is asked twice more, for the answer may be of a
 * leader of before; then it is said: lost, or doubled. Who does not answer for most of the time
 * rows are kept is counted as not audited, as is what did not fit here.
 */
#include "distributor/ledger.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/base/wr.h"
#include "common/obs/log.h"
#include "distributor/state.h"
#include "proto/ledger.pb-c.h"

#define ENTRIES_MAX 65536
#define DOUBTS_MAX  256 /* of one entry */
#define ASKS_MAX    64  /* entries in one question */
#define ASK_MS      10000
#define AGAIN_MS    15000
#define LOOK_MS     1000
#define BAD_MAX     3
#define REQUEST_MAX (4 * MIB)
#define CLOCKS_MS   INT64_C(300000) /* ours and a shard's may differ by */

struct entry {
    struct str key, tenant; /* tenant: within the key */
    uint32_t shard, epoch;
    struct acks sure;
    VEC(struct ledger_doubt) doubts;
    uint64_t unlisted; /* doubts that did not fit */
    unsigned bad;      /* answers that disagreed */
    int64_t ask_ms;    /* wall: not before */
    char bytes[];
};
struct ledger_book {
    struct distributor *d;
    uint64_t id, epoch_ms;
    struct map_str *at; /* struct entry, owned */
    struct entry *last;
    struct timer *timer;
    struct route_call *call;
    VEC(struct entry *) asked;
    struct metric_cell *audited, *unaudited, *lost, *doubled;
};

static int64_t wall_ms(const struct ledger_book *b)
{
    return clock_wall_ms(b->d->ctx->env->clock);
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

/* ---- entries ---- */

static void drop(struct ledger_book *b, struct entry *x)
{
    (void)map_str_del(b->at, x->key);
    b->last = NULL;
    vec_free(&x->doubts);
    xfree(x);
}

static struct entry *make(struct ledger_book *b, const struct ledger_write *w, struct str key)
{
    struct entry *x = xcalloc(1, sizeof(*x) + key.len);
    uint64_t over = ((uint64_t)w->epoch + 2) * b->epoch_ms + b->d->conf->ack_ms;

    memcpy(x->bytes, key.ptr, key.len);
    x->key = str_n(x->bytes, key.len);
    x->tenant = str_sub(x->key, 8, x->key.len);
    x->shard = w->shard;
    x->epoch = w->epoch;
    x->ask_ms = (int64_t)over;
    (void)map_str_put(b->at, x->key, x);
    return x;
}

/* NULL: there is no room. */
static struct entry *entry_of(struct ledger_book *b, const struct ledger_write *w)
{
    char bytes[8 + 512] = { 0 };
    struct str key = str_n(bytes, 8 + MIN(w->tenant.len, 512u));

    if (b->last && b->last->shard == w->shard && b->last->epoch == w->epoch &&
        str_eq(b->last->tenant, w->tenant))
        return b->last;
    put_u32be(bytes, w->shard);
    put_u32be(bytes + 4, w->epoch);
    memcpy(bytes + 8, w->tenant.ptr, key.len - 8);
    struct entry *x = w->tenant.len <= 512 ? map_str_get(b->at, key) : NULL;
    if (!x && w->tenant.len <= 512 && map_str_len(b->at) < ENTRIES_MAX)
        x = make(b, w, key);
    b->last = x;
    return x;
}

void ledger_acked(struct ledger_book *b, const struct ledger_write *w, const struct acks *a)
{
    struct entry *x = b && w->epoch ? entry_of(b, w) : NULL;

    if (x) {
        x->sure.count += a->count;
        x->sure.high += a->high;
        x->sure.low += a->low;
    } else if (b) {
        metric_add(b->unaudited, a->count);
    }
}

void ledger_doubt(struct ledger_book *b, const struct ledger_write *w,
                  const uint8_t wid[WRITE_ID_BYTES], bool acked)
{
    struct entry *x = b && w->epoch ? entry_of(b, w) : NULL;
    struct ledger_doubt one = { .acked = acked };

    memcpy(one.wid, wid, WRITE_ID_BYTES);
    if (x && x->doubts.len < DOUBTS_MAX)
        vec_push(&x->doubts, one);
    else if (x)
        x->unlisted++;
    if (b && (!x || x->unlisted))
        metric_add(b->unaudited, acked);
}

/* ---- questions ---- */

static void say(struct ledger_book *b, const struct entry *x, const struct ledger_verdict *v,
                const struct acks *said)
{
    metric_add(b->lost, v->lost);
    metric_add(b->doubled, v->doubled);
    log_error("a shard does not have what it acked, or has it twice", KV_STR("tenant", x->tenant),
              KV_U64("shard", x->shard), KV_U64("epoch", x->epoch), KV_U64("lost", v->lost),
              KV_U64("doubled", v->doubled), KV_U64("acked", x->sure.count),
              KV_U64("stored", said->count), KV_U64("in_doubt", x->doubts.len));
}

/* One entry and what its shard says. */
static void judge(struct ledger_book *b, struct entry *x, const Embertree__LedgerAcks *m,
                  int64_t deleted_ms)
{
    struct acks said = { m->count, m->high, m->low };
    int64_t began = (int64_t)((uint64_t)x->epoch * b->epoch_ms);

    for (size_t i = 0; i < x->doubts.len; i++)
        x->doubts.ptr[i].known = i < m->n_known && m->known[i];
    struct ledger_verdict v =
        ledger_judge(&x->sure, x->doubts.ptr, x->doubts.len, x->unlisted > 0, &said);
    if (v.lost + v.doubled == 0) {
        metric_add(b->audited, x->sure.count + x->doubts.len);
        drop(b, x);
    } else if (deleted_ms > began - CLOCKS_MS) { /* with tenants go their rows, with data ids */
        metric_add(b->unaudited, x->sure.count + x->doubts.len);
        drop(b, x);
    } else if (++x->bad < BAD_MAX) {
        x->ask_ms = wall_ms(b) + AGAIN_MS;
    } else {
        say(b, x, &v, &said);
        drop(b, x);
    }
}

static void ask_later(struct ledger_book *b, struct entry *x)
{
    int64_t end = (int64_t)(((uint64_t)x->epoch + 1) * b->epoch_ms);

    x->ask_ms = wall_ms(b) + AGAIN_MS;
    if (x->ask_ms < end + ACKS_KEPT_MS - CLOCKS_MS)
        return;
    metric_add(b->unaudited, x->sure.count + x->doubts.len);
    log_warn("acks were not audited: their shard did not answer for too long",
             KV_STR("tenant", x->tenant), KV_U64("shard", x->shard), KV_U64("epoch", x->epoch));
    drop(b, x);
}

static void on_reply(void *cookie, struct str reply, const struct err *err)
{
    struct ledger_book *b = cookie;
    Embertree__LedgerReply *r =
        err ? NULL
            : embertree__ledger_reply__unpack(NULL, reply.len,
                                              (const uint8_t *)(const void *)reply.ptr);

    b->call = NULL;
    vec_for (i, &b->asked) {
        if (r && r->n_acks == b->asked.len)
            judge(b, b->asked.ptr[i], r->acks[i], r->deleted_ms);
        else
            ask_later(b, b->asked.ptr[i]);
    }
    b->asked.len = 0;
    if (r)
        embertree__ledger_reply__free_unpacked(r, NULL);
}

static void fill_ask(const struct entry *x, Embertree__LedgerAsk *m, ProtobufCBinaryData *ids)
{
    embertree__ledger_ask__init(m);
    m->epoch = x->epoch;
    m->tenant = (ProtobufCBinaryData){ x->tenant.len, (uint8_t *)(uintptr_t)x->tenant.ptr };
    for (size_t i = 0; i < x->doubts.len; i++)
        ids[i] =
            (ProtobufCBinaryData){ WRITE_ID_BYTES, (uint8_t *)(uintptr_t)x->doubts.ptr[i].wid };
    m->write_ids = ids;
    m->n_write_ids = x->doubts.len;
}

static void ask(struct ledger_book *b)
{
    Embertree__LedgerRequest m = EMBERTREE__LEDGER_REQUEST__INIT;
    Embertree__LedgerAsk asks[ASKS_MAX], *all[ASKS_MAX];
    ProtobufCBinaryData *ids = XNEW_ARRAY(ProtobufCBinaryData, (size_t)ASKS_MAX * DOUBTS_MAX);
    uint32_t shard = b->asked.ptr[0]->shard;
    struct route *route = b->d->route;
    struct buf out;

    vec_for (i, &b->asked) {
        fill_ask(b->asked.ptr[i], &asks[i], ids + i * DOUBTS_MAX);
        all[i] = &asks[i];
    }
    m.distributor = b->id;
    m.shards = &shard;
    m.n_shards = 1;
    m.asks = all;
    m.n_asks = b->asked.len;
    size_t size = embertree__ledger_request__get_packed_size(&m);
    buf_init(&out, REQUEST_MAX);
    char *p = buf_room(&out, size);
    CHECK(p); /* 64 times 256 ids of 18 bytes, and names */
    out.len += embertree__ledger_request__pack(&m, (uint8_t *)(void *)p);
    xfree(ids);
    b->call = route_ask(route, route_target(route, shard), RPC_LEDGER, &out, ASK_MS, on_reply, b);
}

/* Those of one shard whose time has come. */
static void on_timer(void *cookie)
{
    struct ledger_book *b = cookie;
    int64_t now = wall_ms(b);
    size_t pos = 0;
    struct str key;
    void *p;

    if (!b->call && !b->d->closing && route_shards(b->d->route)) {
        while (b->asked.len < ASKS_MAX && map_str_next(b->at, &pos, &key, &p)) {
            struct entry *x = p;
            if (x->ask_ms <= now && (!b->asked.len || b->asked.ptr[0]->shard == x->shard))
                vec_push(&b->asked, x);
        }
        if (b->asked.len)
            ask(b);
    }
    loop_timer_start(b->timer, b->call ? LOOK_MS / 10 : LOOK_MS, 0);
}

/* ---- life ---- */

static struct metric_cell *counter(struct ledger_book *b, const char *name, const char *help)
{
    return metric_at(metric_new(b->d->ctx->metrics, METRIC_COUNTER, name, help, NULL, NULL, 0),
                     NULL, 0);
}

struct ledger_book *ledger_book_new(struct distributor *d)
{
    struct env *env = d->ctx->env;

    if (!d->conf->ledger_epoch_ms)
        return NULL;
    struct ledger_book *b = XNEW(struct ledger_book);
    b->d = d;
    b->epoch_ms = d->conf->ledger_epoch_ms;
    b->at = map_str_new();
    while (!b->id)
        env->random(env, &b->id, sizeof(b->id));
    b->audited = counter(b, "embertree_ledger_acks_audited_total",
                         "Acked series that their shard has, asked later");
    b->unaudited = counter(b, "embertree_ledger_acks_unaudited_total",
                           "Acked series that could not be asked about");
    b->lost = counter(b, "embertree_ledger_acks_lost_total",
                      "Acked series that their shard does not have; must be 0");
    b->doubled = counter(b, "embertree_ledger_acks_doubled_total",
                         "Series that a shard stored and nobody sent, or twice; must be 0");
    b->timer = loop_timer_new(d->ctx->loop, on_timer, b);
    loop_timer_start(b->timer, LOOK_MS, 0);
    return b;
}

void ledger_book_free(struct ledger_book *b)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (!b)
        return;
    route_cancel(b->call);
    loop_timer_free(b->timer);
    while (map_str_next(b->at, &pos, &key, &p)) {
        struct entry *x = p;
        vec_free(&x->doubts);
        xfree(x);
    }
    map_str_free(b->at);
    vec_free(&b->asked);
    xfree(b);
}
