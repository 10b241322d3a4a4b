/* SPDX-License-Identifier: Apache-2.0
 *
 * exported.h: the replies to a merge question with whole frames, gauges averaged, and their pprof.
 * Pool thread. See merged.h for trees of names, which cost less.
 */
#ifndef QUERIER_MERGE_EXPORTED_H
#define QUERIER_MERGE_EXPORTED_H

#include "querier/merge/merged.h"
#include "querier/render/export.h"

struct exported {
    struct export_set set;
    struct merged_facts facts;
};
/* how NULL: all of every stack. */
void exported_init(struct exported *x, struct query *q, const struct export_how *how);
void exported_deinit(struct exported *x);
/* Adds all replies to `ask`, cuts to max_nodes (0: all); sets q->saturated and q->bounds_*. The
 * memory is taken from the query. */
NODISCARD int exported_read(struct exported *x, struct query *q, size_t ask, size_t max_nodes,
                            struct err *e);
/* What a pprof of this answer says about itself, for the range asked. type: of five parts. */
NODISCARD int exported_head(struct str type, int64_t start_ms, int64_t end_ms,
                            struct export_head *ret, struct err *e);
/* Sets q->out to the message; plain, or gzip'd. */
NODISCARD int exported_pprof(const struct exported *x, struct query *q, const struct export_head *h,
                             bool gzipped, struct err *e);

/* The same, in pieces where it is long: *x is moved into the query and freed with it. */
NODISCARD int exported_pprof_stream(struct exported *x, struct query *q,
                                    const struct export_head *h, bool gzipped, struct err *e);

#endif
