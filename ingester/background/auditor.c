/* SPDX-License-Identifier: Apache-2.0
 *
 * ledger: rounds of the auditor over the shards, one after the other, service by service.
 *
 *   WAITING ──timer──> STEPPING (pool: a view, a service) ──> WAITING, so long that the rate holds
 *      ^                    │ a service older than the ledger
 *      └──── ADOPTING <─────┘  (shard thread: store_ledger_adopt)
 *
 * A service is audited on one view, in steps of some milliseconds without a pause between them: a
 * view that is held for long keeps rows of the past on the disk, and a shard that wants to leave
 * waits for it. The pause comes behind the service. Work that people wait for comes first: none
 * begins while memory is short or queries wait for their turn.
 *
 * What is found of a tenant is shown when its last service is done, until the next round has been
 * there. Differences are logged each time, with the place; the metric is their sum over all
 * tenants, so that their number costs nothing.
 *
 * Threads: the loop's; `shown` is read by the pool, too, and guarded by `lock`.
 */
#include "ingester/background/auditor.h"

#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/store/kv/cold_read.h"
#include "common/store/ledger/ledger.h"
#include "common/sys/thread.h"
#include "ingester/shard/read_load.h"
#include "ingester/shard/shards.h"

#define STEP_ROWS   4096
#define DEEP_ROWS   50000 /* of a service: with more, finest rows are the scrubber's alone */
#define ROWS_MAX    (UINT64_C(20) * 1000000)
#define BUSY_MS     1000
#define ERROR_MS    10000
#define TENANTS_MAX 100000

struct tenant_shown {
    struct str name; /* owned */
    struct audited a;
    uint64_t round; /* that it was found in */
};
struct shard_shown {
    uint32_t number;
    struct map_str *tenants; /* struct tenant_shown, owned; NULL: none */
    uint64_t round;
};
struct auditor {
    struct ingester *in;
    const struct scrub_conf *conf;
    struct timer *timer;
    size_t place;            /* of the shard whose turn it is */
    uint32_t tenant, scope;  /* the service done last, in that shard */
    uint64_t round_began_ms; /* of this shard */
    bool busy, in_round;
    bool again; /* what is being walked was accepted since: the walk does not count */

    /* Of the service at work. */
    struct shard *shard;
    struct store_view *view;
    struct ledger_audit *audit;
    bool done, ended; /* the service; there is no further one */
    uint64_t rows_paid;
    struct err err;
    struct shard_task adopt;
    struct err adopt_err;

    struct str name; /* of the tenant being gathered; owned */
    struct audited gathered;

    struct mutex lock;
    struct shard_shown shown[SHARDS_MAX]; /* by place */
    struct metric_cell *difference, *tenants, *lost, *doubled, *services, *rows, *errors, *seconds,
        *rounds;
};

static uint64_t now_ms(const struct auditor *a)
{
    return clock_mono_ms(a->in->ctx->env->clock);
}

/* ---- what is shown ---- */

static void drop_shown(struct shard_shown *s, uint64_t before)
{
    size_t pos = 0;
    struct str key;
    void *p;

    if (!s->tenants)
        return;
    struct map_str *kept = map_str_new();
    while (map_str_next(s->tenants, &pos, &key, &p)) {
        struct tenant_shown *t = p;
        if (t->round >= before) {
            (void)map_str_put(kept, t->name, t);
            continue;
        }
        xfree((char *)(uintptr_t)t->name.ptr);
        xfree(t);
    }
    map_str_free(s->tenants);
    s->tenants = kept;
}

static void show(struct auditor *a)
{
    struct shard_shown *s = &a->shown[a->place];

    mutex_lock(&a->lock);
    if (s->number != shards_number(a->in->shards, a->place)) /* the place was another one's */
        drop_shown(s, UINT64_MAX);
    s->number = shards_number(a->in->shards, a->place);
    if (!s->tenants)
        s->tenants = map_str_new();
    struct tenant_shown *t = map_str_get(s->tenants, a->name);
    if (!t && map_str_len(s->tenants) < TENANTS_MAX) {
        t = XNEW(struct tenant_shown);
        t->name = str_n(xmemdup(a->name.ptr, a->name.len), a->name.len);
        (void)map_str_put(s->tenants, t->name, t);
    }
    if (t) {
        t->a = a->gathered;
        t->round = s->round;
    }
    mutex_unlock(&a->lock);
}

