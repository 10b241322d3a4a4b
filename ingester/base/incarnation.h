/* SPDX-License-Identifier: Apache-2.0
 *
 * incarnation.h: only one data folder and one process may speak for a node's name, since promises
 * and acks of its copies are counted by that name. A copy of the folder, or an old folder that was
 * restored in its place, is refused.
 */
#ifndef INGESTER_BASE_INCARNATION_H
#define INGESTER_BASE_INCARNATION_H

#include "ingester/base/state.h"

struct incarnation;

struct incarnation_opts {
    const struct ingester *in;
    const char *addr; /* where others reach this node; copied */
    /* Once: it may speak, as far as can be known. From the loop, never inside incarnation_new. */
    void (*begin)(void *cookie);
    void *cookie;
};
/* Where another folder or process is the node's by now, the process says so and ends. All outlive
 * it. ERR_IO, ERR_CORRUPT: <data>/starts. */
NODISCARD int incarnation_new(const struct incarnation_opts *o, struct incarnation **ret,
                              struct err *e);
void incarnation_free(struct incarnation *s); /* NULL is fine */

#endif
