/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_sim: the coordination service, simulated.
 *
 *   client ──request (delay, may be lost)──> site ──answer (delay, may be lost)──> callback
 *                                             └──history──> each watch, from where it is
 *
 * The site keeps the keys sorted, and a history of changes since the last compaction. A watch is a
 * revision it has delivered everything up to; after each change it is pumped once a delay has
 * passed, and while it is cut off it is simply not pumped: so it can neither lose a change nor see
 * one twice, and may be arbitrarily late.
 *
 * A request that is lost never happens; one whose answer is lost has happened, and its caller
 * cannot tell: both end with ERR_TIMEOUT after the deadline.
 */
#include "common/cluster/coord/coord_sim.h"

#include "common/base/mem.h"
#include "common/cluster/coord/coord_sim_impl.h"

#define SITE_MAGIC   MAGIC('c', 's', 'i', 't')
#define DEADLINE_MS  5000
#define HEARD_MS     500
#define HISTORY_MOST 100000

enum op { OP_LIST, OP_TXN, OP_GRANT, OP_KEEP, OP_REVOKE };

struct sim_client {
    struct coord coord;
    struct coord_site *site;
    struct list list, calls, watches;
    bool cut;
};
struct coord_watch {
    struct list list;
    struct sim_client *client;
    struct coord_watch_opts o;
    struct str prefix; /* owned */
    struct timer *timer, *beat;
    int64_t seen;    /* everything up to this revision was delivered; -1: nothing yet */
    bool pending;    /* the timer runs */
    bool busy, dead; /* in its callback; unwatched meanwhile */
};
struct sim_call {
    struct list list;
    struct sim_client *client;
    struct timer *timer;
    enum op op;
    coord_fn fn;
    void *cookie;
    VEC(struct coord_compare) cmp; /* owned bytes */
    VEC(struct coord_change) chg;  /* owned bytes */
    struct str prefix;             /* owned */
    uint64_t ttl_ms;
    int64_t lease;
    bool arrived; /* the site has done it */
    struct coord_reply reply;
    VEC(struct coord_kv) kvs; /* owned bytes */
};

static struct str copy(struct str s)
{
    return str_n(xmemdup(s.len ? s.ptr : "", MAX(s.len, 1)), s.len);
}

static void drop(struct str s)
{
    xfree((void *)(uintptr_t)s.ptr);
}

struct coord_kv sim_kv_copy(const struct coord_kv *kv)
{
    struct coord_kv ret = *kv;

    ret.key = copy(kv->key);
    ret.value = copy(kv->value);
    return ret;
}

void sim_kv_drop(struct coord_kv *kv)
{
    drop(kv->key);
    drop(kv->value);
}

static uint64_t delay(struct coord_site *s)
{
    const struct coord_faults *f = &s->faults;

    if (f->delay_max_ms <= f->delay_min_ms)
        return f->delay_min_ms;
    return f->delay_min_ms + prng_below(&s->prng, f->delay_max_ms - f->delay_min_ms + 1);
}

/* ---- the keys -------------------------------------------------------------------------------- */

