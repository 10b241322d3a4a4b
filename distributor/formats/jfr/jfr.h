/* SPDX-License-Identifier: Apache-2.0
 *
 * jfr.h: JDK Flight Recorder files, as JDKs and async-profiler write them, to series.
 */
#ifndef DISTRIBUTOR_FORMATS_JFR_JFR_H
#define DISTRIBUTOR_FORMATS_JFR_JFR_H

#include "distributor/formats/push.h"

/* Decodes `recording`, one or more chunks, and `labels`, a LabelsSnapshot or empty; both unzipped.
 * Sets the base of job->push, its time (of the first chunk) and its series. A recording without any
 * event that is stored has no series. ERR_INPUT, ERR_LIMIT. Pure: any thread. */
NODISCARD int jfr_push(const struct decode_job *job, struct str recording, struct str labels,
                       struct err *e);

#endif
