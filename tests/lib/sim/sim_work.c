/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_work: the clients. They push as agents do (folded text and pprof, now and late, again under
 * the same key until one is acked), read as users do, and delete. Every request goes through a
 * random distributor or querier, over HTTP.
 *
 * What a server may answer is checked, too: never 500, and 400 only to whose clock is wrong.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/sim/sim_impl.h"

#define PUSH_TRIES 4
#define DAY_MS     INT64_C(86400000)

const struct service services[SERVICES] = {
    { "acme", "shop" },  { "acme", "cart" }, { "acme", "mail" },
    { "umbra", "shop" }, { "umbra", "api" }, { "umbra", "jobs" },
};
#define FIRST_DELETED 3 /* services from here on are deleted at random */

struct flight {
    struct world *w;
    size_t push;
    size_t by; /* of nodes[]: gets its first attempt; 0: any */
    uint32_t service;
    uint8_t *before; /* reads */
    size_t before_len;
    int64_t from_ms, to_ms;
    uint64_t began_ms; /* deletes */
    struct taking takes;
    uint32_t number, tries;
    struct timer *timer;
};

static void flight_free(struct flight *f)
{
    f->w->flying--;
    loop_timer_free(f->timer);
    xfree(f->before);
    xfree(f);
}

static struct flight *flight_new(struct world *w)
{
    struct flight *f = XNEW(struct flight);

    f->w = w;
    w->flying++;
    return f;
}

struct node *any_of(struct world *w, size_t first, size_t n)
{
    size_t at = prng_below(&w->p, n);

    for (size_t i = 0; i < n; i++) {
        struct node *node = w->nodes[first + (at + i) % n];
        if (node->state == NODE_UP)
            return node;
    }
    return NULL;
}

bool transient(const struct sim_reply *r)
{
    return r->status == 0 || r->status == 503 || r->status == 504 || r->status == 429 ||
           (r->status == 500 && str_contains(r->body, STR("injected")));
}

static void again_in(struct flight *f, uint64_t ms, loop_fn fn)
{
    if (!f->timer)
        f->timer = loop_timer_new(f->w->rpc.loop, fn, f);
    loop_timer_start(f->timer, ms, 0);
}

/* Sooner than its write id is forgotten, but for the mutant. */
static void push_again(struct flight *f, loop_fn fn)
{
    bool late = f->w->o.mutant == SIM_LATE_AGAIN;

    again_in(f, late ? 65000 + prng_below(&f->w->p, 20000) : prng_below(&f->w->p, 1500), fn);
}

/* ---- pushes ---------------------------------------------------------------------------------- */

static void push_send(void *cookie);

static void on_pushed(void *cookie, const struct sim_reply *r)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    struct push *p = w->pushes.ptr[f->push];
    uint32_t tries = w->o.mutant == SIM_LATE_AGAIN ? 2 : PUSH_TRIES;

    trace(w, "push p%" PRIu32 ": %d", p->number, r->status);
    if (r->status == 200) {
        p->state = p->doubtful ? PUSH_MAYBE : PUSH_ACKED;
        p->acked_ms = world_ms(w);
        count(w)->acked++;
        aim_acked(w, p->service);
        between_acked(w, p->service);
    } else if (transient(r) && p->attempts < tries && !p->once) {
        count(w)->retries++;
        push_again(f, push_send);
        return;
    } else {
        if (!transient(r) && !(r->status == 400 && w->skewed))
            broke(w, "a push was refused", "%d: %.*s", r->status, (int)MIN(r->body.len, 300u),
                  r->body.ptr);
        p->state = PUSH_ENDED;
        count(w)->not_acked++;
    }
    flight_free(f);
}

static void push_body(const struct push *p, struct buf *body)
{
    char leaf[24];

    (void)snprintf(leaf, sizeof(leaf), "p%" PRIu32, p->number);
    if (p->pprof)
        push_gen_pprof(leaf, (int64_t)p->value, 0, body);
    else
        (void)buf_addf(body, "main;%s %" PRIu64 "\n", leaf, p->value);
}

static void push_send(void *cookie)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    struct push *p = w->pushes.ptr[f->push];
    const struct service *s = &services[p->service];
    struct node *n = any_of(w, FIRST_DIST, SIM_DISTS);
    uint64_t key = p->number, patience = SIM_PATIENCE_MS;
    struct buf body, out;

    p->attempts++;
    trace(w, "push p%" PRIu32 " to %s/%s sent", p->number, s->tenant, s->name);
    if (!n) {
        on_pushed(f, &(struct sim_reply){ 0 });
        return;
    }
    if (f->by && w->nodes[f->by]->state == NODE_UP) {
        n = w->nodes[f->by];
        patience = 5 + prng_below(&w->p, 60);
    }
    f->by = 0;
    if (w->o.mutant == SIM_NEW_KEYS)
        key = prng_u64(&w->p);
    buf_init(&body, 64 * KIB);
    buf_init(&out, 64 * KIB);
    push_body(p, &body);
    (void)buf_addf(&out,
                   "POST /ingest?name=%s%%7Bpod=p%" PRIu32 "%%7D&from=%" PRId64 "&until=%" PRId64
                   "&sampleRate=1000000000%s HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n"
                   "X-Scope-OrgID: %s\r\nIdempotency-Key: k%" PRIu64
                   "\r\nContent-Length: %zu\r\n\r\n",
                   s->name, p->number % SIM_PODS, p->time_ms / 1000, p->time_ms / 1000,
                   p->pprof ? "&format=pprof" : "", s->tenant, key, body.len);
    (void)buf_add_str(&out, buf_str(&body));
    CHECK(buf_ok(&out) && buf_ok(&body));
    sim_http(&n->site, buf_str(&out), patience, on_pushed, f);
    buf_deinit(&out);
    buf_deinit(&body);
}

