/* SPDX-License-Identifier: Apache-2.0
 *
 * HTTP/2 by clients that mean harm: what each trick costs is bounded, and who was polite meanwhile
 * is served.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_site.h"

#define END_STREAM  1
#define END_HEADERS 4

/* A connection that greets by hand. */
static struct net_mem *raw(struct net_world *w)
{
    struct net_mem *m = net_connect(w);
    struct buf b;

    buf_init(&b, KIB);
    buf_add_str(&b, STR("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"));
    net_h2_frame(&b, NGHTTP2_SETTINGS, 0, 0, STR_NULL);
    net_h2_frame(&b, NGHTTP2_SETTINGS, 1, 0, STR_NULL);
    net_send(m, buf_str(&b));
    buf_deinit(&b);
    return m;
}

/* The error code of the GOAWAY in what came, or -1. Forgets what came. */
static int64_t goaway_of(struct net_mem *m)
{
    struct str in = buf_str(&m->out);
    int64_t code = -1;

    while (in.len >= 9) {
        const uint8_t *p = (const uint8_t *)(const void *)in.ptr;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        if (p[3] == NGHTTP2_GOAWAY && in.len >= 17)
            code = (int64_t)p[13] << 24 | p[14] << 16 | p[15] << 8 | p[16];
        in = str_sub(in, MIN(9 + n, in.len), in.len);
    }
    buf_reset(&m->out);
    return code;
}

/* What a request on stream 1 met: the status of its answer; else STREAM_RESET + the error code it
 * was reset with, GONE_AWAY + that of a GOAWAY, or 0. Forgets what came. */
#define STREAM_RESET 1000
#define GONE_AWAY    2000
static int outcome_of(struct net_mem *m)
{
    struct str in = buf_str(&m->out);
    int outcome = 0;
    nghttp2_hd_inflater *hd;

    assert_int_equal(nghttp2_hd_inflate_new(&hd), 0);
    while (in.len >= 9) {
        const uint8_t *p = (const uint8_t *)(const void *)in.ptr;
        size_t n = (size_t)p[0] << 16 | (size_t)p[1] << 8 | p[2];
        size_t end = MIN(9 + n, in.len);
        if (p[3] == NGHTTP2_HEADERS) {
            for (size_t at = 9; at < end;) {
                nghttp2_nv nv;
                int flags = 0;
                ssize_t took = nghttp2_hd_inflate_hd2(hd, &nv, &flags, p + at, end - at, 1);
                assert_true(took >= 0);
                at += (size_t)took;
                if (flags & NGHTTP2_HD_INFLATE_EMIT && nv.namelen == 7 &&
                    memcmp(nv.name, ":status", 7) == 0)
                    outcome =
                        (nv.value[0] - '0') * 100 + (nv.value[1] - '0') * 10 + (nv.value[2] - '0');
                if (flags & NGHTTP2_HD_INFLATE_FINAL)
                    break;
            }
            nghttp2_hd_inflate_end_headers(hd);
        } else if (!outcome && p[3] == NGHTTP2_RST_STREAM && n == 4) {
            outcome = STREAM_RESET + p[12];
        } else if (!outcome && p[3] == NGHTTP2_GOAWAY && n >= 8) {
            outcome = GONE_AWAY + p[16];
        }
        in = str_sub(in, end, in.len);
    }
    nghttp2_hd_inflate_del(hd);
    buf_reset(&m->out);
    return outcome;
}

static void finish(struct net_mem *m)
{
    if (!m->ended)
        net_end(m, false);
    net_pass(m->world, 100);
    assert_true(m->closed);
    net_mem_free(m);
}

/* Sends the same bytes up to `most` times; returns after how many there was a GOAWAY, with its code
 * in *ret_code, or `most`. */
static int flood(struct net_mem *m, struct str bytes, int most, int64_t *ret_code)
{
    for (int i = 0; i < most; i++) {
        net_send(m, bytes);
        *ret_code = goaway_of(m);
        if (*ret_code >= 0)
            return i;
    }
    return most;
}

