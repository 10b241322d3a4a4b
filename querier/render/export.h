/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h: the answers of all ingesters as one set of stacks that keeps whole frames (function,
 * file, line, module, address), and that set as pprof.
 *
 *   export_init ─> export_add (each reply) ─> export_divide (gauges) ─> export_cut ─> export_pprof
 *
 * calltree.h keeps names only; this costs more and is for those who need lines. Only stacks that
 * have a value are taken over, so what it holds is bounded by the answer, and by bytes_max.
 * Thread: one at a time. Nothing of the replies is kept.
 */
#ifndef QUERIER_RENDER_EXPORT_H
#define QUERIER_RENDER_EXPORT_H

#include <stdatomic.h>

#include "common/model/pprof_out.h"
#include "common/model/ptype.h"
#include "common/render/calltree.h"

/* What of a stack is kept: stackTraceSelector.goPgo. All zero: everything. */
struct export_how {
    uint64_t keep_locations; /* innermost frames kept; 0: all */
    bool aggregate_callees;  /* lines of the leaf count as one */
};
struct export_set {
    struct stacks stacks;
    VEC(uint64_t) self; /* by node of stacks; 0 is the empty stack */
    struct export_how how;
    bool saturated; /* a value passed INT64_MAX and was cut to it */
};
/* What the message says besides samples. */
struct export_head {
    struct ptype type;   /* of the values; the period's type is in it */
    int64_t time_ns;     /* end of the range, or what the reader wants there */
    int64_t duration_ns; /* 0: not said */
    int64_t period;      /* 0: that of the type, see export_period */
};

void export_init(struct export_set *x, const struct export_how *how, size_t bytes_max,
                 uint64_t seed);
void export_deinit(struct export_set *x);
/* ERR_CORRUPT if a node is out of range; ERR_LIMIT over bytes_max; ERR_CANCELED once *cancel (may
 * be NULL) is true. */
NODISCARD int export_add(struct export_set *x, const struct calltree_part *p,
                         const atomic_bool *cancel, struct err *e);
/* Every value becomes value / n, so rounded that the sum is round(sum / n). n > 0. */
void export_divide(struct export_set *x, uint64_t n);
uint64_t export_total(const struct export_set *x);
/* Keeps the stacks' nodes whose total is at least that of the max_nodes-th largest; what is cut is
 * a frame "other" below its own parent. 0 keeps all. ERR_LIMIT over bytes_max. */
NODISCARD int export_cut(struct export_set *x, size_t max_nodes, struct err *e);
/* Bytes that export_add of all of this takes at most (not where innermost frames are kept). */
size_t export_cost(const struct stacks_view *v);
/* Bytes held. */
size_t export_bytes(const struct export_set *x);

/* Period of a type where no profile says one (proto/WIRE.md, "querier.v1 merges"): 1e9 for
 * process_cpu, 524288 for memory, else 1. */
int64_t export_period(const struct ptype *t);

/* The message in pieces. *x lives as long as the writer and does not change. */
struct export_pprof;
struct export_pprof *export_pprof_new(const struct export_set *x, const struct export_head *h,
                                      size_t bytes_max);
void export_pprof_free(struct export_pprof *w); /* NULL is fine */
/* Appends about `want` bytes more (or what one stack takes); *ret_more: there is more. ERR_LIMIT:
 * it does not fit. */
NODISCARD int export_pprof_next(struct export_pprof *w, size_t want, struct buf *out,
                                bool *ret_more, struct err *e);
/* All of it at once. */
NODISCARD int export_pprof_write(const struct export_set *x, const struct export_head *h,
                                 struct buf *out, struct err *e);

#endif
