/* SPDX-License-Identifier: Apache-2.0
 *
 * folded.h: text stacks: "main;work 10" (groups, folded, collapsed) or one stack per line (lines).
 */
#ifndef DISTRIBUTOR_FORMATS_FOLDED_H
#define DISTRIBUTOR_FORMATS_FOLDED_H

#include "distributor/formats/push.h"

/* Adds one series to push, whose base must be set. With `counts` a line ends in its count, else
 * each line counts 1. Every count is worth kind->period. Rules: folded.c. */
struct kind;
NODISCARD int folded_push(struct str body, bool counts, const struct kind *kind,
                          const struct limits *l, struct push *push, struct err *e);

#endif
