/* SPDX-License-Identifier: Apache-2.0
 *
 * kinds.h: how a name and sample types become a profile type
 * (proto/WIRE.md, "Profile kinds").
 */
#ifndef DISTRIBUTOR_FORMATS_KINDS_H
#define DISTRIBUTOR_FORMATS_KINDS_H

#include "common/model/ptype.h"

/* Text formats: the kind is the text behind the last '.' of the app name. */
struct kind {
    struct str app; /* the service: the name without the suffix */
    struct ptype type;
    uint64_t period; /* each count is worth so much; 1 = counts stay counts */
};
/* An unknown suffix belongs to the name, and the kind is cpu. sample_rate 0 = no period. */
struct kind kind_of(struct str app, uint64_t sample_rate);

/* pprof: what a sample type is called where sample_type_config says nothing. */
struct str kind_display_name(struct str sample_type);
/* The series name (`__name__`) for sample types and their display names. */
struct str kind_series_name(const struct str *types, const struct str *display, size_t n);
/* Types that count since process start: what prev_profile is subtracted from. */
bool kind_cumulative(struct str sample_type);

#endif
