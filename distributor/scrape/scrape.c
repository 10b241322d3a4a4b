/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape: from the configuration and what discovery found to the entries that the scheduler runs.
 *
 *   files (config, file_sd) ──changed──┐
 *   Kubernetes objects ──changed───────┴─> sync: a new generation ─> entries: kept by id, new, gone
 *
 * A sync builds the list of all targets and compares ids (hash of job, URL, labels, profile): a
 * target that stays keeps its due time, its state and the profile that its next one is subtracted
 * from. Old generations live until the last run that points into them ended. A watch of Kubernetes
 * continues if its part of the configuration did not change. A file that cannot be used leaves its
 * last good text in force. Syncs are at most one per tick, however fast objects change.
 */
#include "distributor/scrape/scrape.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/model/tenant_id.h"
#include "common/obs/log.h"
#include "distributor/scrape/scrape_impl.h"

#define FILE_MAX  (8 * MIB)
#define GEN_BYTES (512 * MIB)
#define ANONYMOUS "anonymous"

static const double SECONDS[] = { 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 15, 20, 30, 60, 120 };

void scrape_gen_drop(struct scrape_gen *g)
{
    if (!g || --g->refs)
        return;
    scrape_conf_free(g->conf);
    arena_free(g->arena);
    xfree(g);
}

void scrape_count(struct scrape *s, const char *outcome)
{
    struct str what = str_c(outcome);

    metric_add(metric_at(s->metrics.fetches, &what, 1), 1);
}

/* ---- files ---------------------------------------------------------------------------------- */

static void file_init(struct scrape_file *f, const char *path)
{
    f->path = xstrdup(path);
    buf_init(&f->good, FILE_MAX);
}

static void file_deinit(struct scrape_file *f)
{
    buf_deinit(&f->good);
    xfree(f->path);
}

static void file_wrong(struct scrape *s, struct scrape_file *f, const struct err *e)
{
    if (strncmp(f->error, e->text, sizeof(f->error) - 1) == 0)
        return;
    (void)snprintf(f->error, sizeof(f->error), "%.*s", (int)sizeof(f->error) - 1, e->text);
    if (f == &s->config && !f->good.len)
        return; /* the start ends with it */
    log_warn("a file of scraping cannot be used; what was in it before stays", KV_ERR(e));
    if (f == &s->config)
        metric_set(s->metrics.config_ok, 0);
}

static void file_right(struct scrape *s, struct scrape_file *f)
{
    f->error[0] = '\0';
    if (f == &s->config)
        metric_set(s->metrics.config_ok, 1);
}

static int check_tenants(const struct scrape_conf *c, bool multi, struct err *e)
{
    struct err why;

    for (size_t i = 0; i < c->len; i++) {
        struct str t = c->jobs[i].tenant;
        if (!multi && !str_eqc(t, ANONYMOUS))
            return err_set(e, ERR_CONFIG, "job %.*s has a tenant; tenancy.multi is off",
                           STR_ARG(c->jobs[i].name));
        if (tenant_id_check(t, &why))
            return err_set(e, ERR_CONFIG, "job %.*s: %s", STR_ARG(c->jobs[i].name), why.text);
    }
    return 0;
}

static int check_k8s(const struct scrape_conf *c, struct err *e)
{
    for (size_t i = 0; i < c->len; i++)
        for (size_t k = 0; k < c->jobs[i].k8s_len; k++)
            if (scrape_k8s_check(&c->jobs[i].k8s[k], c->jobs[i].name.ptr, e))
                return e->code;
    return 0;
}

int scrape_check(const char *file, struct str text, bool multi, struct err *e)
{
    struct scrape_conf *conf = NULL;
    int rc = scrape_conf_parse(file, text, &conf, e);

    if (!rc)
        rc = check_tenants(conf, multi, e);
    if (!rc)
        rc = check_k8s(conf, e);
    scrape_conf_free(conf);
    return rc;
}

/* Is the text of use? */
static int try_text(const struct scrape *s, const struct scrape_file *f, struct str text,
                    struct err *e)
{
    struct scrape_groups groups;
    struct arena *a;
    int rc;

