/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_since.h: which earlier profile to subtract from one whose values count since the start of
 * its process. The subtraction itself: formats_pprof_since.
 *
 * What Go counts since the start of a process: proto/FORMATS.md, "Delta profiles".
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_SINCE_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_SINCE_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "distributor/formats/limits.h"

/* Sets *ret to what must be subtracted from `plain`, given the profile `last` that the same process
 * or a predecessor sent before ({NULL, 0}: it cannot be read):
 *   last    its growth counts;
 *   NULL    some type counts less than in `last`: the process is another one, and all of it is new;
 *   plain   the two cannot be compared, since they have other types or `last` cannot be read: only
 *           gauges count.
 * Both are bodies without gzip. ERR_INPUT, ERR_LIMIT: `plain` cannot be read. */
NODISCARD int pprof_since_choose(struct str plain, struct str last, const struct limits *l,
                                 struct str *ret, struct err *e);

/* What a body says about itself. */
struct pprof_claims {
    bool counters;   /* it has types that count since the start of a process, and no duration */
    int64_t time_ns; /* 0: it has none */
};
/* Appends the names of the sample types to *types. A body that cannot be read has no counters. */
struct pprof_claims pprof_since_claims(struct str plain, const struct limits *l, struct buf *types);

#endif
