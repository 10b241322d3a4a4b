/* SPDX-License-Identifier: Apache-2.0
 *
 * speedscope.h: files of speedscope (format=speedscope), which many converters write, too.
 */
#ifndef DISTRIBUTOR_FORMATS_SPEEDSCOPE_H
#define DISTRIBUTOR_FORMATS_SPEEDSCOPE_H

#include "distributor/formats/push.h"

struct json_val;

/* Sets the base of push and adds a series per profile of the file; rules: speedscope.c. */
NODISCARD int speedscope_push(const struct json_val *root, const struct ingest *in,
                              const struct limits *l, struct push *push, struct err *e);

#endif
