/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof.h: samples the CPU of all threads of this process and pushes the profiles as folded text
 * by POST /ingest, one series per role and thread name:
 *
 *     embertree.cpu{role=ingester,thread=shard-0}
 *
 * The first push goes out two seconds after the start, later ones at each full ten seconds, so that
 * a window never crosses a leaf. A push that fails for a while is sent again with the same
 * idempotency key; what is older than a minute is dropped and counted.
 *
 * One per process. Metrics: embertree_selfprof_samples_total, _broken_stacks_total (shown with the
 * root "[broken stack]"), _dropped_samples_total, _pushes_total{result}, _threads.
 */
#ifndef COMMON_OBS_SELFPROF_H
#define COMMON_OBS_SELFPROF_H

#include "common/base/err.h"
#include "common/obs/metrics.h"
#include "common/sys/env.h"

#define SELFPROF_CAPTURES_MAX 4
enum { SELFPROF_HZ_MAX = 1000, SELFPROF_FIRST_MS = 2000, SELFPROF_EVERY_MS = 10000 };

/* A finished window of one series. */
struct selfprof_push {
    const char *role, *thread; /* "" when not per_thread */
    int64_t from_ms, until_ms;
    uint64_t samples;
    struct str folded;
};

/* Strings are copied. */
struct selfprof_opts {
    struct env *env;         /* borrowed */
    struct metrics *metrics; /* borrowed; may be NULL */
    uint64_t hz;             /* samples per second of CPU time, 1..SELFPROF_HZ_MAX */
    const char *url;         /* "http://127.0.0.1:4040"; loopback only */
    const char *tenant;      /* X-Scope-OrgID; NULL or "": none */
    const char *token;       /* Authorization: Bearer; NULL: none; lives until selfprof_stop */
    const char *service;     /* name of the service, without kind: "embertree" */
    const char *labels;      /* more labels, "version=v1,region=eu"; NULL: none */
    const char *role;        /* of threads whose name tells none; NULL: "shared" */
    bool per_thread;         /* labels role and thread; else all threads are one series */
    bool push_at_stop;       /* send the last window in selfprof_stop; not to one's own server */
    /* Called on the profiler's thread. May be NULL. */
    void (*on_error)(void *cookie, const struct err *e);          /* a push failed */
    void (*on_push)(void *cookie, const struct selfprof_push *p); /* instead of sending it */
    void *cookie;
};

struct selfprof;

/* ERR_CONFIG: url, hz or service cannot be used. ERR_BUSY: one runs already. */
NODISCARD int selfprof_start(const struct selfprof_opts *o, struct selfprof **ret, struct err *e);
/* A part per role and thread: folded text that is borrowed for the call. */
typedef void (*selfprof_capture_fn)(void *cookie, const struct selfprof_push *parts, size_t n);
/* Samples for so long, beside the pushes, and calls done once, on the profiler's thread: with what
 * there is if it is stopped before. Any thread. ERR_BUSY: SELFPROF_CAPTURES_MAX are under way. */
NODISCARD int selfprof_capture(struct selfprof *p, uint64_t ms, selfprof_capture_fn done,
                               void *cookie, struct err *e);
/* Ends the capture with this cookie at the next tick of the profiler's thread; `done` gets the
 * samples so far. Any thread, before `done`. */
void selfprof_capture_end(struct selfprof *p, const void *cookie);
uint64_t selfprof_hz(const struct selfprof *p);
/* Stops sampling and waits for the thread, which cancels a push under way. NULL is fine. */
void selfprof_stop(struct selfprof *p);

#endif
