/* SPDX-License-Identifier: Apache-2.0
 *
 * stamp.h: the labels that an identity sets on what it pushes (`set` of its grants), over what the
 * sender said. Thread: any, a pool thread.
 */
#ifndef DISTRIBUTOR_RULES_STAMP_H
#define DISTRIBUTOR_RULES_STAMP_H

#include "distributor/formats/push.h"

/* Series whose labels became equal are merged, and they are in order of their service_name then, as
 * after rules_apply. Nothing is done where all labels are there already. ERR_LIMIT: the push takes
 * too much memory. ERR_INPUT: a label that no push may have. */
NODISCARD int stamp_push(struct push *p, const struct labels *set, struct err *e);

#endif
