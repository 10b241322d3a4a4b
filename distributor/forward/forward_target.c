/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_target: records from the spool to the server, each until it is taken or refused.
 *
 *   2xx                        sent
 *   408 425 429 5xx, network   again, after a pause that doubles, or as long as Retry-After says
 *   401                        the same: it is the token that is wrong, or late to be rotated
 *   500, ten times             failed: a server that fails by what is in the record stays so
 *   anything else              failed: it would be refused again
 *
 * A thread per request in flight: they are few, they wait nearly always, and a blocking client has
 * nothing to go wrong in. A record whose thread is stopped is not finished and is sent again after
 * the next start, with the same ids.
 */
#include "distributor/forward/forward_target.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/obs/log.h"
#include "common/sys/chan.h"
#include "common/sys/secret_file.h"
#include "distributor/forward/forward_req.h"
#include "distributor/intake/intake.h"

#define IDLE_MS       1000
#define POISON_TRIES  10
#define REPLY_KEPT    1024
#define SECRET_MOST   (16 * KIB)
#define LOG_EACH_MS   60000
#define WORKER_TOKENS 64

#define COUNTERS(X)                                                                          \
    X(sent, "sent_total", "Requests that targets took")                                      \
    X(sent_bytes, "sent_bytes_total", "Bytes of the bodies of requests that targets took")   \
    X(retries, "retries_total", "Attempts that are made again")                              \
    X(failed, "failed_total", "Requests that targets refused for good")                      \
    X(dropped, "dropped_total", "Requests dropped to keep the spool below its maximum")      \
    X(damaged, "damaged_total", "Parts of spools that could not be read")                    \
    X(unspooled, "unspooled_total", "Pushes stored here that could not be put into a spool") \
    X(left_out, "left_out_total", "Profiles that the rules of a target left out")
#define GAUGES(X)                                               \
    X(spool_bytes, "spool_bytes", "Bytes in the spool")         \
    X(spool_records, "spool_requests", "Requests in the spool") \
    X(lag, "lag_seconds", "Age of the oldest request that is being sent")

struct counts {
#define X(field, name, help) struct metric_cell *field;
    COUNTERS(X) GAUGES(X)
#undef X
};

struct worker {
    struct forward_target *t;
    size_t index;
    struct thread thread;
};
struct forward_target {
    _Atomic unsigned refs;
    struct forward_target_opts o;
    char name[FORWARD_NAME_MAX + 1];
    struct counts count;
    struct spool *spool; /* NULL once stopped */
    struct spool_stats told;
    struct mutex lock; /* of what follows */
    struct forward_target_conf *conf;
    struct spool_stats stats;
    char last_error[ERR_TEXT_MAX + 64];
    int64_t last_error_ms, last_sent_ms, last_log_ms;
    size_t waiting; /* workers in a pause */
    /* end of lock */
    struct worker workers[FORWARD_CONCURRENCY_MAX];
    size_t workers_len;
    struct chan *wake, *halt;
    atomic_bool stop;
    bool dirty;
};

static void count_init(struct counts *c, struct metrics *m, struct str name)
{
#define PREFIX "embertree_distributor_forward_"
#define X(field, title, help) \
    c->field = metric_at(metric_new(m, METRIC_COUNTER, PREFIX title, help, "target"), &name, 1);
    COUNTERS(X)
#undef X
#define X(field, title, help) \
    c->field = metric_at(metric_new(m, METRIC_GAUGE, PREFIX title, help, "target"), &name, 1);
    GAUGES(X)
#undef X
}

static int64_t now_ms(const struct forward_target *t)
{
    return clock_wall_ms(t->o.env->clock);
}

struct forward_target_conf *forward_target_conf(struct forward_target *t)
{
    mutex_lock(&t->lock);
    struct forward_target_conf *c = t->conf;
    (void)forward_conf_ref(c->owner);
    mutex_unlock(&t->lock);
    return c;
}

/* Remembers what went wrong; a line a minute. */
static void tell(struct forward_target *t, const char *what, const struct err *e)
{
    bool log;

    mutex_lock(&t->lock);
    (void)snprintf(t->last_error, sizeof(t->last_error), "%s: %s", what, e->text);
    t->last_error_ms = now_ms(t);
    log = t->last_log_ms == 0 || t->last_error_ms - t->last_log_ms >= LOG_EACH_MS;
    if (log)
        t->last_log_ms = t->last_error_ms;
    mutex_unlock(&t->lock);
    if (log)
        log_warn("forwarding does not get on", KV_CSTR("target", t->name), KV_CSTR("what", what),
                 KV_ERR(e));
}

/* ---- one attempt ---------------------------------------------------------------------------- */

/* What is in a file, or the option itself; read each time, since such files are rotated. */
static int secret(const struct forward_target *t, const char *option, const char *file,
                  struct buf *to, struct err *e)
{
    const struct fs *fs = t->o.env->fs;

