/* SPDX-License-Identifier: Apache-2.0
 *
 * tier_write: one task of a shard's thread, four kinds. The generation's row is read on that thread
 * right before the write. On a leader this is the row that was committed last; on a former leader
 * the write fails.
 */
#include "ingester/tier/tier_write.h"
#include "ingester/shard/shards.h"

#include "common/base/mem.h"
#include "common/sys/fiber.h"

enum land_kind { LAND_TAKE, LAND_CLAIM, LAND_PROVE, LAND_MOVE };

struct landing {
    struct shard_task task;
    struct tier_write *land;
    enum land_kind kind;
    struct kv *kv;
    uint64_t over; /* TAKE */
    struct cold_shard_owner *holder;
    uint64_t generation; /* CLAIM, PROVE, MOVE: ours */
    struct kv_batch *batch;
    struct cold_generation now;
    struct manifest *manifest; /* PROVE */
    bool moved, landed;
    struct err err;
};

void tier_write_init(struct tier_write *l)
{
    mutex_init(&l->lock);
    l->waiting = NULL;
    cond_init(&l->landed);
}

void tier_write_deinit(struct tier_write *l)
{
    cond_deinit(&l->landed);
    mutex_deinit(&l->lock);
}

static bool is_ours(struct landing *l)
{
    if (l->now.now == l->generation)
        return true;
    (void)err_set(&l->err, ERR_CONFLICT,
                  "generation %" PRIu64 " acts on the objects of this shard, ours is %" PRIu64,
                  l->now.now, l->generation);
    return false;
}

/* Which database it is: as it says itself, from now on if it did not yet. */
static bool say_holder(struct landing *l)
{
    struct cold_shard_owner said;

    if (cold_shard_owner_read(l->kv, &said, &l->err))
        return false;
    if (said.id[0])
        *l->holder = said;
    else
        cold_shard_owner_put(l->holder, l->batch);
    return true;
}

/* Shard thread. */
static void run(struct shard_task *task, struct store *s)
{
    struct landing *l = container_of(task, struct landing, task);
    bool unchanged = l->kind != LAND_MOVE || kv_cold_unchanged(l->kv);

    if (cold_generation_read(l->kv, &l->now, &l->err))
        return;
    if (l->kind == LAND_TAKE)
        cold_generation_next(&l->now, l->over);
    else if (!is_ours(l))
        return;
    if (!unchanged || (l->kind == LAND_TAKE && !say_holder(l)))
        return;
    if (l->kind == LAND_TAKE || l->kind == LAND_PROVE)
        cold_generation_put(&l->now, l->batch);
    l->moved = store_put_rows(s, l->batch, &l->err) == 0;
    if (l->moved)
        err_clear(&l->err);
    if (l->moved && l->kind == LAND_PROVE)
        l->manifest = kv_cold_manifest(l->kv, NULL);
}

static void done(struct shard_task *task)
{
    struct landing *l = container_of(task, struct landing, task);
    struct tier_write *land = l->land;

    mutex_lock(&land->lock);
    l->landed = true;
    cond_wake_all(&land->landed);
    mutex_unlock(&land->lock);
    if (land->waiting)
        fiber_resume(land->waiting);
}

static void wait_landed(struct tier_write *t, struct landing *l)
{
    t->waiting = fiber_self();
    if (t->waiting) {
        fiber_yield();
        CHECK(l->landed);
        return;
    }
    mutex_lock(&t->lock);
    while (!l->landed)
        cond_wait(&t->landed, &t->lock);
    mutex_unlock(&t->lock);
}

static int land(const struct tier_write_to *to, struct landing *l, struct err *e)
{
    l->kv = to->kv;
    l->task = (struct shard_task){ .run = run, .done = done };
    l->land = to->l;
    shard_run(to->s, &l->task);
    wait_landed(to->l, l);
    kv_batch_free(l->batch);
    if (l->err.code)
        *e = l->err;
    return l->err.code;
}

int tier_write_generation(const struct tier_write_to *to, uint64_t over,
                          struct cold_shard_owner *holder, struct cold_generation *ret,
                          struct err *e)
{
    struct landing l = {
        .kind = LAND_TAKE, .over = over, .holder = holder, .batch = kv_batch_new()
    };

    if (land(to, &l, e))
        return e->code;
    *ret = l.now;
    return 0;
}

int tier_write_claim(const struct tier_write_to *to, uint64_t generation, const char *where,
                     struct err *e)
{
    struct landing l = { .kind = LAND_CLAIM, .generation = generation, .batch = kv_batch_new() };

    cold_claim_put(where, l.batch);
    return land(to, &l, e);
}

int tier_write_check(const struct tier_write_to *to, uint64_t generation, struct manifest **ret,
                     struct err *e)
{
    struct landing l = { .kind = LAND_PROVE, .generation = generation, .batch = kv_batch_new() };

    if (land(to, &l, e))
        return e->code;
    *ret = l.manifest;
    return 0;
}

int tier_write_manifest(const struct tier_write_to *to, uint64_t generation, struct kv_batch *b,
                        bool *ret_moved, struct err *e)
{
    struct landing l = { .kind = LAND_MOVE, .generation = generation, .batch = b };
    int rc = land(to, &l, e);

    *ret_moved = !rc && l.moved;
    return rc;
}
