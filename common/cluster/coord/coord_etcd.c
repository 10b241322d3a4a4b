/* SPDX-License-Identifier: Apache-2.0
 *
 * coord_etcd: calls and watches over HTTP.
 *
 *   call ──(token? else log in first)──> POST ──> answer ──> callback
 *   watch: range ──all──> POST /v3/watch from the revision behind it ──lines──> events
 *            ^                               │ ended: again from where it was, on the next endpoint
 *            └── compacted, canceled, another cluster
 *
 * HTTP is common/net's client (libcurl on a thread of its own): it has TLS, deadlines, and
 * answers in pieces; a second client for this would have the same insides.
 *
 * One endpoint is in use; a call that cannot reach it moves all calls to the next. Lists, keeps and
 * revokes are tried once on each endpoint before they fail. Transactions and grants are not: they
 * may have been executed, and only the caller knows what a second one would mean.
 *
 * etcd sends nothing on a watch without news, and a connection may die without a sign. So each
 * watch counts its keys every second. An answer counts as "heard" while the stream has said that it
 * watches (an etcd, or a proxy, that answers all but watches must not keep a view young). An answer
 * of an older revision than was seen when it was asked, or of another cluster, begins the watch
 * from the start. A stream without a line for STALL_MS is opened again at its last revision, which
 * loses nothing; so is a stream without a line for QUIET_MS while the count shows that the store
 * changed: after a cut that lost our acknowledgements alone, etcd's kernel may send again only half
 * a minute later.
 */
#include "common/cluster/coord/coord_etcd.h"

#include <stdio.h>

#include "common/base/list.h"
#include "common/base/mem.h"
#include "common/cluster/coord/etcd_text.h"
#include "common/net/client/http_multi.h"

#define CALL_MS              3000
#define CONNECT_MS           1000
#define BEAT_MS              1000
#define REOPEN_MS            200
#define STALL_MS             20000
#define QUIET_MS             3000
#define LINE_MAX             (8 * MIB)
#define ARENA_MAX            (256 * MIB)
#define GRPC_NOT_FOUND       5
#define GRPC_UNAUTHENTICATED 16

enum kind { KIND_LIST, KIND_TXN, KIND_GRANT, KIND_KEEP, KIND_REVOKE };
static const char *const paths[] = {
    [KIND_LIST] = "/v3/kv/range",       [KIND_TXN] = "/v3/kv/txn",
    [KIND_GRANT] = "/v3/lease/grant",   [KIND_KEEP] = "/v3/lease/keepalive",
    [KIND_REVOKE] = "/v3/lease/revoke",
};

struct etcd_call {
    struct list list; /* of open calls, or of those that wait for a token */
    struct etcd *c;
    enum kind kind;
    coord_fn fn;
    void *cookie;
    struct buf body;
    struct http_call *http; /* NULL: it waits */
    uint32_t tries, endpoint;
    bool relogin; /* a token was refused once */
};
struct coord_watch {
    struct list list;
    struct etcd *c;
    struct coord_watch_opts o;
    struct str prefix; /* owned */
    struct http_call *stream;
    struct timer *open, *beat;
    struct buf line;
    int64_t seen;     /* delivered up to here; -1: everything must come first */
    uint64_t line_ms; /* monotonic: the stream was opened, or said something */
    uint64_t cluster; /* of whom that was; 0: it did not say */
    uint32_t endpoint;
    bool listing, counting;
    int64_t counted_from; /* `seen` when the count was asked for */
    bool spoke;           /* this stream has said something: at least that it watches */
    bool busy, dead;      /* in a callback; unwatched meanwhile */
};
struct etcd {
    struct coord coord;
    struct loop *loop;
    struct http_multi *http;
    char *urls[COORD_ENDPOINTS_MAX]; /* owned */
    uint32_t urls_len, at;
    char *ca, *cert, *key, *user, *password; /* owned; NULL: none */
    bool insecure;
    char *token; /* the header line; owned; NULL: none yet */
    struct http_call *login;
    struct list calls, waiting, watches;
    struct err why; /* code 0: the last call did not fail */
    /* Reads may succeed for long while changes are refused. Code 0: the last change was made. */
    struct err refused;
};

