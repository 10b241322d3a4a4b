/* SPDX-License-Identifier: Apache-2.0
 *
 * claimed.h: which claim of a compactor on a shard (compactor/claims.h) is the newest here.
 *
 * A claim's fence is the revision at which its key was made, so newer ones are larger, until the
 * coordination service is put back from a backup: then its revisions begin lower. So who comes with
 * a lower one is refused, and the service is asked whose the shard is; where it names a lower one
 * than is known here, it counts from then on, and any other only once the service has named it.
 *
 * Thread: the loop's.
 */
#ifndef INGESTER_BUILD_CLAIMED_H
#define INGESTER_BUILD_CLAIMED_H

#include "common/cluster/coord/coord.h"
#include "common/cluster/view/view.h"

struct claimed_opts {
    struct coord *coord; /* NULL: there is nobody to ask */
    const struct view *view;
    const char *prefix;
    const struct clock *clock;
};
/* All zero is none; not moved while `asking`. */
struct claimed {
    const struct claimed_opts *o; /* of whoever came last */
    uint32_t shard;
    uint64_t fence, seen_ns; /* the newest, and when it came last */
    uint64_t asked_ns;
    bool asking;
    bool back; /* revisions went back once: larger is not newer any more */
};

/* Does who has this fence work for the shard? 0: it knows no fences; so not before whoever does has
 * been silent for alone_ms. ERR_CONFLICT: no. */
NODISCARD int claimed_check(struct claimed *c, const struct claimed_opts *o, uint32_t shard,
                            uint64_t fence, uint64_t alone_ms, struct err *e);
/* None, as if nobody had come yet. */
void claimed_clear(struct claimed *c);

#endif
