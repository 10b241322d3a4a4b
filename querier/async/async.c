/* SPDX-License-Identifier: Apache-2.0
 *
 * async: results wait in a list, oldest first, until they are fetched.
 *
 *   async_detach ─> IN_PROGRESS ──(the query ends)──> SUCCESS or FAILURE ──(KEEP_S, or TOLD_S after
 *                                                      it was fetched)──> gone
 *
 * A result is the message SelectMergeStacktracesResponse in protobuf, whichever encoding its first
 * caller used: the caller that fetches it may use another. The status is a field appended to it,
 * which in protobuf gives the same message. A partial answer, where the request allowed one, is
 * marked at every fetch by the header of all partial answers and in the status's message; a sum of
 * several collectors (collectors.h) by its header.
 *
 * Bounds: ASYNC_RUNNING_MAX queries of a tenant run; ENTRIES_MAX are kept of all, and results hold
 * a quarter of the memory of all queries at most, taken from it: the oldest finished ones make
 * room, a result that finds none becomes a failure.
 *
 * Queries of one tenant are also shared (async_share.h), so that any querier can answer a fetch:
 * the caller gets the id only after "in progress" is written, and a querier that does not know an
 * id reads the shared document. What a querier that died left in progress is answered as a failure,
 * and swept by the next querier.
 *
 * A result has the fingerprint of who asked and of what they could see (common/identity/scope.h).
 * For another identity, or for the same one with other grants, its id does not exist.
 */
#include "querier/async/async.h"

#include <stdio.h>

#include "common/base/hex.h"
#include "common/base/mem.h"
#include "querier/async/async_share.h"
#include "querier/async/msg_json.h"

#define ENTRIES_MAX 256
#define KEEP_S      600
#define TOLD_S      60
#define LOOK_MS     5000
#define LOST_MS     30000 /* beyond a query's time: its querier is gone */
#define ID_LEN      24
#define NOTICE      "; several-collectors" /* behind the text of a shared result */

enum ask { ASK_NOTHING, ASK_DETACH, ASK_FETCH };

struct async_entry {
    char id[ID_LEN + 1];
    char *owner;                /* owned; the tenants it reads */
    uint8_t scope[SCOPE_BYTES]; /* the identity that asked, and what it could see */
    enum async_status status;
    struct buf result;             /* SUCCESS */
    size_t held;                   /* of the memory of all queries */
    struct err err;                /* FAILURE */
    struct fanout_missing missing; /* of a SUCCESS: ingesters without an answer */
    bool notice;                   /* of a SUCCESS: its sum is of several collectors */
    uint64_t until_ns;             /* finished: kept until then */
    unsigned readers;
    struct async_entry *next;
    char *tenant; /* owned; the only one, and it is shared; else NULL */
    struct asyncs *asyncs;
    struct svc_call call; /* that waits for the id while r is not NULL */
};
struct asyncs {
    struct querier *qr;
    struct share *share; /* owned */
    struct async_entry *first, **last;
    size_t len, held;
    struct timer *timer;
    bool stopping;
};

static void tell_id(struct async_entry *x);

/* ---- the list ---------------------------------------------------------------------------------*/

static uint64_t now_ns(const struct asyncs *s)
{
    return clock_mono_ns(s->qr->ctx->env->clock);
}

static void drop(struct asyncs *s, struct async_entry **at)
{
    struct async_entry *x = *at;

    CHECK(x->readers == 0 && !x->call.r);
    if (x->tenant && !s->stopping)
        share_delete(s->share, str_c(x->tenant), str_c(x->id));
    *at = x->next;
    if (s->last == &x->next)
        s->last = at;
    s->len--;
    s->held -= x->held;
    budget_release(&s->qr->bytes, x->held);
    buf_deinit(&x->result);
    xfree(x->tenant);
    xfree(x->owner);
    xfree(x);
}

static bool finished(const struct async_entry *x)
{
    return x->status != ASYNC_IN_PROGRESS && x->readers == 0 && !x->call.r;
}

static void drop_old(struct asyncs *s)
{
    uint64_t now = now_ns(s);

    for (struct async_entry **at = &s->first; *at;) {
        if (finished(*at) && (*at)->until_ns <= now)
            drop(s, at);
        else
            at = &(*at)->next;
    }
}

/* Drops the oldest finished query; false: no query is finished. */
static bool drop_one(struct asyncs *s)
{
    for (struct async_entry **at = &s->first; *at; at = &(*at)->next)
        if (finished(*at)) {
            drop(s, at);
            return true;
        }
    return false;
}

static void on_timer(void *cookie)
{
    struct asyncs *s = cookie;

    drop_old(s);
    if (!s->len)
        loop_timer_stop(s->timer);
}

struct asyncs *asyncs_new(struct querier *qr)
{
    struct asyncs *s = XNEW(struct asyncs);