    buf_reset(to);
    if (!file[0])
        (void)buf_add_str(to, str_c(option));
    else if (secret_file_check(file, e) || fs->read_file(fs, file, to, e))
        return e->code;
    while (to->len && (unsigned char)to->ptr[to->len - 1] <= ' ')
        to->len--;
    return buf_add_c(to, '\0') ? 0 : err_set(e, ERR_CONFIG, "a secret is too long");
}

static void add_header(struct buf *text, const char **all, size_t *len, const char *name,
                       struct str value)
{
    size_t at = text->len;

    if (!value.len)
        return;
    buf_addf(text, "%s: %.*s", name, STR_ARG(value));
    buf_add_c(text, '\0');
    if (buf_ok(text))
        all[(*len)++] = text->ptr + at;
}

static int attempt(struct forward_target *t, struct http_client *client,
                   const struct forward_target_conf *c, const struct forward_req *r,
                   struct http_client_reply *reply, struct err *e)
{
    struct buf url, text, pass, token;
    const char *headers[64];
    size_t len = 0;
    char hops[16];

    buf_init(&url, 128 * KIB);
    buf_init(&text, 256 * KIB);
    buf_init(&pass, SECRET_MOST);
    buf_init(&token, SECRET_MOST);
    (void)buf_room(&text, 128 * KIB); /* header slices stay where they are */
    (void)snprintf(hops, sizeof(hops), "%u", r->hops);
    add_header(&text, headers, &len, "Content-Type", r->content_type);
    add_header(&text, headers, &len, "Idempotency-Key", r->key);
    add_header(&text, headers, &len, "X-Scope-OrgID",
               c->forward_tenant ? r->tenant : str_c(c->tenant));
    add_header(&text, headers, &len, INTAKE_HOPS_HEADER, str_c(hops));
    add_header(&text, headers, &len, "User-Agent", STR("embertree-forward"));
    for (size_t i = 0; i < c->headers_len && len < ARRAY_LEN(headers); i++)
        headers[len++] = c->headers[i];
    buf_addf(&url, "%s%.*s", c->url, STR_ARG(r->path));
    buf_add_c(&url, '\0');
    int rc = secret(t, c->password, c->password_file, &pass, e);
    if (!rc)
        rc = secret(t, c->bearer, c->bearer_file, &token, e);
    if (!rc) {
        struct http_client_req q = { .method = "POST",
                                     .url = url.ptr,
                                     .headers = headers,
                                     .headers_len = len,
                                     .user = c->user,
                                     .password = pass.ptr,
                                     .bearer = token.ptr,
                                     .tls = c->tls,
                                     .body = r->body,
                                     .timeout_ms = (uint32_t)c->timeout_ms,
                                     .stop = &t->stop };
        buf_reset(&reply->body);
        rc = http_client_do(client, &q, reply, e);
    }
    buf_deinit(&url);
    buf_deinit(&text);
    buf_deinit(&pass);
    buf_deinit(&token);
    return rc;
}

/* ---- one record ----------------------------------------------------------------------------- */

enum outcome { SENT, AGAIN, FAILED };

static enum outcome judge(const struct http_client_reply *reply, uint32_t tries)
{
    int s = reply->status;

    if (s >= 200 && s < 300)
        return SENT;
    if (s == 401 || s == 408 || s == 425 || s == 429 || s >= 500)
        return s == 500 && tries >= POISON_TRIES ? FAILED : AGAIN;
    return FAILED;
}

static void pause_for(struct forward_target *t, uint64_t ms)
{
    void *none;

    mutex_lock(&t->lock);
    t->waiting++;
    mutex_unlock(&t->lock);
    (void)chan_wait(t->halt, &none, 1, ms);
    mutex_lock(&t->lock);
    t->waiting--;
    mutex_unlock(&t->lock);
}

static enum outcome try_once(struct forward_target *t, struct http_client *client,
                             const struct forward_req *r, uint32_t tries, uint64_t *backoff_ms)
{
    struct forward_target_conf *c = forward_target_conf(t);
    struct http_client_reply reply = { 0 };
    enum outcome out = AGAIN;
    struct err e;
    uint64_t jitter, wait;

    buf_init(&reply.body, REPLY_KEPT);
    if (attempt(t, client, c, r, &reply, &e) == 0) {
        out = judge(&reply, tries);
        (void)err_set(&e, ERR_UNAVAILABLE, "%d %.*s", reply.status, STR_ARG(buf_str(&reply.body)));
    }
    buf_deinit(&reply.body);
    *backoff_ms = *backoff_ms ? MIN(*backoff_ms * 2, c->backoff_most_ms) : c->backoff_least_ms;
    forward_conf_unref(c->owner);
    if (out == SENT || atomic_load(&t->stop))
        return out;
    tell(t, out == FAILED ? "refused, and dropped" : "sent again later", &e);
    if (out == AGAIN) {
        metric_add(t->count.retries, 1);
        t->o.env->random(t->o.env, &jitter, sizeof(jitter));
        wait = *backoff_ms / 2 + jitter % (*backoff_ms / 2 + 1);
        pause_for(t, MAX(wait, reply.retry_after_ms));
    }
    return out;
}