    if (!text.len && f->good.len)
        return err_set(e, ERR_CONFIG,
                       "%s is empty, as a file is that is just being written; to end all of it, "
                       "write %s",
                       f->path, f == &s->config ? "scrape_configs: []" : "[]");
    if (f == &s->config)
        return scrape_check(f->path, text, s->d->ctx->tenancy->multi, e);
    a = arena_new(SCRAPE_CONF_BYTES);
    rc = scrape_groups_parse(f->path, text, a, &groups, e);
    arena_free(a);
    return rc;
}

/* True if it holds something else now, and that is of use. */
static bool file_look(struct scrape *s, struct scrape_file *f, struct err *e)
{
    const struct fs *fs = s->d->ctx->env->fs;
    struct buf text;
    uint64_t hash;
    bool better = false;

    err_clear(e);
    buf_init(&text, FILE_MAX);
    if (fs->read_file(fs, f->path, &text, e)) {
        file_wrong(s, f, e);
        f->seen = false; /* the next text is read even if it equals the last one */
        buf_deinit(&text);
        return false;
    }
    hash = hash64(text.ptr, text.len, text.len);
    if (!f->seen || hash != f->seen_hash) {
        f->seen = true;
        f->seen_hash = hash;
        if (f->taken && str_eq(buf_str(&text), buf_str(&f->good))) {
            file_right(s, f);
        } else if (try_text(s, f, buf_str(&text), e)) {
            file_wrong(s, f, e);
        } else {
            buf_move(&f->good, &text);
            f->taken = better = true;
            file_right(s, f);
        }
    }
    buf_deinit(&text);
    return better;
}

static struct scrape_file *file_of(struct scrape *s, const char *path)
{
    struct scrape_file *f;
    struct err e;

    vec_for (i, &s->files)
        if (strcmp(s->files.ptr[i]->path, path) == 0)
            return s->files.ptr[i];
    f = XNEW(struct scrape_file);
    file_init(f, path);
    vec_push(&s->files, f);
    (void)file_look(s, f, &e);
    return f;
}

/* ---- entries -------------------------------------------------------------------------------- */

static void entry_free(struct scrape_entry *x)
{
    scrape_run_drop(x->run);
    scrape_body_drop(x->s, &x->last);
    scrape_gen_drop(x->gen);
    x->magic = 0;
    xfree(x);
}

void scrape_ended(struct scrape_entry *x, bool ok)
{
    struct scrape *s = x->s;
    bool again = !x->gone && !s->stopped;

    sched_done(s->sched, &x->sched, ok, again);
    if (x->gone)
        entry_free(x);
}

static void entry_remove(struct scrape_entry *x)
{
    x->gone = true;
    if (x->sched.state != SCHED_RUNS) {
        sched_del(x->s->sched, &x->sched);
        entry_free(x);
    } else {
        scrape_run_cancel(x); /* frees it, unless it is being stored */
    }
}

struct sync {
    struct scrape *s;
    struct scrape_gen *gen;
};

/* What waits for a turn of yesterday's interval, or measures for all of it, would do so for up to a
 * day. */
static void take_interval(struct scrape_entry *x, uint64_t interval_ms)
{
    if (x->sched.interval_ms == interval_ms)
        return;
    sched_interval(x->s->sched, &x->sched, interval_ms);
    if (x->profile->delta)
        scrape_run_cancel(x);
}

static void take_profile(struct sync *y, const struct scrape_job *j, const struct scrape_target *t,
                         const struct scrape_profile *p)
{
    struct scrape *s = y->s;
    uint64_t id = hash64(p->path.ptr, p->path.len, hash64(p->name.ptr, p->name.len, t->hash));
    uint32_t at = map_u64_get(&s->by_id, id);
    struct scrape_entry *x = at == MAP_U64_EMPTY ? NULL : s->entries.ptr[at];

    if (x && x->seen == s->syncs)
        return; /* the same target, found twice */
    if (!x && s->entries.len >= s->d->conf->scrape_targets) {
        s->left_out++;
        return;
    }
    if (!x) {
        x = XNEW(struct scrape_entry);
        x->magic = SCRAPE_ENTRY_MAGIC;
        x->s = s;
        x->id = x->sched.hash = id;
        (void)map_u64_put(&s->by_id, id, (uint32_t)s->entries.len);
        vec_push(&s->entries, x);
        if (p->subtract)
            scrape_was_give(s, x);
    }
    scrape_gen_drop(x->gen);
    x->gen = y->gen;
    x->gen->refs++;
    x->job = j;
    x->profile = p;
    x->target = *t;
    x->seen = s->syncs;
    take_interval(x, j->interval_ms);
    if (x->sched.state == SCHED_OFF && !s->stopped)
        sched_add(s->sched, &x->sched);
}

