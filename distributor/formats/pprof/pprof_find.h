/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_find.h: which names, files and locations of a pprof are known; internal to pprof_known.c.
 *
 * Nearly all that a body names was there before. It is looked for in the order of its tables, many
 * at once (symbol_lookup.h), so that a stack need not stop at each location that comes for the
 * first time. Nothing is kept here: what is new is left to the stack that has it.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_FIND_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_FIND_H

#include "common/base/arena.h"
#include "distributor/formats/pprof/pprof.h"
#include "distributor/formats/pprof/symbol_session.h"

/* The names in their stored form; name SYMBOL_SESSION_NONE: neither of them is known yet. */
struct pprof_fn_names {
    uint32_t name, file;
};

/* All columns are borrowed and filled; SYMBOL_SESSION_NONE is what is not known. */
struct pprof_find {
    const struct pprof *p;
    const struct symbol_session *k;
    const struct limits *l;
    uint32_t *files;   /* by string; SYMBOL_SESSION_NONE before */
    uint32_t *modules; /* by mapping; SYMBOL_SESSION_NONE before */
    struct pprof_fn_names *functions;
    uint32_t *steps; /* by location */
};
/* False: the arena is full. */
NODISCARD bool pprof_find_known(struct pprof_find *x, struct arena *a);

#endif
