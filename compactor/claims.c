/* SPDX-License-Identifier: Apache-2.0
 *
 * claims: compactors divide the shards among themselves.
 *   OUT ──grant──> IN: our key ──tick──> a wanted shard without a key: claim it
 *    ^              │                     a shard with our key: work for it
 *    │              │                     a shard with our key, not wanted: finish, release it
 *    └──lease gone──┘                     a shard whose key we lost: stop at once
 *
 * The wanted owner of a shard is computed by rendezvous (common/cluster/place/place.h) over the
 * live compactors: all compute the same from the same keys, each gets its share, and few shards
 * move when one joins or ends. The actual owner is named by the shard's key alone, which is made by
 * a transaction that requires it to be absent. All keys of a compactor are under one lease: when
 * the lease ends, all of them are deleted, and the others claim its shards within a tick.
 *
 * The shards that we own are read from the watch, never from the answer to a transaction, which may
 * be lost. By our own clock the lease ends no later than by the service's (it is counted from a
 * time before the renewing request), so a running compactor stops in time. A compactor that was
 * suspended or cut off may still act on an old claim: its fence is older than the new owner's, and
 * ingesters refuse it (ingester/build/rpc_build.c).
 *
 * While the service is away nothing is built: answers stay exact and cost more.
 */
#include "compactor/claims.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/cluster/coord/keyspace.h"
#include "common/cluster/place/place.h"
#include "common/obs/log.h"

#define CLAIMS_MAGIC MAGIC('c', 'l', 'm', 's')
#define TICK_MS      200
#define RETRY_MS     300
#define KEEP_PART    3  /* renewed after this part of its time */
#define ONCE_MAX     32 /* shards in one transaction */
#define NAME_LEN     16
#define LIVE_MAX     1000

enum claims_state { CLAIMS_OUT, CLAIMS_IN, CLAIMS_LEAVING };

struct claim { /* a shard, as the service says */
    char owner[NAME_LEN + 1];
    int64_t lease, create_rev; /* 0: no owner */
    uint64_t fence;            /* of our work for it; 0: we do not work for it */
    bool leaving;              /* another compactor is to own it */
};
struct compactor_name {
    char text[NAME_LEN + 1];
    int64_t lease;
};
struct claims {
    uint32_t magic;
    struct claims_opts o;
    char *prefix; /* owned */
    char name[NAME_LEN + 1];
    struct coord_key root, live_key;
    enum claims_state state;
    struct timer *tick, *keep;
    struct coord_watch *watch;
    int64_t lease;
    uint64_t sent_ms, deadline_ms;
    bool heard, putting, claiming;
    VEC(struct compactor_name) live;
    struct claim *shards; /* owned; CLUSTER_SHARDS_MAX */
    struct name_set *wanted;
    uint32_t wanted_len;
    bool wanted_old; /* compactors joined or ended since */
    char why[ERR_TEXT_MAX];
    void (*left)(void *cookie);
    void *left_cookie;
    struct metric_cell *m_owned, *m_live, *m_lost;
};

static uint64_t now_ms(const struct claims *c)
{
    return clock_mono_ms(loop_clock(c->o.loop));
}

static void say(struct claims *c, const char *why)
{
    (void)snprintf(c->why, sizeof(c->why), "%s", why);
}

/* ---- what the service says ------------------------------------------------------------------- */

static void saw_live(struct claims *c, struct str name, const struct coord_kv *kv)
{
    size_t at = 0;

    if (name.len != NAME_LEN)
        return;
    while (at < c->live.len && !str_eq(str_c(c->live.ptr[at].text), name))
        at++;
    c->wanted_old = true;
    if (kv->deleted) {
        if (at < c->live.len)
            c->live.ptr[at] = c->live.ptr[--c->live.len];
        return;
    }
    if (at == c->live.len) {
        if (c->live.len == LIVE_MAX)
            return;
        vec_push(&c->live, (struct compactor_name){ 0 });
        memcpy(c->live.ptr[at].text, name.ptr, NAME_LEN);
    }
    c->live.ptr[at].lease = kv->lease;
}