static void take_groups(struct sync *y, const struct scrape_job *j, const struct scrape_groups *all)
{
    const struct distributor_conf *conf = y->s->d->conf;
    struct scrape_target t;
    struct err e;

    for (size_t i = 0; i < all->len; i++) {
        const struct scrape_group *g = &all->ptr[i];
        for (size_t k = 0; k < g->len; k++) {
            int kept = scrape_target_of(j, g->addresses[k], &g->labels, y->gen->arena, &t, &e);
            if (kept < 0) {
                y->s->left_out++;
                log_warn("a target was left out", KV_STR("job", j->name), KV_ERR(&e));
            }
            if (kept <= 0 || t.hash % conf->scrape_of != conf->scrape_index % conf->scrape_of)
                continue;
            for (size_t n = 0; n < j->profiles_len; n++)
                if (j->profiles[n].enabled)
                    take_profile(y, j, &t, &j->profiles[n]);
        }
    }
}

static void take_job(struct sync *y, const struct scrape_job *j)
{
    struct scrape *s = y->s;
    struct scrape_groups groups;
    struct err e;

    take_groups(y, j, &j->statics);
    for (size_t i = 0; i < j->files_len; i++) {
        struct scrape_file *f = file_of(s, j->files[i].ptr);
        f->used = true;
        if (f->good.len &&
            scrape_groups_parse(f->path, buf_str(&f->good), y->gen->arena, &groups, &e) == 0)
            take_groups(y, j, &groups);
    }
    vec_for (i, &s->k8s)
        if (str_eqc(j->name, scrape_k8s_job(s->k8s.ptr[i])) &&
            scrape_k8s_groups(s->k8s.ptr[i], y->gen->arena, &groups))
            take_groups(y, j, &groups);
}

/* Drops entries that this sync did not see, and renumbers the others. */
static void drop_unseen(struct scrape *s)
{
    size_t kept = 0;

    map_u64_reset(&s->by_id);
    vec_for (i, &s->entries) {
        struct scrape_entry *x = s->entries.ptr[i];
        if (x->seen != s->syncs) {
            entry_remove(x);
            continue;
        }
        (void)map_u64_put(&s->by_id, x->id, (uint32_t)kept);
        s->entries.ptr[kept++] = x;
    }
    s->entries.len = kept;
}

static struct scrape_gen *gen_new(struct scrape *s)
{
    struct scrape_gen *g = XNEW(struct scrape_gen);
    struct err e;

    g->refs = 1;
    g->arena = arena_new(GEN_BYTES);
    CHECK(scrape_conf_parse(s->config.path, buf_str(&s->config.good), &g->conf, &e) == 0);
    return g;
}

static void sync_all(struct scrape *s)
{
    struct sync y = { s, gen_new(s) };

    s->dirty = false;
    s->syncs++;
    s->left_out = 0;
    vec_for (i, &s->files)
        s->files.ptr[i]->used = false;
    for (size_t i = 0; i < y.gen->conf->len; i++)
        take_job(&y, &y.gen->conf->jobs[i]);
    drop_unseen(s);
    for (size_t i = s->files.len; i > 0; i--) {
        struct scrape_file *f = s->files.ptr[i - 1];
        if (f->used)
            continue;
        file_deinit(f);
        xfree(f);
        s->files.ptr[i - 1] = s->files.ptr[--s->files.len];
    }
    scrape_gen_drop(y.gen);
    metric_set(s->metrics.targets, (int64_t)s->entries.len);
    metric_set(s->metrics.left_out, (int64_t)s->left_out);
}

