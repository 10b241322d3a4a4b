/* SPDX-License-Identifier: Apache-2.0
 *
 * firefox.h: profiles of the Firefox Profiler, raw and processed (samply writes processed ones).
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_FIREFOX_H
#define DISTRIBUTOR_FORMATS_UPLOAD_FIREFOX_H

#include "distributor/formats/push.h"

/* Adds two series per thread with samples to push, whose base is set; rules: firefox.c. The text
 * has passed jpull_check. Pure. */
NODISCARD int firefox_push(struct str text, const struct limits *l, struct push *push,
                           struct err *e);

#endif
