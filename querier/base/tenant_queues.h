/* SPDX-License-Identifier: Apache-2.0
 *
 * tenant_queues.h: which query is worked on next, and what the queries of one tenant may hold.
 * Each tenant has a queue of its own; tenants take turns by the time their queries took
 * (common/sys/fair.h), so that a thousand queries of one are one query in front of another's.
 *
 *      tenant_queue_enter ──> waits ──(its turn)──> go() ──> tenant_queue_leave
 *          │            └──(client gone, deadline)──────┘
 *          └──> ERR_RATE: the tenant's queue is full;  ERR_BUSY: all queues together are full
 *
 * Thread: the loop's, but tenant_queue_bytes_take and _give: any.
 */
#ifndef QUERIER_BASE_TENANT_QUEUES_H
#define QUERIER_BASE_TENANT_QUEUES_H

#include "common/base/err.h"
#include "common/base/str.h"
#include "common/sys/budget.h"
#include "common/sys/fair.h"

/* What one tenant may have at once. */
struct tenant_queue_limits {
    size_t running, waiting; /* queries */
    size_t bytes;            /* of the running ones */
    uint64_t read_bytes;     /* one query may read; 0: any */
};
struct tenant_queues;
struct tenant_queue_tenant;
struct tenant_queue { /* in the query */
    struct fair_item item;
    struct tenant_queue_tenant *tenant; /* NULL: has not entered, or left */
    struct tenant_queue_limits limits;  /* those that held when it entered */
    /* The query's turn has come; it leaves by tenant_queue_leave. Not inside tenant_queue_enter of
     * another. */
    void (*go)(void *cookie);
    void *cookie;
};
struct tenant_queues_opts {
    size_t running_max, waiting_max; /* of all tenants */
    uint64_t seed;
    struct tenant_queue_limits limits;
};
/* "tenant=queries:8 queue:64 bytes:1GiB read_bytes:10GiB", what is not said is as in *ret. The name
 * is a part of text. ERR_CONFIG. */
NODISCARD int tenant_queue_limits_parse(struct str text, struct str *ret_tenant,
                                        struct tenant_queue_limits *ret, struct err *e);

struct tenant_queues *tenant_queues_new(const struct tenant_queues_opts *o);
void tenant_queues_free(struct tenant_queues *t); /* no query is in; NULL is fine */
/* Limits of one tenant in place of those of all. Before the first query. */
void tenant_queues_override(struct tenant_queues *t, struct str tenant,
                            const struct tenant_queue_limits *limits);

/* `fn` changes what limits a tenant has besides, now and whenever one comes; NULL: nothing does. */
void tenant_queues_limits(struct tenant_queues *t,
                          void (*fn)(void *cookie, struct str tenant,
                                     struct tenant_queue_limits *l),
                          void *cookie);

struct tenant_queue_limits tenant_queues_limits_of(const struct tenant_queues *t,
                                                   struct str tenant);

/* n->go is called at once, and may have freed *n, or later: then *ret_waits. ERR_RATE or ERR_BUSY:
 * not at all. */
NODISCARD int tenant_queue_enter(struct tenant_queues *t, struct str tenant, struct tenant_queue *n,
                                 bool *ret_waits, struct err *e);
bool tenant_queue_waits(const struct tenant_queue *n);
/* The query ended, or stops waiting. took_us: what it cost. A turn that is not in is fine. */
void tenant_queue_leave(struct tenant_queues *t, struct tenant_queue *n, uint64_t took_us);

/* Memory of the tenant's queries; ERR_RATE. Only between go and tenant_queue_leave. */
NODISCARD int tenant_queue_bytes_take(struct tenant_queue *n, size_t bytes, struct err *e);
void tenant_queue_bytes_give(struct tenant_queue *n, size_t bytes);
const struct tenant_queue_limits *tenant_queue_limits_of(const struct tenant_queue *n);

size_t tenant_queues_running(const struct tenant_queues *t);
size_t tenant_queues_waiting(const struct tenant_queues *t);

#endif