/* ---- Kubernetes ----------------------------------------------------------------------------- */

static void k8s_changed(void *cookie)
{
    ((struct scrape *)cookie)->dirty = true;
}

static void k8s_end(struct scrape *s)
{
    vec_for (i, &s->k8s)
        scrape_k8s_free(s->k8s.ptr[i]);
    vec_for (i, &s->k8s_gens)
        scrape_gen_drop(s->k8s_gens.ptr[i]);
    s->k8s.len = s->k8s_gens.len = 0;
}

/* Takes the watch that runs already for the same configuration, or makes one, for the new lists. */
static int k8s_take(struct scrape *s, struct scrape *was, struct scrape_gen *g,
                    const struct scrape_job *j, const struct scrape_k8s_conf *c, struct err *e)
{
    struct scrape_k8s_opts o = { .conf = c,
                                 .job = j->name.ptr,
                                 .client = s->client,
                                 .loop = s->d->ctx->loop,
                                 .env = s->d->ctx->env,
                                 .changed = k8s_changed,
                                 .cookie = s };
    struct scrape_k8s *one;

    vec_for (i, &was->k8s) {
        if (!was->k8s.ptr[i] || !scrape_k8s_same(was->k8s.ptr[i], c, o.job))
            continue;
        vec_push(&s->k8s, was->k8s.ptr[i]);
        vec_push(&s->k8s_gens, was->k8s_gens.ptr[i]);
        was->k8s.ptr[i] = NULL;
        was->k8s_gens.ptr[i] = NULL;
        return 0;
    }
    if (scrape_k8s_new(&o, &one, e))
        return e->code;
    g->refs++;
    vec_push(&s->k8s, one);
    vec_push(&s->k8s_gens, g);
    return 0;
}

/* Watches that the configuration still has continue with the objects they know: a new list of a
 * large cluster costs its API server more than all that follows. */
static int k8s_begin(struct scrape *s, struct err *e)
{
    struct scrape was = { .k8s.ptr = NULL };
    struct scrape_gen *g = gen_new(s);
    int rc = 0;

    memcpy(&was.k8s, &s->k8s, sizeof(was.k8s));
    memcpy(&was.k8s_gens, &s->k8s_gens, sizeof(was.k8s_gens));
    memset(&s->k8s, 0, sizeof(s->k8s));
    memset(&s->k8s_gens, 0, sizeof(s->k8s_gens));
    for (size_t i = 0; i < g->conf->len; i++)
        for (size_t k = 0; !rc && k < g->conf->jobs[i].k8s_len; k++)
            rc = k8s_take(s, &was, g, &g->conf->jobs[i], &g->conf->jobs[i].k8s[k], e);
    k8s_end(&was);
    vec_free(&was.k8s);
    vec_free(&was.k8s_gens);
    scrape_gen_drop(g);
    return rc;
}

/* ---- all of it ------------------------------------------------------------------------------ */

static void on_tick(void *cookie)
{
    struct scrape *s = cookie;
    struct err e;

    CHECK(s->magic == SCRAPE_MAGIC);
    if (file_look(s, &s->config, &e)) {
        log_info("scraping by a new configuration", KV_CSTR("file", s->config.path));
        s->dirty = true;
        if (k8s_begin(s, &e))
            file_wrong(s, &s->config, &e);
    }
    vec_for (i, &s->files)
        if (file_look(s, s->files.ptr[i], &e))
            s->dirty = true;
    if (s->dirty)
        sync_all(s);
    scrape_was_tick(s);
}

static void start_entry(void *cookie, struct sched_entry *x)
{
    (void)cookie;
    scrape_run_start(container_of(x, struct scrape_entry, sched));
}

static void on_render(void *cookie)
{
    struct scrape *s = cookie;

    metric_set(s->metrics.running, (int64_t)sched_running(s->sched));
    metric_set(s->metrics.skipped, (int64_t)sched_skipped(s->sched));
    metric_set(s->metrics.memory, (int64_t)s->memory.used);
}

static struct metric_cell *cell(struct metrics *m, enum metric_kind kind, const char *name,
                                const char *help)
{
    return metric_at(metric_new(m, kind, name, help, NULL), NULL, 0);
}

