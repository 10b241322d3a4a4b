/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.h: one shard: its database, the thread that owns it, and its committer.
 */
#ifndef INGESTER_SHARD_SHARD_H
#define INGESTER_SHARD_SHARD_H

#include "common/base/list.h"
#include "common/store/mask/tomb.h"
#include "common/store/store.h"
#include "common/sys/fair.h"
#include "common/sys/loop.h"
#include "ingester/base/metrics.h"

struct shard;

/* A write on its way through a shard; embedded in its request, which outlives it. */
struct shard_write {
    struct list link;           /* the shard's: of its group */
    struct fair_item item;      /* the shard's: of its queue */
    uint64_t tenant;            /* whose turn it takes; 0 where there is one tenant */
    size_t bytes;               /* the shard's: what it costs */
    unsigned part, parts;       /* the shard's: of its stacks, staged before it (stage_ahead.h) */
    struct store_write write;   /* borrowed by the shard until done */
    uint64_t deadline_mono_ns;  /* not even begun after this */
    struct store_result result; /* set when err.code is 0 */
    struct err err;
    /* On the loop, exactly once, after the fsync or the failure. */
    void (*done)(struct shard_write *w);
};

/* Anything else that must run on the shard's thread, between groups of writes; bounded like a chore
 * (shard_jobs.h). Embedded in its request, which outlives it. */
struct shard_task {
    bool quiet; /* run when every write that was staged is committed; later ones wait for it */
    struct list link; /* the shard's */
    /* On the shard's thread. */
    void (*run)(struct shard_task *t, struct store *s);
    /* On the loop, exactly once, behind it. */
    void (*done)(struct shard_task *t);
};

struct shard_opts {
    uint32_t number;
    struct store *store; /* owned by the shard from shard_new on */
    struct loop *loop;
    const struct clock *clock;
    size_t writes_max; /* sent and not done; the caller keeps to it */
    size_t group_bytes_max;
    uint64_t group_wait_ms;
    size_t seal_rows;
    uint32_t tenants_max; /* common/store/catalog/names_max.h */
    struct metrics *metrics;
    bool simulated; /* no threads: steps and commits run on the loop */
};

/* As of the last look, at most a second ago. */
struct shard_state {
    struct store_stats stats;
    uint64_t seal_lag_ms; /* since sealing last caught up; 0 = nothing is due */
    bool read_only;       /* a write failed, or the database cannot be opened */
    int read_only_code;   /* why */
    struct store_clock clock;
    struct tomb_stats deletes;
};

struct shard *shard_new(const struct shard_opts *o);
uint32_t shard_number(const struct shard *s);
/* Any thread. The shard holds the write until its done() was called. */
void shard_send(struct shard *s, struct shard_write *w);
/* Any thread. */
void shard_run(struct shard *s, struct shard_task *t);
/* Opens the store again, in place (store_reopen), once nothing is staged or being committed: for a
 * store that is read-only. One at a time. */
struct shard_reopen {
    int (*open)(void *cookie, struct kv **ret, struct err *e); /* on the shard's thread */
    void (*done)(struct shard_reopen *r);                      /* on the loop */
    void *cookie;
    struct err err; /* code 0: it takes writes again; ERR_BUSY: nothing was tried */
};
void shard_reopen(struct shard *s, struct shard_reopen *r);
/* For views: any thread. */
struct store *shard_store(struct shard *s);
/* Loop thread. */
const struct shard_state *shard_state(const struct shard *s);
/* As of now, while the state above may be a second old. */
bool shard_read_only(const struct shard *s);
/* For how long a group of writes has been at the database, where it is written and fsynced; 0: none
 * is. Of a replicated shard that includes the wait for other members. Loop. */
uint64_t shard_commit_ms(const struct shard *s);
/* The end, in three steps; no write or task may be on its way any more. Loop: it takes no more
 * steps but the one it is at. */
void shard_stop(struct shard *s);
/* Simulated: it has taken its last step. With threads shard_end waits for that. */
bool shard_stopped(const struct shard *s);
/* Waits for its threads and closes the store. Any thread; no other thread has the shard. */
void shard_end(struct shard *s);
/* Loop, behind whatever its threads have posted, which still points there. NULL is fine. */
void shard_free(struct shard *s);

#endif
