/* SPDX-License-Identifier: Apache-2.0
 *
 * rate_estimate.h: how fast something grows, over the last quarter of a minute, and how long the
 * rest takes.
 */
#ifndef COMMON_BASE_RATE_ESTIMATE_H
#define COMMON_BASE_RATE_ESTIMATE_H

#include "common/base/base.h"

#define RATE_ESTIMATE_POINTS   16
#define RATE_ESTIMATE_STEP_MS  1000 /* between points */
#define RATE_ESTIMATE_LEAST_MS 2000 /* less than this tells nothing */
#define RATE_ESTIMATE_NEVER    UINT64_MAX

/* All zero: begins. */
struct rate_estimate {
    struct rate_estimate_point {
        uint64_t ms, value;
    } at[RATE_ESTIMATE_POINTS];
    size_t len;
};
/* It is so much now, by a monotonic clock. Also while it stands still: that is a speed, too. Less
 * than before: something else began. */
void rate_estimate_note(struct rate_estimate *s, uint64_t now_ms, uint64_t value);
/* Per second. False: not known yet. */
bool rate_estimate_of(const struct rate_estimate *s, uint64_t *ret);
/* Seconds until `left` more are there, rounded up; RATE_ESTIMATE_NEVER at speed 0. */
uint64_t rate_estimate_left_s(uint64_t per_s, uint64_t left);

#endif