    *s = (struct asyncs){ .qr = qr };
    s->last = &s->first;
    s->share = share_new(qr);
    s->timer = loop_timer_new(qr->ctx->loop, on_timer, s);
    return s;
}

void asyncs_drop(struct asyncs *s)
{
    share_free(s->share); /* other queriers still answer what was shared */
    s->share = NULL;
    s->stopping = true;
    while (s->first) {
        if (s->first->call.r)
            tell_id(s->first);
        drop(s, &s->first);
    }
    loop_timer_stop(s->timer);
}

void asyncs_free(struct asyncs *s)
{
    if (!s)
        return;
    asyncs_drop(s);
    loop_timer_free(s->timer);
    xfree(s);
}

/* The tenants of a query as one text; an id is worth nothing to others. Freed by the caller. */
static char *owner_of(const struct query *q)
{
    size_t len = 1, at = 0;

    for (size_t i = 0; i < q->tenants_len; i++)
        len += q->tenants[i].len + 1;
    char *text = xmalloc(len);
    for (size_t i = 0; i < q->tenants_len; i++) {
        memcpy(text + at, q->tenants[i].ptr, q->tenants[i].len);
        at += q->tenants[i].len;
        text[at++] = '|';
    }
    text[at] = '\0';
    return text;
}

/* ---- steps ------------------------------------------------------------------------------------*/

const char *async_status_name(enum async_status s)
{
    static const char *const names[] = { "ASYNC_QUERY_STATUS_UNKNOWN",
                                         "ASYNC_QUERY_STATUS_IN_PROGRESS",
                                         "ASYNC_QUERY_STATUS_SUCCESS",
                                         "ASYNC_QUERY_STATUS_FAILURE" };

    return names[(size_t)s < ARRAY_LEN(names) ? s : ASYNC_UNKNOWN];
}

static void put_status(struct msg_out *o, const char *id, enum async_status status,
                       const char *error)
{
    msg_out_obj(o, 4, "async");
    msg_out_str(o, 1, "requestId", str_c(id));
    msg_out_enum(o, 2, "status", status, async_status_name(status));
    msg_out_str(o, 3, "errorMessage", str_c(error));
    msg_out_obj_end(o);
}

/* A copy of the entry from the time of the lookup: pool threads do not see the entry change. */
struct fetched {
    struct str id;
    uint8_t scope[SCOPE_BYTES]; /* of who fetches */
    char text[ID_LEN + 1];
    enum async_status status;
    struct str result;
    char error[ERR_TEXT_MAX]; /* of a SUCCESS: that it is a part */
};

/* What stands beside a result: "" for a whole one. Other queriers read it (async_share.h). */
static void missing_text(const struct fanout_missing *m, bool notice, char ret[ERR_TEXT_MAX])
{
    char part[ERR_TEXT_MAX / 2] = "";

    if (m->missing)
        (void)snprintf(part, sizeof(part), "partial: %zu of %zu ingesters missing", m->missing,
                       m->asked);
    (void)snprintf(ret, ERR_TEXT_MAX, "%s%s", part, notice ? NOTICE : "");
}

/* Sets what the headers of the reply say; *text keeps the part for the status's message. */
static void missing_read(struct query *q, char *text)
{
    char *notice = strstr(text, NOTICE);

    if (notice) {
        *notice = '\0';
        q->notice = STR(NOTICE);
    }
    q->missing = (struct fanout_missing){ 0 };
    if (sscanf(text, "partial: %9zu of %9zu", &q->missing.missing, &q->missing.asked) != 2)
        q->missing = (struct fanout_missing){ 0 };
}

static int reply_fetched(struct query *q, struct err *e)
{
    const struct fetched *f = q->state;
    struct msg_out o;
    struct buf whole;
    struct json j;

    if (q->call.codec == SVC_PROTO) {
        query_msg(q, &o);
        buf_add_str(&q->out, f->result);
        put_status(&o, f->text, f->status, f->error);
        return query_out_end(q, e);
    }
    if (query_take(q, f->result.len + KIB, e))
        return e->code;
    buf_init(&whole, f->result.len + KIB);
    buf_add_str(&whole, f->result);
    msg_out_init(&o, false, &whole);
    put_status(&o, f->text, f->status, f->error);
    query_json(q, &j);
    bool read = msg_json(&msg_json_stacktraces, buf_str(&whole), &j);
    buf_deinit(&whole);
    return read ? query_out_end(q, e) : err_set(e, ERR_INTERNAL, "a kept result cannot be read");
}

/* ---- the loop ---------------------------------------------------------------------------------*/

