/* SPDX-License-Identifier: Apache-2.0
 *
 * Bytes of one connection, in pieces the first two bytes choose, through everything but the socket.
 *
 * Holds: nothing crashes, leaks or stays charged; every reply is whole; and what a handler saw is
 * what llhttp, reading the same bytes in one go, sees too: method and body, in this order. A
 * request we see and it does not would be one smuggled in.
 */
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/net/http_server.h"
#include "tests/lib/net/net_llhttp.h"
#include "tests/lib/net/net_mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
    struct net_reading reading;
    size_t next; /* first message of the reading not yet seen */
    struct str bytes;
    struct prng prng;
    struct http_req *held;
    struct http_req *stream;
    struct buf pieces;
    size_t untaken;
} f;

/* llhttp saw this request, too, after those that came before it. */
static void expect(const struct http_req *r, struct str got)
{
    const char *method = http_method_name(http_method_index(r->method));

    for (;; f.next++) {
        CHECK(f.next < f.reading.len);
        const struct net_message *m = &f.reading.all[f.next];
        struct str body = { f.reading.bodies.ptr + m->body, m->body_len };
        if (str_eqc(m->method, method) && str_eq(body, got))
            break;
    }
    f.next++;
}

/* ---- bodies in pieces, in f.pieces */

static void reply_stream(struct http_req *r)
{
    struct buf b;

    f.stream = NULL;
    buf_init(&b, MIB);
    buf_add_str(&b, buf_str(&f.pieces));
    http_reply(r, 200, "text/plain", &b);
}

static void on_data(struct http_req *r, struct str bytes)
{
    CHECK(bytes.len > 0 && buf_add_str(&f.pieces, bytes) && f.pieces.len <= 4096);
    f.untaken += bytes.len;
    if (prng_chance(&f.prng, 0.5)) {
        size_t n = f.untaken;
        f.untaken = 0;
        http_stream_took(r, n);
    }
    if (prng_chance(&f.prng, 0.05))
        reply_stream(r);
}

static void on_end(struct http_req *r, const struct err *e)
{
    if (!e)
        expect(r, buf_str(&f.pieces));
    if (e || prng_chance(&f.prng, 0.7))
        reply_stream(r);
}

static void on_stream(struct http_req *r)
{
    CHECK(!f.stream);
    f.stream = r;
    f.untaken = 0;
    buf_reset(&f.pieces);
    r->on_data = on_data;
    r->on_end = on_end;
}

static void on_any(struct http_req *r)
{
    struct buf b;

    expect(r, r->body);
    CHECK(r->path.len > 0 && r->path.ptr[0] == '/');
    for (size_t i = 0; i < r->headers_len; i++)
        CHECK(r->headers[i].name.len > 0);
    if (prng_chance(&f.prng, 0.2)) { /* replies later */
        f.held = r;
        return;
    }
    buf_init(&b, MIB);
    buf_add_str(&b, r->body);
    http_reply_header(r, "X-Path", r->path);
    http_reply(r, 200, "text/plain", &b);
}

static void reply_held(struct net_world *w)
{
    struct http_req *r = f.held;

    f.held = NULL;
    if (r)
        http_reply(r, 204, NULL, NULL);
    if (f.stream && prng_chance(&f.prng, 0.2))
        reply_stream(f.stream);
    net_settle(w);
}

/* Replies follow each other without a byte between or behind them, unless the client broke off. */
static void check_replies(struct str out)
{
    while (out.len) {
        size_t head = 0;
        uint64_t length = 0;

        CHECK(str_starts(out, STR("HTTP/1.1 ")));
        while (head + 4 <= out.len && memcmp(out.ptr + head, "\r\n\r\n", 4) != 0)
            head++;
        CHECK(head + 4 <= out.len);
        struct str lines = str_sub(out, 0, head);
        for (size_t i = 0; i + 18 < lines.len; i++) {
            struct str at = str_sub(lines, i, lines.len);
            if (str_starts(at, STR("\r\nContent-Length: "))) {
                struct str digits = str_sub(at, 18, at.len);
                ptrdiff_t end = str_find(digits, '\r');
                CHECK(str_u64(str_sub(digits, 0, end < 0 ? digits.len : (size_t)end), &length));
            }
        }
        CHECK(out.len >= head + 4 + length);
        out = str_sub(out, head + 4 + (size_t)length, out.len);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned all = HTTP_GET | HTTP_POST | HTTP_PUT | HTTP_DELETE | HTTP_PATCH;
    struct net_world w;
    struct net_mem *m;
    bool no_head = true;

    if (size < 2)
        return 0;
    prng_init(&f.prng, (uint64_t)data[0] << 8 | data[1]);
    f.bytes = str_n(data + 2, size - 2);
    f.next = 0;
    f.held = f.stream = NULL;
    buf_init(&f.pieces, MIB);
    net_llhttp_read(f.bytes, &f.reading);
    net_world_init(&w);
    http_route(w.server, all, "/*", 4096, on_any, NULL);
    http_route_stream(w.server, all, "/s*", 4096, on_stream, NULL);
    m = net_connect(&w);
    uint64_t most = prng_chance(&f.prng, 0.3) ? size : 1 + prng_below(&f.prng, 40);
    for (size_t at = 0; at < f.bytes.len;) {
        size_t n = 1 + prng_below(&f.prng, most);
        net_send(m, str_sub(f.bytes, at, at + n));
        at += n;
        if (prng_chance(&f.prng, 0.3))
            reply_held(&w);
    }
    for (size_t i = 0; i + 4 <= f.bytes.len && no_head; i++)
        no_head = memcmp(f.bytes.ptr + i, "HEAD", 4) != 0;
    reply_held(&w);
    net_end(m, false);
    while (f.held || f.stream)
        reply_held(&w);
    if (no_head)
        check_replies(buf_str(&m->out));
    net_world_deinit(&w);
    net_mem_free(m);
    buf_deinit(&f.reading.bodies);
    buf_deinit(&f.pieces);
    return 0;
}
