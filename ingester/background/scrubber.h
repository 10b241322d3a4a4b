/* SPDX-License-Identifier: Apache-2.0
 *
 * scrubber.h: verifies the shards in the background, at a rate.
 */
#ifndef INGESTER_BACKGROUND_SCRUBBER_H
#define INGESTER_BACKGROUND_SCRUBBER_H

#include "ingester/base/state.h"

struct scrubber;

/* After the shards are open. With scrub.rate 0 it does nothing. */
struct scrubber *scrubber_new(struct ingester *in);
/* True while no step is at work; while the ingester drains none begins. */
bool scrubber_idle(const struct scrubber *s);
void scrubber_free(struct scrubber *s); /* when idle; NULL is fine */

#endif
