/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_stacks.h: pprof columns to stacks and series.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_STACKS_H
#define DISTRIBUTOR_FORMATS_PPROF_STACKS_H

#include "distributor/formats/pprof.h"
#include "distributor/formats/push.h"
#include "distributor/formats/sample_config.h"

/* Adds the series of p to push, whose base must be set. Rules: pprof_stacks.c. */
NODISCARD int pprof_push(const struct pprof *p, const struct ingest *in,
                         const struct sample_config *config, const struct limits *l,
                         struct push *push, struct err *e);

/* One node of push->stacks per sample, PPROF_NONE for samples that do not count
 * (pprof_walk.c). */
NODISCARD int pprof_walk(const struct pprof *p, const struct ingest *in, const struct limits *l,
                         struct push *push, uint32_t *ret_nodes, struct err *e);

/* Subtracts prev's values from cur's for the sample types marked in `cumulative`, stack by stack
 * (pprof_delta.c). Differences below zero become 0 and are counted in push. */
NODISCARD int pprof_subtract(struct pprof *cur, const struct pprof *prev, const bool *cumulative,
                             struct push *push, struct err *e);

#endif
