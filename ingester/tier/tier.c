/* SPDX-License-Identifier: Apache-2.0
 *
 * tier: rounds over the shards that are served here.
 *
 *   cold thread: for each shard ─ units that are old enough ─> cold_offload ─> task on the shard's
 *   thread: still unchanged? ─> the batch                     (a shard is held for one unit only)
 *                               ─ backup due ─> backup_write ─> sweep
 *
 * The thread talks to the object store and waits for it. Only a shard that leaves this ingester
 * waits for the thread: the thread holds it while a unit is moved, and releases it between two
 * units. A replica that stopped leading in the meantime cannot write the batch, so it moves
 * nothing.
 *
 * Before it writes or deletes objects of a shard, it takes a generation (common/cold/generation.h):
 * once as long as no other does, again after a deletion that may still happen. And it looks whether
 * the objects there are the shard's (common/cold/shard_owner.h): in each round, also when nothing
 * is to be done, and again before a moved unit leaves the database and before anything is deleted.
 *
 * In simulation the thread is a fiber of the loop.
 *
 * What fails is logged and tried again in the next round; data stay here until then.
 */
#include "ingester/tier/tier.h"

#include <limits.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/map/placement_history.h"
#include "common/cold/backup.h"
#include "common/cold/conf.h"
#include "common/cold/offload.h"
#include "common/obs/log.h"
#include "common/sys/clock.h"
#include "common/sys/fiber.h"
#include "common/sys/thread.h"
#include "ingester/shard/placement_guard.h"
#include "ingester/shard/shards.h"
#include "ingester/tier/tier_health.h"
#include "ingester/tier/tier_metrics.h"
#include "ingester/tier/tier_write.h"

#define HANDLES_MAX 8
#define UNITS_ROUND 256 /* of one shard */
#define FAILING_MS  30000

struct tier_shard { /* state of a shard that lasts longer than a round; by place */
    uint32_t number;
    bool known, served;
    bool held;         /* looked at in this round: the objects are ours */
    bool refused;      /* the same: they are not */
    int64_t backup_ms; /* wall: of the newest head */
    uint64_t head;
    struct cold_generation generation; /* ours; now 0: none is taken */
    struct cold_shard_owner holder;    /* which database it is; known with a generation */
    struct backup_sweep *sweep;
};
struct tier {
    struct ingester *in;
    const struct cold_conf *conf;
    struct cold_cache *cache;
    struct object_store *o; /* the thread's */
    struct thread thread;
    atomic_bool stop;
    struct mutex lock;
    struct cond wake;    /* stop */
    struct timer *timer; /* simulated: ends the wait of `waiting` */
    struct fiber *waiting;
    bool running; /* simulated */
    struct tier_write land;
    struct tier_health health;
    struct err refused; /* in this round: another database holds the objects */
    struct tier_shard at[SHARDS_MAX];
    struct tier_metrics m;
};

/* ---- waiting -------------------------------------------------------------------------------- */

static bool stopped(const struct tier *t)
{
    return atomic_load(&t->stop);
}

static void on_waited(void *cookie)
{
    struct tier *t = cookie;
    struct fiber *f = t->waiting;

    t->waiting = NULL;
    fiber_resume(f);
}

static void wait_ms(struct tier *t, uint64_t ms)
{
    if (t->running) {
        t->waiting = fiber_self();
        loop_timer_start(t->timer, stopped(t) ? 0 : ms, 0);
        fiber_yield();
        return;
    }
    uint64_t until = clock_mono_ms(clock_real()) + ms;
    mutex_lock(&t->lock);
    while (!stopped(t) && cond_wait_until(&t->wake, &t->lock, until))
        ;
    mutex_unlock(&t->lock);
}

/* ---- one shard ------------------------------------------------------------------------------ */

static void failed(struct tier *t, uint32_t number, const char *what, const struct err *e)
{
    metric_add(t->m.errors, 1);
    log_warn(what, KV_U64("shard", number), KV_ERR(e));
}

