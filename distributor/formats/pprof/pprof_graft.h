/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_graft.h: roots for stacks that the Go runtime cut. Which stacks and which roots:
 * pprof_graft.c.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_GRAFT_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_GRAFT_H

#include "distributor/formats/pprof/pprof.h"
#include "distributor/formats/push.h"

/* True: *ret is p with complete stacks instead of cut ones; number, order, values and labels of the
 * samples are equal. Its memory is that of p and of push->arena: it is never deinitialised.
 * False: p has no cut stack whose root is known, or too little memory is left. */
NODISCARD bool pprof_graft(const struct pprof *p, const struct limits *l, struct push *push,
                           struct pprof *ret);

#endif