static void saw_shard(struct claims *c, struct str number, const struct coord_kv *kv)
{
    struct claim *s;
    uint64_t n;

    if (!str_u64(number, &n) || n >= CLUSTER_SHARDS_MAX)
        return;
    s = &c->shards[n];
    s->lease = s->create_rev = 0;
    if (kv->deleted || kv->value.len != NAME_LEN)
        return;
    memcpy(s->owner, kv->value.ptr, NAME_LEN);
    s->lease = kv->lease;
    s->create_rev = kv->create_rev;
}

static void saw(struct claims *c, const struct coord_kv *kv)
{
    struct str rest = str_sub(kv->key, c->root.len, kv->key.len);

    if (str_starts(rest, STR("live/")))
        saw_live(c, str_sub(rest, 5, rest.len), kv);
    else if (str_starts(rest, STR("shard/")))
        saw_shard(c, str_sub(rest, 6, rest.len), kv);
}

static void reconcile(struct claims *c);

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct claims *c = cookie;

    (void)rev;
    c->live.len = 0;
    for (size_t i = 0; i < CLUSTER_SHARDS_MAX; i++)
        c->shards[i].lease = c->shards[i].create_rev = 0;
    for (size_t i = 0; i < n; i++)
        saw(c, &kvs[i]);
    c->heard = c->wanted_old = true;
    reconcile(c);
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct claims *c = cookie;

    saw(c, kv);
    reconcile(c);
}

/* ---- ours, and not ------------------------------------------------------------------------- */

static void lose(struct claims *c, uint32_t shard)
{
    c->shards[shard].fence = 0;
    c->shards[shard].leaving = false;
    c->o.lose(c->o.cookie, shard);
}

static void lose_all(struct claims *c)
{
    for (uint32_t i = 0; i < CLUSTER_SHARDS_MAX; i++)
        if (c->shards[i].fence)
            lose(c, i);
    metric_set(c->m_owned, 0);
}

/* A tick before it ends: that is how late we may notice. */
static bool holds_lease(const struct claims *c)
{
    return c->state == CLAIMS_IN && now_ms(c) + TICK_MS < c->deadline_ms;
}

static void work_out(struct claims *c, uint32_t shards)
{
    struct place_node nodes[LIVE_MAX];
    size_t n = 0;

    if (!c->wanted_old && c->wanted_len == shards)
        return;
    vec_for (i, &c->live)
        nodes[n++] = (struct place_node){ c->live.ptr[i].text, "", false };
    metric_set(c->m_live, (int64_t)n);
    xfree(c->wanted);
    c->wanted = NULL;
    c->wanted_len = 0;
    if (!n)
        return;
    c->wanted = XNEW_ARRAY(struct name_set, shards);
    c->wanted_len = shards;
    c->wanted_old = false;
    place_fresh(nodes, n, shards, 1, c->wanted);
}

static bool is_wanted(const struct claims *c, uint32_t shard)
{
    return shard < c->wanted_len && strcmp(c->wanted[shard].names[0], c->name) == 0;
}

static bool is_ours(const struct claims *c, uint32_t shard)
{
    const struct claim *s = &c->shards[shard];

    return s->lease && s->lease == c->lease && strcmp(s->owner, c->name) == 0;
}

/* ---- writing -------------------------------------------------------------------------------- */

static void on_claimed(void *cookie, const struct coord_reply *r)
{
    struct claims *c = cookie;

    c->claiming = false;
    if (r->err)
        say(c, r->err->text);
}

static const struct compactor_name *self(const struct claims *c)
{
    vec_for (i, &c->live)
        if (strcmp(c->live.ptr[i].text, c->name) == 0)
            return &c->live.ptr[i];
    return NULL;
}

/* Claims wanted shards without an owner and releases leaving shards without a job, some in one
 * transaction. If a key has changed meanwhile the transaction fails; the watch shows the change,
 * and the next transaction is made from that. */
