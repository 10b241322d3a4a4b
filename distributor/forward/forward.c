/* SPDX-License-Identifier: Apache-2.0
 *
 * forward: from the intake to the spools.
 *
 *   pool    packed ─> profiles made, requests for each target: `kept`, beside the push
 *   loop    stored ─> job ──┐                                     done ─> the push is answered
 *   writer                  └─> appended to each spool, fsynced ──────┘
 *   senders one or more per target: spool ─> HTTP (forward_target.c)
 *
 * A push is spooled after its ingester said that it is on disk, and answered after it is spooled: a
 * push that was answered as stored is forwarded, also when the process is killed between any two
 * steps, since then the client has no answer and sends it again, under the same id. What was not
 * stored is never forwarded. A spool that cannot take it (full disk) fails no push: it is counted.
 *
 * The writer is one thread for all targets: it appends what gathered, syncs once, answers all of
 * it; and it reads the configuration again when the file changes, so that no other thread sees a
 * target begin or end in the middle of its work.
 *
 * Lock: `lock` guards the list of targets, the jobs and the list of finished ones. A thread that
 * uses a target without the lock holds a reference.
 */
#include "distributor/forward/forward.h"

#include <stdio.h>
#include <sys/stat.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/sys/chan.h"
#include "distributor/base/state.h"
#include "distributor/forward/forward_make.h"
#include "distributor/forward/forward_req.h"
#include "distributor/forward/forward_target.h"

#define TICK_MS       1000
#define RESERVE_LEAST ((uint64_t)64 * MIB)
#define RESERVE_MOST  ((uint64_t)1024 * MIB)

struct kept_record {
    struct forward_target *target; /* a reference */
    struct str record;             /* owned */
};
/* The requests of one push. */
struct kept_push {
    struct forward *f;
    VEC(struct kept_record) records;
    size_t bytes;
    int64_t at_ms;
    void (*done)(void *done_cookie);
    void *done_cookie;
};
struct file_stamp {
    int64_t s, ns;
    uint64_t ino, size;
};
struct forward {
    _Atomic unsigned refs; /* its owner's, and of a call that was posted */
    struct distributor *d;
    const struct role_ctx *ctx;
    struct intake_tap tap;
    char *file, *dir; /* owned */
    uint64_t reserve_bytes;
    struct mutex lock;
    VEC(struct forward_target *) targets;
    VEC(struct kept_push *) jobs;
    VEC(struct kept_push *) done;
    bool posted;
    /* end of lock */
    struct chan *wake;
    struct thread writer;
    atomic_bool stop;
    struct file_stamp stamp;
    struct metric_cell *config_ok, *loops;
};

/* ---- kept ----------------------------------------------------------------------------------- */

static void kept_free(struct kept_push *k)
{
    vec_for (i, &k->records) {
        forward_target_unref(k->records.ptr[i].target);
        xfree((void *)(uintptr_t)k->records.ptr[i].record.ptr);
    }
    vec_free(&k->records);
    xfree(k);
}

struct keeper {
    struct kept_push *k;
    struct forward_target *t;
};

static void keep_record(void *cookie, struct str record)
{
    struct keeper *to = cookie;
    struct str own = { xmemdup(record.ptr, record.len), record.len };

    vec_push(&to->k->records, ((struct kept_record){ forward_target_ref(to->t), own }));
    to->k->bytes += record.len;
}

static size_t targets_now(struct forward *f, struct forward_target *ret[FORWARD_TARGETS_MAX])
{
    size_t n = 0;

    mutex_lock(&f->lock);
    for (; n < f->targets.len; n++)
        ret[n] = forward_target_ref(f->targets.ptr[n]);
    mutex_unlock(&f->lock);
    return n;
}

static void make_all(struct kept_push *k, const struct intake_packed *p,
                     struct forward_target **targets, size_t n)
{
    struct forward_made *made = NULL;
    struct err e;
    int rc = forward_made_new(p, &made, &e);

    for (size_t i = 0; i < n; i++) {
        struct keeper to = { k, targets[i] };
        uint64_t left_out = 0;
        if (!rc) {
            struct forward_target_conf *c = forward_target_conf(targets[i]);
            int one = forward_make(made, c, keep_record, &to, &left_out, &e);
            forward_conf_unref(c->owner);
            forward_target_left_out(targets[i], left_out);
            if (!one)
                continue;
        }
        forward_target_unmade(targets[i], &e);
    }
    forward_made_free(made);
}

