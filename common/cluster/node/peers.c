/* SPDX-License-Identifier: Apache-2.0
 *
 * peers: processes of one kind count each other.
 *
 *   OUT ──lease granted──> IN: put our key, keep the lease ──lease lost──> OUT
 *                          any ──peers_leave──> LEAVING: the lease is revoked
 *
 * The set of keys comes from a watch. A larger number counts at once. A smaller one counts after
 * PEERS_LINGER_MS: a process that restarts is back by then, and a service that was away for longer
 * than a lease lists no process until all have registered again. So a number that is wrong for some
 * seconds is rather too large, and shares rather too small.
 *
 * Nothing is written to a service that does not hold this cluster's data, and nothing it says
 * changes the count (view_trusts).
 */
#include "common/cluster/node/peers.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/cluster/coord/keyspace.h"

#define PEERS_MAGIC MAGIC('p', 'e', 'e', 'r')
#define TICK_MS     500
#define RETRY_MS    300
#define KEEP_PART   3 /* renewed after this part of its time */
#define NAME_LEN    16
#define PEERS_MAX   10000 /* more are not counted */

enum peers_state { PEERS_OUT, PEERS_IN, PEERS_LEAVING };

struct peer {
    char name[NAME_LEN + 1];
    int64_t lease;
};
struct peers {
    uint32_t magic;
    struct peers_opts o;
    enum peers_state state;
    struct coord_key root, key;
    char name[NAME_LEN + 1];
    struct timer *tick, *keep;
    struct coord_watch *watch;
    int64_t lease; /* 0: none */
    bool putting;
    bool listed; /* the service has listed all keys */
    VEC(struct peer) live;
    uint64_t count;
    uint64_t most, most_ms; /* since the count is too large: the largest number seen, since when */
};

static uint64_t now_ms(const struct peers *p)
{
    return clock_mono_ms(loop_clock(p->o.loop));
}

static bool trusts(const struct peers *p)
{
    return !p->o.view || view_trusts(p->o.view);
}

static const struct peer *self(const struct peers *p)
{
    vec_for (i, &p->live)
        if (strcmp(p->live.ptr[i].name, p->name) == 0)
            return &p->live.ptr[i];
    return NULL;
}

/* ---- the count ------------------------------------------------------------------------------ */

static void set(struct peers *p, uint64_t n)
{
    p->most = 0;
    if (p->count == n)
        return;
    p->count = n;
    if (p->o.changed)
        p->o.changed(p->o.cookie, n);
}

static void count(struct peers *p)
{
    uint64_t n = MAX(p->live.len + !self(p), 1);

    if (!p->listed || !trusts(p))
        return;
    if (n >= p->count) {
        set(p, n);
        return;
    }
    if (!p->most)
        p->most_ms = now_ms(p);
    p->most = MAX(p->most, n);
    if (now_ms(p) - p->most_ms >= PEERS_LINGER_MS)
        set(p, p->most);
}

static void saw(struct peers *p, const struct coord_kv *kv)
{
    struct str name = str_sub(kv->key, p->root.len, kv->key.len);
    size_t at = 0;

    if (name.len != NAME_LEN)
        return;
    while (at < p->live.len && !str_eq(str_c(p->live.ptr[at].name), name))
        at++;
    if (kv->deleted) {
        if (at < p->live.len)
            p->live.ptr[at] = p->live.ptr[--p->live.len];
        return;
    }
    if (at == p->live.len) {
        if (p->live.len == PEERS_MAX)
            return;
        vec_push(&p->live, (struct peer){ 0 });
        memcpy(p->live.ptr[at].name, name.ptr, NAME_LEN);
    }
    p->live.ptr[at].lease = kv->lease;
}

static void on_all(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct peers *p = cookie;

    (void)rev;
    p->live.len = 0;
    p->listed = true;
    for (size_t i = 0; i < n; i++)
        saw(p, &kvs[i]);
    count(p);
}

static void on_event(void *cookie, const struct coord_kv *kv)
{
    struct peers *p = cookie;

    saw(p, kv);
    count(p);
}