static void test_floods(void **state)
{
    static const struct {
        const char *name;
        uint8_t type, flags;
        size_t len;
        bool on_stream;
    } rows[] = {
        { "ping", NGHTTP2_PING, 0, 8, false },
        { "settings", NGHTTP2_SETTINGS, 0, 6, false },
        { "empty data", NGHTTP2_DATA, 0, 0, true },
        { "window update", NGHTTP2_WINDOW_UPDATE, 0, 4, true },
        { "priority", NGHTTP2_PRIORITY, 0, 5, true },
        { "priority of a stream that is not", NGHTTP2_PRIORITY, 0, 5, false },
    };
    struct net_world w;

    (void)state;
    site_open(&w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_mem *m = raw(&w);
        char payload[8] = { 0, 3, 0, 1, 0, 0, 0, 0 };
        struct buf b;
        int64_t code = -1;

        if (rows[i].type == NGHTTP2_WINDOW_UPDATE)
            memcpy(payload, "\0\0\0\1", 4);
        if (rows[i].type == NGHTTP2_SETTINGS)
            memcpy(payload, "\0\4\0\0\377\377", 6);
        buf_init(&b, 4 * KIB);
        net_h2_fields(&b, "POST", "/echo");
        struct buf frames;
        buf_init(&frames, 4 * KIB);
        net_h2_frame(&frames, NGHTTP2_HEADERS, END_HEADERS, 1, buf_str(&b));
        net_send(m, buf_str(&frames));
        buf_reset(&frames);
        uint32_t elsewhere = rows[i].type == NGHTTP2_PRIORITY ? 3 : 0;
        net_h2_frame(&frames, rows[i].type, rows[i].flags, rows[i].on_stream ? 1 : elsewhere,
                     (struct str){ payload, rows[i].len });
        int n = flood(m, buf_str(&frames), 3000, &code);
        if (n < 500 || n >= 3000 || code != NGHTTP2_ENHANCE_YOUR_CALM)
            fail_msg("%s: GOAWAY %lld after %d", rows[i].name, (long long)code, n);
        finish(m);
        buf_deinit(&b);
        buf_deinit(&frames);
        assert_int_equal(w.budget.used, 0);
    }
    net_world_deinit(&w);
}

/* The same while the client reads no answers: waiting bytes are bounded, too. */
static void test_ping_flood_unread(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b;

    (void)state;
    site_open(&w);
    m = raw(&w);
    buf_init(&b, MIB);
    for (int i = 0; i < 5000; i++)
        net_h2_frame(&b, NGHTTP2_PING, 0, 0, STR("12345678"));
    m->room = 10;
    net_send(m, buf_str(&b));
    assert_true(m->late_bytes < 80 * KIB);
    net_pass(&w, 13000);
    assert_true(m->closed);
    finish(m);
    buf_deinit(&b);
    net_world_deinit(&w);
}

