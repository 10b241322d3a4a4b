/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_health.h: does the object store do what it is asked? Looked at by the cold thread before
 * each round, also when no data is to be moved: so a wrong bucket is reported at the start and not
 * when the first data are old enough. A change is logged; /ring always shows the state.
 */
#ifndef INGESTER_TIER_TIER_HEALTH_H
#define INGESTER_TIER_TIER_HEALTH_H

#include "common/base/json.h"
#include "common/object/object.h"
#include "common/sys/clock.h"
#include "common/sys/thread.h"

struct tier_health {
    struct mutex lock; /* what follows */
    bool looked, failing;
    int64_t since_ms; /* wall: of the last change */
    struct err why;
    struct err refused;
};
void tier_health_init(struct tier_health *h);
void tier_health_deinit(struct tier_health *h);
/* Lists next to nothing, TIER_HEALTH_MS at most. `o` NULL: it could not be opened, *e says why. 0,
 * or why not; ERR_CANCELED is no news. The cold thread. */
#define TIER_HEALTH_MS 20000
NODISCARD int tier_health_look(struct tier_health *h, struct object_store *o,
                               const struct clock *clock, struct err *e);
/* What a round met: another database holds objects (common/cold/shard_owner.h); code 0: none does.
   The
 * cold thread. */
void tier_health_refused(struct tier_health *h, const struct object_store *o,
                         const struct err *why);
/* What an operator must see to; false: nothing. Any thread. */
bool tier_health_trouble(struct tier_health *h, struct err *ret);
/* An object of its own behind a key. Any thread. */
void tier_health_json(struct tier_health *h, struct json *j);

#endif
