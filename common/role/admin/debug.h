/* SPDX-License-Identifier: Apache-2.0
 *
 * debug.h: /debug/pprof/: serves profiles of this process as Go programs do: to `go tool pprof`,
 * curl, and scrapers, an Embertree too. Thread: the loop's.
 */
#ifndef COMMON_ROLE_ADMIN_DEBUG_H
#define COMMON_ROLE_ADMIN_DEBUG_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/obs/selfprof.h"

#define DEBUG_SECONDS_MAX 300
#define DEBUG_PEER_MAX    64 /* an address as text */

struct process_core;
struct debug {
    const struct process_core *core; /* borrowed */
    struct selfprof *own; /* where selfprof.enabled is off, while profiles are taken; owned */
    size_t running;
    char peers[SELFPROF_CAPTURES_MAX][DEBUG_PEER_MAX]; /* address that holds a place; "": free */
    bool heap;                                         /* one is being dumped */
};
/* *d is zeroed, but for what this sets; it lives as long as the routes. */
void debug_routes(struct debug *d, const struct process_core *core);
/* Before the listener drains: profiles under way end with what there is. */
void debug_stop(struct debug *d);

/* What a capture said as gzip'd pprof. Any thread. */
NODISCARD int debug_cpu_pprof(const struct selfprof_push *parts, size_t n, uint64_t hz,
                              struct buf *out, struct err *e);
/* A heap profile as jemalloc writes it ("heap_v2/524288", ...) as gzip'd pprof; addresses are those
 * of this process. ERR_INPUT. Any thread. */
NODISCARD int debug_heap_pprof(struct str dump, int64_t now_ms, struct buf *out, struct err *e);
#endif
