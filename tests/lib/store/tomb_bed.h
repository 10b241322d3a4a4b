/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb_bed.h: deletes in words, and what a database still holds of what was deleted.
 */
#ifndef TESTS_LIB_STORE_TOMB_BED_H
#define TESTS_LIB_STORE_TOMB_BED_H

#include "common/store/mask/tomb.h"
#include "tests/lib/store/store_bed.h"

/* A store with the options of these tests; returns the first slot of the minute it begins in. */
uint32_t tomb_bed_init(struct store_bed *b, uint32_t guard_ms);
void tomb_bed_check(struct store_bed *b); /* stops the test where the checker finds something */
/* Deletes what a selector means ("" or NULL: all of the tenant) in slots [from, to) (0, 0: any
 * time), under an id of its own or, if given, `id`. Stops the test on an error. */
struct tomb_result tomb_bed_delete(struct store_bed *b, const char *tenant, const char *selector,
                                   uint32_t from, uint32_t to, const char *id);
int tomb_bed_try(struct store_bed *b, const char *tenant, const char *selector, uint32_t from,
                 uint32_t to, const char *id, struct tomb_result *ret, struct err *e);
/* Purges all, `rows` a step; the number of steps. */
size_t tomb_bed_purge(struct store_bed *b, size_t rows);
/* Keys in all column families that lead with this tenant and, if not 0, service or series. */
size_t tomb_bed_keys(struct store_bed *b, uint32_t tenant, uint32_t scope, uint64_t series);
/* Values of a label, joined by ','; selector NULL: any. */
const char *tomb_bed_values(struct store_bed *b, const char *tenant, const char *label,
                            const char *selector);

#endif
