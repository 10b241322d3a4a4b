/* SPDX-License-Identifier: Apache-2.0
 *
 * rollup_check.h: is every roll-up the sum of what it stands for? Adds up the leaves of all series
 * by group, node by node, and compares with the rows of ru: bytes of vectors, lists, totals,
 * fingerprints; and that there is a row for everything and nothing else. For stores without floors.
 */
#ifndef TESTS_LIB_STORE_ROLLUP_CHECK_H
#define TESTS_LIB_STORE_ROLLUP_CHECK_H

#include "common/store/store.h"

struct rollup_counts { /* what was seen, so that a test can prove that it saw all kinds */
    uint64_t rolled, listed, deltas; /* minutes; rows */
    uint64_t lists, vectors;         /* nodes of level 2 and up */
    uint64_t whole;                  /* nodes of dimension 0 */
    uint64_t rules, groups;
};
/* Stops the test with the first difference; adds to *c. */
void rollup_check(struct store_view *v, struct rollup_counts *c);

#endif
