/* SPDX-License-Identifier: Apache-2.0
 *
 * metadata.h: what a flamebearer says about its values
 * (proto/WIRE.md, "Flamebearer JSON").
 */
#ifndef COMMON_RENDER_METADATA_H
#define COMMON_RENDER_METADATA_H

#include "common/base/json.h"
#include "common/model/ptype.h"

/* The keys format, spyName, sampleRate, units and name of the open object. format: "single", or
 * "double" for a diff. */
void metadata_json(const struct ptype *t, const char *format, struct json *j);

#endif
