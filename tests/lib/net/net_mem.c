/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/net_mem.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/net/http_server.h"

/* ---- the stream */

static struct net_mem *mem_of(const struct stream *s)
{
    return container_of((uintptr_t)s, struct net_mem, stream);
}

/* Moves what the client has room for from the borrowed slices to `out`. */
static void deliver_out(struct net_mem *m)
{
    while (m->late_len && m->room) {
        size_t n = MIN(m->room, m->late[0].len);

        CHECK(buf_add(&m->out, m->late[0].ptr, n));
        m->late[0] = str_sub(m->late[0], n, m->late[0].len);
        m->late_bytes -= n;
        if (m->room != SIZE_MAX)
            m->room -= n;
        if (m->late[0].len == 0) {
            m->late_len--;
            memmove(m->late, m->late + 1, m->late_len * sizeof(m->late[0]));
        }
    }
}

static enum stream_wrote mem_write(struct stream *s, const struct str *v, size_t n)
{
    struct net_mem *m = mem_of(s);

    CHECK(!m->closed && !m->shut && m->late_len == 0 && n <= STREAM_SLICES_MAX);
    if (m->breaks)
        return STREAM_BROKEN;
    memcpy(m->late, v, n * sizeof(v[0]));
    m->late_len = n;
    m->late_bytes = 0;
    for (size_t i = 0; i < n; i++)
        m->late_bytes += v[i].len;
    deliver_out(m);
    return m->late_len ? STREAM_LATER : STREAM_ALL;
}

static size_t mem_unsent(const struct stream *s)
{
    return mem_of(s)->late_bytes;
}

static void deliver_in(void *cookie)
{
    struct net_mem *m = cookie;
    size_t n = MIN(m->in.len, (size_t)NET_READ_MAX);
    struct str all;

    if (!m->reading || m->closed || n == 0)
        return;
    /* A copy of exactly this size: reading past it is seen by ASan. */
    all = (struct str){ xmemdup(m->in.ptr, n), n };
    memmove(m->in.ptr, m->in.ptr + n, m->in.len - n);
    m->in.len -= n;
    if (m->in.len)
        loop_post(m->world->loop, deliver_in, m);
    m->stream.up->on_bytes(m->stream.cookie, all);
    xfree((char *)(uintptr_t)all.ptr);
}

static void mem_read(struct stream *s, bool on)
{
    struct net_mem *m = mem_of(s);

    m->reading = on;
    if (on && m->in.len)
        loop_post(m->world->loop, deliver_in, m);
}

static void mem_shut(struct stream *s)
{
    struct net_mem *m = mem_of(s);

    CHECK(m->late_len == 0 && !m->closed);
    m->shut = true;
}

static void call_closed(void *cookie)
{
    struct net_mem *m = cookie;

    if (m->late_len) {
        m->late_len = 0;
        m->stream.up->on_written(m->stream.cookie, false);
    }
    m->stream.up->on_closed(m->stream.cookie);
    m->stream.up = NULL;
}

static void mem_close(struct stream *s)
{
    struct net_mem *m = mem_of(s);

    CHECK(!m->closed);
    m->closed = true;
    m->reading = false;
    loop_post(m->world->loop, call_closed, m);
}

static const struct stream_ops mem_ops = {
    .write = mem_write,
    .unsent = mem_unsent,
    .read = mem_read,
    .shut = mem_shut,
    .close = mem_close,
};

struct net_mem *net_connect(struct net_world *w)
{
    struct net_mem *m = XNEW(struct net_mem);

    m->stream.ops = &mem_ops;
    memcpy(m->stream.peer, "memory:1", 9);
    m->stream.own = true;
    m->world = w;
    m->room = SIZE_MAX;
    buf_init(&m->in, 64 * MIB);
    buf_init(&m->out, 64 * MIB);
    http_server_attach(w->server, &m->stream);
    net_settle(w);
    return m;
}

void net_mem_free(struct net_mem *m)
{
    CHECK(m->closed && !m->stream.up);
    buf_deinit(&m->in);
    buf_deinit(&m->out);
    xfree(m);
}

void net_send(struct net_mem *m, struct str bytes)
{
    CHECK(buf_add_str(&m->in, bytes));
    deliver_in(m);
    net_settle(m->world);
}

void net_send_c(struct net_mem *m, const char *text)
{
    net_send(m, str_c(text));
}

void net_send_slowly(struct net_mem *m, const char *text)
{
    for (; *text; text++)
        net_send(m, (struct str){ text, 1 });
}

void net_end(struct net_mem *m, bool broken)
{
    CHECK(!m->ended);
    m->ended = true;
    if (!m->closed)
        m->stream.up->on_end(m->stream.cookie, broken);
    net_settle(m->world);
}

void net_take(struct net_mem *m, size_t n)
{
    bool had = m->late_len > 0;

    m->room += n;
    deliver_out(m);
    if (had && m->late_len == 0 && !m->closed)
        m->stream.up->on_written(m->stream.cookie, true);
    net_settle(m->world);
}

const char *net_got(struct net_mem *m)
{
    CHECK(buf_add_c(&m->out, '\0'));
    buf_reset(&m->out);
    return m->out.ptr;
}

/* ---- the world */

void net_settle(struct net_world *w)
{
    uint64_t at;

    while (loop_sim_next(w->loop, &at) && at <= clock_mono_ns(&w->clock.clock))
        (void)loop_sim_step(w->loop);
}

void net_pass(struct net_world *w, uint64_t ms)
{
    uint64_t until = clock_mono_ns(&w->clock.clock) + ms * 1000000, at;

    while (loop_sim_next(w->loop, &at) && at <= until)
        (void)loop_sim_step(w->loop);
    clock_fake_advance(&w->clock, (int64_t)((until - clock_mono_ns(&w->clock.clock)) / 1000000));
    net_settle(w);
}

static void on_tls_files(void *cookie, const struct err *e)
{
    struct net_world *w = cookie;

    w->tls_changed += !e;
    w->tls_failed += !!e;
}

void net_world_init(struct net_world *w)
{
    net_world_init_tls(w, NULL, NULL, NULL, false);
}

void net_world_init_tls(struct net_world *w, const char *cert, const char *key, const char *ca,
                        bool tls_only)
{
    struct err e;

    *w = (struct net_world){ 0 };
    clock_fake_init(&w->clock, 1750000000000);
    w->loop = loop_sim_new(&w->clock);
    w->pool = pool_new("net", 0, 16);
    w->metrics = metrics_new();
    budget_init(&w->budget, MIB);
    struct http_server_opts o = {
        .loop = w->loop,
        .pool = w->pool,
        .in_flight = &w->budget,
        .metrics = w->metrics,
        .connections_max = 4,
        .head_bytes_max = 4096,
        .head_ms = 10000,
        .body_ms = 10000,
        .idle_ms = 60000,
        .write_ms = 10000,
        .tls_cert = cert,
        .tls_key = key,
        .tls_client_ca = ca,
        .tls_only = tls_only,
        .on_tls_files = on_tls_files,
        .tls_cookie = w,
    };
    CHECK(http_server_new(&o, &w->server, &e) == 0);
}

static void on_drained(void *cookie)
{
    ((struct net_world *)cookie)->drained = true;
}

void net_world_deinit(struct net_world *w)
{
    if (!w->drained)
        http_server_drain(w->server, on_drained, w);
    net_pass(w, 120000);
    CHECK(w->drained);
    CHECK(w->budget.used == 0);
    http_server_free(w->server);
    pool_free(w->pool);
    loop_free(w->loop);
    metrics_free(w->metrics);
}