static void *on_packed(void *cookie, const struct intake_packed *p, size_t *ret_bytes)
{
    struct forward *f = cookie;
    struct forward_target *targets[FORWARD_TARGETS_MAX];
    struct kept_push *k;

    if (p->hops >= FORWARD_HOPS_MAX) {
        metric_add(f->loops, 1);
        return NULL;
    }
    size_t n = targets_now(f, targets);
    if (n == 0)
        return NULL;
    k = XNEW(struct kept_push);
    k->f = f;
    k->at_ms = clock_wall_ms(f->ctx->env->clock);
    make_all(k, p, targets, n);
    for (size_t i = 0; i < n; i++)
        forward_target_unref(targets[i]);
    if (!k->records.len) {
        kept_free(k);
        return NULL;
    }
    *ret_bytes = k->bytes;
    return k;
}

static void on_failed(void *cookie, void *kept)
{
    (void)cookie;
    kept_free(kept);
}

static void on_stored(void *cookie, void *kept, void (*done)(void *done_cookie), void *done_cookie)
{
    struct forward *f = cookie;
    struct kept_push *k = kept;
    bool first;

    k->done = done;
    k->done_cookie = done_cookie;
    mutex_lock(&f->lock);
    first = f->jobs.len == 0;
    vec_push(&f->jobs, k);
    mutex_unlock(&f->lock);
    if (first && !chan_send(f->wake, f))
        return; /* a token is in it already */
}

/* ---- answering ------------------------------------------------------------------------------ */

static void forward_unref(struct forward *f)
{
    if (atomic_fetch_sub(&f->refs, 1) > 1)
        return;
    mutex_deinit(&f->lock);
    xfree(f->file);
    xfree(f->dir);
    xfree(f);
}

static void answer(struct forward *f)
{
    for (;;) {
        struct kept_push *k = NULL;
        mutex_lock(&f->lock);
        if (f->done.len) {
            k = f->done.ptr[0];
            memmove(f->done.ptr, f->done.ptr + 1, (f->done.len - 1) * sizeof(*f->done.ptr));
            f->done.len--;
        } else {
            f->posted = false;
        }
        mutex_unlock(&f->lock);
        if (!k)
            return;
        k->done(k->done_cookie);
        kept_free(k);
    }
}

static void on_posted(void *cookie)
{
    struct forward *f = cookie;

    answer(f);
    forward_unref(f);
}

/* ---- the writer ----------------------------------------------------------------------------- */

static void sync_targets(struct forward *f, bool tick)
{
    vec_for (i, &f->targets) { /* only this thread changes the list */
        struct forward_target *t = f->targets.ptr[i];
        struct forward_target_conf *c = forward_target_conf(t);
        if (c->sync == FORWARD_SYNC_ALWAYS)
            forward_target_sync(t);
        if (tick)
            forward_target_tick(t);
        forward_conf_unref(c->owner);
    }
}

static void write_jobs(struct forward *f)
{
    VEC(struct kept_push *) jobs = { 0 };
    bool post;

    mutex_lock(&f->lock);
    vec_for (i, &f->jobs)
        vec_push(&jobs, f->jobs.ptr[i]);
    f->jobs.len = 0;
    mutex_unlock(&f->lock);
    if (!jobs.len)
        return;
    vec_for (i, &jobs) {
        const struct kept_push *k = jobs.ptr[i];
        vec_for (n, &k->records)
            forward_target_append(k->records.ptr[n].target, k->records.ptr[n].record, k->at_ms);
    }
    sync_targets(f, false);
    mutex_lock(&f->lock);
    vec_for (i, &jobs)
        vec_push(&f->done, jobs.ptr[i]);
    post = !f->posted;
    f->posted = true;
    mutex_unlock(&f->lock);
    vec_free(&jobs);
    if (post) {
        atomic_fetch_add(&f->refs, 1);
        loop_post(f->ctx->loop, on_posted, f);
    }
}

/* ---- the configuration ---------------------------------------------------------------------- */

