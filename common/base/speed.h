/* SPDX-License-Identifier: Apache-2.0
 *
 * speed.h: how fast something grows, over the last quarter of a minute, and how long the rest
 * takes.
 */
#ifndef COMMON_BASE_SPEED_H
#define COMMON_BASE_SPEED_H

#include "common/base/base.h"

#define SPEED_POINTS   16
#define SPEED_STEP_MS  1000 /* between points */
#define SPEED_LEAST_MS 2000 /* less than this tells nothing */
#define SPEED_NEVER    UINT64_MAX

/* All zero: begins. */
struct speed {
    struct speed_point {
        uint64_t ms, value;
    } at[SPEED_POINTS];
    size_t len;
};
/* It is so much now, by a monotonic clock. Also while it stands still: that is a speed, too. Less
 * than before: something else began. */
void speed_note(struct speed *s, uint64_t now_ms, uint64_t value);
/* Per second. False: not known yet. */
bool speed_of(const struct speed *s, uint64_t *ret);
/* Seconds until `left` more are there, rounded up; SPEED_NEVER at speed 0. */
uint64_t speed_left_s(uint64_t per_s, uint64_t left);

#endif
