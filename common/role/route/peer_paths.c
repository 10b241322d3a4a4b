/* SPDX-License-Identifier: Apache-2.0
 *
 * ways: when to try another way, and how often.
 *
 * Late is what takes longer than calls of this kind to this ingester usually do: mean + 4 times the
 * mean distance from it (as TCP judges lost segments), never less than hedge_ms for writes and four
 * times that for reads, whose work differs much more from one to the next.
 *
 * Sending twice must not make a slow cluster slower. Each call earns a twentieth of one, time earns
 * one a second, and no more than ten are ever saved up: under load at most 5 % are sent twice.
 *
 * A straight way that lost to another, or was not answered at all, is avoided for 1 s, then 2, ...
 * 16 s: calls go round from the start then, each still once. If going round times out as well, the
 * leader is what is slow, and calls go straight for a while, whatever comes.
 */
#include "common/role/route/peer_paths.h"

#include "common/base/map.h"
#include "common/base/mem.h"

#define TICK_MS      25
#define MS_NS        UINT64_C(1000000)
#define AVOID_MS     1000
#define STRIKES_MAX  5
#define TRUST_MS     5000
#define CREDIT_CALL  50 /* thousandths */
#define CREDIT_ONE   1000
#define CREDIT_MAX   (10 * CREDIT_ONE)
#define READ_FACTOR  4
#define UNKNOWN_MORE 2

static struct metric_cell *counter(struct metrics *m, const char *name, const char *help)
{
    return m ? metric_at(metric_new(m, METRIC_COUNTER, name, help, NULL), NULL, 0) : NULL;
}

struct peer_paths *peer_paths_new(struct loop *loop, uint64_t hedge_ms, struct metrics *metrics,
                                  void (*on_tick)(void *ways))
{
    struct peer_paths *w = XNEW(struct peer_paths);

    w->loop = loop;
    w->hedge_ms = hedge_ms;
    w->by_addr = map_str_new();
    w->credit = CREDIT_MAX;
    list_init(&w->waiting);
    w->tick = loop_timer_new(loop, on_tick, w);
    w->metrics = (struct peer_paths_metrics){
        .relayed = counter(metrics, "embertree_route_relayed_total",
                           "Calls that went by another ingester from the start, since the way to "
                           "the leader was dead or slow"),
        .hedged = counter(metrics, "embertree_route_hedged_total",
                          "Calls sent a second time, by another way, since they were late"),
        .hedge_won = counter(metrics, "embertree_route_hedge_won_total",
                             "Of those, answered first by the other way"),
        .hedge_refused = counter(metrics, "embertree_route_hedge_refused_total",
                                 "Late calls not sent a second time, since too many were"),
    };
    return w;
}

void peer_paths_free(struct peer_paths *w)
{
    struct str key;
    void *way;

    if (!w)
        return;
    CHECK(list_empty(&w->waiting));
    for (size_t pos = 0; map_str_next(w->by_addr, &pos, &key, &way);)
        xfree(way);
    map_str_free(w->by_addr);
    loop_timer_free(w->tick);
    xfree(w);
}

static void make_room(struct peer_paths *w)
{
    struct way *oldest = NULL;
    struct str key;
    void *way;

    if (map_str_len(w->by_addr) < PEER_PATHS_MAX)
        return;
    for (size_t pos = 0; map_str_next(w->by_addr, &pos, &key, &way);) {
        struct way *at = way;

        if (!at->held && (!oldest || at->used_ns < oldest->used_ns))
            oldest = at;
    }
    if (!oldest)
        return; /* as many as calls that are under way */
    (void)map_str_del(w->by_addr, str_c(oldest->addr));
    xfree(oldest);
}

void way_drop(struct way *at)
{
    CHECK(!at || at->held > 0);
    if (at)
        at->held--;
}

