/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/base/arena_pool.h"

#include "common/base/mem.h"
#include "common/sys/thread.h"

struct arena_pool {
    struct mutex lock;
    struct arena **kept; /* owned; room for `most`, who came last at the end */
    size_t len, most;
    size_t room; /* of `most`, while memory is short */
    size_t chunk_max;
};

struct arena_pool *arena_pool_new(size_t most, size_t chunk_max)
{
    struct arena_pool *as = XNEW(struct arena_pool);

    CHECK(most > 0);
    mutex_init(&as->lock);
    as->kept = XNEW_ARRAY(struct arena *, most);
    as->most = as->room = most;
    as->chunk_max = chunk_max;
    return as;
}

void arena_pool_free(struct arena_pool *as)
{
    if (!as)
        return;
    for (size_t i = 0; i < as->len; i++)
        arena_free(as->kept[i]);
    mutex_deinit(&as->lock);
    xfree(as->kept);
    xfree(as);
}

struct arena *arena_pool_get(struct arena_pool *as, size_t limit)
{
    struct arena *a = NULL;

    mutex_lock(&as->lock);
    if (as->len)
        a = as->kept[--as->len];
    mutex_unlock(&as->lock);
    if (!a)
        return arena_new(limit);
    arena_reuse(a, as->chunk_max, limit);
    return a;
}

void arena_pool_put(struct arena_pool *as, struct arena *a)
{
    bool kept;

    if (!a)
        return;
    arena_reuse(a, as->chunk_max, 0); /* it is not in the list yet, so no thread takes from it */
    mutex_lock(&as->lock);
    kept = as->len < as->room;
    if (kept)
        as->kept[as->len++] = a;
    mutex_unlock(&as->lock);
    if (!kept)
        arena_free(a);
}

void arena_pool_shrink(struct arena_pool *as, unsigned percent)
{
    CHECK(percent <= 100);
    mutex_lock(&as->lock);
    as->room = as->most * percent / 100;
    while (as->len > as->room)
        arena_free(as->kept[--as->len]);
    mutex_unlock(&as->lock);
}

size_t arena_pool_bytes(struct arena_pool *as)
{
    mutex_lock(&as->lock);
    size_t n = as->len * as->chunk_max;
    mutex_unlock(&as->lock);
    return n;
}
