/* SPDX-License-Identifier: Apache-2.0
 *
 * ptype.h: profile types: `name:sample_type:sample_unit:period_type:period_unit`, and how a type
 * adds up over time (sum, or average for gauges such as in-use memory and goroutines).
 *
 * Form: proto/WIRE.md, "Profile types".
 */
#ifndef COMMON_MODEL_PTYPE_H
#define COMMON_MODEL_PTYPE_H

#include "common/base/buf.h"
#include "common/base/err.h"

struct ptype {
    struct str name, sample_type, sample_unit, period_type, period_unit;
};
/* Five parts, or six with ":delta" (ignored). Name and sample type may not be empty; the others may
 * (agents send no period). ERR_INPUT names the fault. Borrows from id. */
NODISCARD int ptype_parse(struct str id, struct ptype *ret, struct err *e);
void ptype_format(const struct ptype *t, struct buf *out);
/* True for inuse_*, goroutine(s), live, threadcreate and the like (see ptype.c for the table). The
 * sample type decides: memory:inuse_space is a gauge, memory:alloc_space adds up. */
bool ptype_is_gauge(const struct ptype *t);

#endif