/* Is what lies there ours? */
static int check_place(struct tier *t, struct tier_shard *at, struct kv *kv,
                       const struct cold_claim *claim, struct err *e)
{
    struct manifest *parts = kv_cold_manifest(kv, NULL);
    struct cold_shard_owner_terms terms = { claim, parts, t->conf->take_over };
    int rc = cold_shard_owner_check(t->o, at->number, &at->holder, &terms, e);

    manifest_unref(parts);
    at->held = !rc;
    if (rc == ERR_CONFLICT)
        t->refused = *e;
    return rc;
}

/* With a generation. The database says so, too, before anything goes there. */
static int hold(struct tier *t, struct tier_shard *at, struct shard *s, struct kv *kv,
                struct err *e)
{
    struct cold_claim claim;
    int rc = cold_claim_read(kv, &claim, e);

    if (!rc)
        rc = check_place(t, at, kv, &claim, e);
    if (!rc && !claim.held)
        rc = tier_write_claim(&(struct tier_write_to){ &t->land, s, kv }, at->generation.now,
                              object_where(t->o), e);
    at->held = !rc;
    return rc;
}

/* Ours is the newest one, or becomes so; and the objects are ours. */
static int own(struct tier *t, struct tier_shard *at, struct shard *s, struct kv *kv, struct err *e)
{
    struct env *env = t->in->ctx->env;
    struct cold_generation seen;
    uint8_t chance[COLD_SHARD_OWNER_LEN / 2];

    if (cold_generation_read(kv, &seen, e))
        return e->code;
    if (at->generation.now && at->generation.now == seen.now)
        return at->held ? 0 : hold(t, at, s, kv, e);
    at->generation.now = 0;
    at->known = false; /* another one may have written heads */
    env->random(env, chance, sizeof(chance));
    cold_shard_owner_make(chance, &at->holder);
    if (tier_write_generation(&(struct tier_write_to){ &t->land, s, kv },
                              cold_generation_of_head(at->head), &at->holder, &at->generation, e))
        return e->code;
    return hold(t, at, s, kv, e);
}

static int move_unit(struct tier *t, struct tier_shard *at, struct shard *s, struct kv *kv,
                     const struct cold_unit *unit, struct err *e)
{
    struct kv_batch *batch;
    struct cold_moved moved;
    bool landed;
    int rc = own(t, at, s, kv, e);

    if (rc)
        return rc;
    kv_cold_watch(kv, unit->cf, key_str(&unit->from), key_str(&unit->to));
    rc = cold_offload(kv, unit, &(struct cold_target){ t->o, at->generation.now }, &batch, &moved,
                      e);
    if (rc) {
        (void)kv_cold_unchanged(kv);
        return rc;
    }
    rc = hold(t, at, s, kv, e); /* still: the parts are where they are looked for */
    if (rc)
        kv_batch_free(batch);
    else
        rc = tier_write_manifest(&(struct tier_write_to){ &t->land, s, kv }, at->generation.now,
                                 batch, &landed, e);
    if (!rc && landed) {
        metric_add(t->m.units, 1);
        metric_add(t->m.rows, moved.rows);
        metric_add(t->m.bytes, moved.bytes);
        (void)kv_compact(kv_cold_inner(kv), unit->cf, key_str(&unit->from), key_str(&unit->to));
    }
    return rc;
}

uint32_t tier_before(const struct store_clock *c, int64_t wall_ms, uint64_t after_ms)
{
    int64_t ms = MIN(wall_ms, c->engine_ms) - (int64_t)after_ms;

    if (c->held || ms <= SLOT_EPOCH_MS)
        return 0;
    return (uint32_t)((ms - SLOT_EPOCH_MS) / SLOT_MS);
}