/* ---- the key -------------------------------------------------------------------------------- */

static void on_put(void *cookie, const struct coord_reply *r)
{
    struct peers *p = cookie;

    (void)r; /* the watch shows whether it is there, and the next tick puts it if not */
    p->putting = false;
}

static void on_tick(void *cookie)
{
    struct peers *p = cookie;
    const struct peer *me = self(p);

    count(p);
    if (p->state != PEERS_IN || p->putting || !p->listed || !trusts(p) ||
        (me && me->lease == p->lease))
        return;
    struct coord_change chg = { .key = key_str(&p->key), .value = STR("1"), .lease = p->lease };
    p->putting = true;
    coord_txn(p->o.coord, &(struct coord_txn){ .chg = &chg, .chg_len = 1 }, on_put, p);
}

static void on_granted(void *cookie, const struct coord_reply *r)
{
    struct peers *p = cookie;

    if (r->err) {
        loop_timer_start(p->keep, RETRY_MS, 0);
        return;
    }
    p->state = PEERS_IN;
    p->lease = r->lease;
    on_tick(p);
    loop_timer_start(p->keep, p->o.ttl_ms / KEEP_PART, 0);
}

static void on_kept(void *cookie, const struct coord_reply *r)
{
    struct peers *p = cookie;
    bool gone = r->err ? r->err->code == ERR_NOT_FOUND : r->ttl_ms == 0;

    if (gone) {
        p->state = PEERS_OUT;
        p->lease = 0;
    }
    loop_timer_start(p->keep, r->err || gone ? RETRY_MS : p->o.ttl_ms / KEEP_PART, 0);
}

static void on_keep(void *cookie)
{
    struct peers *p = cookie;

    if (p->state == PEERS_OUT)
        coord_grant(p->o.coord, p->o.ttl_ms, on_granted, p);
    else if (p->state == PEERS_IN)
        coord_keep(p->o.coord, p->lease, on_kept, p);
}

/* ---- life ----------------------------------------------------------------------------------- */

struct peers *peers_new(const struct peers_opts *o)
{
    struct peers *p = XNEW(struct peers);
    struct coord_watch_opts w = { .all = on_all, .event = on_event, .cookie = p };

    CHECK(o->ttl_ms > 0);
    p->magic = PEERS_MAGIC;
    p->o = *o;
    p->count = 1;
    (void)snprintf(p->name, sizeof(p->name), "%016" PRIx64, o->id);
    p->root = key_peers(str_c(o->prefix), o->kind);
    p->key = key_peer(str_c(o->prefix), o->kind, p->name);
    p->tick = loop_timer_new(o->loop, on_tick, p);
    p->keep = loop_timer_new(o->loop, on_keep, p);
    w.prefix = key_str(&p->root);
    p->watch = coord_watch(o->coord, &w);
    loop_timer_start(p->keep, 0, 0);
    loop_timer_start(p->tick, TICK_MS, TICK_MS);
    return p;
}

uint64_t peers_count(const struct peers *p)
{
    CHECK(p->magic == PEERS_MAGIC);
    return p->count;
}

static void on_revoked(void *cookie, const struct coord_reply *r)
{
    (void)cookie;
    (void)r; /* if it failed the lease runs out */
}

void peers_leave(struct peers *p)
{
    int64_t lease = p->lease;

    CHECK(p->magic == PEERS_MAGIC);
    coord_cancel(p->o.coord, p);
    loop_timer_stop(p->keep);
    loop_timer_stop(p->tick);
    p->state = PEERS_LEAVING;
    p->lease = 0;
    if (lease)
        coord_revoke(p->o.coord, lease, on_revoked, p);
}

void peers_free(struct peers *p)
{
    if (!p)
        return;
    CHECK(p->magic == PEERS_MAGIC);
    coord_cancel(p->o.coord, p);
    coord_unwatch(p->o.coord, p->watch);
    loop_timer_free(p->tick);
    loop_timer_free(p->keep);
    vec_free(&p->live);
    p->magic = 0;
    xfree(p);
}
