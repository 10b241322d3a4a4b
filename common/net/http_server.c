/* SPDX-License-Identifier: Apache-2.0
 *
 * http_server: what all connections of one listener share, and its life.
 *
 *   new ──> serving ──drain──> draining (what comes in the first moments is served, and told to
 *   go; then no accept, no idle connection) ──last one gone──> done ──>
 * free
 *
 * Invariant: draining ends when there is no connection, no exchange (a handler may still work for a
 * client that left) and the listening socket is closed; `done` is then posted, once.
 */
#include "common/net/http_server.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "common/base/hash.h"
#include "common/net/http1/http1.h"
#include "common/net/http_door.h"
#include "common/net/http_not_found.h"
#include "common/net/http_start.h"
#include "common/net/tcp.h"
#include "common/net/tls.h"

static void on_expired(struct wheel_entry *e)
{
    struct http_conn *c = container_of(e, struct http_conn, deadline);

    c->on_deadline(c);
}

static void metrics_start(struct http_server *s)
{
    static const double buckets[] = { 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                      0.1,    0.25,  0.5,    1,     2.5,  5,     10 };
    static const char *const reasons[HTTP_REFUSALS] = {
        [HTTP_REFUSED_CONNECTIONS] = "connections",
        [HTTP_REFUSED_BUDGET] = "budget",
        [HTTP_REFUSED_TIMEOUT] = "timeout",
        [HTTP_REFUSED_BODY] = "body_too_large",
        [HTTP_REFUSED_MALFORMED] = "malformed",
        [HTTP_REFUSED_ACCEPT] = "accept_failed",
        [HTTP_REFUSED_FLOOD] = "flood",
        [HTTP_REFUSED_TLS] = "tls",
        [HTTP_REFUSED_HOST] = "host",
        [HTTP_REFUSED_SITE] = "cross_site",
        [HTTP_REFUSED_SHARE] = "tenant_share",
    };
    struct metrics *m = s->o.metrics;
    struct metric *refused;

    s->requests =
        metric_new(m, METRIC_COUNTER, "embertree_http_requests_total",
                   "Replies by route, method and class of status.", "route,method,status");
    s->seconds = metric_new_histogram(m, "embertree_http_request_duration_seconds",
                                      "From the end of the request's head to the reply.", "route",
                                      buckets, ARRAY_LEN(buckets));
    refused = metric_new(m, METRIC_COUNTER, "embertree_http_refused_total",
                         "Connections and requests refused before any handler.", "reason");
    for (size_t i = 0; i < HTTP_REFUSALS; i++)
        s->refused[i] = metric_at(refused, (struct str[]){ str_c(reasons[i]) }, 1);
    s->running = metric_at(metric_new(m, METRIC_GAUGE, "embertree_http_requests_in_flight",
                                      "Requests between their head and their reply.", NULL),
                           NULL, 0);
    s->connections = metric_at(
        metric_new(m, METRIC_GAUGE, "embertree_http_connections", "Open client connections.", NULL),
        NULL, 0);
    s->received = metric_at(metric_new(m, METRIC_COUNTER, "embertree_http_received_bytes_total",
                                       "Bytes read from clients.", NULL),
                            NULL, 0);
    s->sent = metric_at(metric_new(m, METRIC_COUNTER, "embertree_http_sent_bytes_total",
                                   "Bytes handed over for clients.", NULL),
                        NULL, 0);
}

