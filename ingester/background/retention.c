/* SPDX-License-Identifier: Apache-2.0
 *
 * retention: the rules are a file because they are many and change without a restart. Every
 * interval it is read on a pool thread; only if its bytes have changed a new policy is made and
 * handed to each shard's thread. A file that has become unreadable or wrong is said loudly, and
 * the rules that were read last stay: nothing is deleted, or kept, because of a slip of the pen.
 */
#include "ingester/background/retention.h"
#include "ingester/shard/shards.h"

#include "common/base/hash.h"
#include "common/base/mem.h"
#include "common/base/size.h"
#include "common/obs/log.h"
#include "common/store/retain/forecast.h"
#include "common/store/retain/retain.h"

static_assert(ARRAY_LEN(((struct retention_conf *)NULL)->keep_ms) == KEY_LEVELS,
              "each level has an option");

#define LOOK_MS 10000

struct look { /* at what a shard has to say; by place */
    struct shard_task task;
    struct retention *r;
    struct shard *shard; /* held while it is asked */
    bool known;
    struct forecast_in in;
    struct retain_stats stats, shown; /* now; what the metrics have */
};
struct give { /* a policy on its way to a shard */
    struct shard_task task;
    struct retention *r;
    struct shard *shard;          /* held */
    struct retain_policy *policy; /* referenced */
};
struct retention {
    struct ingester *in;
    const struct retention_conf *conf;
    struct retain_policy *policy; /* referenced: the newest */
    struct timer *timer;
    bool reading;
    size_t giving;
    struct timer *look_timer;
    struct look looks[SHARDS_MAX];
    struct shard_metrics metrics[SHARDS_MAX];
    size_t looking;
    struct hash128 seen; /* of the rules that were tried last */

    /* The pool's while reading. */
    struct retain_policy *fresh; /* NULL: nothing new */
    struct hash128 fresh_seen;
    struct err err;
};

static int make(const struct retention *r, struct str rules, struct retain_policy **ret,
                struct err *e)
{
    struct retain_policy_opts o = {
        .interval_ms = r->conf->interval_ms,
        .rules = rules,
        .file = r->conf->overrides,
    };

    for (size_t i = 0; i < KEY_LEVELS; i++)
        o.keep.ms[i] = r->conf->keep_ms[i];
    return retain_policy_new(&o, ret, e);
}

/* *ret NULL: the file has not changed. */
static int read_rules(const struct retention *r, struct hash128 *seen, struct retain_policy **ret,
                      struct err *e)
{
    const struct fs *fs = r->in->ctx->env->fs;
    struct hash128 now;
    struct buf text;
    int rc;

    *ret = NULL;
    buf_init(&text, RETAIN_TEXT_MAX);
    rc = fs->read_file(fs, r->conf->overrides, &text, e);
    now = hash128(text.ptr, text.len, 0);
    if (!rc && !hash128_eq(now, *seen)) {
        *seen = now; /* what is wrong stays wrong: said once, not every interval */
        rc = make(r, buf_str(&text), ret, e);
    }
    buf_deinit(&text);
    return rc ? err_wrap(e, "retention.overrides") : 0;
}

static void on_given(struct shard_task *t)
{
    struct give *g = container_of(t, struct give, task);

    g->r->giving--;
    shards_put(g->r->in->shards, g->shard);
    retain_policy_unref(g->policy);
    xfree(g);
}

static void give_run(struct shard_task *t, struct store *s)
{
    store_set_retention(s, container_of(t, struct give, task)->policy);
}

static void take(struct retention *r)
{
    struct ingester *in = r->in;

    retain_policy_unref(r->policy);
    r->policy = r->fresh;
    r->fresh = NULL;
    log_info("retention has new rules", KV_CSTR("file", r->conf->overrides),
             KV_U64("rules", retain_policy_rules(r->policy)));
    struct shard *all[SHARDS_MAX];
    int n = shards_get_all(in->shards, NULL, 0, all, NULL);
    for (int i = 0; i < n; i++) {
        struct give *g = XNEW(struct give);

        *g = (struct give){ .task = { .run = give_run, .done = on_given },
                            .r = r,
                            .shard = all[i],
                            .policy = retain_policy_ref(r->policy) };
        r->giving++;
        shard_run(all[i], &g->task);
    }
}

static void read_work(void *cookie)
{
    struct retention *r = cookie;

    r->fresh_seen = r->seen;
    r->err.code = read_rules(r, &r->fresh_seen, &r->fresh, &r->err);
}

static void read_done(void *cookie)
{
    struct retention *r = cookie;

    r->reading = false;
    r->seen = r->fresh_seen;
    if (r->err.code)
        log_error("the rules of retention are unchanged", KV_ERR(&r->err));
    if (r->fresh && r->in->draining) {
        retain_policy_unref(r->fresh);
        r->fresh = NULL;
    } else if (r->fresh) {
        take(r);
    }
}

