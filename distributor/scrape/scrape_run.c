/* SPDX-License-Identifier: Apache-2.0
 *
 * scrape_run: one profile of one target, from the request to the ack of an fsync.
 *
 *   fetch ──200──> intake: pool: subtract what the last one had ─> stored: it is the last one now
 *     │ other         │ may work another time: kept, stored again at the next turn, under its key
 *     v               │ cannot be used
 *   failed <──────────┘
 *
 * Types that count since the start of a process are stored as growth. What was stored is the
 * difference to the last profile that was stored whole, so growth is neither lost when a fetch or a
 * store fails, nor counted twice: a body that may or may not have been stored is stored again under
 * the same key, and nothing else is fetched from there meanwhile. The first profile of a process
 * says nothing about growth: only its gauges count. A profile with less than the last one is of
 * another process behind the same address: all of it is new.
 */
#include <stdio.h>

#include "common/model/slot.h"
#include "common/sys/secret_file.h"
#include "distributor/base/window.h"
#include "distributor/formats/formats.h"
#include "distributor/formats/pprof/pprof_since.h"
#include "distributor/intake/intake.h"
#include "distributor/scrape/scrape_impl.h"

#define SECRET_MAX (64 * KIB)
#define URL_ARENA  (64 * KIB)
#define GIVE_UP_MS (3 * INT64_C(3600) * 1000) /* write ids are known for longer than that */

struct scrape_run {
    struct scrape_entry *entry;
    struct scrape_gen *gen; /* a reference */
    const struct scrape_job *job;
    const struct scrape_profile *profile;
    struct scrape_target target;
    struct scrape_body body;
    struct http_call *call; /* while it is fetched */
    char key[64];
    int64_t leaf; /* of its time, counted from 1970; the pool's */
};

void scrape_body_drop(struct scrape *s, struct scrape_body *b)
{
    buf_deinit(&b->bytes);
    budget_release(&s->memory, b->charged);
    b->charged = 0;
}

void scrape_run_drop(struct scrape_run *r)
{
    if (!r)
        return;
    scrape_body_drop(r->entry->s, &r->body);
    scrape_gen_drop(r->gen);
    xfree(r);
}

static void drop_run(struct scrape_entry *x)
{
    scrape_run_drop(x->run);
    x->run = NULL;
}

static void failed(struct scrape_entry *x, const char *outcome, const char *why)
{
    scrape_count(x->s, outcome);
    x->failures++;
    (void)snprintf(x->error, sizeof(x->error), "%s", why);
    scrape_ended(x, false);
}

/* ---- to pushes, on the pool ------------------------------------------------------------------ */

static int unzip(struct str raw, const struct limits *l, struct buf *tmp, struct str *ret,
                 struct err *e)
{
    const struct inflate_limits limits = limits_inflate(l);

    buf_init(tmp, limits.bytes_max);
    *ret = raw;
    if (!gzip_sniff(raw))
        return 0;
    if (gunzip(raw, &limits, tmp, e))
        return e->code;
    *ret = buf_str(tmp);
    return gzip_sniff(*ret) ? err_set(e, ERR_INPUT, "gzip inside gzip") : 0;
}

/* Gauges of one leaf add up, as those of several senders must: of a target that is asked more often
 * than there are leaves, each leaf gets one. */
static void thin_gauges(struct scrape_run *r, struct push *push, int64_t since_ms)
{
    int64_t start = r->profile->subtract ? since_ms
                    : push->has_time     ? push->time_ns / 1000000
                                         : r->body.at_ms - WINDOW_DEFAULT_MS;
    size_t kept = 0;

    r->leaf = start / LEAF_MS;
    if (r->leaf != r->entry->leaf)
        return;
    for (size_t i = 0; i < push->series_len; i++)
        if (!push->series[i].gauge)
            push->series[kept++] = push->series[i];
    push->series_len = kept;
}