static int start_tls(struct http_server *s, struct err *e)
{
    const struct http_server_opts *o = &s->o;
    bool cert = o->tls_cert && o->tls_cert[0], key = o->tls_key && o->tls_key[0];
    const struct tls_opts files = { o->tls_cert, o->tls_key, o->tls_client_ca };
    int code;

    if (!cert && !key) {
        if (o->tls_only || (o->tls_client_ca && o->tls_client_ca[0]))
            return err_set(e, ERR_CONFIG, "TLS is asked for, but there is no http.tls_cert");
        return 0;
    }
    if (!cert || !key)
        return err_set(e, ERR_CONFIG, "http.tls_cert and http.tls_key need each other");
    code = tls_ctx_new(&files, &s->tls, e);
    if (code)
        return code;
    if (files.client_ca && files.client_ca[0])
        s->o.tls_only = true;
    s->tls_not_after =
        metric_at(metric_new(o->metrics, METRIC_GAUGE, "embertree_http_tls_not_after_seconds",
                             "When the certificate in use ends.", NULL),
                  NULL, 0);
    metric_set(s->tls_not_after, tls_ctx_not_after(s->tls));
    return 0;
}

int http_server_new(const struct http_server_opts *o, struct http_server **ret, struct err *e)
{
    struct http_server *s;

    if (o->connections_max == 0 || o->head_bytes_max < KIB)
        return err_set(e, ERR_CONFIG, "http: at least 1 connection and 1 KiB of head are needed");
    s = XNEW(struct http_server);
    s->o = *o;
    if (!o->in_flight) {
        budget_init(&s->budget_own, SIZE_MAX);
        s->o.in_flight = &s->budget_own;
    }
    if (!o->metrics)
        s->o.metrics = s->metrics_own = metrics_new();
    if (o->tenants)
        s->shares = http_shares_new();
    http_routes_init(&s->routes);
    s->unrouted.path = xstrdup("none");
    s->lost = (struct http_route){
        .path = s->unrouted.path, .stream = true, .body_max = HTTP_LOST_TAKES, .fn = http_lost_taken
    };
    list_init(&s->conns);
    wheel_init(&s->wheel, o->loop, on_expired);
    /* Ids differ between restarts and grow within one run. */
    s->id_last = hash_u64((uint64_t)clock_wall_ms(loop_clock(o->loop))) & ~(uint64_t)0xffffffff;
    metrics_start(s);
    int code = start_tls(s, e);
    if (!code && o->listen)
        code = tcp_listen(s, o->listen, &s->listener, e);
    if (code)
        http_server_free(s);
    else
        *ret = s;
    return code;
}

int http_server_listen_local(struct http_server *s, const char *path, struct err *e)
{
    CHECK(!s->local);
    return tcp_listen_local(s, path, &s->local, e);
}

uint16_t http_server_port(const struct http_server *s)
{
    return s->listener ? tcp_listener_port(s->listener) : 0;
}

static struct http_route *add_route(struct http_server *s, unsigned methods, const char *path,
                                    size_t body_max, http_handler_fn fn, void *cookie)
{
    struct http_route *r = http_routes_add(&s->routes, path);

    r->methods = methods;
    r->body_max = body_max;
    r->fn = fn;
    r->cookie = cookie;
    http_door_of(&s->o, r);
    return r;
}

void http_route(struct http_server *s, unsigned methods, const char *path, size_t body_max,
                http_handler_fn fn, void *route_cookie)
{
    (void)add_route(s, methods, path, body_max, fn, route_cookie);
}

void http_route_stream(struct http_server *s, unsigned methods, const char *path, uint64_t body_max,
                       http_handler_fn fn, void *route_cookie)
{
    add_route(s, methods, path, (size_t)MIN(body_max, (uint64_t)SIZE_MAX), fn, route_cookie)
        ->stream = true;
}

/* ---- connections */

static void forget(void *cookie)
{
    (void)cookie;
}

static void close_unheard(struct http_server *s, struct stream *stream)
{
    static const struct stream_events closed_only = { .on_closed = forget };

    metric_add(s->refused[HTTP_REFUSED_CONNECTIONS], 1);
    stream->up = &closed_only;
    stream->ops->close(stream);
}

void http_server_attach(struct http_server *s, struct stream *stream)
{
    bool full = s->conns_len - s->refusing >= s->o.connections_max;

    if (s->drained || (full && s->refusing >= HTTP_REFUSING_MAX)) {
        close_unheard(s, stream);
        return;
    }
    if (full && !s->tls)
        http1_open_refused(s, stream, true, 503, "too many connections; try again");
    else if (full)
        close_unheard(s, stream); /* it may be waiting for TLS */
    else
        http_start_open(s, stream);
}