/* Moves the next unit of a shard. False: no unit is left, it failed, or the shard is not here. */
static bool move_next(struct tier *t, struct tier_shard *at, struct cold_unit *unit)
{
    struct err e = { 0 };
    struct shard *s = shards_get(t->in->shards, at->number, &e);
    struct store_clock clock;
    bool found = false;

    if (!s)
        return false;
    struct store_view *v = store_view_get(shard_store(s)); /* it is not reopened while held */
    struct kv *kv = store_view_kv(v);
    store_clock(shard_store(s), &clock);
    uint32_t before = tier_before(&clock, clock_wall_ms(t->in->ctx->env->clock), t->conf->after_ms);
    int rc = store_read_only(shard_store(s)) || !before
                 ? ERR_BUSY
                 : cold_unit_next(kv, before, unit, &found, &e);
    if (!rc && found)
        rc = move_unit(t, at, s, kv, unit, &e);
    store_view_put(v);
    shards_put(t->in->shards, s);
    if (rc && rc != ERR_BUSY && !stopped(t))
        failed(t, at->number, "old data could not be moved to the cold tier; they stay here", &e);
    return !rc && found;
}

/* A shard that held objects looks whether they are still those, though nothing may be due. */
static void look_at_place(struct tier *t, struct tier_shard *at)
{
    struct err e = { 0 };
    struct shard *s = shards_get(t->in->shards, at->number, &e);
    struct cold_shard_owner said;
    struct cold_claim claim;

    if (!s)
        return;
    struct store_view *v = store_view_get(shard_store(s));
    struct kv *kv = store_view_kv(v);
    int rc = cold_claim_read(kv, &claim, &e);

    if (!rc)
        rc = cold_shard_owner_read(kv, &said, &e);
    if (!rc && claim.held && said.id[0]) {
        at->holder = said;
        rc = check_place(t, at, kv, &claim, &e);
    }
    at->refused = rc != 0;
    store_view_put(v);
    shards_put(t->in->shards, s);
    if (rc && !stopped(t))
        failed(t, at->number, "the cold tier is not used for this shard", &e);
}

static void move_shard(struct tier *t, struct tier_shard *at)
{
    struct cold_unit unit = { .cf = KV_RAW };

    for (int i = 0; i < UNITS_ROUND && !stopped(t); i++)
        if (!move_next(t, at, &unit))
            break;
}

/* ---- backups -------------------------------------------------------------------------------- */

/* The newest head, if there is one: to be freed. */
static int learn_newest(struct tier *t, struct tier_shard *at, struct backup_head *ret,
                        struct err *e)
{
    struct err why = { 0 };
    int rc = backup_newest(t->o, at->number, &at->head, ret, &why);

    if (rc == ERR_NOT_FOUND) {
        *ret = (struct backup_head){ 0 };
        at->head = 0;
        at->backup_ms = 0;
        rc = 0;
    } else if (!rc) {
        at->backup_ms = ret->wall_ms;
    } else {
        *e = why;
    }
    at->known = !rc;
    return rc;
}

struct proving {
    struct tier *t;
    struct tier_shard *at;
    struct shard *s;
    struct kv *kv;
};

static int prove(void *cookie, struct manifest **ret, struct err *e)
{
    struct proving *p = cookie;

    return tier_write_check(&(struct tier_write_to){ &p->t->land, p->s, p->kv },
                            p->at->generation.now, ret, e);
}

static int sweep(struct tier *t, struct tier_shard *at, struct shard *s, struct kv *kv,
                 struct err *e)
{
    struct proving p = { t, at, s, kv };
    struct backup_sweep_opts o = { .o = t->o,
                                   .shard = at->number,
                                   .generation = at->generation.now,
                                   .keep = (size_t)t->conf->backups,
                                   .prove = prove,
                                   .cookie = &p };
    uint64_t deleted = 0;
    int rc = hold(t, at, s, kv, e);