static struct file_stamp stamp_of(const char *file)
{
    struct stat st;

    if (stat(file, &st))
        return (struct file_stamp){ 0 };
    return (struct file_stamp){ st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (uint64_t)st.st_ino,
                                (uint64_t)st.st_size };
}

static bool same_stamp(const struct file_stamp *a, const struct file_stamp *b)
{
    return a->s == b->s && a->ns == b->ns && a->ino == b->ino && a->size == b->size;
}

static struct forward_target_conf *conf_named(const struct forward_conf *c, const char *name)
{
    for (size_t i = 0; i < c->len; i++)
        if (str_eqc(str_c(c->targets[i].name), name))
            return &c->targets[i];
    return NULL;
}

static bool has_target(const struct forward *f, const char *name)
{
    vec_for (i, &f->targets)
        if (str_eqc(str_c(forward_target_name(f->targets.ptr[i])), name))
            return true;
    return false;
}

static void drop_target(struct forward *f, size_t at)
{
    struct forward_target *t = f->targets.ptr[at];

    mutex_lock(&f->lock);
    f->targets.ptr[at] = f->targets.ptr[--f->targets.len];
    mutex_unlock(&f->lock);
    log_info("target of forwarding removed, its spool stays on disk",
             KV_CSTR("target", forward_target_name(t)));
    forward_target_stop(t);
    forward_target_unref(t);
}

static int add_target(struct forward *f, struct forward_target_conf *c, struct err *e)
{
    struct forward_target_opts o = { .env = f->ctx->env,
                                     .metrics = f->ctx->metrics,
                                     .dir = f->dir,
                                     .reserve_bytes = f->reserve_bytes,
                                     .record_max = FORWARD_RECORD_MAX };
    struct forward_target *t;

    if (forward_target_new(&o, c, &t, e))
        return e->code;
    mutex_lock(&f->lock);
    vec_push(&f->targets, t);
    mutex_unlock(&f->lock);
    log_info("pushes are forwarded", KV_CSTR("target", c->name), KV_CSTR("url", c->url));
    return 0;
}

static int apply(struct forward *f, struct forward_conf *c, struct err *e)
{
    for (size_t i = f->targets.len; i-- > 0;) {
        struct forward_target *t = f->targets.ptr[i];
        struct forward_target_conf *now = conf_named(c, forward_target_name(t));
        if (now)
            forward_target_set_conf(t, now);
        else
            drop_target(f, i);
    }
    for (size_t i = 0; i < c->len; i++)
        if (!has_target(f, c->targets[i].name) && add_target(f, &c->targets[i], e))
            return e->code;
    return 0;
}

static int read_config(struct forward *f, struct err *e)
{
    const struct fs *fs = f->ctx->env->fs;
    struct forward_conf *c = NULL;
    struct buf text;

    buf_init(&text, FORWARD_FILE_MAX);
    f->stamp = stamp_of(f->file); /* before it is read: a change meanwhile is seen next time */
    int rc = fs->read_file(fs, f->file, &text, e);
    if (!rc && !text.len && f->targets.len)
        rc = err_set(e, ERR_CONFIG,
                     "it is empty, as a file is that is just being written; to end all targets, "
                     "write targets: {}");
    if (!rc)
        rc = forward_conf_parse(f->file, buf_str(&text), &c, e);
    if (!rc)
        rc = apply(f, c, e);
    forward_conf_unref(c);
    buf_deinit(&text);
    metric_set(f->config_ok, rc == 0);
    return rc;
}

static void watch_config(struct forward *f)
{
    struct file_stamp now = stamp_of(f->file);
    struct err e;

    if (same_stamp(&now, &f->stamp))
        return;
    if (read_config(f, &e))
        log_error("the file of targets cannot be used, the ones before it stay",
                  KV_CSTR("file", f->file), KV_ERR(&e));
    else
        log_info("the file of targets was read again", KV_CSTR("file", f->file));
}

static void writer_main(void *cookie)
{
    struct forward *f = cookie;
    const struct clock *clock = f->ctx->env->clock;
    uint64_t last = clock_mono_ms(clock);
    void *token;

    while (!atomic_load(&f->stop)) {
        (void)chan_wait(f->wake, &token, 1, TICK_MS);
        write_jobs(f);
        if (clock_mono_ms(clock) - last < TICK_MS)
            continue;
        last = clock_mono_ms(clock);
        sync_targets(f, true);
        watch_config(f);
    }
    write_jobs(f);
}