static void set_metrics(struct auditor *a)
{
    uint64_t difference = 0, tenants = 0, lost = 0, doubled = 0;

    mutex_lock(&a->lock);
    for (size_t i = 0; i < shards_len(a->in->shards); i++) {
        size_t pos = 0;
        struct str key;
        void *p;
        if (!shards_at(a->in->shards, i)) /* served elsewhere by now */
            drop_shown(&a->shown[i], UINT64_MAX);
        while (a->shown[i].tenants && map_str_next(a->shown[i].tenants, &pos, &key, &p)) {
            const struct audited *x = &((struct tenant_shown *)p)->a;
            difference += x->difference;
            tenants += x->difference > 0;
            lost += x->lost;
            doubled += x->doubled;
        }
    }
    mutex_unlock(&a->lock);
    metric_set(a->difference, (int64_t)difference);
    metric_set(a->tenants, (int64_t)tenants);
    metric_set(a->lost, (int64_t)lost);
    metric_set(a->doubled, (int64_t)doubled);
}

void auditor_tenant(struct auditor *a, uint32_t shard, struct str tenant, struct audited *ret)
{
    *ret = (struct audited){ 0 };
    mutex_lock(&a->lock);
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        if (a->shown[i].number != shard || !a->shown[i].tenants)
            continue;
        const struct tenant_shown *t = map_str_get(a->shown[i].tenants, tenant);
        if (t)
            *ret = t->a;
    }
    mutex_unlock(&a->lock);
}

static void clear(struct audited *x)
{
    x->difference = x->scopes_more; /* at least */
    x->lost = x->doubled = 0;
    x->texts_len = x->scopes_len = 0;
}

void auditor_accepted(struct auditor *a, uint32_t shard, struct str tenant)
{
    mutex_lock(&a->lock);
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        struct tenant_shown *t = a->shown[i].number == shard && a->shown[i].tenants
                                     ? map_str_get(a->shown[i].tenants, tenant)
                                     : NULL;
        if (t)
            clear(&t->a);
    }
    mutex_unlock(&a->lock);
    if (a->in_round && shards_number(a->in->shards, a->place) == shard) {
        if (a->name.ptr && str_eq(a->name, tenant))
            clear(&a->gathered);
        a->again = a->busy;
    }
    set_metrics(a);
}

/* ---- gathering ---- */

static void end_tenant(struct auditor *a)
{
    if (a->name.ptr)
        show(a);
    xfree((char *)(uintptr_t)a->name.ptr);
    a->name = STR_NULL;
    a->gathered = (struct audited){ 0 };
}

static void report(struct auditor *a, const struct ledger_result *r)
{
    vec_for (i, &r->findings) {
        log_error("the ledger does not agree with what is stored",
                  KV_U64("shard", shard_number(a->shard)), KV_STR("tenant", r->tenant_name),
                  KV_CSTR("found", r->findings.ptr[i].text));
        if (a->gathered.texts_len < AUDITED_TEXTS)
            memcpy(a->gathered.texts[a->gathered.texts_len++], r->findings.ptr[i].text,
                   ERR_TEXT_MAX);
    }
    if (r->more)
        log_error("more of this service does not agree than can be named",
                  KV_U64("shard", shard_number(a->shard)), KV_U64("more", r->more));
}

