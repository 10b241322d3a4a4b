/* SPDX-License-Identifier: Apache-2.0
 *
 * austin.h: the text that Austin writes, a profiler of Python.
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_AUSTIN_H
#define DISTRIBUTOR_FORMATS_UPLOAD_AUSTIN_H

#include "distributor/formats/push.h"

bool austin_sniff(struct str text);
/* Adds series to a push that is push_base'd. */
NODISCARD int austin_push(struct str text, const struct limits *l, struct push *push,
                          struct err *e);

#endif
