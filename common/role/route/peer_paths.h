/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_paths.h: what a caller knows of the ways to ingesters: how long they usually take, which of
 * them to avoid, and how many calls may still be sent twice. For route.c and hedged_call.c only.
 * Thread: the loop's.
 */
#ifndef COMMON_ROLE_ROUTE_PEER_PATHS_H
#define COMMON_ROLE_ROUTE_PEER_PATHS_H

#include "common/base/list.h"
#include "common/rpc/rpc.h"

/* What calls of one method take, straight: a running mean, and how far they are from it. */
struct pace {
    uint32_t mean_us, away_us; /* mean 0: nothing is known */
};

struct way {
    char addr[RPC_ADDR_MAX + 1];
    struct pace pace[RPC_METHODS];
    unsigned strikes;    /* how often in a row the straight way was worse than another */
    uint64_t avoid_ns;   /* the straight way is avoided until then */
    uint64_t trusted_ns; /* it is not avoided before: going round was no better */
    uint64_t no_help_ns; /* this one is not asked to pass calls on until then */
    bool relays;         /* its build is known to pass calls on */
    unsigned held;       /* by races that run */
    uint64_t used_ns;    /* when it was asked for last */
};

struct peer_paths_metrics {
    struct metric_cell *relayed, *hedged, *hedge_won, *hedge_refused;
};

struct peer_paths {
    struct loop *loop;
    struct map_str *by_addr; /* of struct way, owned */
    uint64_t hedge_ms;       /* no call is sent twice before; 0: never */
    uint64_t credit;         /* thousandths of calls that may be sent twice */
    uint64_t credited_ns;    /* when time last added to it */
    struct list waiting;     /* of struct hedged_call.link */
    struct timer *tick;      /* runs while a call waits */
    bool ticking;
    unsigned turn; /* whose turn it is to help */
    struct peer_paths_metrics metrics;
};

/* metrics may be NULL. on_tick runs every few ms from peer_paths_wait on, until no call waits. */
struct peer_paths *peer_paths_new(struct loop *loop, uint64_t hedge_ms, struct metrics *metrics,
                                  void (*on_tick)(void *ways));
void peer_paths_free(struct peer_paths *w); /* no call waits; NULL is fine */

/* Returns the way to an address, new if it has none. At PEER_PATHS_MAX the way that was not used
 * for longest is replaced. Lives as long as it is held (way_hold, way_drop), else for this turn. */
#define PEER_PATHS_MAX 4096 /* as rpc's peers */
struct way *peer_paths_at(struct peer_paths *w, const char *addr);
static inline struct way *way_hold(struct way *at)
{
    if (at)
        at->held++;
    return at;
}
void way_drop(struct way *at); /* NULL is fine */
void peer_paths_wait(struct peer_paths *w, struct list *link);
static inline void peer_paths_count(struct metric_cell *c)
{
    if (c)
        metric_add(c, 1);
}

/* After how long a call of this method is late. */
uint64_t peer_path_hedge_delay_ns(const struct peer_paths *w, const struct way *at, uint16_t method,
                                  uint64_t deadline_ns);
/* The straight way answered, after so long. */
void way_answered(struct way *at, uint16_t method, uint64_t took_ns);
/* It did not, or another one did first: it is avoided for a while. */
void peer_path_strike(struct way *at, uint64_t now_ns);
/* Going round did not help: straight again, for a while. */
void peer_path_clear(struct way *at, uint64_t now_ns);
bool way_avoided(const struct way *at, uint64_t now_ns);

/* A call began, which adds to what may be sent twice. */
void peer_paths_credit(struct peer_paths *w, uint64_t now_ns);
/* One is sent twice; false: too many were. */
bool hedge_budget_spend(struct peer_paths *w, uint64_t now_ns);

#endif
