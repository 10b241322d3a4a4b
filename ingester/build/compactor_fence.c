/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/build/compactor_fence.h"

#include "common/cluster/coord/keyspace.h"
#include "common/obs/log.h"

#define ASK_MS 1000 /* at most as often, for each shard */

static uint64_t since_ms(const struct compactor_fence *c, uint64_t at_ns)
{
    return (clock_mono_ns(c->o->clock) - at_ns) / 1000000;
}

/* An answer of a store that is not to be followed says nothing. */
static void on_named(void *cookie, const struct coord_reply *r)
{
    struct compactor_fence *c = cookie;
    struct coord_key key = key_claim(str_c(c->o->prefix), c->shard);
    uint64_t named = 0;

    c->asking = false;
    if (r->err || !view_trusts(c->o->view))
        return;
    for (size_t i = 0; i < r->kvs_len; i++)
        if (str_eq(r->kvs[i].key, key_str(&key)))
            named = (uint64_t)r->kvs[i].create_rev;
    if (!named)
        return; /* no compactor claims the shard */
    if (named < c->fence && !c->back) {
        log_info(
            "revisions of the coordination service went back: it is asked which compactor has a "
            "shard",
            KV_U64("shard", c->shard), KV_U64("fence", named), KV_U64("before", c->fence));
        c->back = true;
    }
    c->fence = named;
    c->seen_ns = clock_mono_ns(c->o->clock);
}

static void ask(struct compactor_fence *c)
{
    struct coord_key key = key_claim(str_c(c->o->prefix), c->shard);

    if (!c->o->coord || c->asking || !view_trusts(c->o->view) ||
        (c->asked_ns && since_ms(c, c->asked_ns) < ASK_MS))
        return;
    c->asking = true;
    c->asked_ns = clock_mono_ns(c->o->clock);
    coord_list(c->o->coord, key_str(&key), on_named, c);
}

int compactor_fence_check(struct compactor_fence *c, const struct compactor_fence_opts *o,
                          uint32_t shard, uint64_t fence, uint64_t alone_ms, struct err *e)
{
    c->o = o;
    c->shard = shard;
    if (fence == c->fence || (fence > c->fence && !c->back)) {
        c->fence = fence;
        c->seen_ns = clock_mono_ns(o->clock);
        return 0;
    }
    if (!fence && since_ms(c, c->seen_ns) >= alone_ms)
        return 0;
    if (fence)
        ask(c);
    return err_set(e, ERR_CONFLICT,
                   "another compactor has claimed shard %" PRIu32 ": fence %" PRIu64
                   " is %s than %" PRIu64 "%s",
                   shard, fence, fence < c->fence ? "older" : "another", c->fence,
                   c->asking ? "; the coordination service is asked whose it is" : "");
}

void compactor_fence_clear(struct compactor_fence *c)
{
    if (c->asking)
        coord_cancel(c->o->coord, c);
    *c = (struct compactor_fence){ 0 };
}