static void write_some(struct claims *c)
{
    struct coord_compare cmp[ONCE_MAX];
    struct coord_change chg[ONCE_MAX];
    struct coord_key keys[ONCE_MAX];
    size_t n = 0;

    if (c->claiming)
        return;
    for (uint32_t i = 0; i < c->wanted_len && n < ONCE_MAX; i++) {
        bool claim = is_wanted(c, i) && !c->shards[i].create_rev;
        bool give = is_ours(c, i) && !is_wanted(c, i);

        c->shards[i].leaving = give;
        if (!claim && !(give && c->o.leave(c->o.cookie, i)))
            continue;
        keys[n] = key_claim(str_c(c->prefix), i);
        cmp[n] = (struct coord_compare){ .key = key_str(&keys[n]),
                                         .create = true,
                                         .rev = claim ? 0 : c->shards[i].create_rev };
        chg[n] = (struct coord_change){ .key = key_str(&keys[n]), .del = give };
        if (claim) {
            chg[n].value = str_c(c->name);
            chg[n].lease = c->lease;
        } else if (c->shards[i].fence) {
            lose(c, i);
        }
        n++;
    }
    if (!n)
        return;
    c->claiming = true;
    coord_txn(c->o.coord, &(struct coord_txn){ .cmp = cmp, .cmp_len = n, .chg = chg, .chg_len = n },
              on_claimed, c);
}

/* From what is seen to what is done: at every tick and every change. */
static void reconcile(struct claims *c)
{
    uint32_t shards = MIN(view_shards(c->o.view), (uint32_t)CLUSTER_SHARDS_MAX);
    int64_t owned = 0;

    if (!c->heard || !holds_lease(c) || view_stranger(c->o.view)[0]) {
        lose_all(c);
        return;
    }
    for (uint32_t i = 0; i < shards; i++) {
        struct claim *s = &c->shards[i];

        bool stays = is_ours(c, i) && s->fence == (uint64_t)s->create_rev;

        if (s->fence && (!stays || (s->leaving && is_wanted(c, i))))
            lose(c, i); /* it is taken again below if the other compactor has ended */
        if (!s->fence && is_ours(c, i) && is_wanted(c, i) &&
            c->o.own(c->o.cookie, i, (uint64_t)s->create_rev))
            s->fence = (uint64_t)s->create_rev;
        owned += s->fence != 0;
    }
    metric_set(c->m_owned, owned);
    if (!self(c) || self(c)->lease != c->lease || !shards)
        return;
    work_out(c, shards);
    write_some(c);
}

/* ---- the lease ------------------------------------------------------------------------------ */

static void on_live(void *cookie, const struct coord_reply *r)
{
    struct claims *c = cookie;

    c->putting = false;
    if (r->err)
        say(c, r->err->text);
}

/* No other compactor has this name, so the put needs no comparison. */
static void put_live(struct claims *c)
{
    struct coord_change chg = { .key = key_str(&c->live_key),
                                .value = STR("1"),
                                .lease = c->lease };

    c->putting = true;
    coord_txn(c->o.coord, &(struct coord_txn){ .chg = &chg, .chg_len = 1 }, on_live, c);
}

static void on_tick(void *cookie)
{
    struct claims *c = cookie;
    const struct compactor_name *me = self(c);

    if (c->state == CLAIMS_LEAVING)
        return;
    if (holds_lease(c) && c->heard && !c->putting && (!me || me->lease != c->lease))
        put_live(c);
    reconcile(c);
}

static void lost(struct claims *c, const char *why)
{
    if (c->state == CLAIMS_IN) {
        log_warn("this compactor lost its lease; others take its shards over",
                 KV_CSTR("compactor", c->name), KV_CSTR("why", why));
        metric_add(c->m_lost, 1);
    }
    c->state = CLAIMS_OUT;
    c->lease = 0;
    say(c, why);
    lose_all(c);
    loop_timer_start(c->keep, RETRY_MS, 0);
}

static void on_granted(void *cookie, const struct coord_reply *r)
{
    struct claims *c = cookie;

    if (r->err) {
        lost(c, r->err->text);
        return;
    }
    c->state = CLAIMS_IN;
    c->lease = r->lease;
    c->deadline_ms = c->sent_ms + r->ttl_ms;
    c->why[0] = 0;
    put_live(c);
    loop_timer_start(c->keep, c->o.ttl_ms / KEEP_PART, 0);
}

static void on_kept(void *cookie, const struct coord_reply *r)
{
    struct claims *c = cookie;

    if (r->err && r->err->code != ERR_NOT_FOUND && now_ms(c) < c->deadline_ms) {
        say(c, r->err->text);
        loop_timer_start(c->keep, RETRY_MS, 0);
        return;
    }
    if (r->err || r->ttl_ms == 0) {
        lost(c, r->err ? r->err->text : "the lease ran out");
        return;
    }
    c->deadline_ms = c->sent_ms + r->ttl_ms;
    loop_timer_start(c->keep, c->o.ttl_ms / KEEP_PART, 0);
}

