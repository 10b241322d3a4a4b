/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_groups.h: samples of a batch to pushes: one per service and time.
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_GROUPS_H
#define DISTRIBUTOR_PARCA_PARCA_GROUPS_H

#include "common/model/ptype.h"
#include "distributor/formats/batch.h"
#include "distributor/parca/parca_frames.h"
#include "distributor/parca/parca_labels.h"

#define PARCA_TYPES_MAX 256

struct parca_type {
    struct ptype ptype;
    int64_t period;
};
struct parca_row {
    uint32_t sent; /* labels: of parca_sets.sent */
    uint32_t type;
    bool known;              /* its stack is there */
    struct arrow_cell first; /* of the stack */
    uint64_t frames;
    int64_t value, time_ns, duration_ns;
};
struct parca_rows {
    struct parca_row *ptr;
    size_t len;
    const struct parca_type *types;
    size_t types_len;
    const struct parca_sets *sets;
};
/* Hands all rows over, in order of their groups. `identity`: what a retry repeats. What is wrong
 * with one group rejects that; ERR_INPUT or ERR_LIMIT: all of it. */
NODISCARD int parca_groups(const struct parca_rows *rows, struct parca_frames *f,
                           struct str identity, const struct batch_sink *sink, struct arena *a,
                           struct err *e);

#endif