static void start(struct etcd_call *k);

static uint64_t now_ms(const struct etcd *c)
{
    return clock_mono_ms(loop_clock(c->loop));
}

/* ---- requests -------------------------------------------------------------------------------- */

static void next_endpoint(struct etcd *c, uint32_t failed)
{
    if (c->at == failed)
        c->at = (c->at + 1) % c->urls_len;
}

static void request(const struct etcd *c, struct http_multi_req *r, const char *path, char url[KIB],
                    const char *const *headers)
{
    (void)snprintf(url, KIB, "%s%s", c->urls[c->at], path);
    r->method = "POST";
    r->url = url;
    r->headers = headers;
    r->headers_len = c->token ? 2 : 1;
    r->tls = (struct http_client_tls){ c->ca, c->cert, c->key, c->insecure };
    r->connect_ms = CONNECT_MS;
    r->body_max = ETCD_ANSWER_MAX;
}

static void call_free(struct etcd_call *k)
{
    list_del(&k->list);
    buf_deinit(&k->body);
    xfree(k);
}

static void call_end(struct etcd_call *k, const struct coord_reply *r)
{
    coord_fn fn = k->fn;
    void *cookie = k->cookie;

    call_free(k);
    fn(cookie, r);
}

static void call_fail(struct etcd_call *k, const struct err *e)
{
    k->c->why = *e;
    call_end(k, &(struct coord_reply){ .err = e });
}

/* Handles an error of etcd. True: it concerned the token, and the call was begun again. */
static bool refused(struct etcd_call *k, const struct etcd_answer *a, struct err *e)
{
    struct etcd *c = k->c;

    if (a->error_code == GRPC_UNAUTHENTICATED && c->user && !k->relogin) {
        k->relogin = true;
        xfree(c->token);
        c->token = NULL;
        start(k);
        return true;
    }
    (void)err_set(e, a->error_code == GRPC_NOT_FOUND ? ERR_NOT_FOUND : ERR_UNAVAILABLE,
                  "etcd at %s: %.*s", c->urls[k->endpoint], STR_ARG(str_sub(a->error, 0, 300)));
    if (e->code == ERR_UNAVAILABLE && (k->kind == KIND_TXN || k->kind == KIND_GRANT))
        c->refused = *e;
    return false;
}

static void on_answer(struct etcd_call *k, struct str body)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct etcd_answer a;
    struct err e;
    int code = etcd_parse(body, arena, &a, &e);

    if (!code && a.error.len) {
        if (k->kind == KIND_KEEP && a.error_code == GRPC_NOT_FOUND) {
            call_end(k, &(struct coord_reply){ .ttl_ms = 0 });
            arena_free(arena);
            return;
        }
        if (refused(k, &a, &e)) {
            arena_free(arena);
            return;
        }
        code = e.code;
    }
    if (code) {
        call_fail(k, &e);
    } else {
        err_clear(&k->c->why);
        if (k->kind == KIND_TXN)
            err_clear(&k->c->refused);
        call_end(k, &(struct coord_reply){ .done = a.succeeded,
                                           .rev = a.rev,
                                           .kvs = a.kvs,
                                           .kvs_len = a.kvs_len,
                                           .lease = a.lease,
                                           .ttl_ms = a.ttl_ms,
                                           .store = a.cluster });
    }
    arena_free(arena);
}

static bool again_is_harmless(const struct etcd_call *k)
{
    return k->kind == KIND_LIST || k->kind == KIND_KEEP || k->kind == KIND_REVOKE;
}

