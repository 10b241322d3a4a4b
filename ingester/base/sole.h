/* SPDX-License-Identifier: Apache-2.0
 *
 * sole.h: what a node's copies promised and acked counts for its name, so one folder speaks for it,
 * and only one process: not a copy of that folder, nor an old one that was put back in its place.
 */
#ifndef INGESTER_BASE_SOLE_H
#define INGESTER_BASE_SOLE_H

#include "ingester/base/state.h"

struct sole;

struct sole_opts {
    const struct ingester *in;
    const char *addr; /* where others reach this node; copied */
    /* Once: it may speak, as far as can be known. From the loop, never inside sole_new. */
    void (*begin)(void *cookie);
    void *cookie;
};
/* Where another folder or process is the node's by now, the process says so and ends. All outlive
 * it. ERR_IO, ERR_CORRUPT: <data>/starts. */
NODISCARD int sole_new(const struct sole_opts *o, struct sole **ret, struct err *e);
void sole_free(struct sole *s); /* NULL is fine */

#endif