static void metrics_begin(struct scrape *s, struct metrics *m)
{
#define NAME(thing) "embertree_distributor_scrape_" thing
    struct scrape_metrics *c = &s->metrics;

    c->targets = cell(m, METRIC_GAUGE, NAME("targets"), "Profiles of targets that are fetched");
    c->left_out = cell(m, METRIC_GAUGE, NAME("left_out"),
                       "Targets that are wrong, or over distributor.scrape_targets");
    c->running = cell(m, METRIC_GAUGE, NAME("running"), "Fetches and stores in work");
    c->memory = cell(m, METRIC_GAUGE, NAME("memory_bytes"), "Memory of fetched profiles");
    c->skipped = cell(m, METRIC_GAUGE, NAME("skipped"), "Turns that came too late for them");
    c->config_ok = cell(m, METRIC_GAUGE, NAME("config_ok"), "1: the file as it is now is in force");
    c->bytes = cell(m, METRIC_COUNTER, NAME("bytes_total"), "Bytes of fetched profiles");
    c->seconds =
        metric_at(metric_new_histogram(m, NAME("seconds"),
                                       "From the request to the last byte, measuring included",
                                       NULL, SECONDS, ARRAY_LEN(SECONDS)),
                  NULL, 0);
    c->fetches = metric_new(m, METRIC_COUNTER, NAME("fetches_total"),
                            "Fetches by outcome: stored, empty, unreachable, refused, not_stored",
                            "outcome");
    metrics_on_render(m, on_render, s);
#undef NAME
}

int scrape_new(struct distributor *d, struct scrape **ret, struct err *e)
{
    const struct role_ctx *ctx = d->ctx;
    struct scrape *s;

    if (!d->conf->scrape_config_file[0])
        return 0;
    s = XNEW(struct scrape);
    s->magic = SCRAPE_MAGIC;
    s->d = d;
    file_init(&s->config, d->conf->scrape_config_file);
    budget_init(&s->memory, (size_t)d->conf->scrape_bytes);
    map_u64_init(&s->by_id);
    metrics_begin(s, ctx->metrics);
    struct sched_opts o = { .loop = ctx->loop,
                            .env = ctx->env,
                            .running_max = (size_t)d->conf->scrape_running,
                            .start = start_entry,
                            .cookie = s };
    s->sched = sched_new(&o);
    s->client = http_multi_new(ctx->loop, "Embertree");
    s->tick = loop_timer_new(ctx->loop, on_tick, s);
    if (!file_look(s, &s->config, e) || k8s_begin(s, e)) {
        scrape_free(s);
        e->code = ERR_CONFIG;
        return err_wrap(e, "distributor.scrape_config_file");
    }
    scrape_routes(s);
    scrape_was_load(s);
    s->dirty = true;
    loop_timer_start(s->tick, 0, d->conf->scrape_refresh_ms);
    *ret = s;
    return 0;
}

void scrape_stop(struct scrape *s)
{
    if (!s || s->stopped)
        return;
    s->stopped = true;
    sched_stop(s->sched);
    loop_timer_stop(s->tick);
    vec_for (i, &s->k8s)
        scrape_k8s_stop(s->k8s.ptr[i]);
    vec_for (i, &s->entries)
        scrape_run_cancel(s->entries.ptr[i]);
}

void scrape_free(struct scrape *s)
{
    if (!s)
        return;
    CHECK(s->magic == SCRAPE_MAGIC);
    scrape_stop(s);
    scrape_was_save(s);
    k8s_end(s);
    vec_free(&s->k8s);
    vec_free(&s->k8s_gens);
    scrape_was_drop(s);
    vec_for (i, &s->entries)
        entry_free(s->entries.ptr[i]);
    vec_free(&s->entries);
    map_u64_deinit(&s->by_id);
    vec_for (i, &s->files) {
        file_deinit(s->files.ptr[i]);
        xfree(s->files.ptr[i]);
    }
    vec_free(&s->files);
    file_deinit(&s->config);
    loop_timer_free(s->tick);
    http_multi_free(s->client);
    sched_free(s->sched);
    s->magic = 0;
    xfree(s);
}