static int check_running(const struct asyncs *s, const char *owner, struct err *e)
{
    size_t running = 0;

    for (const struct async_entry *x = s->first; x; x = x->next)
        running += x->status == ASYNC_IN_PROGRESS && strcmp(x->owner, owner) == 0;
    if (running >= ASYNC_RUNNING_MAX)
        return err_set(e, ERR_RATE, "%zu queries run in the background already, the limit is %d",
                       running, ASYNC_RUNNING_MAX);
    return 0;
}

/* What belongs to the request goes with its reply. */
static int keep_tenants(struct query *q, struct err *e)
{
    for (size_t i = 0; i < q->tenants_len; i++) {
        q->tenants[i] = arena_strdup(q->arena, q->tenants[i]);
        if (!q->tenants[i].ptr)
            return err_set(e, ERR_LIMIT, "too much text in one request");
    }
    return 0;
}

static void tell_id(struct async_entry *x)
{
    struct svc_call call = x->call;
    struct msg_out o;
    struct buf reply;

    x->call.r = NULL;
    buf_init(&reply, KIB);
    msg_out_init(&o, call.codec != SVC_PROTO, &reply);
    put_status(&o, x->id, ASYNC_IN_PROGRESS, "");
    msg_out_end(&o);
    svc_reply(&call, &reply);
    buf_deinit(&reply);
}

static void publish(struct async_entry *x);

/* Other queriers know it, or never will. */
static void on_announced(void *cookie)
{
    struct async_entry *x = cookie;

    if (x->call.r)
        tell_id(x);
    if (x->status != ASYNC_IN_PROGRESS)
        publish(x);
}

static void announce(struct asyncs *s, const struct query *q, struct async_entry *x)
{
    if (q->tenants_len != 1) {
        tell_id(x);
        return;
    }
    x->tenant = xmalloc(q->tenants[0].len + 1);
    memcpy(x->tenant, q->tenants[0].ptr, q->tenants[0].len);
    x->tenant[q->tenants[0].len] = '\0';
    share_sweep(s->share, str_c(x->tenant), KEEP_S * 1000 + s->qr->conf->timeout_ms);
    share_put(s->share, str_c(x->tenant), str_c(x->id),
              &(struct shared){ .scope = x->scope, .status = ASYNC_IN_PROGRESS }, on_announced, x);
}

static int detach(struct asyncs *s, struct query *q, struct err *e)
{
    struct env *env = s->qr->ctx->env;
    uint8_t random[ID_LEN / 2];
    char *owner = owner_of(q);

    drop_old(s);
    if (s->len >= ENTRIES_MAX && !drop_one(s))
        (void)err_set(e, ERR_BUSY, "%zu queries run in the background", s->len);
    else if (!check_running(s, owner, e) && !keep_tenants(q, e))
        err_clear(e);
    if (e->code) {
        xfree(owner);
        return e->code;
    }
    struct async_entry *x = XNEW(struct async_entry);
    *x = (struct async_entry){ .owner = owner, .status = ASYNC_IN_PROGRESS, .call = q->call };
    x->asyncs = s;
    scope_fingerprint(q->identity, q->tenants, q->tenants_len, x->scope);
    buf_init(&x->result, 0);
    env->random(env, random, sizeof(random));
    hex_put_c(random, sizeof(random), x->id);
    *s->last = x;
    s->last = &x->next;
    s->len++;
    loop_timer_start(s->timer, LOOK_MS, LOOK_MS);

    q->http->on_gone = NULL; /* it is answered whether or not */
    q->async = x;
    q->http = NULL;
    q->call = (struct svc_call){ .codec = SVC_PROTO };
    q->deadline_ns = now_ns(s) + s->qr->conf->timeout_ms * 1000000;
    announce(s, q, x);
    return 0;
}

/* What another querier wrote. */
static int reply_shared(struct query *q, struct err *e)
{
    struct fetched *f = q->state;
    struct shared sh;
    int64_t now = clock_wall_ms(q->qr->ctx->env->clock), age;

    if (share_read(q, f->id, f->scope, &sh, e))
        return e->code;
    age = now - sh.updated_ms;
    if (sh.status == ASYNC_IN_PROGRESS && age > (int64_t)q->qr->conf->timeout_ms + LOST_MS) {
        sh.status = ASYNC_FAILURE;
        sh.error = STR("the querier that worked on it went away");
    }
    if (age > KEEP_S * 1000)
        return err_set(e, ERR_NOT_FOUND, "results are kept for %d s", KEEP_S);
    memcpy(f->text, f->id.ptr, f->id.len);
    f->text[f->id.len] = '\0';
    f->status = sh.status;
    f->result = sh.status == ASYNC_SUCCESS ? sh.result : STR_NULL;
    sh.error.len = MIN(sh.error.len, sizeof(f->error) - 1);
    if (sh.error.len)
        memcpy(f->error, sh.error.ptr, sh.error.len);
    q->missing = (struct fanout_missing){ 0 };
    if (f->status == ASYNC_SUCCESS)
        missing_read(q, f->error);
    return reply_fetched(q, e);
}