    if (rc)
        return rc;
    rc = backup_sweep(at->sweep, &o, &deleted, e);

    metric_add(t->m.deleted, deleted);
    if (rc) /* what was asked for may still happen: names of this generation are not made again */
        at->generation.now = 0;
    return rc;
}

struct placing {
    struct tier *t;
    uint32_t shard;
};

/* The number of shards is the map's: with etcd, cluster.shards says nothing once there is one. */
static int map_of(struct tier *t, uint32_t shard, const struct map **ret, bool *ret_all,
                  struct err *e)
{
    *ret = placement_guard_map(t->in->placed, shard, ret_all);
    return *ret ? 0 : err_set(e, ERR_UNAVAILABLE, "the map of the cluster is not known yet");
}

static int write_places(void *cookie, struct buf *text, bool *ret_sure, struct err *e)
{
    const struct placing *p = cookie;
    const struct map *m;

    if (map_of(p->t, p->shard, &m, ret_sure, e))
        return e->code;
    if (!*ret_sure)
        log_warn("a backup may name too few places of services: this node may not know the latest "
                 "map yet; the next backup will name them",
                 KV_U64("shard", p->shard));
    placement_history_write(m, text);
    map_unref(m);
    return 0;
}

/* Writes the head in a generation that this process holds; `newest` was read in it. */
static int write_head(struct tier *t, struct tier_shard *at, const struct backup_head *newest,
                      struct kv *kv, struct err *e)
{
    int64_t now = clock_wall_ms(t->in->ctx->env->clock);
    struct placing placing = { t, at->number };
    struct backup_opts o = {
        .kv = kv,
        .o = t->o,
        .wall_ms = now,
        .generation = &at->generation,
        .before = newest,
        .places = write_places,
        .cookie = &placing,
        .stop = &t->stop,
    };
    struct backup_done done;
    const struct map *m;
    bool all;
    int rc = map_of(t, at->number, &m, &all, e);

    if (rc)
        return rc;
    o.shards = m->shards;
    map_unref(m);
    rc = cold_generation_head(&at->generation, at->head, &o.number, e);
    if (rc) {
        at->generation.now = 0; /* a database older than the bucket: over that head next time */
        return rc;
    }
    rc = backup_write(&o, &done, e);
    if (rc)
        return rc;
    at->head = o.number;
    at->backup_ms = now;
    metric_add(t->m.backups, 1);
    log_info("backup written", KV_U64("shard", at->number), KV_U64("bytes", done.bytes),
             KV_U64("uploaded_bytes", done.up_bytes));
    return 0;
}

static int back_up(struct tier *t, struct tier_shard *at, struct shard *s, struct err *e)
{
    struct store_view *v = store_view_get(shard_store(s));
    struct kv *kv = store_view_kv(v);
    struct backup_head newest = { 0 };
    int rc = own(t, at, s, kv, e);

    if (!rc)
        rc = learn_newest(t, at, &newest, e);
    if (!rc)
        rc = write_head(t, at, &newest, kv, e);
    if (!rc)
        rc = sweep(t, at, s, kv, e);
    backup_head_deinit(&newest);
    store_view_put(v);
    return rc;
}

/* When the newest head is of; a generation is not taken for that alone. */
static int learn_age(struct tier *t, struct tier_shard *at, struct err *e)
{
    struct backup_head newest = { 0 };
    int rc = at->known ? 0 : learn_newest(t, at, &newest, e);

    backup_head_deinit(&newest);
    return rc;
}

static void back_up_shard(struct tier *t, struct tier_shard *at)
{
    int64_t now = clock_wall_ms(t->in->ctx->env->clock);
    struct err e = { 0 };
    struct shard *s;
    int rc;

    if (!t->conf->backup_interval_ms || stopped(t))
        return;
    rc = learn_age(t, at, &e);
    if (!rc && backup_due(at->backup_ms, now, t->conf->backup_interval_ms)) {
        s = shards_get(t->in->shards, at->number, &e);
        if (!s)
            return;
        rc = back_up(t, at, s, &e);
        shards_put(t->in->shards, s);
    }
    if (rc && !stopped(t))
        failed(t, at->number, "a backup could not be written; the one before stays", &e);
}

