/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_script.h: the text that `perf script` prints.
 */
#ifndef DISTRIBUTOR_FORMATS_UPLOAD_PERF_SCRIPT_H
#define DISTRIBUTOR_FORMATS_UPLOAD_PERF_SCRIPT_H

#include "distributor/formats/push.h"

#define PERF_EVENTS_MAX 16 /* kinds of events in one file */

/* Does the text begin, behind comments, with the line of an event? Looks at the first 4 KiB. */
bool perf_script_sniff(struct str text);
/* Adds two series per event name to push, whose base is set; rules: perf_script.c. Pure. */
NODISCARD int perf_script_push(struct str text, const struct limits *l, struct push *push,
                               struct err *e);

#endif