/* False: stopped before it came to an end. */
static bool deliver(struct forward_target *t, struct http_client *client, struct str record)
{
    struct forward_req r = { 0 };
    uint64_t backoff_ms = 0;
    struct err e;

    if (forward_req_read(record, &r, &e)) {
        metric_add(t->count.damaged, 1);
        tell(t, "dropped", &e);
        return true;
    }
    for (uint32_t tries = 1; !atomic_load(&t->stop); tries++) {
        enum outcome out = try_once(t, client, &r, tries, &backoff_ms);
        if (out == AGAIN)
            continue;
        if (out == FAILED) {
            metric_add(t->count.failed, 1);
            return true;
        }
        metric_add(t->count.sent, 1);
        metric_add(t->count.sent_bytes, r.body.len);
        mutex_lock(&t->lock);
        t->last_sent_ms = now_ms(t);
        mutex_unlock(&t->lock);
        return true;
    }
    return false;
}

static bool is_idle(struct forward_target *t, size_t index)
{
    struct forward_target_conf *c = forward_target_conf(t);
    bool idle = index >= c->concurrency;

    forward_conf_unref(c->owner);
    return idle;
}

static void worker_main(void *cookie)
{
    struct worker *w = cookie;
    struct forward_target *t = w->t;
    struct http_client *client = http_client_new();
    struct buf record;
    void *token;

    buf_init(&record, t->o.record_max);
    while (!atomic_load(&t->stop)) {
        int64_t at_ms;
        uint64_t ticket;
        struct err e;
        if (is_idle(t, w->index)) {
            (void)chan_wait(t->halt, &token, 1, IDLE_MS);
            continue;
        }
        int rc = spool_take(t->spool, &record, &at_ms, &ticket, &e);
        if (rc == 0)
            (void)chan_wait(t->wake, &token, 1, IDLE_MS);
        else if (rc < 0)
            tell(t, "passed over", &e);
        else if (deliver(t, client, buf_str(&record)))
            spool_finish(t->spool, ticket);
    }
    buf_deinit(&record);
    http_client_free(client);
}

/* ---- start and end -------------------------------------------------------------------------- */

static void more_workers(struct forward_target *t)
{
    while (t->workers_len < t->conf->concurrency) {
        struct worker *w = &t->workers[t->workers_len];
        *w = (struct worker){ .t = t, .index = t->workers_len++ };
        thread_start(&w->thread, "forward-send", worker_main, w);
    }
}

int forward_target_new(const struct forward_target_opts *o, struct forward_target_conf *conf,
                       struct forward_target **ret, struct err *e)
{
    struct forward_target *t;
    struct spool *spool = NULL;
    char dir[4096];
    int n = snprintf(dir, sizeof(dir), "%s/%s", o->dir, conf->name);
    struct spool_opts so = { .dir = dir,
                             .fs = o->env->fs,
                             .bytes_max = conf->spool_bytes,
                             .reserve_bytes = o->reserve_bytes,
                             .record_max = o->record_max };

    if (n < 0 || (size_t)n >= sizeof(dir))
        return err_set(e, ERR_CONFIG, "data.dir is too long a path");
    if (spool_open(&so, &spool, e))
        return err_wrap(e, "the spool of %s", conf->name);
    t = XNEW(struct forward_target);
    atomic_init(&t->refs, 1);
    t->o = *o;
    t->spool = spool;
    (void)snprintf(t->name, sizeof(t->name), "%s", conf->name);
    count_init(&t->count, o->metrics, str_c(t->name));
    mutex_init(&t->lock);
    t->conf = conf;
    (void)forward_conf_ref(conf->owner);
    t->wake = chan_new(WORKER_TOKENS, NULL, NULL);
    t->halt = chan_new(1, NULL, NULL);
    forward_target_tick(t);
    more_workers(t);
    *ret = t;
    return 0;
}

struct forward_target *forward_target_ref(struct forward_target *t)
{
    atomic_fetch_add(&t->refs, 1);
    return t;
}

void forward_target_unref(struct forward_target *t)
{
    void *token;

    if (atomic_fetch_sub(&t->refs, 1) > 1)
        return;
    CHECK(!t->spool);
    while (chan_take(t->wake, &token, 1))
        continue;
    chan_free(t->wake);
    chan_free(t->halt);
    forward_conf_unref(t->conf->owner);
    mutex_deinit(&t->lock);
    xfree(t);
}