static void on_timer(void *cookie)
{
    struct retention *r = cookie;
    struct ingester *in = r->in;

    if (!r->reading)
        r->reading = pool_submit(in->ctx->pool, in->ctx->loop, read_work, read_done, r);
}

/* ---- figures -------------------------------------------------------------------------------- */

static void show_forecast(const struct retention *r)
{
    const struct ingester_metrics *m = &r->in->metrics;
    struct forecast_in all = { 0 };
    uint64_t free_bytes, reserve;
    struct forecast f;
    bool known = false;

    for (size_t i = 0; i < shards_len(r->in->shards); i++) {
        const struct look *l = &r->looks[i];
        bool counts = l->known && shards_at(r->in->shards, i);
        if (counts)
            forecast_unite(&all, &l->in);
        known = known || counts;
    }
    if (!known)
        return;
    disk_room(r->in->disk, &free_bytes, &reserve);
    forecast_make(&all, free_bytes > reserve ? free_bytes - reserve : 0, &f);
    metric_set(m->disk_growth, f.growth_per_day);
    metric_set(m->disk_settles, (int64_t)MIN(f.settles_bytes, (uint64_t)INT64_MAX));
    metric_set(m->disk_days_left, MIN(f.days_left, FORECAST_DAYS_MAX));
}

static void show_stats(struct look *l, const struct shard_metrics *m)
{
#define MORE(field) metric_add(m->field, l->stats.field - l->shown.field)
    if (l->stats.steps < l->shown.steps) /* the shard was opened again */
        l->shown = (struct retain_stats){ 0 };
    MORE(floors_moved);
    MORE(held_back);
    MORE(ranges_deleted);
    MORE(rows_purged);
    MORE(epochs_dropped);
    MORE(file_drops);
#undef MORE
    l->shown = l->stats;
}

static void on_looked(struct shard_task *t)
{
    struct look *l = container_of(t, struct look, task);
    struct retention *r = l->r;

    show_stats(l, &r->metrics[l - r->looks]);
    shards_put(r->in->shards, l->shard);
    l->shard = NULL;
    if (--r->looking == 0)
        show_forecast(r);
}

static void look_run(struct shard_task *t, struct store *s)
{
    struct look *l = container_of(t, struct look, task);

    l->known = store_forecast_own(s, &l->in);
    store_retain_stats(s, &l->stats);
}

static void on_look(void *cookie)
{
    struct retention *r = cookie;

    if (r->looking)
        return;
    for (size_t i = 0; i < shards_len(r->in->shards); i++) {
        struct look *l = &r->looks[i];
        struct err e;
        l->shard = shards_get(r->in->shards, shards_number(r->in->shards, i), &e);
        if (!l->shard)
            continue;
        l->r = r;
        l->task = (struct shard_task){ .run = look_run, .done = on_looked };
        r->looking++;
        shard_run(l->shard, &l->task);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

int retention_open(struct ingester *in, struct err *e)
{
    struct retention *r = XNEW(struct retention);

    in->retention = r;
    r->in = in;
    r->conf = conf_get(in->ctx->conf, &retention_options);
    return r->conf->overrides[0] ? read_rules(r, &r->seen, &r->policy, e)
                                 : make(r, STR_NULL, &r->policy, e);
}

void retention_open_shard(struct ingester *in, uint32_t number, struct store *store)
{
    struct retention *r = in->retention;
    size_t place = shards_place(in->shards, number);

    CHECK(place < SHARDS_MAX);
    store_set_retention(store, r->policy);
    shard_metrics_init(&r->metrics[place], in->ctx->metrics, number);
    r->looks[place].shown = (struct retain_stats){ 0 };
    r->looks[place].known = false;
}

void retention_begin(struct ingester *in)
{
    struct retention *r = in->retention;

    metric_set(in->metrics.disk_days_left, FORECAST_DAYS_MAX); /* until it is known */
    r->look_timer = loop_timer_new(in->ctx->loop, on_look, r);
    loop_timer_start(r->look_timer, LOOK_MS, LOOK_MS);
    if (!r->conf->overrides[0])
        return;
    r->timer = loop_timer_new(in->ctx->loop, on_timer, r);
    loop_timer_start(r->timer, r->conf->interval_ms, r->conf->interval_ms);
    log_info("retention has rules", KV_CSTR("file", r->conf->overrides),
             KV_U64("rules", retain_policy_rules(r->policy)));
}

void retention_stop(struct ingester *in)
{
    if (in->retention->timer)
        loop_timer_stop(in->retention->timer);
    if (in->retention->look_timer)
        loop_timer_stop(in->retention->look_timer);
}

bool retention_idle(const struct ingester *in)
{
    return !in->retention ||
           (!in->retention->reading && !in->retention->giving && !in->retention->looking);
}

void retention_free(struct ingester *in)
{
    struct retention *r = in->retention;

    if (!r)
        return;
    CHECK(retention_idle(in));
    loop_timer_free(r->timer);
    loop_timer_free(r->look_timer);
    retain_policy_unref(r->policy);
    xfree(r);
    in->retention = NULL;
}
