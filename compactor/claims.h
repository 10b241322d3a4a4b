/* SPDX-License-Identifier: Apache-2.0
 *
 * claims.h: which shards this compactor works for, where several share them: each shard is claimed
 * by a key under a lease in the coordination service, and the revision at which that key was made
 * is the fence of everything that is done for the shard.
 *
 *   <prefix>/compactor/live/<name>    it lives
 * <prefix>/compactor/shard/0007 the name of the compactor that works for shard 7
 *
 * Thread: the loop's.
 */
#ifndef COMPACTOR_CLAIMS_H
#define COMPACTOR_CLAIMS_H

#include "common/base/json.h"
#include "common/cluster/coord/coord.h"
#include "common/cluster/view/view.h"
#include "common/obs/metrics.h"
#include "common/sys/loop.h"

struct claims_opts {
    struct loop *loop;
    struct coord *coord; /* borrowed, as the view; they outlive the claims */
    const struct view *view;
    struct metrics *metrics;
    const char *prefix;
    uint64_t id;     /* random: this start of this compactor */
    uint64_t ttl_ms; /* it counts as gone after that */
    /* The shard is ours, with this fence. False: not now, ask again. */
    bool (*own)(void *cookie, uint32_t shard, uint64_t fence);
    /* It goes to another one: begin nothing more for it. True: nothing is under way. */
    bool (*leave)(void *cookie, uint32_t shard);
    /* It is not ours any more: what is under way is void. */
    void (*lose)(void *cookie, uint32_t shard);
    void *cookie;
};
struct claims;

struct claims *claims_new(const struct claims_opts *o);
/* Gives everything back, so that others take over at once; then `done`, also when that failed. */
void claims_leave(struct claims *c, void (*done)(void *cookie), void *cookie);
void claims_free(struct claims *c);                       /* NULL is fine */
void claims_ring(const struct claims *c, struct json *j); /* "claims": {...} */

#endif