static int fetch(struct asyncs *s, struct query *q, struct err *e)
{
    struct fetched *f = q->state;
    char *owner = owner_of(q);
    struct async_entry *x;

    drop_old(s);
    scope_fingerprint(q->identity, q->tenants, q->tenants_len, f->scope);
    x = s->first;
    while (x && !(str_eqc(f->id, x->id) && strcmp(x->owner, owner) == 0 &&
                  memcmp(x->scope, f->scope, SCOPE_BYTES) == 0))
        x = x->next;
    xfree(owner);
    if (!x && q->tenants_len == 1 && f->id.len == ID_LEN) {
        q->step = reply_shared;
        return share_ask(q, f->id, e);
    }
    if (!x)
        return err_set(e, ERR_NOT_FOUND, "there is no query \"%.*s\": results are kept for %d s",
                       (int)MIN(f->id.len, 80), f->id.ptr, KEEP_S);
    x->readers++;
    q->async = x;
    f->status = x->status;
    memcpy(f->text, x->id, sizeof(f->text));
    if (x->status == ASYNC_SUCCESS) {
        f->result = buf_str(&x->result);
        missing_text(&x->missing, x->notice, f->error);
        missing_read(q, f->error);
    }
    if (x->status == ASYNC_FAILURE)
        memcpy(f->error, x->err.text, sizeof(f->error));
    return 0;
}

/* ERR_RATE: too many run; ERR_NOT_FOUND. */
static int on_loop(struct query *q, struct err *e)
{
    enum ask ask = (enum ask)q->async_ask;

    q->async_ask = ASK_NOTHING;
    err_clear(e);
    return ask == ASK_FETCH ? fetch(q->qr->asyncs, q, e) : detach(q->qr->asyncs, q, e);
}

/* Takes room for a result from the memory of all queries; false: not enough is free. */
static bool make_room(struct asyncs *s, size_t bytes)
{
    struct budget *b = &s->qr->bytes;

    while (s->held + bytes > b->max / 4)
        if (!drop_one(s))
            return false;
    while (!budget_reserve(b, bytes))
        if (!drop_one(s))
            return false;
    s->held += bytes;
    return true;
}

static void publish(struct async_entry *x)
{
    bool ok = x->status == ASYNC_SUCCESS;
    char part[ERR_TEXT_MAX];

    missing_text(&x->missing, x->notice, part);
    if (x->tenant && x->asyncs->share)
        share_put(x->asyncs->share, str_c(x->tenant), str_c(x->id),
                  &(struct shared){ .scope = x->scope,
                                    .status = x->status,
                                    .error = ok ? str_c(part) : str_c(x->err.text),
                                    .result = ok ? buf_str(&x->result) : STR("") },
                  NULL, NULL);
}

/* A detached query ends. */
static void on_end(struct query *q)
{
    struct asyncs *s = q->qr->asyncs;
    struct async_entry *x = q->async;
    /* The buffer moves with all it has set aside. */
    size_t bytes = q->out.cap;

    q->async = NULL;
    if (!q->err.code && !make_room(s, bytes))
        (void)err_set(&q->err, ERR_BUSY,
                      "results of queries in the background use all of their memory");
    x->until_ns = now_ns(s) + KEEP_S * UINT64_C(1000000000);
    if (q->err.code) {
        x->err = q->err;
        x->status = ASYNC_FAILURE;
    } else {
        x->held = bytes;
        buf_move(&x->result, &q->out);
        x->missing = q->missing;
        x->notice = q->notice.len > 0;
        x->status = ASYNC_SUCCESS;
    }
    if (!x->call.r)
        publish(x); /* else once it is announced */
}

/* A query that has fetched a result ends. */
static void on_release(struct query *q)
{
    struct asyncs *s = q->qr->asyncs;
    struct async_entry *x = q->async;

    q->async = NULL;
    x->readers--;
    if (x->status != ASYNC_IN_PROGRESS && !q->err.code)
        x->until_ns = MIN(x->until_ns, now_ns(s) + TOLD_S * UINT64_C(1000000000));
}

/* ---- what steps call --------------------------------------------------------------------------*/

static const struct query_ending ending = { on_loop, on_end, on_release };

void async_detach(struct query *q)
{
    q->async_ask = ASK_DETACH;
    q->ending = &ending;
}

void async_fetch(struct query *q, struct str id)
{
    struct fetched *f = ARENA_NEW(q->arena, struct fetched);

    CHECK(f);
    f->id = id;
    q->state = f;
    q->async_ask = ASK_FETCH;
    q->ending = &ending;
    q->step = reply_fetched;
}
