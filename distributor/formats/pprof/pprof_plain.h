/* SPDX-License-Identifier: Apache-2.0
 *
 * pprof_plain.h: samples in the usual form; internal to the walk by a symbol session.
 *
 * A plain sample has its values, the ids of its locations in one piece and labels that nobody
 * keeps, each in its shortest form. It is read in one go. Its ids are not decoded, only their place
 * is found: if the same bytes were seen before, the stack is known. Nothing is
 * judged here: what is not plain pprof_sample_read reads from its start.
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

/* Adds up the samples from i on as long as they are plain, of stacks that were seen before and have
 * a row, and have values that count. Returns the number of the first other sample. */
size_t pprof_plain_take(struct pprof_plain *x, size_t i);

#endif
