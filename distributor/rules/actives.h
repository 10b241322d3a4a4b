/* SPDX-License-Identifier: Apache-2.0
 *
 * actives.h: how many series, or services, of a tenant were written lately, for
 * max_series_per_tenant and max_services_per_tenant.
 *
 * Two generations of half an hour: a series is active for 30 to 60 minutes after its last push. An
 * active series always passes; a new series is refused while as many as allowed are active. Each
 * distributor counts the series of its own pushes only. Thread: any.
 */
#ifndef DISTRIBUTOR_RULES_ACTIVES_H
#define DISTRIBUTOR_RULES_ACTIVES_H

#include "common/base/map.h"
#include "common/sys/thread.h"
#include "distributor/formats/push.h"

#define ACTIVES_MS      (30 * UINT64_C(60000))
#define ACTIVES_AGAIN_S 60 /* nothing becomes free sooner, as a rule */

struct actives {
    struct mutex lock;
    struct map_u64 now, before;
    size_t moved;       /* how many of `before` are in `now` */
    uint64_t turned_ms; /* monotonic */
};
struct actives *actives_new(uint64_t now_ms);
void actives_free(struct actives *a); /* NULL is fine */
/* All series of a push. ERR_RATE: a new one is over the limit; those before it count as seen. */
NODISCARD int actives_admit(struct actives *a, const struct push *p, uint64_t max, uint64_t now_ms,
                            struct err *e);
/* The same for its services: in a struct actives of their own. */
NODISCARD int actives_admit_services(struct actives *a, const struct push *p, uint64_t max,
                                     uint64_t now_ms, struct err *e);

#endif
