/* SPDX-License-Identifier: Apache-2.0
 *
 * v8.h: what Chrome and Node write: .cpuprofile (both styles) and .heapprofile.
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_V8_H
#define DISTRIBUTOR_FORMATS_UPLOAD_V8_H

#include "distributor/formats/push.h"

/* Add series to push, whose base is set; rules: v8.c. The text has passed jpull_check. Pure: any
 * thread. */
NODISCARD int v8_cpuprofile_push(struct str text, const struct limits *l, struct push *push,
                                 struct err *e);
NODISCARD int v8_heapprofile_push(struct str text, const struct limits *l, struct push *push,
                                  struct err *e);

#endif