static void gather(struct auditor *a, const struct ledger_result *r)
{
    struct audited *g = &a->gathered;

    if (a->name.ptr && a->tenant != r->tenant)
        end_tenant(a);
    if (!a->name.ptr)
        a->name = str_n(xmemdup(r->tenant_name.ptr, r->tenant_name.len), r->tenant_name.len);
    a->tenant = r->tenant;
    a->scope = r->scope;
    g->services++;
    g->skipped += r->skipped;
    g->must += r->want;
    g->found += r->found;
    g->difference += r->difference;
    g->tenant = r->tenant;
    if (r->difference && g->scopes_len < AUDITED_SCOPES)
        g->scopes[g->scopes_len++] = r->scope;
    else
        g->scopes_more += r->difference > 0;
    g->lost += r->lost;
    g->doubled += r->doubled;
    g->at_ms = r->engine_ms;
    metric_add(a->services, 1);
    report(a, r);
}

/* ---- steps ---- */

static void wait(struct auditor *a, uint64_t ms)
{
    a->busy = false;
    ledger_audit_free(a->audit);
    a->audit = NULL;
    if (a->view)
        store_view_put(a->view);
    a->view = NULL;
    shards_put(a->in->shards, a->shard);
    a->shard = NULL;
    if (!a->in->draining)
        loop_timer_start(a->timer, ms, 0);
}

/* On to the shard of the next place; false: that was the last one. */
static bool next_place(struct auditor *a)
{
    a->tenant = a->scope = 0;
    a->in_round = false;
    a->place = a->place + 1 < shards_len(a->in->shards) ? a->place + 1 : 0;
    return a->place > 0;
}

static void round_ended(struct auditor *a)
{
    end_tenant(a);
    mutex_lock(&a->lock);
    drop_shown(&a->shown[a->place], a->shown[a->place].round);
    mutex_unlock(&a->lock);
    set_metrics(a);
    metric_add(a->rounds, 1);
    metric_set(a->seconds, (int64_t)((now_ms(a) - a->round_began_ms) / 1000));
    wait(a, next_place(a) ? 0 : a->conf->audit_interval_ms);
}

/* Pool thread. */
static void step_work(void *cookie)
{
    struct auditor *a = cookie;
    struct cold_read reach = { .local = !a->conf->cold };
    struct cold_read *before = cold_read_policy_set(&reach);
    int rc = 0;

    err_clear(&a->err);
    if (!a->view)
        a->view = store_view_get(shard_store(a->shard));
    if (!a->audit)
        rc = store_ledger_next(a->view, a->tenant, a->scope, &a->audit, &a->err);
    a->ended = !rc && !a->audit;
    a->done = false;
    if (!rc && !a->ended)
        rc = store_ledger_audit(a->audit, STEP_ROWS, DEEP_ROWS, &a->done, &a->err);
    if (!rc && a->audit && ledger_audit_result(a->audit)->rows > ROWS_MAX)
        rc =
            err_set(&a->err, ERR_LIMIT, "a service has over %" PRIu64 " rows to look at", ROWS_MAX);
    if (!rc)
        err_clear(&a->err);
    (void)cold_read_policy_set(before);
}

static void service_ended(struct auditor *a)
{
    uint64_t rows = ledger_audit_result(a->audit)->rows;

    metric_add(a->rows, rows);
    wait(a, MAX((rows + 16) * 1000 / a->conf->audit_rate, 1));
}

/* Shard thread. */
static void adopt_run(struct shard_task *t, struct store *store)
{
    struct auditor *a = container_of(t, struct auditor, adopt);

    if (store_ledger_adopt(store, a->audit, &a->adopt_err) == 0)
        err_clear(&a->adopt_err);
}

static void adopt_done(struct shard_task *t)
{
    struct auditor *a = container_of(t, struct auditor, adopt);

    if (a->adopt_err.code)
        log_warn("the ledger of a service could not begin; the next round tries again",
                 KV_ERR(&a->adopt_err));
    service_ended(a);
}

