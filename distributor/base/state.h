/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: the distributor's self: what its files share. Thread: the loop's, but for what a comment
 * says.
 */
#ifndef DISTRIBUTOR_BASE_STATE_H
#define DISTRIBUTOR_BASE_STATE_H

#include <stdatomic.h>

#include "common/base/hash.h"
#include "common/role/core/role.h"
#include "common/role/route/route.h"
#include "distributor/base/arena_pool.h"
#include "distributor/base/left_out.h"
#include "distributor/base/metrics.h"
#include "distributor/base/options.h"
#include "distributor/base/tenants.h"

struct symbol_sessions;
struct ledger_book;

struct distributor {
    uint32_t magic;
    const struct role_ctx *ctx;
    const struct distributor_conf *conf;
    struct limits limits; /* as configured, decode_bytes fit to the memory limit */
    struct distributor_metrics metrics;
    struct rpc_node *node;    /* owned */
    struct route *route;      /* owned: where the shards are */
    struct tenants *tenants;  /* owned */
    struct secret *secret;    /* owned: agrees on the secret of write ids */
    struct peers *peers;      /* owned: counts distributors; NULL: their number is configured */
    char *secret_text;        /* owned; of write_id_secret_file; NULL: no file is named */
    struct ledger_book *book; /* owned; NULL: none */
    struct symbol_sessions *knowns;  /* owned; NULL: nothing is remembered */
    struct rules *rules;             /* owned */
    struct stored *stored;           /* owned: bytes that tenants have in files */
    struct parca_since *parca_since; /* owned; NULL: Parca's counters are stored as they come */
    struct budget memory;            /* of pushes in work; any thread */
    struct arena_pool *arenas;       /* owned: of pushes; any thread */
    struct intake *spares;           /* owned: requests that ended, for the next ones */
    size_t spares_len;
    uint64_t seed;          /* of all tables of pushes; random, so clients do not know it */
    _Atomic uint64_t seeds; /* that were given; any thread */
    struct scrape *scrape;  /* owned; NULL: nothing is fetched */
    struct api_debuginfo *debuginfo; /* owned; NULL in simulation */
    struct tokens *tokens;           /* owned; NULL: none are known */
    struct forward *forward;         /* owned; NULL: nothing is forwarded */
    const struct intake_tap *tap;    /* borrowed, or NULL: told of every packed push (intake.h) */
    struct left_out_said said;       /* in the log */
    size_t working;                  /* requests not answered yet */
    bool draining;
    bool closing;                  /* being freed: nothing is tried again */
    void (*drained)(void *cookie); /* set while draining */
    void *drained_cookie;
    char why[160]; /* not ready: what is missing */
};

/* A seed for the tables of one push: asking the system for each would cost as much as its hashes.
 * Any thread. */
static inline uint64_t distributor_seed(struct distributor *d)
{
    uint64_t n = atomic_fetch_add_explicit(&d->seeds, 1, memory_order_relaxed);

    return hash_u64(d->seed + n * UINT64_C(0x9e3779b97f4a7c15));
}
/* A job of the pool that works for a tenant. Several tenants take turns by the time their jobs take
 * (common/sys/pool.h), so that a tenant that sends much waits for itself. `tenant` NULL: the job is
 * of none. False: ERR_BUSY. */
bool distributor_submit(struct distributor *d, const struct tenant *tenant, pool_fn work,
                        pool_fn done, void *cookie) NODISCARD;
/* Takes n bytes of d->memory for a request of the tenant that holds `own` already. ERR_RATE: the
 * tenant holds its share of it. ERR_BUSY: nothing is left. Loop. */
NODISCARD int distributor_reserve(struct distributor *d, struct tenant *tenant, size_t own,
                                  size_t n, struct err *e);
/* A push was answered: the last one ends a drain. Loop. */
void distributor_left(struct distributor *d);
/* Nothing is in work any more: closes connections to ingesters, then calls d->drained. Loop. */
void distributor_end_drain(struct distributor *d);

#endif