static int64_t time_of_push(struct world *w)
{
    int64_t now = world_wall_ms(w), back;
    uint64_t dice = prng_below(&w->p, 100);

    if (dice < 70)
        back = (int64_t)prng_below(&w->p, 60000);
    else if (dice < 85)
        back = (int64_t)prng_below(&w->p, 1800000);
    else if (dice < 90)
        back = (int64_t)prng_below(&w->p, 4 * 3600000);
    else if (dice < 95)
        back = (int64_t)prng_below(&w->p, (uint64_t)DAY_MS);
    else
        back = (int64_t)prng_below(&w->p, (uint64_t)(20 * DAY_MS));
    count(w)->late += dice >= 70;
    return (now - back) / 10000 * 10000;
}

static void push_begin(struct world *w, uint32_t service, int64_t time_ms, size_t by)
{
    struct flight *f = flight_new(w);
    struct push *p = XNEW(struct push);

    *p = (struct push){ .number = (uint32_t)w->pushes.len,
                        .service = service,
                        .value = 1 + prng_below(&w->p, 1000),
                        .time_ms = time_ms,
                        .began_ms = world_ms(w),
                        .pprof = prng_chance(&w->p, 0.4) };
    p->doubtful = w->deleting[p->service] > 0;
    p->once = world_ms(w) < w->aims.once_until_ms || prng_below(&w->p, 20) == 0;
    vec_push(&w->pushes, p);
    count(w)->pushes++;
    count(w)->pprof += p->pprof;
    f->push = p->number;
    f->by = by;
    push_send(f);
}

void push_new(struct world *w)
{
    uint32_t service = (uint32_t)prng_below(&w->p, SERVICES);

    push_begin(w, service, time_of_push(w), 0);
}

void push_by(struct world *w, uint32_t service, size_t dist)
{
    push_begin(w, service, world_wall_ms(w) / 10000 * 10000, dist);
}

/* ---- reads ----------------------------------------------------------------------------------- */

static bool bounds(const struct sim_reply *r, struct flight *f)
{
    struct str text = sim_reply_header(r, "X-Embertree-Bounds");
    ptrdiff_t dash = str_find(text, '-');

    return dash > 0 && str_i64(str_sub(text, 0, (size_t)dash), &f->from_ms) &&
           str_i64(str_sub(text, (size_t)dash + 1, text.len), &f->to_ms);
}

static void on_read(void *cookie, const struct sim_reply *r)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    int64_t from = f->from_ms, to = f->to_ms;

    trace(w, "read of %s/%s: %d", services[f->service].tenant, services[f->service].name,
          r->status);
    if (r->status == 200) {
        count(w)->reads++;
        between_read(w, f->service);
        if (sim_reply_header(r, "X-Embertree-Partial").len)
            broke(w, "an answer is partial though no request allowed it", "%s", "");
        else if (bounds(r, f) && (f->from_ms > from || f->to_ms < to))
            broke(w, "an answer covers less than was asked for",
                  "%" PRId64 "-%" PRId64 " of %" PRId64 "-%" PRId64, f->from_ms, f->to_ms, from,
                  to);
        else
            oracle_read(w, f->service, f->before, f->before_len, f->from_ms, f->to_ms, r->body);
    } else {
        count(w)->reads_failed++;
        if (!transient(r))
            broke(w, "a read failed", "%d: %.*s", r->status, (int)MIN(r->body.len, 300u),
                  r->body.ptr);
    }
    flight_free(f);
}

