/* SPDX-License-Identifier: Apache-2.0
 *
 * identity_count.h: metrics of decisions, and a line of the log per key and hour.
 * Thread: the loop's.
 */
#ifndef COMMON_IDENTITY_IDENTITY_COUNT_H
#define COMMON_IDENTITY_IDENTITY_COUNT_H

#include "common/identity/identity.h"

struct identity_count;

/* The registry is borrowed. */
struct identity_count *identity_count_new(struct metrics *m, const struct registry *g);
void identity_count_free(struct identity_count *c); /* NULL is fine; after the last rendering */
/* `refuses`: a decision against the request is carried out (mode require). */
void identity_count_add(struct identity_count *c, const struct decide_in *in,
                        const struct decision *d, bool refuses);

#endif