void http_server_add(struct http_server *s, struct http_conn *c)
{
    c->server = s;
    list_init(&c->link);
    list_add_tail(&s->conns, &c->link);
    s->conns_len++;
    s->refusing += c->refused;
    metric_set(s->connections, (int64_t)s->conns_len);
}

void http_server_del(struct http_server *s, struct http_conn *c)
{
    CHECK(s->conns_len > 0);
    list_del(&c->link);
    s->conns_len--;
    s->refusing -= c->refused;
    metric_set(s->connections, (int64_t)s->conns_len);
    http_server_check_drained(s);
}

bool http_server_hold(struct http_server *s, size_t bytes)
{
    if (s->held + bytes > s->o.in_flight->max / 2)
        return false;
    s->held += bytes;
    return true;
}

void http_server_release(struct http_server *s, size_t bytes)
{
    CHECK(s->held >= bytes);
    s->held -= bytes;
}

/* ---- time */

uint64_t http_server_now_ms(const struct http_server *s)
{
    return clock_mono_ms(loop_clock(s->o.loop));
}

/* IMF-fixdate (RFC 9110 5.6.7), formatted once a second. */
struct str http_server_date(struct http_server *s)
{
    static const char days[7][4] = { "Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat" };
    static const char months[12][4] = { "Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec" };
    int64_t now_s = clock_wall_ms(loop_clock(s->o.loop)) / 1000;
    time_t t = (time_t)now_s;
    struct tm tm;

    if (now_s != s->date_s || !s->date[0]) {
        s->date_s = now_s;
        if (!gmtime_r(&t, &tm) || tm.tm_year < 0 || tm.tm_year > 8099)
            memset(&tm, 0, sizeof(tm));
        unsigned d = (unsigned)tm.tm_mday % 32, y = (unsigned)(tm.tm_year + 1900) % 10000;
        unsigned h = (unsigned)tm.tm_hour % 24, m = (unsigned)tm.tm_min % 60;
        (void)snprintf(s->date, sizeof(s->date), "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT",
                       days[(unsigned)tm.tm_wday % 7], d, months[(unsigned)tm.tm_mon % 12], y, h, m,
                       (unsigned)tm.tm_sec % 61);
    }
    return str_c(s->date);
}

/* ---- drain and free */

static void call_done(void *cookie)
{
    struct http_server *s = cookie;

    s->done(s->done_cookie);
}

void http_server_check_drained(struct http_server *s)
{
    if (!s->draining || s->drained || s->conns_len || s->xchgs ||
        (s->listener && !tcp_listener_closed(s->listener)) ||
        (s->local && !tcp_listener_closed(s->local)))
        return;
    s->drained = true;
    loop_post(s->o.loop, call_done, s);
}

void http_server_drain(struct http_server *s, void (*done)(void *cookie), void *cookie)
{
    CHECK(!s->draining);
    s->draining = true;
    s->done = done;
    s->done_cookie = cookie;
    if (s->listener)
        tcp_listener_leave(s->listener);
    if (s->local)
        tcp_listener_leave(s->local);
    list_for (it, &s->conns) {
        struct http_conn *c = container_of(it, struct http_conn, link);
        c->drain(c);
    }
    http_server_check_drained(s);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    CHECK(s->conns_len == 0 && s->xchgs == 0 && s->held == 0);
    tcp_listener_free(s->listener);
    tcp_listener_free(s->local);
    tls_ctx_free(s->tls);
    http_shares_free(s->shares);
    wheel_deinit(&s->wheel);
    while (s->arenas_len)
        arena_free(s->arenas[--s->arenas_len]);
    http_routes_deinit(&s->routes);
    xfree(s->unrouted.path);
    metrics_free(s->metrics_own);
    xfree(s);
}