static void on_done(void *cookie, struct http_multi_reply *r)
{
    struct etcd_call *k = cookie;
    struct err e;

    k->http = NULL;
    if (!r->err && r->body.len) {
        on_answer(k, buf_str(&r->body));
        return;
    }
    next_endpoint(k->c, k->endpoint);
    if (again_is_harmless(k) && ++k->tries < k->c->urls_len) {
        start(k);
        return;
    }
    if (r->err)
        e = *r->err;
    else
        (void)err_set(&e, ERR_UNAVAILABLE, "status %d and no text", r->status);
    (void)err_wrap(&e, "etcd at %s", k->c->urls[k->endpoint]);
    call_fail(k, &e);
}

/* ---- login ----------------------------------------------------------------------------------- */

/* A call that is repeated at once waits for the next login. */
static void login_failed(struct etcd *c, const struct err *e)
{
    size_t n = 0;

    for (const struct list *it = c->waiting.next; it != &c->waiting; it = it->next)
        n++;
    for (; n && !list_empty(&c->waiting); n--)
        call_fail(container_of(c->waiting.next, struct etcd_call, list), e);
}

static void on_login(void *cookie, struct http_multi_reply *r)
{
    struct etcd *c = cookie;
    struct arena *arena = arena_new(MIB);
    struct etcd_answer a = { 0 };
    struct err e;
    int code = 0;

    c->login = NULL;
    if (r->err) {
        e = *r->err;
        code = e.code;
        next_endpoint(c, c->at);
    } else {
        code = etcd_parse(buf_str(&r->body), arena, &a, &e);
    }
    if (!code && !a.token.len)
        code = err_set(&e, ERR_CONFIG, "etcd does not let user %s in: %.*s", c->user,
                       STR_ARG(str_sub(a.error, 0, 200)));
    else if (code && !r->err && r->body.len) /* words of its gateway, not of its own */
        code = err_set(&e, ERR_CONFIG, "etcd does not let user %s in: status %d, %.*s", c->user,
                       r->status, STR_ARG(str_sub(str_trim(buf_str(&r->body)), 0, 200)));
    if (code) {
        login_failed(c, &e);
    } else {
        struct buf line;

        buf_init(&line, 64 * KIB);
        (void)buf_addf(&line, "Authorization: %.*s", STR_ARG(a.token));
        (void)buf_add_c(&line, '\0');
        c->token = xstrdup(line.ptr);
        buf_deinit(&line);
        while (!list_empty(&c->waiting))
            start(container_of(c->waiting.next, struct etcd_call, list));
    }
    arena_free(arena);
}

