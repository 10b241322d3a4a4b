/* SPDX-License-Identifier: Apache-2.0
 *
 * recover: which failures heal by themselves, and when to try.
 *
 * A disk that was full and is not any more is as good as before: the write that failed was refused
 * by the file system, nothing that was acked is in doubt, and opening reads what is true. So such a
 * shard is opened again once the volume has its reserve, and again after a pause if that fails.
 *
 * A disk that answered EIO is another matter. After a failed fsync the kernel may hold pages that
 * it says are clean and that are not on the disk: reading the log back would show what the next
 * power cut takes away. An operator must check the disk, so such a shard stays read-only until the
 * process is restarted. So does a damaged shard. A shard that could not be opened again is tried
 * whatever the reason was: there is nothing left to make worse.
 *
 * A batch that was too large to be written (ERR_LIMIT) was refused before the disk saw any of it;
 * the shard is opened again at once, but once a minute only: what made it may make it again.
 *
 * Replicated shards are opened again by replicas.c.
 */
#include "ingester/replicas/store_recovery.h"

#include "ingester/replicas/shard_open.h"
#include "ingester/shard/shards.h"
#include "ingester/tier/tier.h"

#include "common/base/mem.h"
#include "common/obs/log.h"

#define LOOK_MS      500
#define PAUSE_MS     2000 /* after a try that failed; doubles */
#define PAUSE_MAX_MS 60000

struct attempt {
    struct store_recovery *owner;
    struct shard_reopen reopen;
    uint32_t number;     /* of the shard, while running */
    size_t shares;       /* of memory, then */
    struct shard *shard; /* held while running */
    bool running;
    bool closed; /* the last try left it without a database */
    bool large;  /* it is for a batch that was too large */
    uint64_t next_ms, pause_ms;
    uint64_t looks; /* the disk's that count begin with this one; 0: nothing to heal */
};
struct store_recovery {
    struct ingester *in;
    struct timer *timer;
    struct attempt at[SHARDS_MAX];
    size_t running; /* of them */
};

static bool may_heal(const struct attempt *a, const struct shard_state *st)
{
    return st->read_only && !a->owner->in->moves &&
           (st->read_only_code == ERR_NO_SPACE || st->read_only_code == ERR_LIMIT || a->closed);
}

static int open_again(void *cookie, struct kv **ret, struct err *e)
{
    const struct attempt *a = cookie;
    const struct ingester *in = a->owner->in;

    struct kv *kv;

    if (shard_open_kv(in, a->number, a->shares, &kv, e))
        return e->code;
    return tier_wrap(in->tier, a->number, kv, ret, e);
}

static void on_done(struct shard_reopen *reopen)
{
    struct attempt *a = reopen->cookie;
    struct store_recovery *r = a->owner;
    uint64_t now = clock_mono_ms(r->in->ctx->env->clock);
    uint32_t number = a->number;

    shards_put(r->in->shards, a->shard);
    a->shard = NULL;
    a->running = false;
    r->running--;
    if (!reopen->err.code) {
        a->closed = false;
        a->pause_ms = 0;
        a->next_ms = now + (a->large ? PAUSE_MAX_MS : 0);
        log_info("the shard was opened again and takes writes", KV_U64("shard", number));
    } else {
        a->closed |= reopen->err.code != ERR_BUSY;
        a->pause_ms = MIN(MAX(a->pause_ms * 2, PAUSE_MS), PAUSE_MAX_MS);
        a->next_ms = now + a->pause_ms;
        log_warn("the shard could not be opened again; it is tried later", KV_U64("shard", number),
                 KV_U64("after_ms", a->pause_ms), KV_ERR(&reopen->err));
    }
}

/* Has the volume been looked at since the shard was found broken? What it said before is about a
 * disk that still had room, and to open on a full one takes away what can still be read. */
static bool looked_since(struct attempt *a)
{
    struct disk *disk = a->owner->in->disk;

    if (!a->looks)
        a->looks = disk_looks(disk) + 2;
    if (disk_looks(disk) >= a->looks)
        return true;
    disk_look(disk);
    return false;
}

static void try_again(struct attempt *a, uint32_t number)
{
    struct err e;

    a->number = number;
    a->shard = shards_get(a->owner->in->shards, number, &e);
    if (!a->shard)
        return;
    a->running = true;
    a->shares = a->owner->in->shards_own;
    a->looks = 0;
    a->large = shard_state(a->shard)->read_only_code == ERR_LIMIT;
    a->owner->running++;
    log_info(a->large ? "a batch was too large to be written: opening the shard again"
                      : "there is space again: opening the shard",
             KV_U64("shard", number));
    shard_reopen(a->shard, &a->reopen);
}

static void on_timer(void *cookie)
{
    struct store_recovery *r = cookie;
    struct ingester *in = r->in;
    uint64_t now = clock_mono_ms(in->ctx->env->clock);
    struct err e;

    if (in->draining || disk_check(in->disk, &e))
        return;
    for (size_t i = 0; i < shards_len(in->shards); i++) {
        struct attempt *a = &r->at[i];
        const struct shard *s = shards_at(in->shards, i);
        if (!s || !may_heal(a, shard_state(s)))
            a->looks = 0;
        else if (!a->running && now >= a->next_ms && looked_since(a))
            try_again(a, shards_number(in->shards, i));
    }
}

struct store_recovery *store_recovery_new(struct ingester *in)
{
    struct store_recovery *r = XNEW(struct store_recovery);

    r->in = in;
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        struct attempt *a = &r->at[i];

        a->owner = r;
        a->reopen = (struct shard_reopen){ .open = open_again, .done = on_done, .cookie = a };
    }
    r->timer = loop_timer_new(in->ctx->loop, on_timer, r);
    loop_timer_start(r->timer, LOOK_MS, LOOK_MS);
    return r;
}

bool store_recovery_idle(const struct store_recovery *r)
{
    return r->running == 0;
}

void store_recovery_free(struct store_recovery *r)
{
    if (!r)
        return;
    CHECK(r->running == 0);
    loop_timer_free(r->timer);
    xfree(r);
}

int store_recovery_reason(const struct ingester *in, size_t place, struct err *e)
{
    uint32_t number = shards_number(in->shards, place);
    const struct shard_state *st = shard_state(shards_at(in->shards, place));

    if (st->read_only && st->read_only_code == ERR_LIMIT)
        return err_set(e, ERR_UNAVAILABLE,
                       "shard %" PRIu32 " is read-only since a batch was too large to be written; "
                       "it is opened again within a minute",
                       number);
    /* A write failed so lately that its cause is not told yet: a full disk is by far the likeliest,
     * and to come back soon the right advice for the moment until it is. */
    if (!st->read_only || may_heal(&in->recover->at[place], st))
        return err_set(e, ERR_NO_SPACE,
                       "shard %" PRIu32 " is read-only since the disk was full; it is opened again "
                       "when there is space",
                       number);
    return err_set(e, ERR_UNAVAILABLE,
                   "shard %" PRIu32 " is read-only after a disk error; see the log, repair the "
                   "disk, restart",
                   number);
}