static int push_it(struct scrape_run *r, struct str plain, struct str prev, bool since,
                   const struct batch_sink *sink, struct err *e)
{
    struct sample_config config = { .series_name = r->profile->name };
    int64_t until = r->body.at_ms, from = until;

    /* If the clock was set back, or the last profile is older than any that is accepted, growth
     * must not be refused for as long as that lasts. */
    if (since)
        from = MIN(MAX(r->entry->last.at_ms, sink->oldest_ms), until);
    struct ingest in = { .name = { r->target.service, r->target.labels },
                         .format = FORMAT_PPROF,
                         .has_from = r->profile->subtract,
                         .has_until = r->profile->subtract,
                         .from_ms = from,
                         .until_ms = until };
    struct push *push = sink->begin(sink->cookie, &in, e);

    if (!push)
        return e->code;
    const struct decode_job job = { &in, sink->limits, sink->now_ms, push };
    if (formats_pprof_since(&job, plain, prev, &config, e))
        return e->code;
    thin_gauges(r, push, in.from_ms);
    return sink->end(sink->cookie, push, plain, STR_NULL, e);
}

static int decode(void *cookie, const struct batch_sink *sink, struct err *e)
{
    struct scrape_run *r = cookie;
    struct str plain, last = STR_NULL, prev = STR_NULL;
    bool since = r->profile->subtract && r->entry->last.bytes.len;
    struct buf tmp, tmp_last;
    struct err why;

    int rc = unzip(buf_str(&r->body.bytes), sink->limits, &tmp, &plain, e);
    buf_init(&tmp_last, 0);
    if (!rc && since) {
        if (unzip(buf_str(&r->entry->last.bytes), sink->limits, &tmp_last, &last, &why))
            last = STR_NULL;
        rc = pprof_since_choose(plain, last, sink->limits, &prev, e);
    } else if (r->profile->subtract) {
        prev = plain;
    }
    if (!rc)
        rc = push_it(r, plain, prev, since, sink, e);
    buf_deinit(&tmp);
    buf_deinit(&tmp_last);
    return rc;
}

/* ---- stored, or not ------------------------------------------------------------------------- */

static bool may_work_later(int code)
{
    return code == ERR_UNAVAILABLE || code == ERR_TIMEOUT || code == ERR_BUSY || code == ERR_RATE ||
           code == ERR_NO_SPACE || code == ERR_IO || code == ERR_INTERNAL || code == ERR_CANCELED;
}

static void keep_last(struct scrape_entry *x, struct scrape_run *r)
{
    scrape_body_drop(x->s, &x->last);
    buf_move(&x->last.bytes, &r->body.bytes);
    x->last.charged = r->body.charged;
    x->last.at_ms = r->body.at_ms;
    r->body.charged = 0;
}

static void stored(void *cookie, const struct intake_result *result)
{
    struct scrape_run *r = cookie;
    struct scrape_entry *x = r->entry;
    int64_t age = clock_wall_ms(x->s->d->ctx->env->clock) - r->body.at_ms;
    struct err e;

    CHECK(x->magic == SCRAPE_ENTRY_MAGIC && x->run == r);
    if (intake_error(result, NULL, NULL, &e)) {
        if (!may_work_later(e.code) || age > GIVE_UP_MS)
            drop_run(x);
        failed(x, may_work_later(e.code) ? "not_stored" : "refused", e.text);
        return;
    }
    x->leaf = r->leaf;
    memcpy(x->left_out, result->left_out, sizeof(x->left_out));
    if (r->profile->subtract)
        keep_last(x, r);
    drop_run(x);
    x->error[0] = '\0';
    scrape_count(x->s, result->stored ? "stored" : "empty");
    scrape_ended(x, true);
}

static void store(struct scrape_run *r)
{
    struct scrape_entry *x = r->entry;
    struct intake_opts o = { .tenant = r->job->tenant,
                             .key = str_c(r->key),
                             .format = "scrape",
                             .body = buf_str(&r->body.bytes),
                             .decode = decode,
                             .done = stored,
                             .cookie = r };
    struct err e;

    if (intake_start(x->s->d, &o, &e)) {
        if (!may_work_later(e.code))
            drop_run(x);
        failed(x, "not_stored", e.text);
    }
}

/* ---- fetched -------------------------------------------------------------------------------- */