static void log_in(struct etcd *c)
{
    const char *const headers[] = { "Content-Type: application/json" };
    struct http_multi_req r = { .timeout_ms = CALL_MS, .done = on_login, .cookie = c };
    struct buf body;
    char url[KIB];

    if (c->login)
        return;
    buf_init(&body, 64 * KIB);
    etcd_put_login(&body, c->user, c->password);
    request(c, &r, "/v3/auth/authenticate", url, headers);
    r.body = buf_str(&body);
    c->login = http_multi_start(c->http, &r);
    buf_deinit(&body);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void start(struct etcd_call *k)
{
    struct etcd *c = k->c;
    const char *const headers[] = { "Content-Type: application/json", c->token };
    struct http_multi_req r = { .timeout_ms = CALL_MS, .done = on_done, .cookie = k };
    char url[KIB];

    list_del(&k->list);
    if (c->user && !c->token) {
        list_add_tail(&c->waiting, &k->list);
        log_in(c);
        return;
    }
    list_add_tail(&c->calls, &k->list);
    k->endpoint = c->at;
    request(c, &r, paths[k->kind], url, headers);
    r.body = buf_str(&k->body);
    k->http = http_multi_start(c->http, &r);
}

static struct etcd_call *call_new(struct coord *coord, enum kind kind, coord_fn fn, void *cookie)
{
    struct etcd_call *k = XNEW(struct etcd_call);

    k->c = container_of(coord, struct etcd, coord);
    k->kind = kind;
    k->fn = fn;
    k->cookie = cookie;
    list_init(&k->list);
    buf_init(&k->body, (size_t)COORD_TXN_MAX * 2 * COORD_VALUE_MAX);
    return k;
}

static void etcd_list(struct coord *coord, struct str prefix, coord_fn fn, void *cookie)
{
    struct etcd_call *k = call_new(coord, KIND_LIST, fn, cookie);

    etcd_put_range(&k->body, prefix, false);
    start(k);
}

static void etcd_txn(struct coord *coord, const struct coord_txn *t, coord_fn fn, void *cookie)
{
    struct etcd_call *k = call_new(coord, KIND_TXN, fn, cookie);

    etcd_put_txn(&k->body, t->cmp, t->cmp_len, t->chg, t->chg_len);
    start(k);
}

static void etcd_grant(struct coord *coord, uint64_t ttl_ms, coord_fn fn, void *cookie)
{
    struct etcd_call *k = call_new(coord, KIND_GRANT, fn, cookie);

    etcd_put_grant(&k->body, ttl_ms);
    start(k);
}

static void etcd_keep(struct coord *coord, int64_t lease, coord_fn fn, void *cookie)
{
    struct etcd_call *k = call_new(coord, KIND_KEEP, fn, cookie);

    etcd_put_lease(&k->body, lease);
    start(k);
}

static void etcd_revoke(struct coord *coord, int64_t lease, coord_fn fn, void *cookie)
{
    struct etcd_call *k = call_new(coord, KIND_REVOKE, fn, cookie);

    etcd_put_lease(&k->body, lease);
    start(k);
}

static void cancel_of(struct list *calls, const void *cookie, bool all)
{
    list_for (it, calls) {
        struct etcd_call *k = container_of(it, struct etcd_call, list);

        if (!all && k->cookie != cookie)
            continue;
        http_call_cancel(k->http);
        call_free(k);
    }
}

static void etcd_cancel(struct coord *coord, const void *cookie)
{
    struct etcd *c = container_of(coord, struct etcd, coord);

    cancel_of(&c->calls, cookie, false);
    cancel_of(&c->waiting, cookie, false);
}

/* ---- watches --------------------------------------------------------------------------------- */

static void watch_free(struct coord_watch *w)
{
    buf_deinit(&w->line);
    xfree((void *)(uintptr_t)w->prefix.ptr);
    xfree(w);
}

static void open_soon(struct coord_watch *w, uint64_t after_ms)
{
    http_call_cancel(w->stream);
    w->stream = NULL;
    loop_timer_start(w->open, after_ms, 0);
}

static void watch_anew(struct coord_watch *w)
{
    w->seen = -1;
    open_soon(w, REOPEN_MS);
}

/* The callbacks may unwatch: then the watch stays until its own code is through. */
static void deliver(struct coord_watch *w, const struct etcd_answer *a)
{
    int64_t upto = w->seen;

    w->busy = true;
    for (size_t i = 0; i < a->kvs_len && !w->dead; i++) {
        if (a->kvs[i].mod_rev <= w->seen)
            continue;
        upto = MAX(upto, a->kvs[i].mod_rev);
        w->o.event(w->o.cookie, &a->kvs[i]);
    }
    w->seen = upto;
    if (!w->dead && a->kvs_len == 0 && w->o.heard)
        w->o.heard(w->o.cookie);
    w->busy = false;
}

/* Revisions of another cluster's would be taken for those that come next. */
static bool is_other(const struct coord_watch *w, uint64_t cluster)
{
    return w->cluster && cluster && cluster != w->cluster;
}

static void on_line(struct coord_watch *w, struct str line)
{
    struct arena *arena = arena_new(ARENA_MAX);
    struct etcd_answer a;
    struct err e;

    if (etcd_parse(line, arena, &a, &e) || a.error.len || a.canceled || a.compacted ||
        is_other(w, a.cluster))
        watch_anew(w);
    else
        deliver(w, &a);
    arena_free(arena);
}

static void on_data(void *cookie, struct str bytes)
{
    struct coord_watch *w = cookie;
    struct http_call *stream = w->stream;
    struct str part;
    bool more = true;

    while (!w->dead && w->stream == stream && str_next(&bytes, '\n', &more, &part)) {
        if (!buf_add_str(&w->line, part)) {
            watch_anew(w);
            break;
        }
        if (!more)
            break;
        w->line_ms = now_ms(w->c);
        w->spoke = true;
        if (w->line.len)
            on_line(w, buf_str(&w->line));
        buf_reset(&w->line);
    }
    if (w->dead)
        watch_free(w);
}

static void on_stream_end(void *cookie, struct http_multi_reply *r)
{
    struct coord_watch *w = cookie;

    w->stream = NULL;
    /* Silence is no fault: the watch continues where it was. A refusal may concern the token. */
    if (r->err && r->err->code != ERR_TIMEOUT)
        next_endpoint(w->c, w->endpoint);
    if (!r->err && r->status != 200)
        w->seen = -1;
    open_soon(w, REOPEN_MS);
}

static void open_stream(struct coord_watch *w)
{
    struct etcd *c = w->c;
    const char *const headers[] = { "Content-Type: application/json", c->token };
    struct http_multi_req r = {
        .stall_ms = STALL_MS, .on_data = on_data, .done = on_stream_end, .cookie = w
    };
    struct buf body;
    char url[KIB];

    buf_init(&body, 8 * KIB);
    etcd_put_watch(&body, w->prefix, w->seen + 1);
    w->endpoint = c->at;
    w->line_ms = now_ms(c);
    w->spoke = false;
    buf_reset(&w->line);
    request(c, &r, "/v3/watch", url, headers);
    r.body = buf_str(&body);
    w->stream = http_multi_start(c->http, &r);
    buf_deinit(&body);
}

static void on_listed(void *cookie, const struct coord_reply *r)
{
    struct coord_watch *w = cookie;

    w->listing = false;
    if (r->err) {
        open_soon(w, REOPEN_MS);
        return;
    }
    w->seen = r->rev;
    w->cluster = r->store;
    w->busy = true;
    w->o.all(w->o.cookie, r->kvs, r->kvs_len, r->rev);
    w->busy = false;
    if (w->dead)
        watch_free(w);
    else
        open_stream(w);
}

static void on_open(void *cookie)
{
    struct coord_watch *w = cookie;

    if (w->listing || w->stream)
        return;
    if (w->seen >= 0) {
        open_stream(w);
        return;
    }
    w->listing = true;
    etcd_list(&w->c->coord, w->prefix, on_listed, w);
}

static void on_counted(void *cookie, const struct coord_reply *r)
{
    struct timer **at = cookie;
    struct coord_watch *w = container_of(at, struct coord_watch, beat);

    w->counting = false;
    if (r->err)
        return;
    /* Events that the watch got since the question may be newer than the answer. */
    if (w->stream && (r->rev < MIN(w->seen, w->counted_from) || is_other(w, r->store))) {
        watch_anew(w); /* restored from a backup, or another cluster */
        return;
    }
    bool watches = w->stream && w->spoke;
    if (r->rev > w->seen && w->stream && now_ms(w->c) - w->line_ms >= QUIET_MS)
        open_soon(w, 0);
    if (w->o.heard && watches)
        w->o.heard(w->o.cookie);
}

static void on_beat(void *cookie)
{
    struct coord_watch *w = cookie;
    struct etcd_call *k;

    if (w->counting)
        return;
    w->counting = true;
    w->counted_from = w->seen;
    k = call_new(&w->c->coord, KIND_LIST, on_counted, &w->beat);
    etcd_put_range(&k->body, w->prefix, true);
    start(k);
}

static struct coord_watch *etcd_watch(struct coord *coord, const struct coord_watch_opts *o)
{
    struct etcd *c = container_of(coord, struct etcd, coord);
    struct coord_watch *w = XNEW(struct coord_watch);

    w->c = c;
    w->o = *o;
    w->prefix = str_n(xmemdup(o->prefix.ptr, o->prefix.len), o->prefix.len);
    w->seen = -1;
    buf_init(&w->line, LINE_MAX);
    w->open = loop_timer_new(c->loop, on_open, w);
    w->beat = loop_timer_new(c->loop, on_beat, w);
    list_add_tail(&c->watches, &w->list);
    loop_timer_start(w->open, 0, 0);
    loop_timer_start(w->beat, BEAT_MS, BEAT_MS);
    return w;
}

static void etcd_unwatch(struct coord *coord, struct coord_watch *w)
{
    etcd_cancel(coord, w);
    etcd_cancel(coord, &w->beat);
    http_call_cancel(w->stream);
    w->stream = NULL;
    loop_timer_free(w->open);
    loop_timer_free(w->beat);
    list_del(&w->list);
    w->dead = true;
    if (!w->busy)
        watch_free(w);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void etcd_free(struct coord *coord)
{
    struct etcd *c = container_of(coord, struct etcd, coord);

    cancel_of(&c->calls, NULL, true);
    cancel_of(&c->waiting, NULL, true);
    list_for (it, &c->watches)
        etcd_unwatch(coord, container_of(it, struct coord_watch, list));
    http_call_cancel(c->login);
    http_multi_free(c->http);
    for (uint32_t i = 0; i < c->urls_len; i++)
        xfree(c->urls[i]);
    xfree(c->ca);
    xfree(c->cert);
    xfree(c->key);
    xfree(c->user);
    xfree(c->password);
    xfree(c->token);
    xfree(c);
}

static const char *etcd_why(const struct coord *coord)
{
    const struct etcd *c = (const struct etcd *)(const void *)coord; /* its first member */

    if (c->refused.code)
        return c->refused.text;
    return c->why.code ? c->why.text : "";
}

const char *coord_etcd_refused(const struct coord *coord)
{
    const struct etcd *c = (const struct etcd *)(const void *)coord;

    return c->refused.code ? c->refused.text : "";
}

static const struct coord_ops etcd_ops = {
    etcd_list,  etcd_txn,     etcd_grant,  etcd_keep, etcd_revoke,
    etcd_watch, etcd_unwatch, etcd_cancel, etcd_free, etcd_why,
};

static char *given(const char *s)
{
    return s && s[0] ? xstrdup(s) : NULL;
}

int coord_etcd_new(const struct coord_etcd_opts *o, struct coord **ret, struct err *e)
{
    struct etcd *c;

    if (o->urls_len == 0 || o->urls_len > COORD_ENDPOINTS_MAX)
        return err_set(e, ERR_CONFIG, "cluster.etcd names %zu URLs; want 1 to %d", o->urls_len,
                       COORD_ENDPOINTS_MAX);
    for (size_t i = 0; i < o->urls_len; i++)
        if (http_client_url_check(o->urls[i], e) || strlen(o->urls[i]) > KIB / 2)
            return err_set(e, ERR_CONFIG,
                           "cluster.etcd: \"%.200s\" is no URL; want "
                           "http://host:2379 or https://",
                           o->urls[i]);
    c = XNEW(struct etcd);
    c->coord.ops = &etcd_ops;
    c->loop = o->loop;
    for (; c->urls_len < o->urls_len; c->urls_len++) {
        char *url = xstrdup(o->urls[c->urls_len]);
        size_t len = strlen(url);

        if (url[len - 1] == '/')
            url[len - 1] = '\0';
        c->urls[c->urls_len] = url;
    }
    c->ca = given(o->tls.ca_file);
    c->cert = given(o->tls.cert_file);
    c->key = given(o->tls.key_file);
    c->insecure = o->tls.insecure;
    c->user = given(o->user);
    c->password = given(o->password ? o->password : "");
    if (c->user && !c->password)
        c->password = xstrdup("");
    list_init(&c->calls);
    list_init(&c->waiting);
    list_init(&c->watches);
    c->http = http_multi_new(o->loop, "embertree");
    *ret = &c->coord;
    return 0;
}
