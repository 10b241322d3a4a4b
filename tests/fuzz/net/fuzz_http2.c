/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 from one connection through everything but the socket. The first byte chooses: the rest
 * is the connection's bytes, unchanged (behind the preface, or instead of it), or a list of frames
 * {type, flags, stream, length, payload} which get lengths that are right, so that the bytes lead
 * further in. Handlers reply at once, later, in pieces, or break off; the client takes replies in
 * portions.
 *
 * Holds: nothing crashes, leaks or stays charged, at most a window is handed on untaken, on_end
 * comes once, and what the server sends is whole frames of a size that every client takes.
 */
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/net/http_server.h"
#include "tests/lib/net/net_h2.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HELD_MAX 512

static struct {
    struct prng prng;
    struct http_req *held[HELD_MAX];
    size_t held_len;
    bool http1; /* what came may be that after all */
} f;

static void forget(struct http_req *r)
{
    for (size_t i = 0; i < f.held_len; i++) {
        if (f.held[i] == r) {
            f.held[i] = f.held[--f.held_len];
            return;
        }
    }
}

static void hold(struct http_req *r)
{
    CHECK(f.held_len < HELD_MAX);
    f.held[f.held_len++] = r;
}

static void make_body(struct buf *b)
{
    size_t n = prng_chance(&f.prng, 0.2) ? prng_below(&f.prng, 200000) : prng_below(&f.prng, 100);

    buf_init(b, MIB);
    memset(buf_room(b, n), 'x', n);
    b->len = n;
}

static void reply(struct http_req *r)
{
    struct buf b;

    forget(r);
    make_body(&b);
    if (prng_chance(&f.prng, 0.3))
        http_reply_trailer(r, "grpc-status", STR("0"));
    switch (prng_below(&f.prng, 4)) {
    case 0:
        http_reply(r, 200, "text/plain", &b);
        break;
    case 1:
        http_stream_send(r, 200, "text/plain", &b);
        http_stream_end(r);
        break;
    case 2:
        http_stream_send(r, 200, "text/plain", &b);
        http_stream_abort(r);
        break;
    default:
        http_reply_status(r, 503, "unavailable", "so");
        break;
    }
    buf_deinit(&b);
}

static void on_any(struct http_req *r)
{
    CHECK(r->path.len > 0 && (http_is_h2(r) || f.http1) && http_header(r, "host").ptr);
    for (size_t i = 0; i < r->headers_len; i++)
        CHECK(r->headers[i].name.len > 0 && r->headers[i].name.ptr[0] != ':');
    hold(r);
    if (prng_chance(&f.prng, 0.7))
        reply(r);
}

/* cookie counts the bytes not taken. */
static void on_data(struct http_req *r, struct str bytes)
{
    size_t *untaken = r->cookie;

    CHECK(bytes.len > 0);
    *untaken += bytes.len;
    CHECK(*untaken <= HTTP_STREAM_WINDOW);
    if (prng_chance(&f.prng, 0.5)) {
        http_stream_took(r, *untaken);
        *untaken = 0;
    }
    if (prng_chance(&f.prng, 0.05))
        reply(r);
}

static void on_end(struct http_req *r, const struct err *e)
{
    CHECK(!e || e->code);
    r->on_end = NULL;
    if (prng_chance(&f.prng, 0.7))
        reply(r);
}

static void on_stream(struct http_req *r)
{
    r->cookie = arena_alloc(r->arena, sizeof(size_t));
    CHECK(r->cookie && (http_is_h2(r) || f.http1));
    *(size_t *)r->cookie = 0;
    r->on_data = on_data;
    r->on_end = on_end;
    hold(r);
}

static void reply_some(struct net_world *w, double chance)
{
    for (size_t i = 0; i < f.held_len; i++) {
        if (prng_chance(&f.prng, chance))
            reply(f.held[i]);
    }
    net_settle(w);
}

/* The input as frames with lengths that are right. */
static void make_frames(struct str in, struct buf *out)
{
    while (in.len >= 5) {
        const uint8_t *p = (const uint8_t *)(const void *)in.ptr;
        size_t n = (size_t)p[3] << 8 | p[4];
        /* A long frame of few bytes: its payload comes again and again. */
        struct str payload = str_sub(in, 5, 5 + MIN(n, (size_t)2048));
        net_h2_frame(out, p[0] % 11, p[1], p[2], payload);
        in = str_sub(in, 5 + payload.len, in.len);
    }
}

static void check_frames(struct str out)
{
    while (out.len >= 9) {
        const uint8_t *p = (const uint8_t *)(const void *)out.ptr;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];

        CHECK(n <= 16384 && p[3] <= NGHTTP2_CONTINUATION && p[3] != NGHTTP2_PUSH_PROMISE);
        if (out.len < 9 + n)
            return; /* the client left in the middle */
        out = str_sub(out, 9 + n, out.len);
    }
}

static void feed(struct net_world *w, struct net_mem *m, struct str bytes)
{
    uint64_t most = prng_chance(&f.prng, 0.5) ? 65536 : 1 + prng_below(&f.prng, 100);

    m->room = prng_chance(&f.prng, 0.3) ? 1000 : SIZE_MAX;
    for (size_t at = 0; at < bytes.len;) {
        size_t n = 1 + prng_below(&f.prng, most);
        net_send(m, str_sub(bytes, at, at + n));
        at += n;
        reply_some(w, 0.1);
        if (m->room != SIZE_MAX && prng_chance(&f.prng, 0.3))
            net_take(m, prng_below(&f.prng, 100000));
        if (prng_chance(&f.prng, 0.02))
            net_pass(w, prng_below(&f.prng, 15000));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct net_world w;
    struct net_mem *m;
    struct buf bytes;

    if (size < 3)
        return 0;
    prng_init(&f.prng, (uint64_t)data[1] << 8 | data[2]);
    f.held_len = 0;
    f.http1 = data[0] % 4 == 3;
    buf_init(&bytes, MIB);
    if (data[0] % 4 != 3)
        buf_add_str(&bytes, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    if (data[0] % 4 == 0) {
        net_h2_frame(&bytes, NGHTTP2_SETTINGS, 0, 0, STR_NULL);
        make_frames(str_n(data + 3, size - 3), &bytes);
    } else {
        if (f.http1)
            buf_add_str(&bytes, STR("PRI"));
        buf_add(&bytes, data + 3, size - 3);
    }
    net_world_init(&w);
    http_route(w.server, HTTP_GET | HTTP_POST, "/*", 4096, on_any, NULL);
    http_route_stream(w.server, HTTP_POST, "/s", 100000, on_stream, NULL);
    m = net_connect(&w);
    feed(&w, m, buf_str(&bytes));
    reply_some(&w, 0.5);
    net_end(m, false);
    while (f.held_len)
        reply(f.held[f.held_len - 1]);
    if (!f.http1)
        check_frames(buf_str(&m->out));
    net_world_deinit(&w);
    net_mem_free(m);
    buf_deinit(&bytes);
    return 0;
}
