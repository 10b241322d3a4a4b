/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_two.h: what tests of deletes begin with: a store with two services of two pods, one minute
 * of which is sealed and one not. One such store a program.
 */
#ifndef TESTS_LIB_STORE_TOMB_TWO_H
#define TESTS_LIB_STORE_TOMB_TWO_H

#include "tests/lib/store/tomb_bed.h"

struct tomb_two {
    struct store_bed bed;
    uint32_t now; /* slot; the start of a minute */
};
extern struct tomb_two two;

int two_setup(void **state); /* cmocka's, as two_teardown */
int two_teardown(void **state);
void two_minutes(int n); /* pass */
/* Returns what store_bed_push does: 1 stored, 0 known by its write id. */
int two_push(const char *service, const char *labels, uint32_t slot, uint64_t wid,
             const char *stacks);
const char *two_merge(const char *selector); /* over all of it */
void two_fill(void);
void two_seal_later(void);

#endif