const char *forward_target_name(const struct forward_target *t)
{
    return t->name;
}

void forward_target_stop(struct forward_target *t)
{
    struct err e;

    if (!t->spool)
        return;
    atomic_store(&t->stop, true);
    chan_close(t->halt);
    chan_close(t->wake);
    for (size_t i = 0; i < t->workers_len; i++)
        thread_join(&t->workers[i].thread);
    if (t->dirty && t->conf->sync != FORWARD_SYNC_NONE && spool_sync(t->spool, &e))
        tell(t, "not synced", &e);
    spool_close(t->spool);
    t->spool = NULL;
}

void forward_target_set_conf(struct forward_target *t, struct forward_target_conf *conf)
{
    struct forward_target_conf *old;

    (void)forward_conf_ref(conf->owner);
    mutex_lock(&t->lock);
    old = t->conf;
    t->conf = conf;
    mutex_unlock(&t->lock);
    forward_conf_unref(old->owner);
    spool_set_max(t->spool, conf->spool_bytes);
    more_workers(t);
}

/* ---- the writing side ----------------------------------------------------------------------- */

void forward_target_left_out(struct forward_target *t, uint64_t profiles)
{
    metric_add(t->count.left_out, profiles);
}

void forward_target_unmade(struct forward_target *t, const struct err *why)
{
    metric_add(t->count.unspooled, 1);
    tell(t, "not forwarded", why);
}

void forward_target_append(struct forward_target *t, struct str record, int64_t at_ms)
{
    struct err e;

    if (!t->spool || spool_append(t->spool, record, at_ms, &e)) {
        if (!t->spool)
            (void)err_set(&e, ERR_UNAVAILABLE, "the target was removed from the configuration");
        forward_target_unmade(t, &e);
        return;
    }
    t->dirty = true;
    if (!chan_send(t->wake, t))
        return; /* full of tokens: its workers are awake */
}

void forward_target_sync(struct forward_target *t)
{
    struct err e;

    if (!t->spool || !t->dirty)
        return;
    t->dirty = false;
    if (spool_sync(t->spool, &e))
        tell(t, "not synced", &e);
}

void forward_target_tick(struct forward_target *t)
{
    struct spool_stats now;
    struct err e;

    if (!t->spool)
        return;
    if (t->conf->sync == FORWARD_SYNC_INTERVAL)
        forward_target_sync(t);
    now = spool_stats(t->spool);
    if (now.dropped > t->told.dropped) {
        (void)err_set(&e, ERR_LIMIT, "%" PRIu64 " of the oldest requests (spool.max_bytes)",
                      now.dropped - t->told.dropped);
        metric_add(t->count.dropped, now.dropped - t->told.dropped);
        tell(t, "dropped", &e);
    }
    metric_add(t->count.damaged, now.damaged - t->told.damaged);
    metric_set(t->count.spool_bytes, (int64_t)now.bytes);
    metric_set(t->count.spool_records, (int64_t)now.records);
    metric_set(t->count.lag, now.oldest_ms ? MAX((now_ms(t) - now.oldest_ms) / 1000, 0) : 0);
    t->told = now;
    mutex_lock(&t->lock);
    t->stats = now;
    mutex_unlock(&t->lock);
}

void forward_target_status(struct forward_target *t, int64_t now, struct json *j)
{
    const struct {
        const char *key;
        const struct metric_cell *cell;
    } rows[] = { { "sent", t->count.sent },           { "failed", t->count.failed },
                 { "retries", t->count.retries },     { "dropped", t->count.dropped },
                 { "unspooled", t->count.unspooled }, { "leftOut", t->count.left_out },
                 { "damaged", t->count.damaged } };

    json_obj(j);
    json_put_cstr(j, "name", t->name);
    mutex_lock(&t->lock);
    json_put_cstr(j, "url", t->conf->url);
    json_put_cstr(j, "mode", t->conf->mode == FORWARD_INGEST ? "ingest" : "push");
    json_put_cstr(j, "state", t->waiting ? "waiting" : t->stats.records ? "sending" : "idle");
    json_put_u64(j, "spoolBytes", t->stats.bytes);
    json_put_u64(j, "spoolRequests", t->stats.records);
    json_put_i64(j, "lagSeconds",
                 t->stats.oldest_ms ? MAX((now - t->stats.oldest_ms) / 1000, 0) : 0);
    json_put_i64(j, "lastSentMs", t->last_sent_ms);
    json_put_i64(j, "lastErrorMs", t->last_error_ms);
    json_put_cstr(j, "lastError", t->last_error);
    mutex_unlock(&t->lock);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        json_put_u64(j, rows[i].key, metric_value(rows[i].cell));
    json_obj_end(j);
}
