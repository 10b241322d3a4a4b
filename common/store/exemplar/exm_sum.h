/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_sum.h: adds up vectors of exemplars, whose stacks are few, into the stacks of an answer; or
 * only what they have below a call site.
 */
#ifndef COMMON_STORE_EXEMPLAR_EXM_SUM_H
#define COMMON_STORE_EXEMPLAR_EXM_SUM_H

#include "common/store/exemplar/exm.h"

struct exm_epoch;
struct exm_sum { /* zero but for: */
    struct store_view *v;
    struct store_merge *to; /* its stacks are the caller's; `gauge` is set; not for exm_sum_below */
    uint32_t tenant;
    const struct str *site; /* exm_sum_below: functions of the call site, root first; borrowed */
    size_t site_len;
    VEC(struct exm_epoch) epochs; /* dictionaries of the service that is read */
    VEC(uint64_t) out;            /* by node of to->stacks */
    VEC(uint32_t) path;
};
/* ERR_CORRUPT, ERR_LIMIT (the stacks are full), ERR_IO. */
NODISCARD int exm_sum_add(struct exm_sum *s, const struct exm_ref *x, struct str vector,
                          struct err *e);
/* Adds up the values of the vector in stacks that begin with the functions of s->site, into *ret;
 * s->to is not used. ERR_CORRUPT, ERR_IO. One sum is used either with this function and always the
 * same site, or with exm_sum_add. */
NODISCARD int exm_sum_below(struct exm_sum *s, const struct exm_ref *x, struct str vector,
                            uint64_t *ret, struct err *e);
/* Another service follows. NULL is fine. */
void exm_sum_forget(struct exm_sum *s);
/* Nodes, values, total and leaves of the answer. */
void exm_sum_end(struct exm_sum *s);
void exm_sum_deinit(struct exm_sum *s);

#endif