/* ---- the thread ----------------------------------------------------------------------------- */

/* Returns the state of a shard, or an entry for it that a shard had which is not served here now.
 * The state of such a shard is read again if it comes back. */
static struct tier_shard *known(struct tier *t, uint32_t number, const uint32_t *served, int n)
{
    struct tier_shard *room = NULL;

    for (size_t i = 0; i < SHARDS_MAX; i++) {
        struct tier_shard *at = &t->at[i];
        bool here = false;

        if (at->sweep && at->number == number)
            return at;
        for (int k = 0; k < n; k++)
            here |= at->sweep && served[k] == at->number;
        if (!here && (!room || !at->sweep))
            room = at;
    }
    CHECK(room); /* no more are served than there are places */
    backup_sweep_free(room->sweep);
    *room = (struct tier_shard){ .number = number, .sweep = backup_sweep_new() };
    return room;
}

static void count_cache(struct tier *t)
{
    struct cold_cache_stats st;

    cold_cache_stats(t->cache, &st);
    metric_set(t->m.hits, (int64_t)st.hits);
    metric_set(t->m.misses, (int64_t)st.misses);
    metric_set(t->m.cache_bytes, (int64_t)st.bytes);
}

/* Of the shard whose newest backup is the oldest. */
static void count_age(struct tier *t)
{
    int64_t now = clock_wall_ms(t->in->ctx->env->clock), oldest = now;

    for (size_t i = 0; i < SHARDS_MAX; i++)
        if (t->at[i].served && t->at[i].backup_ms)
            oldest = MIN(oldest, t->at[i].backup_ms);
    metric_set(t->m.age, (now - oldest) / 1000);
}

static void round_once(struct tier *t)
{
    struct shard *all[SHARDS_MAX];
    uint32_t numbers[SHARDS_MAX];
    struct err e = { 0 };
    int n = shards_get_all(t->in->shards, NULL, 0, all, &e);

    for (int i = 0; i < n; i++)
        numbers[i] = shard_number(all[i]);
    if (n > 0)
        shards_put_all(t->in->shards, all, (size_t)n);
    err_clear(&t->refused);
    for (size_t i = 0; i < SHARDS_MAX; i++)
        t->at[i].served = false;
    for (int i = 0; i < n && !stopped(t); i++) {
        struct tier_shard *at = known(t, numbers[i], numbers, n);

        at->served = true;
        at->held = false;
        at->refused = false;
        look_at_place(t, at);
        if (at->refused)
            continue;
        move_shard(t, at);
        back_up_shard(t, at);
    }
    count_cache(t);
}

static int open_place(struct tier *t, const atomic_bool *stop, struct object_store **ret,
                      struct err *e)
{
    const struct role_ctx *ctx = t->in->ctx;

    if (ctx->objects)
        return ctx->objects->open(ctx->objects, ret, e);
    return cold_conf_open(t->conf, ctx->env, stop, ret, e);
}

static void run(void *cookie)
{
    struct tier *t = cookie;
    struct err e = { 0 };

    while (!stopped(t)) {
        if (!t->o && open_place(t, &t->stop, &t->o, &e))
            t->o = NULL;
        int rc = tier_health_look(&t->health, t->o, t->in->ctx->env->clock, &e);
        if (!rc)
            round_once(t);
        if (!rc)
            tier_health_refused(&t->health, t->o, &t->refused);
        metric_set(t->m.failing, rc != 0 || t->refused.code != 0);
        metric_set(t->m.not_ours, t->refused.code != 0);
        metric_add(t->m.errors, rc != 0);
        count_age(t);
        wait_ms(t, rc ? MIN(t->conf->interval_ms, FAILING_MS) : t->conf->interval_ms);
    }
}

