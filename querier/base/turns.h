/* SPDX-License-Identifier: Apache-2.0
 *
 * turns.h: which query is worked on next, and what the queries of one tenant may hold. Each tenant
 * has a queue of its own; tenants take turns by the time their queries took (common/sys/fair.h), so
 * that a thousand queries of one are one query in front of another's.
 *
 *      turn_enter ──> waits ──(its turn)──> go() ──> turn_leave
 *          │            └──(client gone, deadline)──────┘
 *          └──> ERR_RATE: the tenant's queue is full;  ERR_BUSY: all queues together are full
 *
 * Thread: the loop's, but turn_bytes_take and _give: any.
 */
#ifndef QUERIER_BASE_TURNS_H
#define QUERIER_BASE_TURNS_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/sys/budget.h"
#include "common/sys/fair.h"

/* What one tenant may have at once. */
struct turn_limits {
    size_t running, waiting; /* queries */
    size_t bytes;            /* of the running ones */
    uint64_t read_bytes;     /* one query may read; 0: any */
};
struct turns;
struct turn_tenant;
struct turn { /* in the query */
    struct fair_item item;
    struct turn_tenant *tenant; /* NULL: has not entered, or left */
    struct turn_limits limits;  /* those that held when it entered */
    /* The query's turn has come; it leaves by turn_leave. Not inside turn_enter of another. */
    void (*go)(void *cookie);
    void *cookie;
};
struct turns_opts {
    size_t running_max, waiting_max; /* of all tenants */
    uint64_t seed;
    struct turn_limits limits;
};
/* "tenant=queries:8 queue:64 bytes:1GiB read_bytes:10GiB", what is not said is as in *ret. The name
 * is a part of text. ERR_CONFIG. */
NODISCARD int turn_limits_parse(struct str text, struct str *ret_tenant, struct turn_limits *ret,
                                struct err *e);

struct turns *turns_new(const struct turns_opts *o);
void turns_free(struct turns *t); /* no query is in; NULL is fine */
/* Limits of one tenant in place of those of all. Before the first query. */
void turns_override(struct turns *t, struct str tenant, const struct turn_limits *limits);

/* `fn` changes what limits a tenant has besides, now and whenever one comes; NULL: nothing does. */
void turns_limits(struct turns *t,
                  void (*fn)(void *cookie, struct str tenant, struct turn_limits *l), void *cookie);

struct turn_limits turns_limits_of(const struct turns *t, struct str tenant);

/* n->go is called at once, and may have freed *n, or later: then *ret_waits. ERR_RATE or ERR_BUSY:
 * not at all. */
NODISCARD int turn_enter(struct turns *t, struct str tenant, struct turn *n, bool *ret_waits,
                         struct err *e);
bool turn_waits(const struct turn *n);
/* The query ended, or stops waiting. took_us: what it cost. A turn that is not in is fine. */
void turn_leave(struct turns *t, struct turn *n, uint64_t took_us);

/* Memory of the tenant's queries; ERR_RATE. Only between go and turn_leave. */
NODISCARD int turn_bytes_take(struct turn *n, size_t bytes, struct err *e);
void turn_bytes_give(struct turn *n, size_t bytes);
const struct turn_limits *turn_limits_of(const struct turn *n);

size_t turns_running(const struct turns *t);
size_t turns_waiting(const struct turns *t);

#endif