static void step_done(void *cookie)
{
    struct auditor *a = cookie;

    if (a->in->draining || a->again) {
        a->again = false;
        wait(a, 1);
        return;
    }
    if (a->err.code) {
        metric_add(a->errors, 1);
        log_warn("the auditor could not read; it continues with the next service", KV_ERR(&a->err));
        if (a->audit) {
            a->tenant = ledger_audit_result(a->audit)->tenant;
            a->scope = ledger_audit_result(a->audit)->scope;
        }
        wait(a, ERROR_MS);
        return;
    }
    if (a->ended) {
        round_ended(a);
        return;
    }
    if (!a->done) {
        if (!pool_submit(a->in->ctx->pool, a->in->ctx->loop, step_work, step_done, a))
            wait(a, BUSY_MS);
        return;
    }
    const struct ledger_result *r = ledger_audit_result(a->audit);
    gather(a, r);
    if (r->adopt)
        shard_run(a->shard, &a->adopt);
    else
        service_ended(a);
}

static void on_timer(void *cookie)
{
    struct auditor *a = cookie;
    struct ingester *in = a->in;
    struct err skip;

    if (in->draining)
        return;
    a->shard = a->place < shards_len(in->shards)
                   ? shards_get(in->shards, shards_number(in->shards, a->place), &skip)
                   : NULL;
    if (!a->shard) { /* served elsewhere: if it comes back, its round restarts */
        end_tenant(a);
        wait(a, next_place(a) ? 0 : BUSY_MS);
        return;
    }
    if (!a->in_round) {
        a->in_round = true;
        a->round_began_ms = now_ms(a);
        a->shown[a->place].round++;
    }
    a->busy = !role_memory_check(in->ctx, &skip) && !read_load_waiting(in->read_load) &&
              !shard_state(a->shard)->read_only &&
              pool_submit(in->ctx->pool, in->ctx->loop, step_work, step_done, a);
    if (!a->busy)
        wait(a, BUSY_MS);
}

/* ---- life ---- */

static struct metric_cell *cell(struct auditor *a, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(a->in->ctx->metrics, kind, name, help, NULL), NULL, 0);
}

static void make_metrics(struct auditor *a)
{
    a->difference = cell(a, METRIC_GAUGE, "embertree_ledger_difference",
                         "Places where what is stored is not what came in; must be 0");
    a->tenants = cell(a, METRIC_GAUGE, "embertree_ledger_tenants_differing",
                      "Tenants with such a place, by shard");
    a->lost = cell(a, METRIC_GAUGE, "embertree_ledger_missing_writes",
                   "Writes that must be there and are not");
    a->doubled = cell(a, METRIC_GAUGE, "embertree_ledger_surplus_writes",
                      "Writes that are there and must not be");
    a->services = cell(a, METRIC_COUNTER, "embertree_ledger_services_audited_total",
                       "Services compared with the ledger");
    a->rows = cell(a, METRIC_COUNTER, "embertree_ledger_rows_audited_total",
                   "Heads of rows read for that");
    a->errors = cell(a, METRIC_COUNTER, "embertree_ledger_audit_errors_total",
                     "Services that could not be read");
    a->rounds = cell(a, METRIC_COUNTER, "embertree_ledger_rounds_total",
                     "Rounds of the auditor over a whole shard");
    a->seconds = cell(a, METRIC_GAUGE, "embertree_ledger_round_seconds",
                      "How long the last round over a shard took");
}

struct auditor *auditor_new(struct ingester *in)
{
    struct auditor *a = XNEW(struct auditor);

    a->in = in;
    a->conf = conf_get(in->ctx->conf, &scrub_options);
    a->adopt = (struct shard_task){ .run = adopt_run, .done = adopt_done };
    a->timer = loop_timer_new(in->ctx->loop, on_timer, a);
    mutex_init(&a->lock);
    make_metrics(a);
    if (a->conf->audit_rate)
        wait(a, a->conf->audit_delay_ms);
    return a;
}

bool auditor_idle(const struct auditor *a)
{
    return !a->busy;
}

void auditor_free(struct auditor *a)
{
    if (!a)
        return;
    CHECK(!a->busy);
    loop_timer_free(a->timer);
    for (size_t i = 0; i < SHARDS_MAX; i++) {
        drop_shown(&a->shown[i], UINT64_MAX);
        map_str_free(a->shown[i].tenants);
    }
    xfree((char *)(uintptr_t)a->name.ptr);
    mutex_deinit(&a->lock);
    xfree(a);
}