static void test_rapid_reset(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b, fields;
    int64_t code = -1;
    int n = 0;

    (void)state;
    site_open(&w);
    m = raw(&w);
    buf_init(&b, 4 * KIB);
    buf_init(&fields, 4 * KIB);
    net_h2_fields(&fields, "POST", "/stream");
    for (; n < 1000 && code < 0; n++) {
        buf_reset(&b);
        net_h2_frame(&b, NGHTTP2_HEADERS, END_HEADERS, (uint32_t)(1 + 2 * n), buf_str(&fields));
        net_h2_frame(&b, NGHTTP2_RST_STREAM, 0, (uint32_t)(1 + 2 * n), STR("\0\0\0\x08"));
        net_send(m, buf_str(&b));
        if (seen.held) { /* replies, though the client left */
            http_reply(seen.held, 200, NULL, NULL);
            seen.held = NULL;
        }
        code = goaway_of(m);
    }
    assert_int_equal(code, NGHTTP2_ENHANCE_YOUR_CALM);
    assert_true(n > 100 && n < 400);
    finish(m);
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

/* Handlers that run on behind resets are counted, so that they cannot pile up. */
static struct http_req *kept[1000];
static size_t kept_len;

static void on_keep(struct http_req *r)
{
    kept[kept_len++] = r;
}

static void test_resets_leave_handlers(void **state)
{
    struct net_world w;
    struct net_h2 *c;

    (void)state;
    site_open(&w);
    kept_len = 0;
    http_route(w.server, HTTP_GET, "/keep", 0, on_keep, NULL);
    w.budget.max = 64 * MIB;
    c = net_h2_connect(&w, false, 0);
    for (int i = 0; i < 400; i++) {
        struct net_h2_stream *s = net_h2_request(c, "GET", "/keep", NULL, STR_NULL);
        if (!s->closed)
            net_h2_reset(c, s);
        net_pass(&w, 50);
    }
    assert_int_equal(kept_len, 200); /* HTTP2_LEFT_MAX */
    assert_false(c->goaway);
    while (kept_len)
        http_reply(kept[--kept_len], 200, NULL, NULL);
    assert_int_equal(w.budget.used, 0);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_streams_at_once(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b, fields;

    (void)state;
    site_open(&w);
    kept_len = 0;
    http_route(w.server, HTTP_GET, "/keep", 0, on_keep, NULL);
    w.budget.max = 64 * MIB;
    m = raw(&w);
    buf_init(&b, MIB);
    buf_init(&fields, 4 * KIB);
    net_h2_fields(&fields, "GET", "/keep");
    for (uint32_t i = 0; i < 300; i++)
        net_h2_frame(&b, NGHTTP2_HEADERS, END_HEADERS | END_STREAM, 1 + 2 * i, buf_str(&fields));
    net_send(m, buf_str(&b));
    assert_true(kept_len <= 100);
    finish(m);
    while (kept_len)
        http_reply(kept[--kept_len], 200, NULL, NULL);
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

/* ---- header blocks */

static void test_continuations_without_end(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b, fields;

    (void)state;
    site_open(&w);
    m = raw(&w);
    buf_init(&b, MIB);
    buf_init(&fields, 4 * KIB);
    net_h2_fields(&fields, "GET", "/p/x");
    net_h2_frame(&b, NGHTTP2_HEADERS, END_STREAM, 1, buf_str(&fields));
    buf_reset(&fields);
    net_h2_field(&fields, "x", "y");
    for (int i = 0; i < 1000; i++)
        net_h2_frame(&b, NGHTTP2_CONTINUATION, 0, 1, buf_str(&fields));
    net_send(m, buf_str(&b));
    assert_true(goaway_of(m) > 0 || m->closed);
    assert_int_equal(seen.handled, 0);
    finish(m);
    assert_int_equal(w.budget.used, 0);
    /* One CONTINUATION and silence. */
    m = raw(&w);
    buf_reset(&b);
    net_h2_frame(&b, NGHTTP2_HEADERS, END_STREAM, 1, buf_str(&fields));
    net_send(m, buf_str(&b));
    net_pass(&w, 13000);
    assert_true(m->closed);
    finish(m);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

/* One field of 4,000 bytes in the table, then a byte for each time it comes again. */
static void test_hpack_bomb(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b, fields;

    (void)state;
    site_open(&w);
    m = raw(&w);
    buf_init(&b, MIB);
    buf_init(&fields, 64 * KIB);
    net_h2_fields(&fields, "GET", "/p/x");
    buf_add_c(&fields, 0x40);                     /* literal, to be indexed */
    buf_add_str(&fields, STR("\1x\x7f\x9d\x1d")); /* name "x", a value of 127 + 3741 bytes */
    for (int i = 0; i < 127 + 0x1d * 128 + 0x1d; i++)
        buf_add_c(&fields, 'v');
    for (int i = 0; i < 8000; i++)
        buf_add_c(&fields, (char)0x80 | 62);
    net_h2_frame(&b, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, buf_str(&fields));
    net_send(m, buf_str(&b));
    assert_int_equal(seen.handled, 0);
    assert_true(w.budget.peak < 64 * KIB);
    assert_int_equal(w.budget.used, 0);
    finish(m);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

static void test_long_and_many_headers(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;
    const char *one[] = { "x", NULL, NULL };
    char value[5000];

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    memset(value, 'v', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    one[1] = value;
    s = net_h2_request(c, "GET", "/p/x", one, STR_NULL);
    assert_int_equal(s->status, 431);
    value[3000] = '\0';
    s = net_h2_request(c, "GET", "/p/x", one, STR_NULL);
    assert_int_equal(s->status, 200);
    net_h2_finish(c);

    struct net_mem *m = raw(&w);
    struct buf b, fields;
    buf_init(&b, MIB);
    buf_init(&fields, 64 * KIB);
    net_h2_fields(&fields, "GET", "/p/x");
    for (int i = 0; i < 129; i++)
        net_h2_field(&fields, "x", "y");
    net_h2_frame(&b, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, buf_str(&fields));
    int before = seen.handled;
    buf_reset(&m->out);
    net_send(m, buf_str(&b));
    assert_int_equal(outcome_of(m), 431);
    assert_int_equal(seen.handled, before);
    finish(m);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

/* What HTTP/1.1 refuses must not come in by the other door: no handler runs, and each row has its
 * outcome. The fixture counts handlers: the last two requests, which are right, prove it. */
static void test_requests_in_two_ways(void **state)
{
    enum { RST = STREAM_RESET + NGHTTP2_PROTOCOL_ERROR };
    static const int outcomes[] = { RST, 400, RST, RST, RST, 400, 400, RST, RST, RST, 501,
                                    501, RST, RST, RST, RST, RST, RST, RST, RST, 417, 400 };
    static const char *const rows[][10] = {
        { ":method", "GET", ":scheme", "http", ":path", "/p/x" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "host", "i" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", "host", "h", "host", "h" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h x" },
        { ":method", "GET", ":scheme", "http", ":path", "/p /x", ":authority", "h" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x#y", ":authority", "h" },
        { ":method", "GET", ":scheme", "ftp", ":path", "/p/x", ":authority", "h" },
        { ":method", "GET", ":scheme", "http", ":path", "", ":authority", "h" },
        { ":method", "GET", ":scheme", "http", ":authority", "h" },
        { ":method", "GET", ":method", "GET", ":scheme", "http", ":path", "/p/x" },
        { ":method", "BREW", ":scheme", "http", ":path", "/p/x", ":authority", "h" },
        { ":method", "CONNECT", ":authority", "h" },
        { ":method", "GET", ":scheme", "http", "a", "b", ":path", "/p/x", ":authority", "h" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "A", "b" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "a", "b\r\nc" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "connection",
          "close" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h",
          "transfer-encoding", "chunked" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "content-length",
          "5" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "content-length",
          "+0" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", ":status",
          "200" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "h", "expect",
          "more" },
        { ":method", "GET", ":scheme", "http", ":path", "/p/x", ":authority", "user@h" },
    };
    struct net_world w;
    struct buf b, fields;

    (void)state;
    static_assert(ARRAY_LEN(outcomes) == ARRAY_LEN(rows), "one outcome a row");
    site_open(&w);
    buf_init(&b, MIB);
    buf_init(&fields, 64 * KIB);
    for (size_t i = 0; i < ARRAY_LEN(rows) + 2; i++) {
        struct net_mem *m = raw(&w);
        int want = i < ARRAY_LEN(rows) ? outcomes[i] : 200, got;
        int before = seen.handled;

        buf_reset(&b);
        buf_reset(&fields);
        buf_reset(&m->out);
        if (i >= ARRAY_LEN(rows)) /* done right, by both handlers that the rows aim at */
            net_h2_fields(&fields, i == ARRAY_LEN(rows) ? "POST" : "GET",
                          i == ARRAY_LEN(rows) ? "/echo" : "/p/x");
        for (size_t k = 0; i < ARRAY_LEN(rows) && k < 10 && rows[i][k]; k += 2)
            net_h2_field(&fields, rows[i][k], rows[i][k + 1]);
        net_h2_frame(&b, NGHTTP2_HEADERS, END_STREAM | END_HEADERS, 1, buf_str(&fields));
        net_send(m, buf_str(&b));
        got = outcome_of(m);
        if (seen.handled - before != (want == 200) || got != want)
            fail_msg("row %zu: %d handlers ran, the outcome is %d and not %d", i,
                     seen.handled - before, got, want);
        finish(m);
    }
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
}

/* ---- bodies */

static void test_bodies_too_long_and_too_slow(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s, *fast;
    char *p = xmalloc(300000);

    (void)state;
    memset(p, 'x', 300000);
    site_open(&w);
    c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "POST", "/echo", NULL, (struct str){ p, 300000 });
    assert_int_equal(s->status, 413);
    assert_true(s->closed);
    const char *length[] = { "content-length", "300000", NULL };
    s = net_h2_request(c, "POST", "/echo", length, (struct str){ p, 300000 });
    assert_int_equal(s->status, 413);
    s = net_h2_begin(c, "POST", "/echo", STR("slow"));
    net_pass(&w, 11000);
    fast = net_h2_request(c, "POST", "/echo", NULL, STR("fast"));
    assert_string_equal(fast->body, "fast");
    assert_int_equal(s->status, 408);
    assert_true(s->closed);
    assert_int_equal(w.budget.used, 0);
    /* Over the budget: 503 for this request, and the connection continues. */
    assert_true(budget_reserve(&w.budget, w.budget.max - 20000));
    s = net_h2_request(c, "POST", "/echo", NULL, (struct str){ p, 60000 });
    assert_int_equal(s->status, 503);
    budget_release(&w.budget, w.budget.max - 20000);
    s = net_h2_request(c, "POST", "/echo", NULL, (struct str){ p, 60000 });
    assert_int_equal(s->status, 200);
    /* And where not even a stream has room, it is refused before anything is kept. */
    assert_true(budget_reserve(&w.budget, w.budget.max - 1000));
    s = net_h2_request(c, "POST", "/echo", NULL, STR("x"));
    assert_true(s->closed);
    assert_int_equal(s->error, NGHTTP2_REFUSED_STREAM);
    budget_release(&w.budget, w.budget.max - 1000);
    net_h2_finish(c);
    net_world_deinit(&w);
    xfree(p);
}

/* More sent than the window allows breaks the connection, whatever the route. */
static void test_window_is_ignored(void **state)
{
    struct net_world w;
    struct net_mem *m;
    struct buf b, fields;
    char *p = xmalloc(16000);

    (void)state;
    memset(p, 'x', 16000);
    site_open(&w);
    seen.keep = true;
    m = raw(&w);
    buf_init(&b, 4 * MIB);
    buf_init(&fields, 64 * KIB);
    net_h2_fields(&fields, "POST", "/stream");
    net_h2_frame(&b, NGHTTP2_HEADERS, END_HEADERS, 1, buf_str(&fields));
    for (int i = 0; i < 40; i++)
        net_h2_frame(&b, NGHTTP2_DATA, 0, 1, (struct str){ p, 16000 });
    net_send(m, buf_str(&b));
    assert_true(seen.data.len <= HTTP_STREAM_WINDOW);
    assert_true(w.budget.used <= HTTP_STREAM_WINDOW + 32 * KIB);
    finish(m);
    if (seen.end_code < 0) /* else the handler has replied already */
        http_reply(seen.held, 200, NULL, NULL);
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    buf_deinit(&fields);
    net_world_deinit(&w);
    xfree(p);
}

/* The end of a reply takes a window, as its bytes do: a client that opens no window does not hold a
 * stream. */
static void test_end_without_window(void **state)
{
    struct net_world w;
    struct net_h2 *c;
    struct net_h2_stream *s;

    (void)state;
    site_open(&w);
    c = net_h2_connect(&w, true, 10);
    for (int polite = 0; polite < 2; polite++) {
        s = net_h2_request(c, "GET", "/feed", NULL, STR_NULL);
        site_feed("0123456789", 1);
        net_h2_talk(c);
        assert_string_equal(s->body, "0123456789");
        net_pass(&w, 60000); /* there was nothing to take */
        assert_false(s->closed);
        http_stream_end(seen.held);
        net_h2_talk(c);
        assert_false(s->closed);
        if (polite)
            net_h2_open(c, s, 10);
        else
            net_pass(&w, 11000);
        net_h2_talk(c);
        assert_true(s->closed);
        assert_int_equal(s->ended, polite);
        assert_int_equal(s->error, polite ? NGHTTP2_NO_ERROR : NGHTTP2_CANCEL);
    }
    net_h2_finish(c);
    assert_int_equal(w.budget.used, 0);
    net_world_deinit(&w);
}

/* What a connection costs by being there is bounded as well. */
static void test_connections_are_held(void **state)
{
    struct net_world w;
    struct net_h2 *a, *b;
    struct net_mem *m;

    (void)state;
    site_open(&w);
    a = net_h2_connect(&w, false, 0);
    w.budget.max = 80 * KIB; /* room for two */
    b = net_h2_connect(&w, false, 0);
    m = net_connect(&w);
    net_send_c(m, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    EXPECT(net_got(m), "HTTP/1.1 503 ");
    finish(m);
    net_h2_finish(a);
    net_h2_finish(b);
    a = net_h2_connect(&w, false, 0);
    assert_int_equal(net_h2_request(a, "GET", "/p/x", NULL, STR_NULL)->status, 200);
    net_h2_finish(a);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_floods),
        cmocka_unit_test(test_ping_flood_unread),
        cmocka_unit_test(test_rapid_reset),
        cmocka_unit_test(test_resets_leave_handlers),
        cmocka_unit_test(test_streams_at_once),
        cmocka_unit_test(test_continuations_without_end),
        cmocka_unit_test(test_hpack_bomb),
        cmocka_unit_test(test_long_and_many_headers),
        cmocka_unit_test(test_requests_in_two_ways),
        cmocka_unit_test(test_bodies_too_long_and_too_slow),
        cmocka_unit_test(test_window_is_ignored),
        cmocka_unit_test(test_end_without_window),
        cmocka_unit_test(test_connections_are_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
