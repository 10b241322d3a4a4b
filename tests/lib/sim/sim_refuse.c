/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_refuse: a batch that is too large for the log is refused, and the store above it takes no
 * more writes. No disk is at fault, so no other node sees anything; the store has to be reopened.
 */
#include "common/base/mem.h"
#include "common/store/kv/kv_impl.h"
#include "ingester/base/state.h"
#include "ingester/shard/shards.h"
#include "tests/lib/sim/sim_impl.h"

struct refusal {
    struct shard_task task;
    struct shards *all;
    struct shard *held;
};

static void refuse(struct shard_task *t, struct store *s)
{
    struct kv_batch *b = kv_batch_new();
    struct err e;

    (void)t;
    b->ops.failed = true; /* as one over its limit */
    CHECK(store_put_rows(s, b, &e) != 0);
    kv_batch_free(b);
}

static void refused(struct shard_task *t)
{
    struct refusal *r = container_of(t, struct refusal, task);

    shards_put(r->all, r->held);
    xfree(r);
}

void refuse_batch(struct world *w, struct node *n)
{
    struct ingester *in = n->self;
    struct shard *all[SHARDS_MAX];
    int len = shards_get_all(in->shards, NULL, 0, all, NULL);

    if (len <= 0)
        return;
    struct refusal *r = XNEW(struct refusal);
    size_t at = prng_below(&w->p, (uint64_t)len);
    r->task = (struct shard_task){ .run = refuse, .done = refused };
    r->all = in->shards;
    r->held = all[at];
    all[at] = all[len - 1];
    shards_put_all(in->shards, all, (size_t)len - 1);
    count(w)->refusals++;
    shard_run(r->held, &r->task);
}
