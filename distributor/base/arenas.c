/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/base/arenas.h"

#include "common/base/mem.h"
#include "common/sys/thread.h"

struct arenas {
    struct mutex lock;
    struct arena **kept; /* owned; room for `most`, who came last at the end */
    size_t len, most;
    size_t room; /* of `most`, while memory is short */
    size_t chunk_max;
};

struct arenas *arenas_new(size_t most, size_t chunk_max)
{
    struct arenas *as = XNEW(struct arenas);

    CHECK(most > 0);
    mutex_init(&as->lock);
    as->kept = XNEW_ARRAY(struct arena *, most);
    as->most = as->room = most;
    as->chunk_max = chunk_max;
    return as;
}

void arenas_free(struct arenas *as)
{
    if (!as)
        return;
    for (size_t i = 0; i < as->len; i++)
        arena_free(as->kept[i]);
    mutex_deinit(&as->lock);
    xfree(as->kept);
    xfree(as);
}

struct arena *arenas_take(struct arenas *as, size_t limit)
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

void arenas_give(struct arenas *as, struct arena *a)
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

void arenas_shrink(struct arenas *as, unsigned percent)
{
    CHECK(percent <= 100);
    mutex_lock(&as->lock);
    as->room = as->most * percent / 100;
    while (as->len > as->room)
        arena_free(as->kept[--as->len]);
    mutex_unlock(&as->lock);
}

size_t arenas_bytes(struct arenas *as)
{
    mutex_lock(&as->lock);
    size_t n = as->len * as->chunk_max;
    mutex_unlock(&as->lock);
    return n;
}