static void fetched(void *cookie, struct http_multi_reply *reply)
{
    struct scrape_run *r = cookie;
    struct scrape_entry *x = r->entry;
    struct scrape *s = x->s;
    char text[64];

    CHECK(x->magic == SCRAPE_ENTRY_MAGIC && x->run == r);
    r->call = NULL;
    x->took_ms = reply->took_ms;
    metric_observe(s->metrics.seconds, (double)reply->took_ms / 1000);
    if (reply->err || reply->status != 200 || reply->body.len == 0) {
        (void)snprintf(text, sizeof(text), "answered with status %d%s", reply->status,
                       reply->status == 200 ? " and an empty body" : "");
        drop_run(x);
        failed(x, "unreachable", reply->err ? reply->err->text : text);
        return;
    }
    x->bytes = reply->body.len;
    metric_add(s->metrics.bytes, reply->body.len);
    buf_move(&r->body.bytes, &reply->body);
    r->body.charged = reply->charged;
    reply->charged = 0;
    r->body.at_ms = clock_wall_ms(s->d->ctx->env->clock);
    (void)snprintf(r->key, sizeof(r->key), "scrape-%016" PRIx64 "-%" PRId64, x->id, r->body.at_ms);
    store(r);
}

/* A secret that may change: read each time, without the newline behind it. */
static int read_secret(struct scrape *s, const char *path, struct buf *to, struct err *e)
{
    const struct fs *fs = s->d->ctx->env->fs;
    struct str text;

    buf_init(to, SECRET_MAX);
    if (!path[0])
        return 0;
    if (secret_file_check(path, e) || fs->read_file(fs, path, to, e))
        return e->code;
    text = str_trim(buf_str(to));
    if (text.ptr != to->ptr)
        memmove(to->ptr, text.ptr, text.len);
    to->len = text.len;
    return buf_add_c(to, '\0') ? 0 : err_set(e, ERR_LIMIT, "%s is too long", path);
}

/* How long the server measures: a second less than the interval, so that its next turn is free. */
static uint64_t seconds_of(const struct scrape_job *j)
{
    return MAX(j->interval_ms / 1000, 2) - 1;
}

static int fetch(struct scrape_run *r, struct arena *a, struct err *e)
{
    const struct scrape_client *c = &r->job->client;
    struct scrape *s = r->entry->s;
    uint64_t seconds = seconds_of(r->job);
    struct str url = scrape_url(r->job, &r->target, r->profile, seconds, a);
    struct buf password, bearer;
    int rc = read_secret(s, c->password_file, &password, e);

    buf_init(&bearer, SECRET_MAX);
    if (!rc)
        rc = read_secret(s, c->bearer_file, &bearer, e);
    if (!rc && !url.ptr)
        rc = err_set(e, ERR_CONFIG, "the URL is too long");
    struct http_multi_req req = {
        .url = url.ptr,
        .user = c->user,
        .password = c->password_file[0] ? password.ptr : c->password,
        .bearer = c->bearer_file[0] ? bearer.ptr : c->bearer,
        .tls = c->tls,
        .connect_ms = r->job->timeout_ms,
        .timeout_ms = r->job->timeout_ms + (r->profile->delta ? seconds * 1000 : 0),
        .body_max = r->job->body_max,
        .budget = &s->memory,
        .done = fetched,
        .cookie = r,
    };
    if (!rc)
        r->call = http_multi_start(s->client, &req);
    buf_deinit(&password);
    buf_deinit(&bearer);
    return rc;
}

void scrape_run_start(struct scrape_entry *x)
{
    struct scrape_run *r = x->run;
    struct arena *a;
    struct err e;

    CHECK(x->magic == SCRAPE_ENTRY_MAGIC);
    x->tried_ms = clock_wall_ms(x->s->d->ctx->env->clock);
    if (r) { /* what could not be stored goes first */
        store(r);
        return;
    }
    x->fetches++;
    x->run = r = XNEW(struct scrape_run);
    *r = (struct scrape_run){
        .entry = x, .gen = x->gen, .job = x->job, .profile = x->profile, .target = x->target
    };
    x->gen->refs++;
    buf_init(&r->body.bytes, x->job->body_max);
    a = arena_new(URL_ARENA);
    if (fetch(r, a, &e)) {
        drop_run(x);
        failed(x, "unreachable", e.text);
    }
    arena_free(a);
}

void scrape_run_cancel(struct scrape_entry *x)
{
    if (!x->run || !x->run->call)
        return;
    http_call_cancel(x->run->call);
    drop_run(x);
    scrape_ended(x, false);
}