/* Its calls have this cookie, so that leaving cancels all of them. */
static void on_keep(void *cookie)
{
    struct claims *c = cookie;

    c->sent_ms = now_ms(c);
    if (c->state == CLAIMS_OUT)
        coord_grant(c->o.coord, c->o.ttl_ms, on_granted, c);
    else if (c->state == CLAIMS_IN)
        coord_keep(c->o.coord, c->lease, on_kept, c);
}

/* ---- life ----------------------------------------------------------------------------------- */

static struct metric_cell *cell(struct metrics *m, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(m, kind, name, help, NULL), NULL, 0);
}

struct claims *claims_new(const struct claims_opts *o)
{
    struct claims *c = XNEW(struct claims);
    struct coord_watch_opts w = { .all = on_all, .event = on_event, .cookie = c };

    CHECK(o->ttl_ms > 0);
    c->magic = CLAIMS_MAGIC;
    c->o = *o;
    c->prefix = xstrdup(o->prefix);
    (void)snprintf(c->name, sizeof(c->name), "%016" PRIx64, o->id);
    c->root = key_claims(str_c(c->prefix));
    c->live_key.len = (size_t)snprintf(c->live_key.text, sizeof(c->live_key.text),
                                       "%s/compactor/live/%s", c->prefix, c->name);
    c->shards = XNEW_ARRAY(struct claim, CLUSTER_SHARDS_MAX);
    say(c, "not registered yet");
    c->m_owned = cell(o->metrics, METRIC_GAUGE, "embertree_compactor_shards_claimed",
                      "Shards this compactor works for");
    c->m_live = cell(o->metrics, METRIC_GAUGE, "embertree_compactor_compactors_live",
                     "Compactors that share the shards");
    c->m_lost = cell(o->metrics, METRIC_COUNTER, "embertree_compactor_leases_lost_total",
                     "Times this compactor lost its lease");
    c->tick = loop_timer_new(o->loop, on_tick, c);
    c->keep = loop_timer_new(o->loop, on_keep, c);
    w.prefix = key_str(&c->root);
    c->watch = coord_watch(o->coord, &w);
    loop_timer_start(c->keep, 0, 0);
    loop_timer_start(c->tick, TICK_MS, TICK_MS);
    return c;
}

static void on_left(void *cookie, const struct coord_reply *r)
{
    struct claims *c = cookie;

    (void)r;
    c->left(c->left_cookie);
}

void claims_leave(struct claims *c, void (*done)(void *cookie), void *cookie)
{
    int64_t lease = c->lease;

    CHECK(c->magic == CLAIMS_MAGIC && c->state != CLAIMS_LEAVING);
    coord_cancel(c->o.coord, c);
    loop_timer_stop(c->keep);
    loop_timer_stop(c->tick);
    c->state = CLAIMS_LEAVING;
    c->lease = 0;
    c->left = done;
    c->left_cookie = cookie;
    say(c, "leaving");
    lose_all(c);
    if (lease)
        coord_revoke(c->o.coord, lease, on_left, c);
    else
        loop_post(c->o.loop, done, cookie);
}

void claims_free(struct claims *c)
{
    if (!c)
        return;
    CHECK(c->magic == CLAIMS_MAGIC);
    coord_cancel(c->o.coord, c);
    coord_unwatch(c->o.coord, c->watch);
    loop_timer_free(c->tick);
    loop_timer_free(c->keep);
    vec_free(&c->live);
    xfree(c->shards);
    xfree(c->wanted);
    xfree(c->prefix);
    c->magic = 0;
    xfree(c);
}

void claims_ring(const struct claims *c, struct json *j)
{
    uint64_t owned = 0;

    for (uint32_t i = 0; i < CLUSTER_SHARDS_MAX; i++)
        owned += c->shards[i].fence != 0;
    json_key(j, "claims");
    json_obj(j);
    json_put_cstr(j, "name", c->name);
    json_put_bool(j, "leased", holds_lease(c));
    json_put_u64(j, "shards", owned);
    json_key(j, "compactors");
    json_arr(j);
    vec_for (i, &c->live)
        json_cstr(j, c->live.ptr[i].text);
    json_arr_end(j);
    json_put_cstr(j, "why", c->why);
    json_obj_end(j);
}