static size_t lower_bound(const struct coord_site *s, struct str key)
{
    size_t lo = 0, hi = s->keys.len;

    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;

        if (str_cmp(s->keys.ptr[mid].key, key) < 0)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

const struct coord_kv *coord_site_get(const struct coord_site *s, struct str key)
{
    size_t i = lower_bound(s, key);

    return i < s->keys.len && str_eq(s->keys.ptr[i].key, key) ? &s->keys.ptr[i] : NULL;
}

int64_t coord_site_rev(const struct coord_site *s)
{
    return s->rev;
}

/* Forgets whole revisions only. */
void sim_forget(struct coord_site *s, int64_t upto)
{
    size_t n = 0;

    while (n < s->history.len && s->history.ptr[n].mod_rev <= upto)
        sim_kv_drop(&s->history.ptr[n++]);
    s->history.len -= n;
    if (n)
        memmove(s->history.ptr, s->history.ptr + n, s->history.len * sizeof(*s->history.ptr));
    s->compacted = MAX(s->compacted, upto);
}

static void put(struct coord_site *s, struct str key, struct str value, int64_t lease)
{
    size_t i = lower_bound(s, key);
    bool there = i < s->keys.len && str_eq(s->keys.ptr[i].key, key);
    struct coord_kv kv = { .key = key,
                           .value = value,
                           .create_rev = there ? s->keys.ptr[i].create_rev : s->rev,
                           .mod_rev = s->rev,
                           .lease = lease };

    vec_push(&s->history, sim_kv_copy(&kv));
    if (there) {
        sim_kv_drop(&s->keys.ptr[i]);
    } else {
        vec_push(&s->keys, kv);
        memmove(s->keys.ptr + i + 1, s->keys.ptr + i, (s->keys.len - 1 - i) * sizeof(*s->keys.ptr));
    }
    s->keys.ptr[i] = sim_kv_copy(&kv);
}

static void del_at(struct coord_site *s, size_t i)
{
    struct coord_kv kv = { .key = s->keys.ptr[i].key, .mod_rev = s->rev, .deleted = true };

    vec_push(&s->history, sim_kv_copy(&kv));
    sim_kv_drop(&s->keys.ptr[i]);
    s->keys.len--;
    memmove(s->keys.ptr + i, s->keys.ptr + i + 1, (s->keys.len - i) * sizeof(*s->keys.ptr));
}

/* ---- watches --------------------------------------------------------------------------------- */

static void watch_soon(struct coord_watch *w, uint64_t after_ms)
{
    if (!w->pending)
        loop_timer_start(w->timer, after_ms, 0);
    w->pending = true;
}

void sim_pump_soon(struct coord_site *s)
{
    list_for (c, &s->clients)
        list_for (w, &container_of(c, struct sim_client, list)->watches)
            watch_soon(container_of(w, struct coord_watch, list), delay(s));
    if (s->history.len > HISTORY_MOST)
        sim_forget(s, s->history.ptr[s->history.len / 2].mod_rev);
}

static void watch_all(struct coord_watch *w)
{
    struct coord_site *s = w->client->site;
    size_t from = lower_bound(s, w->prefix), n = 0;

    while (from + n < s->keys.len && str_starts(s->keys.ptr[from + n].key, w->prefix))
        n++;
    w->seen = s->rev;
    w->o.all(w->o.cookie, s->keys.ptr + from, n, s->rev);
}

/* The callback may put more into the history. */
static void watch_events(struct coord_watch *w)
{
    struct coord_site *s = w->client->site;
    int64_t upto = s->rev;

    for (size_t i = 0; i < s->history.len && !w->dead; i++) {
        struct coord_kv kv = s->history.ptr[i];

        if (kv.mod_rev <= w->seen || kv.mod_rev > upto || !str_starts(kv.key, w->prefix))
            continue;
        kv = sim_kv_copy(&kv);
        w->o.event(w->o.cookie, &kv);
        sim_kv_drop(&kv);
    }
    w->seen = upto;
}

static bool watch_waits(const struct coord_watch *w)
{
    const struct coord_site *s = w->client->site;

    return s->away || w->client->cut || s->mute;
}

static void watch_free(struct coord_watch *w)
{
    loop_timer_free(w->timer);
    loop_timer_free(w->beat);
    drop(w->prefix);
    xfree(w);
}

static void watch_pump(void *cookie)
{
    struct coord_watch *w = cookie;
    struct coord_site *s = w->client->site;

    w->pending = false;
    if (watch_waits(w)) {
        watch_soon(w, SIM_RETRY_MS);
        return;
    }
    w->busy = true;
    if (w->seen < s->compacted || w->seen < 0 || w->seen > s->rev)
        watch_all(w);
    else
        watch_events(w);
    w->busy = false;
    if (w->dead)
        watch_free(w);
}

static void watch_beat(void *cookie)
{
    struct coord_watch *w = cookie;

    if (!watch_waits(w) && w->o.heard)
        w->o.heard(w->o.cookie);
}

static struct coord_watch *sim_watch(struct coord *coord, const struct coord_watch_opts *o)
{
    struct sim_client *c = container_of(coord, struct sim_client, coord);
    struct coord_watch *w = XNEW(struct coord_watch);

    w->client = c;
    w->o = *o;
    w->prefix = copy(o->prefix);
    w->seen = -1;
    w->timer = loop_timer_new(c->site->loop, watch_pump, w);
    w->beat = loop_timer_new(c->site->loop, watch_beat, w);
    watch_soon(w, delay(c->site));
    loop_timer_start(w->beat, HEARD_MS, HEARD_MS);
    list_add_tail(&c->watches, &w->list);
    return w;
}

static void sim_unwatch(struct coord *coord, struct coord_watch *w)
{
    (void)coord;
    list_del(&w->list);
    w->dead = true;
    if (!w->busy)
        watch_free(w);
}

/* ---- leases ---------------------------------------------------------------------------------- */

static struct sim_lease *lease_find(struct coord_site *s, int64_t id)
{
    vec_for (i, &s->leases)
        if (s->leases.ptr[i].id == id)
            return &s->leases.ptr[i];
    return NULL;
}

static void lease_end(struct coord_site *s, int64_t id)
{
    bool any = false;

    for (size_t i = s->keys.len; i-- > 0;) {
        if (s->keys.ptr[i].lease != id)
            continue;
        if (!any)
            s->rev++;
        any = true;
        del_at(s, i);
    }
    vec_for (i, &s->leases)
        if (s->leases.ptr[i].id == id)
            s->leases.ptr[i] = s->leases.ptr[--s->leases.len];
    if (any)
        sim_pump_soon(s);
}

static void leases_look(void *cookie)
{
    struct coord_site *s = cookie;
    bool again = !s->away;

    CHECK(s->magic == SITE_MAGIC);
    while (again) {
        again = false;
        vec_for (i, &s->leases) {
            if (s->leases.ptr[i].deadline_ms > sim_now_ms(s))
                continue;
            lease_end(s, s->leases.ptr[i].id);
            again = true;
            break;
        }
    }
    if (s->leases.len)
        loop_timer_start(s->lease_timer, SIM_RETRY_MS, 0);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void call_free(struct sim_call *k)
{
    list_del(&k->list);
    loop_timer_free(k->timer);
    vec_for (i, &k->cmp)
        drop(k->cmp.ptr[i].key);
    vec_for (i, &k->chg) {
        drop(k->chg.ptr[i].key);
        drop(k->chg.ptr[i].value);
    }
    vec_for (i, &k->kvs)
        sim_kv_drop(&k->kvs.ptr[i]);
    vec_free(&k->cmp);
    vec_free(&k->chg);
    vec_free(&k->kvs);
    drop(k->prefix);
    xfree(k);
}

static bool holds(const struct coord_site *s, const struct coord_compare *cmp)
{
    const struct coord_kv *kv = coord_site_get(s, cmp->key);
    int64_t rev = !kv ? 0 : cmp->create ? kv->create_rev : kv->mod_rev;

    return rev == cmp->rev;
}

static void do_txn(struct coord_site *s, struct sim_call *k, struct err *e)
{
    vec_for (i, &k->cmp)
        if (!holds(s, &k->cmp.ptr[i]) &&
            !(s->faults.no_fence && str_contains(k->cmp.ptr[i].key, STR("/ring/shard/"))))
            return;
    vec_for (i, &k->chg)
        if (!k->chg.ptr[i].del && k->chg.ptr[i].lease && !lease_find(s, k->chg.ptr[i].lease)) {
            (void)err_set(e, ERR_NOT_FOUND, "the lease is gone");
            return;
        }
    k->reply.done = true;
    s->rev++;
    vec_for (i, &k->chg) {
        const struct coord_change *g = &k->chg.ptr[i];
        size_t at = lower_bound(s, g->key);

        if (!g->del)
            put(s, g->key, g->value, g->lease);
        else if (at < s->keys.len && str_eq(s->keys.ptr[at].key, g->key))
            del_at(s, at);
    }
    sim_pump_soon(s);
}

static void do_list(const struct coord_site *s, struct sim_call *k)
{
    for (size_t i = lower_bound(s, k->prefix);
         i < s->keys.len && str_starts(s->keys.ptr[i].key, k->prefix); i++)
        vec_push(&k->kvs, sim_kv_copy(&s->keys.ptr[i]));
    k->reply.kvs = k->kvs.ptr;
    k->reply.kvs_len = k->kvs.len;
}

static void do_lease(struct coord_site *s, struct sim_call *k)
{
    struct sim_lease *l = lease_find(s, k->lease);

    switch (k->op) {
    case OP_GRANT: {
        struct sim_lease made = { ++s->next_lease, k->ttl_ms, sim_now_ms(s) + k->ttl_ms };

        vec_push(&s->leases, made);
        loop_timer_start(s->lease_timer, SIM_RETRY_MS, 0);
        k->reply.lease = made.id;
        k->reply.ttl_ms = made.ttl_ms;
        break;
    }
    case OP_KEEP:
        if (l)
            l->deadline_ms = sim_now_ms(s) + l->ttl_ms;
        k->reply.ttl_ms = l ? l->ttl_ms : 0;
        break;
    case OP_REVOKE:
        if (l)
            lease_end(s, l->id);
        break;
    case OP_LIST:
    case OP_TXN:
        break;
    }
}

static void call_end(void *cookie)
{
    struct sim_call *k = cookie;
    coord_fn fn = k->fn;
    void *fn_cookie = k->cookie;
    struct err e = { 0 };

    if (!k->arrived || k->client->cut || k->client->site->away)
        (void)err_set(&e, ERR_TIMEOUT, "the coordination service did not answer");
    if (e.code)
        k->reply = (struct coord_reply){ .err = &e };
    /* Out of the list first: the callback may free the client. */
    list_del(&k->list);
    list_init(&k->list);
    if (fn)
        fn(fn_cookie, &k->reply);
    call_free(k);
}

static void call_lost(struct sim_call *k)
{
    k->arrived = false;
    loop_timer_free(k->timer);
    k->timer = loop_timer_new(k->client->site->loop, call_end, k);
    loop_timer_start(k->timer, DEADLINE_MS, 0);
}

static void call_arrives(void *cookie)
{
    struct sim_call *k = cookie;
    struct coord_site *s = k->client->site;
    static const struct err no_lease = { .code = ERR_NOT_FOUND, .text = "the lease is gone" };
    struct err e = { 0 };

    if (s->away || k->client->cut || prng_chance(&s->prng, s->faults.lose_request)) {
        call_lost(k);
        return;
    }
    if (k->op == OP_LIST)
        do_list(s, k);
    else if (k->op == OP_TXN)
        do_txn(s, k, &e);
    else
        do_lease(s, k);
    k->reply.err = e.code ? &no_lease : NULL;
    k->reply.rev = s->rev;
    k->arrived = true;
    if (prng_chance(&s->prng, s->faults.lose_reply)) {
        call_lost(k);
        return;
    }
    loop_timer_free(k->timer);
    k->timer = loop_timer_new(s->loop, call_end, k);
    loop_timer_start(k->timer, delay(s), 0);
}

static struct sim_call *call_new(struct coord *coord, enum op op, coord_fn fn, void *cookie)
{
    struct sim_client *c = container_of(coord, struct sim_client, coord);
    struct sim_call *k = XNEW(struct sim_call);

    k->client = c;
    k->op = op;
    k->fn = fn;
    k->cookie = cookie;
    k->timer = loop_timer_new(c->site->loop, call_arrives, k);
    list_add_tail(&c->calls, &k->list);
    loop_timer_start(k->timer, delay(c->site), 0);
    return k;
}

static void sim_list(struct coord *c, struct str prefix, coord_fn fn, void *cookie)
{
    call_new(c, OP_LIST, fn, cookie)->prefix = copy(prefix);
}

static void sim_txn(struct coord *c, const struct coord_txn *t, coord_fn fn, void *cookie)
{
    struct sim_call *k = call_new(c, OP_TXN, fn, cookie);

    for (size_t i = 0; i < t->cmp_len; i++) {
        struct coord_compare one = t->cmp[i];
        one.key = copy(one.key);
        vec_push(&k->cmp, one);
    }
    for (size_t i = 0; i < t->chg_len; i++) {
        struct coord_change one = t->chg[i];
        one.key = copy(one.key);
        one.value = copy(one.value);
        vec_push(&k->chg, one);
    }
}

static void sim_grant(struct coord *c, uint64_t ttl_ms, coord_fn fn, void *cookie)
{
    call_new(c, OP_GRANT, fn, cookie)->ttl_ms = ttl_ms;
}

static void sim_keep(struct coord *c, int64_t lease, coord_fn fn, void *cookie)
{
    call_new(c, OP_KEEP, fn, cookie)->lease = lease;
}

static void sim_revoke(struct coord *c, int64_t lease, coord_fn fn, void *cookie)
{
    call_new(c, OP_REVOKE, fn, cookie)->lease = lease;
}

static void sim_cancel(struct coord *coord, const void *cookie)
{
    struct sim_client *c = container_of(coord, struct sim_client, coord);

    list_for (it, &c->calls) {
        struct sim_call *k = container_of(it, struct sim_call, list);

        /* Messages that are on their way still arrive. */
        if (k->cookie == cookie)
            k->fn = NULL;
    }
}

static void sim_free(struct coord *coord)
{
    struct sim_client *c = container_of(coord, struct sim_client, coord);

    list_for (k, &c->calls)
        call_free(container_of(k, struct sim_call, list));
    list_for (w, &c->watches)
        sim_unwatch(coord, container_of(w, struct coord_watch, list));
    list_del(&c->list);
    xfree(c);
}

static const struct coord_ops sim_ops = { sim_list,  sim_txn,     sim_grant,  sim_keep, sim_revoke,
                                          sim_watch, sim_unwatch, sim_cancel, sim_free, NULL };

/* ---- life ------------------------------------------------------------------------------------ */

struct coord *coord_sim_new(struct coord_site *s)
{
    struct sim_client *c = XNEW(struct sim_client);

    CHECK(s->magic == SITE_MAGIC);
    c->coord.ops = &sim_ops;
    c->site = s;
    list_init(&c->calls);
    list_init(&c->watches);
    list_add_tail(&s->clients, &c->list);
    return &c->coord;
}

void coord_sim_cut(struct coord *c, bool cut)
{
    container_of(c, struct sim_client, coord)->cut = cut;
}

struct coord_site *coord_site_new(struct loop *loop, uint64_t seed)
{
    struct coord_site *s = XNEW(struct coord_site);

    s->magic = SITE_MAGIC;
    s->loop = loop;
    s->rev = 1;
    prng_init(&s->prng, seed);
    list_init(&s->clients);
    s->lease_timer = loop_timer_new(loop, leases_look, s);
    return s;
}

void coord_site_free(struct coord_site *s)
{
    if (!s)
        return;
    CHECK(list_empty(&s->clients));
    loop_timer_free(s->lease_timer);
    sim_forget(s, s->rev);
    vec_for (i, &s->keys)
        sim_kv_drop(&s->keys.ptr[i]);
    vec_free(&s->keys);
    vec_free(&s->history);
    vec_free(&s->leases);
    xfree(s);
}

void coord_site_mute(struct coord_site *s, bool mute)
{
    s->mute = mute;
}

void coord_site_faults(struct coord_site *s, const struct coord_faults *f)
{
    s->faults = *f;
}

void coord_site_away(struct coord_site *s, bool away)
{
    if (s->away && !away)
        vec_for (i, &s->leases)
            s->leases.ptr[i].deadline_ms = sim_now_ms(s) + s->leases.ptr[i].ttl_ms;
    s->away = away;
}

void coord_site_compact(struct coord_site *s)
{
    sim_forget(s, s->rev);
}

void coord_site_put(struct coord_site *s, struct str key, struct str value)
{
    s->rev++;
    put(s, key, value, 0);
    sim_pump_soon(s);
}

void coord_site_del(struct coord_site *s, struct str key)
{
    size_t at = lower_bound(s, key);

    if (at == s->keys.len || !str_eq(s->keys.ptr[at].key, key))
        return;
    s->rev++;
    del_at(s, at);
    sim_pump_soon(s);
}
