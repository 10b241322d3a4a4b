/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_plain.h: samples in the usual form; internal to the walk by a symbol session.
 *
 * A plain sample has its values, the ids of its locations in one piece and labels that are not
 * kept, each in its shortest form. It is read in one pass. Its ids are not decoded: the reader only
 * finds where they are, and if the same bytes were seen before, the stack is known. No sample is
 * refused here: pprof_sample_read reads a sample that is not plain again, from its start.
 */
#ifndef DISTRIBUTOR_FORMATS_PPROF_PPROF_PLAIN_H
#define DISTRIBUTOR_FORMATS_PPROF_PPROF_PLAIN_H

#include "distributor/formats/pprof/pprof_seen.h"
#include "distributor/formats/pprof/pprof_stacks.h"

#define PPROF_PLAIN_VALUES 8

struct pprof_plain {
    /* Set by the caller. */
    const struct pprof *p;
    const struct limits *l;
    const struct pprof_keep *keep;
    const struct pprof_seen *seen; /* node: PPROF_NONE or a place in rows */
    const uint32_t *rows;          /* by node: position + 1 in values; 0: none */
    uint64_t *values;              /* [position][type] */
    struct push *push;
    size_t in_vain;   /* samples that were tried and must be read again */
    size_t tails_new; /* and those whose end was not the ids of a stack seen before */

    /* Of the sample that was not taken; `plain`: all of it, else it must be read again. */
    bool plain;
    struct pprof_seen_key key;          /* of its ids */
    const struct pprof_stack *at;       /* its stack, which has no row; NULL: not seen before */
    int64_t sample[PPROF_PLAIN_VALUES]; /* its values */
};

/* Adds up the samples from i on. Stops at the first sample that is not plain, whose stack was not
 * seen before or has no row, or whose values do not count, and returns its number. */
size_t pprof_plain_take(struct pprof_plain *x, size_t i);

#endif
