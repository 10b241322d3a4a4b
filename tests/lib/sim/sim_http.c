/* SPDX-License-Identifier: Apache-2.0
 *
 * sim_http: a connection lives until the server has closed it; its request may have ended before
 * (the client lost patience, or the node died).
 */
#include "tests/lib/sim/sim_http.h"

#include "common/base/mem.h"
#include "common/net/http_server.h"
#include "common/net/stream.h"

#define REPLY_MAX (8 * MIB)

struct conn {
    struct stream stream; /* first */
    struct list link;
    struct sim_site *site;
    struct timer *timer;
    struct buf in, out;
    bool reading, closed, ended, shut;
    sim_http_fn done; /* NULL: the request ended */
    void *cookie;
};

static struct conn *of(const struct stream *s)
{
    return container_of((uintptr_t)s, struct conn, stream);
}

/* False: it is not whole. */
static bool parse(struct str all, struct sim_reply *r)
{
    const char *end = all.len ? memmem(all.ptr, all.len, "\r\n\r\n", 4) : NULL;
    uint64_t status, len;

    if (!end || all.len < 12 || !str_u64(str_n(all.ptr + 9, 3), &status))
        return false;
    r->head = str_n(all.ptr, (size_t)(end - all.ptr) + 2);
    r->body = str_sub(all, r->head.len + 2, all.len);
    if (!str_u64(sim_reply_header(r, "Content-Length"), &len) || len != r->body.len)
        return false;
    r->status = (int)status;
    return true;
}

static void request_end(struct conn *c, bool broken)
{
    sim_http_fn done = c->done;
    struct sim_reply r = { 0 };

    if (!done)
        return;
    c->done = NULL;
    if (broken || !parse(buf_str(&c->out), &r))
        r = (struct sim_reply){ 0 };
    done(c->cookie, &r);
}

static void on_end(void *cookie)
{
    struct conn *c = cookie;

    if (c->closed || c->ended)
        return;
    c->ended = true;
    c->stream.up->on_end(c->stream.cookie, false);
}

static void deliver(void *cookie)
{
    struct conn *c = cookie;
    struct str all;

    if (!c->reading || c->closed || c->ended || c->in.len == 0)
        return;
    all = (struct str){ xmemdup(c->in.ptr, c->in.len), c->in.len };
    c->in.len = 0;
    c->stream.up->on_bytes(c->stream.cookie, all);
    xfree((char *)(uintptr_t)all.ptr);
}

static enum stream_wrote conn_write(struct stream *s, const struct str *v, size_t n)
{
    struct conn *c = of(s);

    CHECK(!c->closed && !c->shut);
    for (size_t i = 0; i < n; i++)
        CHECK(buf_add_str(&c->out, v[i]));
    return STREAM_ALL;
}

static size_t conn_unsent(const struct stream *s)
{
    (void)s;
    return 0;
}

static void conn_read(struct stream *s, bool on)
{
    struct conn *c = of(s);

    c->reading = on;
    if (on && c->in.len)
        loop_post(c->site->loop, deliver, c);
}

static void conn_shut(struct stream *s)
{
    struct conn *c = of(s);

    c->shut = true;
    loop_post(c->site->loop, on_end, c);
}

static void on_closed(void *cookie)
{
    struct conn *c = cookie;

    c->stream.up->on_closed(c->stream.cookie);
    request_end(c, false);
    loop_timer_free(c->timer);
    list_del(&c->link);
    buf_deinit(&c->in);
    buf_deinit(&c->out);
    xfree(c);
}

static void conn_close(struct stream *s)
{
    struct conn *c = of(s);

    CHECK(!c->closed);
    c->closed = true;
    c->reading = false;
    loop_post(c->site->loop, on_closed, c);
}

static const struct stream_ops conn_ops = {
    .write = conn_write,
    .unsent = conn_unsent,
    .read = conn_read,
    .shut = conn_shut,
    .close = conn_close,
};

static void break_off(struct conn *c)
{
    request_end(c, true);
    if (c->closed || c->ended)
        return;
    c->ended = true;
    c->stream.up->on_end(c->stream.cookie, true);
}

static void on_patience(void *cookie)
{
    break_off(cookie);
}

void sim_site_init(struct sim_site *s, struct loop *loop, struct http_server *server)
{
    *s = (struct sim_site){ .server = server, .loop = loop };
    list_init(&s->conns);
}

void sim_http(struct sim_site *s, struct str request, uint64_t patience_ms, sim_http_fn done,
              void *cookie)
{
    struct conn *c = XNEW(struct conn);

    *c = (struct conn){ .site = s, .done = done, .cookie = cookie };
    c->stream.ops = &conn_ops;
    memcpy(c->stream.peer, "memory:1", 9);
    c->stream.own = true;
    buf_init(&c->in, request.len + 1);
    buf_init(&c->out, REPLY_MAX);
    CHECK(buf_add_str(&c->in, request));
    list_add_tail(&s->conns, &c->link);
    c->timer = loop_timer_new(s->loop, on_patience, c);
    loop_timer_start(c->timer, patience_ms, 0);
    http_server_attach(s->server, &c->stream);
}

void sim_site_cut(struct sim_site *s)
{
    list_for (it, &s->conns)
        break_off(container_of(it, struct conn, link));
}

bool sim_site_idle(const struct sim_site *s)
{
    return list_empty(&s->conns);
}

struct str sim_reply_header(const struct sim_reply *r, const char *name)
{
    struct str rest = r->head, line;
    size_t n = strlen(name);
    bool more = true;

    while (str_next(&rest, '\n', &more, &line))
        if (str_starts(line, str_c(name)) && line.len > n && line.ptr[n] == ':')
            return str_trim(str_sub(line, n + 1, line.len));
    return STR_NULL;
}
