/* SPDX-License-Identifier: Apache-2.0
 *
 * sole.h: only one data folder and one process may speak for a node's name, since promises and acks
 * of its copies are counted by that name. A copy of the folder, or an old folder that was restored
 * in its place, is refused.
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