struct way *peer_paths_at(struct peer_paths *w, const char *addr)
{
    struct way *at = map_str_get(w->by_addr, str_c(addr));
    uint64_t now_ns = clock_mono_ns(loop_clock(w->loop));

    if (at) {
        at->used_ns = now_ns;
        return at;
    }
    make_room(w);
    at = XNEW(struct way);
    at->used_ns = now_ns;
    CHECK(strlen(addr) <= RPC_ADDR_MAX);
    memcpy(at->addr, addr, strlen(addr));
    (void)map_str_put(w->by_addr, str_c(at->addr), at);
    return at;
}

void peer_paths_wait(struct peer_paths *w, struct list *link)
{
    list_add_tail(&w->waiting, link);
    if (w->ticking)
        return;
    w->ticking = true;
    loop_timer_start(w->tick, TICK_MS, TICK_MS);
}

/* ---- how long is long ----------------------------------------------------------------------- */

uint64_t peer_path_hedge_delay_ns(const struct peer_paths *w, const struct way *at, uint16_t method,
                                  uint64_t deadline_ns)
{
    const struct pace *p = &at->pace[method];
    bool write = method == RPC_WRITE || method == RPC_WRITE_TOLD;
    uint64_t least = w->hedge_ms * MS_NS * (write ? 1 : READ_FACTOR), usual;

    usual = p->mean_us ? ((uint64_t)p->mean_us + 4 * (uint64_t)p->away_us) * 1000
                       : least * UNKNOWN_MORE;
    return MIN(MAX(usual, least), deadline_ns / 2);
}

void way_answered(struct way *at, uint16_t method, uint64_t took_ns)
{
    struct pace *p = &at->pace[method];
    uint32_t us = (uint32_t)MIN(took_ns / 1000 + 1, UINT64_C(3600000000));

    at->strikes = 0;
    if (!p->mean_us) {
        *p = (struct pace){ us, us / 2 };
        return;
    }
    uint32_t away = us > p->mean_us ? us - p->mean_us : p->mean_us - us;

    p->mean_us = us > p->mean_us ? p->mean_us + away / 8 : p->mean_us - away / 8;
    p->away_us = away > p->away_us ? p->away_us + (away - p->away_us) / 4
                                   : p->away_us - (p->away_us - away) / 4;
}

void peer_path_strike(struct way *at, uint64_t now_ns)
{
    if (now_ns < at->trusted_ns || way_avoided(at, now_ns))
        return;
    at->avoid_ns = now_ns + (uint64_t)AVOID_MS * MS_NS * (UINT64_C(1) << at->strikes);
    at->strikes = MIN(at->strikes + 1, STRIKES_MAX - 1);
}

void peer_path_clear(struct way *at, uint64_t now_ns)
{
    if (!way_avoided(at, now_ns))
        return;
    at->avoid_ns = 0;
    at->trusted_ns = now_ns + TRUST_MS * MS_NS;
}

bool way_avoided(const struct way *at, uint64_t now_ns)
{
    return now_ns < at->avoid_ns;
}

/* ---- how often ------------------------------------------------------------------------------ */

static void credit(struct peer_paths *w, uint64_t thousandths)
{
    w->credit = MIN(w->credit + thousandths, (uint64_t)CREDIT_MAX);
}

void peer_paths_credit(struct peer_paths *w, uint64_t now_ns)
{
    credit(w, CREDIT_CALL);
    if (now_ns - w->credited_ns < MS_NS)
        return;
    credit(w, MIN((now_ns - w->credited_ns) / MS_NS, (uint64_t)CREDIT_MAX));
    w->credited_ns = now_ns;
}

bool hedge_budget_spend(struct peer_paths *w, uint64_t now_ns)
{
    credit(w, MIN((now_ns - w->credited_ns) / MS_NS, (uint64_t)CREDIT_MAX));
    w->credited_ns = now_ns;
    if (w->credit < CREDIT_ONE)
        return false;
    w->credit -= CREDIT_ONE;
    return true;
}
