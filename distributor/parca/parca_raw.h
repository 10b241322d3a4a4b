/* SPDX-License-Identifier: Apache-2.0
 *
 * parca_raw.h: profilestore.v1alpha1.WriteRawRequest: pprof bodies with label sets, to pushes.
 *
 *   WriteRawRequest   1 tenant (not ours to believe)   2 series: RawProfileSeries*   3 normalized
 *   RawProfileSeries  1 LabelSet { 1 Label { 1 name, 2 value }* }      2 samples: RawSample*
 *   RawSample         1 raw_profile: pprof, gzip'd or not              2 executable_info*
 *
 * Format: parca-dev/parca at 3b5647cd9e2a (proto/WIRE.md, "Parca write service").
 */
#ifndef DISTRIBUTOR_PARCA_PARCA_RAW_H
#define DISTRIBUTOR_PARCA_PARCA_RAW_H

#include "distributor/parca/parca_write.h"

/* Each profile is taken or rejected by itself. ERR_INPUT, ERR_LIMIT: all of it is. Pure. */
NODISCARD int parca_raw_push(struct str message, const struct parca_opts *o,
                             const struct batch_sink *sink, struct err *e);

#endif