/* ---- the page ------------------------------------------------------------------------------- */

static void on_status(struct http_req *r)
{
    struct forward *f = r->route_cookie;
    struct forward_target *targets[FORWARD_TARGETS_MAX];
    size_t n = targets_now(f, targets);
    struct buf body;
    struct json j;

    buf_init(&body, MIB);
    json_init(&j, &body);
    json_obj(&j);
    json_key(&j, "targets");
    json_arr(&j);
    for (size_t i = 0; i < n; i++) {
        forward_target_status(targets[i], clock_wall_ms(f->ctx->env->clock), &j);
        forward_target_unref(targets[i]);
    }
    json_arr_end(&j);
    json_obj_end(&j);
    http_reply(r, 200, "application/json", &body);
}

/* ---- start and end -------------------------------------------------------------------------- */

static uint64_t reserve_of(const struct role_ctx *ctx, const char *dir)
{
    uint64_t room = 0, total = 0;
    struct err e;

    if (ctx->data->disk_reserve)
        return ctx->data->disk_reserve;
    if (ctx->env->fs->space(ctx->env->fs, dir, &room, &total, &e))
        return RESERVE_LEAST;
    return MIN(MAX(total / 50, RESERVE_LEAST), RESERVE_MOST);
}

static void stop_targets(struct forward *f)
{
    vec_for (i, &f->targets) {
        forward_target_stop(f->targets.ptr[i]);
        forward_target_unref(f->targets.ptr[i]);
    }
    vec_free(&f->targets);
}

int forward_new(struct distributor *d, struct forward **ret, struct err *e)
{
    const struct role_ctx *ctx = d->ctx;
    struct forward *f;
    char dir[4096];
    int n = snprintf(dir, sizeof(dir), "%s/forward", ctx->data_dir);

    *ret = NULL;
    if (!d->conf->forward_config_file[0] || ctx->simulated)
        return 0;
    if (n < 0 || (size_t)n >= sizeof(dir))
        return err_set(e, ERR_CONFIG, "data.dir is too long a path");
    if (ctx->env->fs->mkdir_all(ctx->env->fs, dir, e))
        return e->code;
    http_client_global();
    f = XNEW(struct forward);
    atomic_init(&f->refs, 1);
    f->d = d;
    f->ctx = ctx;
    f->tap = (struct intake_tap){ on_packed, on_stored, on_failed, f };
    f->file = xstrdup(d->conf->forward_config_file);
    f->dir = xstrdup(dir);
    f->reserve_bytes = reserve_of(ctx, dir);
    f->config_ok =
        metric_at(metric_new(ctx->metrics, METRIC_GAUGE, "embertree_distributor_forward_config_ok",
                             "1 if the file of targets is in use as it is now", NULL),
                  NULL, 0);
    f->loops = metric_at(metric_new(ctx->metrics, METRIC_COUNTER,
                                    "embertree_distributor_forward_loops_total",
                                    "Pushes that too many servers had forwarded already", NULL),
                         NULL, 0);
    mutex_init(&f->lock);
    f->wake = chan_new(1, NULL, NULL);
    if (read_config(f, e)) {
        (void)err_wrap(e, "distributor.forward_config_file");
        stop_targets(f);
        chan_free(f->wake);
        forward_unref(f);
        return e->code;
    }
    thread_start(&f->writer, "forward", writer_main, f);
    d->tap = &f->tap;
    if (ctx->http)
        http_route(ctx->http, HTTP_GET, "/api/v1/forward", 0, on_status, f);
    *ret = f;
    return 0;
}

void forward_free(struct forward *f)
{
    void *token;

    if (!f)
        return;
    atomic_store(&f->stop, true);
    chan_close(f->wake);
    thread_join(&f->writer);
    answer(f);
    f->d->tap = NULL;
    stop_targets(f);
    while (chan_take(f->wake, &token, 1))
        continue;
    chan_free(f->wake);
    vec_free(&f->jobs);
    vec_free(&f->done);
    forward_unref(f);
}
