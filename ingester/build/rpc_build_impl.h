/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_build_impl.h: what is out, and the questions that wait; rpc_build.c has the states.
 */
#ifndef INGESTER_BUILD_RPC_BUILD_IMPL_H
#define INGESTER_BUILD_RPC_BUILD_IMPL_H

#include "common/store/build/build.h"
#include "ingester/build/compactor_fence.h"
#include "ingester/build/rpc_build.h"
#include "ingester/shard/shards.h"

enum site_state { SITE_FREE, SITE_READING, SITE_GIVEN, SITE_APPLYING };

struct skipped {
    struct build_node node;
    uint64_t until_ns;
};
/* What one shard has out; by place. */
struct site {
    struct shard *shard; /* of the last request, which holds it */
    enum site_state state;
    uint64_t job, compactor, given_ns; /* GIVEN, APPLYING */
    uint64_t job_fence;                /* it was given with */
    struct compactor_fence claimed;    /* the newest claim that asked */
    struct build_job expect;           /* its sums; rows are gone */
    struct build_nodes due;            /* of the last look, in order of building */
    size_t due_at;
    uint64_t oldest_ms;
    bool has_node;
    struct build_node node;
    struct build_cursor cursor, next; /* before and behind the job that is out */
    uint32_t part;
    VEC(struct skipped) skipped; /* failed lately */
    uint64_t jobs, applied, failed, fenced;
    uint64_t due_shown, oldest_shown; /* the loop's copies, of the last look */
};
struct builds {
    struct shard_hook hook;
    struct compactor_fence_opts claims;
    struct site sites[SHARDS_MAX];
    struct list waiting; /* of struct next */
    bool reading;
    size_t running; /* requests that are not answered */
    uint64_t last_job;
};

struct next {
    struct ingester *in;
    struct rpc_call *call;
    struct site *site;
    struct shard *shard; /* held */
    struct list link;
    uint64_t compactor, fence;
    size_t bytes_max;
    uint64_t wait_ms, due, oldest_ms; /* of the reply */
    bool found;
    bool far; /* holds a place (read_load_far_enter) */
    struct buf reply;
    struct err err;
};

static inline uint64_t build_now_ns(const struct ingester *in)
{
    return clock_mono_ns(in->ctx->env->clock);
}

/* ---- rpc_build_next.c ---- */

/* Reads the next job of the site and packs the reply. Pool thread; the site is READING. */
void build_next_work(void *cookie); /* struct next */
/* The reply, without a job if it is NULL. */
NODISCARD int build_pack_next(struct next *n, uint64_t job_id, const struct build_job *job,
                              struct arena *a, struct err *e);
/* The site's node cannot be built: not for a while again. Loop. */
void build_skip(struct ingester *in, struct site *st, const struct err *e);

#endif
