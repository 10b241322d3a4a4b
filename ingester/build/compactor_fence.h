/* SPDX-License-Identifier: Apache-2.0
 *
 * compactor_fence.h: which claim of a compactor on a shard (compactor/claims.h) is the newest here.
 *
 * A claim's fence is the revision at which its key was made, so newer ones are larger, until the
 * coordination service is restored from a backup: then its revisions begin lower. So a compactor
 * with a lower fence is refused, and the service is asked which claim the shard has. If it names a
 * lower fence than is known here, this fence is valid from then on, and any other only once the
 * service has named it.
 *
 * Thread: the loop's.
 */
#ifndef INGESTER_BUILD_COMPACTOR_FENCE_H
#define INGESTER_BUILD_COMPACTOR_FENCE_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/view/view.h"

struct compactor_fence_opts {
    struct coord *coord; /* NULL: no service to ask */
    const struct view *view;
    const char *prefix;
    const struct clock *clock;
};
/* All zero: no claim is known. Must not be moved while `asking`. */
struct compactor_fence {
    const struct compactor_fence_opts *o; /* of the last check */
    uint32_t shard;
    uint64_t fence, seen_ns; /* the newest, and when it came last */
    uint64_t asked_ns;
    bool asking;
    bool back; /* revisions went back once: larger is not newer any more */
};

/* Checks that the compactor with this fence may work for the shard. 0: it sends no fences, and may
 * work only after compactors with fences have been silent for alone_ms. ERR_CONFLICT: refused. */
NODISCARD int compactor_fence_check(struct compactor_fence *c, const struct compactor_fence_opts *o,
                                    uint32_t shard, uint64_t fence, uint64_t alone_ms,
                                    struct err *e);
/* Forgets the claim, as before the first check. */
void compactor_fence_clear(struct compactor_fence *c);

#endif
