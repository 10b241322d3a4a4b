/* SPDX-License-Identifier: Apache-2.0
 *
 * speedscope.h: files of speedscope (format=speedscope), which many converters write, too.
 */
#ifndef DISTRIBUTOR_FORMATS_SPEEDSCOPE_H
#define DISTRIBUTOR_FORMATS_SPEEDSCOPE_H

#include "distributor/formats/push.h"

#define SPEEDSCOPE_DEPTH_MAX 128 /* of its JSON, for jpull_check */

/* Sets the base of push and adds a series per profile of the file; rules: speedscope.c. The text
 * has passed jpull_check. */
NODISCARD int speedscope_push(struct str text, const struct ingest *in, const struct limits *l,
                              struct push *push, struct err *e);

#endif
