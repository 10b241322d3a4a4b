/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_spans.h: which span and which trace a sample belongs to, by its labels.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_SPANS_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_SPANS_H

#include "distributor/formats/pprof/pprof_stacks.h"

struct pprof_spans {
    struct str *ids; /* packed (exid.h), each once, ascending; in the arena */
    size_t len;
    uint32_t *of_sample[EXID_KINDS]; /* by kind: index into ids of each walked sample, or
                                        PPROF_NONE; NULL where no sample has one */
};
/* A sample has at most one id of each kind: span_id before profile_id, the first of two; kinds that
 * the push's name gives to all of it are left out. */
NODISCARD int pprof_spans(const struct pprof *p, const struct pprof_walked *w, struct push *push,
                          struct pprof_spans *ret, struct err *e);

#endif