static void run_fiber(void *cookie)
{
    struct tier *t = cookie;

    run(t);
    t->running = false;
}

static void run_simulated(void *cookie)
{
    fiber_run(run_fiber, cookie);
}

/* ---- life ----------------------------------------------------------------------------------- */

static int open_handle(void *cookie, struct object_store **ret, struct err *e)
{
    struct tier *t = cookie;

    return open_place(t, &t->stop, ret, e);
}

int tier_wrap(struct tier *t, uint32_t shard, struct kv *kv, struct kv **ret, struct err *e)
{
    struct kv_cold_opts o = { .inner = kv, .cache = t ? t->cache : NULL, .shard = shard };

    return kv_cold_open(&o, ret, e);
}

int tier_open(struct ingester *in, struct tier **ret, struct err *e)
{
    const struct cold_conf *conf = conf_get(in->ctx->conf, &cold_options);
    struct object_store *probe;
    struct cold_cache_opts o = { .handles_max = HANDLES_MAX, .open = open_handle };
    char dir[PATH_MAX];
    struct tier *t;

    *ret = NULL;
    if (!conf->url[0])
        return 0;
    if ((size_t)snprintf(dir, sizeof(dir), "%s/cold-cache", in->ctx->data_dir) >= sizeof(dir))
        return err_set(e, ERR_CONFIG, "data.dir is longer than a path may be");
    t = XNEW(struct tier);
    t->in = in;
    t->conf = conf;
    if (open_place(t, NULL, &probe, e)) { /* mistakes show at the start */
        xfree(t);
        return e->code;
    }
    object_close(probe);
    o.dir = in->ctx->simulated ? NULL : dir;
    o.bytes_max = conf->cache_bytes;
    o.cookie = t;
    mutex_init(&t->lock);
    cond_init(&t->wake);
    tier_write_init(&t->land);
    tier_health_init(&t->health);
    t->timer = in->ctx->simulated ? loop_timer_new(in->ctx->loop, on_waited, t) : NULL;
    if (cold_cache_new(&o, &t->cache, e)) {
        tier_free(t);
        return e->code;
    }
    tier_metrics_init(&t->m, in->ctx->metrics);
    *ret = t;
    return 0;
}

void tier_begin(struct tier *t)
{
    if (t && t->in->ctx->simulated) {
        t->running = true;
        loop_post(t->in->ctx->loop, run_simulated, t);
    } else if (t) {
        thread_start(&t->thread, "cold", run, t);
    }
}

void tier_ring(struct tier *t, struct json *j)
{
    if (!t)
        return;
    json_key(j, "cold");
    tier_health_json(&t->health, j);
}

bool tier_trouble(struct tier *t, struct err *ret)
{
    return t && tier_health_trouble(&t->health, ret);
}

void tier_stop(struct tier *t)
{
    if (!t)
        return;
    mutex_lock(&t->lock);
    atomic_store(&t->stop, true);
    cond_wake_all(&t->wake);
    mutex_unlock(&t->lock);
    if (t->waiting)
        loop_timer_start(t->timer, 0, 0);
}

bool tier_idle(const struct tier *t)
{
    return !t || !t->running;
}

void tier_free(struct tier *t)
{
    if (!t)
        return;
    tier_stop(t);
    CHECK(tier_idle(t));
    thread_join(&t->thread);
    loop_timer_free(t->timer);
    object_close(t->o);
    cold_cache_free(t->cache);
    for (size_t i = 0; i < SHARDS_MAX; i++)
        backup_sweep_free(t->at[i].sweep);
    tier_write_deinit(&t->land);
    tier_health_deinit(&t->health);
    cond_deinit(&t->wake);
    mutex_deinit(&t->lock);
    xfree(t);
}
