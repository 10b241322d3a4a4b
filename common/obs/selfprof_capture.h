/* SPDX-License-Identifier: Apache-2.0
 *
 * selfprof_capture.h: stretches of sampling that a request asked for, next to the windows that are
 * pushed (selfprof_capture in selfprof.h). Thread: the profiler's, but for captures_ask.
 */
#ifndef COMMON_OBS_SELFPROF_CAPTURE_H
#define COMMON_OBS_SELFPROF_CAPTURE_H

#include "common/obs/fold.h"
#include "common/obs/selfprof.h"

struct captures;

struct captures *captures_new(const struct env *env, size_t stacks_max, size_t names_max);
/* Ends all that were asked for. NULL is fine. */
void captures_free(struct captures *c);
/* Any thread. ERR_BUSY: SELFPROF_CAPTURES_MAX are under way. */
NODISCARD int captures_ask(struct captures *c, uint64_t ms, selfprof_capture_fn done, void *cookie,
                           struct err *e);
/* Ends the capture with this cookie at the next tick, with the samples so far. Any thread. */
void captures_end(struct captures *c, const void *cookie);
/* Begins and ends captures that are due; call it after the ring was drained. */
void captures_tick(struct captures *c);
/* A sample: names are those of `of`, innermost first. */
void captures_add(struct captures *c, const struct fold *of, uint32_t series, const uint32_t *names,
                  size_t n, uint64_t count);

#endif
