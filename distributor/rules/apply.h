/* SPDX-License-Identifier: Apache-2.0
 *
 * apply.h: the rules of a tenant over one decoded push. Thread: any, a pool thread.
 */
#ifndef DISTRIBUTOR_RULES_APPLY_H
#define DISTRIBUTOR_RULES_APPLY_H

#include "distributor/base/window.h"
#include "distributor/rules/policy.h"

struct applied {
    uint32_t groups;  /* bit i: a series of the push is in usage group i */
    uint64_t sampled; /* series left out by sampling rules */
    uint64_t dropped; /* and by drop and relabel rules */
};
/* Series of p are changed, left out, and merged where their labels became equal: values of equal
 * stacks are added up. Afterwards series are in order of their service_name, which may not be
 * p->service any more. ERR_INPUT or ERR_LIMIT refuses the push. */
NODISCARD int rules_apply(const struct policy *policy, struct push *p, const struct window *w,
                          struct applied *ret, struct err *e);
/* The service of a series, after rules_apply. */
struct str rules_service(const struct push_series *s);

/* merge.c: series with equal labels become one; p->series is ordered by service and labels. False:
 * the arena is full. */
NODISCARD bool rules_merge(struct push *p);

#endif