void read_new(struct world *w, uint32_t service)
{
    const struct service *s = &services[service];
    struct node *n = any_of(w, FIRST_QUERIER, SIM_QUERIERS);
    int64_t now = world_wall_ms(w);
    struct flight *f;
    struct buf out;

    if (!n)
        return;
    f = flight_new(w);
    f->service = service;
    f->before = oracle_before(w, &f->before_len);
    f->from_ms = now / 10000 * 10000 - 30 * DAY_MS;
    f->to_ms = now / 10000 * 10000 + 60000;
    if (!w->settling && prng_chance(&w->p, 0.3)) {
        f->from_ms = now / 10000 * 10000 - (int64_t)prng_below(&w->p, 300) * 10000;
        f->to_ms = f->from_ms + (int64_t)(1 + prng_below(&w->p, 300)) * 10000;
    }
    buf_init(&out, 4 * KIB);
    (void)buf_addf(&out,
                   "GET /pyroscope/render?query=" SIM_CPU
                   "%%7Bservice_name=%%22%s%%22%%7D&from=%" PRId64 "&until=%" PRId64
                   "&format=collapsed HTTP/1.1\r\nHost: sim\r\n"
                   "Connection: close\r\nX-Scope-OrgID: %s\r\n\r\n",
                   s->name, f->from_ms / 1000, f->to_ms / 1000, s->tenant);
    CHECK(buf_ok(&out));
    sim_http(&n->site, buf_str(&out), SIM_PATIENCE_MS, on_read, f);
    buf_deinit(&out);
}

/* ---- deletes --------------------------------------------------------------------------------- */

static void delete_send(void *cookie);

static void on_deleted(void *cookie, const struct sim_reply *r)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    const struct taking *t = &f->takes;

    trace(w, "delete d%" PRIu32 ": %d %.*s", f->number, r->status, (int)MIN(r->body.len, 300u),
          r->body.len ? r->body.ptr : "");
    if (r->status == 200) {
        count(w)->deletes++;
        count(w)->deletes_in_part += t->pod < SIM_PODS || t->to_ms;
        oracle_delete_done(w, t, f->began_ms);
    } else if (transient(r)) {
        again_in(f, 200 + prng_below(&w->p, 1000), delete_send);
        return;
    } else {
        broke(w, "a delete was refused", "%d: %.*s", r->status, (int)MIN(r->body.len, 300u),
              r->body.ptr);
    }
    flight_free(f);
}

static void delete_what(const struct taking *t, struct buf *out)
{
    char query[200];

    if (!t->service) {
        (void)buf_addf(out, "all=1&confirm=%s", t->tenant);
        return;
    }
    if (t->pod < SIM_PODS)
        (void)snprintf(query, sizeof(query),
                       "%%7Bservice_name=%%22%s%%22%%2Cpod=%%22p%" PRIu32 "%%22%%7D", t->service,
                       t->pod);
    else
        (void)snprintf(query, sizeof(query), "%%7Bservice_name=%%22%s%%22%%7D", t->service);
    (void)buf_addf(out, "query=%s&confirm=%s", query, query);
    if (t->to_ms)
        (void)buf_addf(out, "&from=%" PRId64 "&until=%" PRId64, t->from_ms / 1000, t->to_ms / 1000);
}

static void delete_send(void *cookie)
{
    struct flight *f = cookie;
    struct world *w = f->w;
    const struct taking *t = &f->takes;
    struct node *n = any_of(w, FIRST_QUERIER, SIM_QUERIERS);
    struct buf out;

    f->tries++;
    trace(w, "delete d%" PRIu32 " of %s/%s, pod %" PRIu32 ", from %" PRId64 " to %" PRId64 " sent",
          f->number, t->tenant, t->service ? t->service : "*", t->pod, t->from_ms, t->to_ms);
    if (!n) {
        on_deleted(f, &(struct sim_reply){ 0 });
        return;
    }
    buf_init(&out, 4 * KIB);
    (void)buf_add_str(&out, STR("POST /api/v1/delete?"));
    delete_what(t, &out);
    (void)buf_addf(&out,
                   "&id=d%" PRIu32 " HTTP/1.1\r\nHost: sim\r\nConnection: close\r\n"
                   "X-Scope-OrgID: %s\r\nContent-Length: 0\r\n\r\n",
                   f->number, t->tenant);
    CHECK(buf_ok(&out));
    sim_http(&n->site, buf_str(&out), SIM_PATIENCE_MS, on_deleted, f);
    buf_deinit(&out);
}

/* Of the last half hour, in whole leaves. */
static void some_range(struct world *w, struct taking *t)
{
    int64_t now = world_wall_ms(w) / 10000 * 10000;

    t->from_ms = now - (int64_t)prng_below(&w->p, 180) * 10000;
    t->to_ms = t->from_ms + (int64_t)(1 + prng_below(&w->p, 60)) * 10000;
}

void delete_new(struct world *w)
{
    struct flight *f = flight_new(w);
    const struct service *s =
        &services[FIRST_DELETED + (uint32_t)prng_below(&w->p, SERVICES - FIRST_DELETED)];

    f->takes = (struct taking){ .tenant = s->tenant, .service = s->name, .pod = SIM_PODS };
    if (prng_chance(&w->p, 0.2)) {
        f->takes.service = NULL;
    } else {
        if (prng_chance(&w->p, 0.4))
            f->takes.pod = (uint32_t)prng_below(&w->p, SIM_PODS);
        if (prng_chance(&w->p, 0.4))
            some_range(w, &f->takes);
    }
    f->number = ++w->deletes;
    f->began_ms = world_ms(w);
    oracle_delete_begin(w, &f->takes);
    delete_send(f);
}
