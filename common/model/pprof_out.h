/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_out.h: stacks with values, of one or several types, as a pprof message (google.v1.Profile,
 * the same as perftools.profiles.Profile), plain: gzip it if the reader wants that.
 *
 * The same input gives the same bytes. What pprof cannot say is said so that our own decoder reads
 * it back: frame (build id or mapping, offset) becomes a location with an address in a mapping that
 * starts at 0; a frame with symbols a function with its file, line and first line, and the module
 * as mapping.
 */
#ifndef COMMON_MODEL_PPROF_OUT_H
#define COMMON_MODEL_PPROF_OUT_H

#include "common/model/label.h"
#include "common/model/stacks.h"

#define PPROF_OUT_TYPES_MAX 64

struct pprof_out_type {
    struct str type, unit;
};
/* Self values by node, nodes ascending, values up to INT64_MAX. */
struct pprof_out_values {
    const uint32_t *nodes;
    const uint64_t *values;
    size_t len;
};
/* Samples that share labels (none: NULL, 0). */
struct pprof_out_part {
    const struct label *labels;
    size_t labels_len;
    const struct pprof_out_values *by_type; /* one per type */
};
struct pprof_out {
    const struct stacks_view *stacks; /* checked */
    const struct pprof_out_type *types;
    size_t types_len; /* at most PPROF_OUT_TYPES_MAX */
    const struct pprof_out_part *parts;
    size_t parts_len;
    struct pprof_out_type period_type; /* both empty: none */
    struct str default_type;           /* default_sample_type; empty: none */
    int64_t period, time_ns, duration_ns;
};
/* Appends the message. ERR_LIMIT: it does not fit out->max. */
NODISCARD int pprof_out_write(const struct pprof_out *p, struct buf *out, struct err *e);

/* The same in pieces, for messages that should not be in memory at once: what grows is the tables
 * of what samples refer to, each of them bytes_max at most. *p and what it points to outlive it. */
struct pprof_out_writer;
struct pprof_out_writer *pprof_out_new(const struct pprof_out *p, size_t bytes_max);
void pprof_out_free(struct pprof_out_writer *w); /* NULL is fine */
/* Appends until about `want` bytes were added; *ret_more: there is more to come. ERR_LIMIT. */
NODISCARD int pprof_out_next(struct pprof_out_writer *w, size_t want, struct buf *out,
                             bool *ret_more, struct err *e);

#endif
