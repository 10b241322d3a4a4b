/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr.h: JDK Flight Recorder files, as JDKs and async-profiler write them, to series.
 */
#ifndef DISTRIBUTOR_FORMATS_JFR_JFR_H
#define DISTRIBUTOR_FORMATS_JFR_JFR_H

#include "distributor/formats/push.h"

/* `recording` is one or more chunks, `labels` a LabelsSnapshot or empty; both unzipped. Sets the
 * base of the push, its time (of the first chunk) and its series. A recording without any event
 * that is stored has no series. ERR_INPUT, ERR_LIMIT. Pure: any thread. */
NODISCARD int jfr_push(struct str recording, struct str labels, const struct ingest *in,
                       const struct limits *l, int64_t now_ms, struct push *push, struct err *e);

#endif
