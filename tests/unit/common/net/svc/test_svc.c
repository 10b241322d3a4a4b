/* SPDX-License-Identifier: Apache-2.0
 *
 * RPC protocols: what is in the bytes (tables), unary calls and streams over HTTP/1.1 and HTTP/2.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/svc/svc_wire.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/net/net_h2.h"
#include "tests/lib/net/net_site.h"

#define ECHO "/t.Echo/Say"
#define SUM  "/t.Echo/Sum"

/* ---- tables --------------------------------------------------------------------------------- */

static void test_types(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int protocol; /* -1: none */
        enum svc_codec codec;
        bool base64;
        const char *back;
    } rows[] = {
        { "application/proto", SVC_CONNECT, SVC_PROTO, false, "application/proto" },
        { "application/json", SVC_CONNECT, SVC_JSON, false, "application/json" },
        { "Application/JSON; charset=UTF-8", SVC_CONNECT, SVC_JSON, false, "application/json" },
        { "application/json;charset=\"utf-8\"", SVC_CONNECT, SVC_JSON, false, "application/json" },
        { "application/json; charset=latin1", -1, SVC_JSON, false, "" },
        { "application/grpc", SVC_GRPC, SVC_PROTO, false, "application/grpc+proto" },
        { "application/grpc+proto", SVC_GRPC, SVC_PROTO, false, "application/grpc+proto" },
        { "application/grpc+json;x=y", SVC_GRPC, SVC_JSON, false, "application/grpc+json" },
        { "application/grpc-web", SVC_GRPC_WEB, SVC_PROTO, false, "application/grpc-web+proto" },
        { "application/grpc-web+json", SVC_GRPC_WEB, SVC_JSON, false, "application/grpc-web+json" },
        { "application/grpc-web-text", SVC_GRPC_WEB, SVC_PROTO, true,
          "application/grpc-web-text+proto" },
        { "application/grpcx", -1, SVC_PROTO, false, "" },
        { "application/connect+proto", -1, SVC_PROTO, false, "" },
        { "text/plain", -1, SVC_PROTO, false, "" },
        { "", -1, SVC_PROTO, false, "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct svc_type t;
        bool ok = svc_type_parse(str_c(rows[i].text), &t);
        if (ok != (rows[i].protocol >= 0))
            fail_msg("row %zu", i);
        if (!ok)
            continue;
        assert_int_equal(t.protocol, rows[i].protocol);
        assert_int_equal(t.codec, rows[i].codec);
        assert_int_equal(t.base64, rows[i].base64);
        assert_string_equal(svc_type_text(&t), rows[i].back);
    }
}

static void test_timeouts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool grpc, ok;
        uint64_t ms;
    } rows[] = {
        { "1S", true, true, 1000 },
        { "250m", true, true, 250 },
        { "1u", true, true, 1 },
        { "999n", true, true, 1 },
        { "2M", true, true, 120000 },
        { "99999999H", true, true, UINT64_C(359999996400000) },
        { "0S", true, true, 0 },
        { "123456789S", true, false, 0 },
        { "S", true, false, 0 },
        { "", true, false, 0 },
        { "1", true, false, 0 },
        { "-1S", true, false, 0 },
        { "1s", true, false, 0 },
        { "1 S", true, false, 0 },
        { "1500", false, true, 1500 },
        { "9999999999", false, true, 9999999999 },
        { "10000000000", false, false, 0 },
        { "", false, false, 0 },
        { "1S", false, false, 0 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t ms = 0;
        bool ok = rows[i].grpc ? svc_grpc_timeout(str_c(rows[i].text), &ms)
                               : svc_connect_timeout(str_c(rows[i].text), &ms);
        if (ok != rows[i].ok || (ok && ms != rows[i].ms))
            fail_msg("row %zu: %d, %" PRIu64, i, ok, ms);
    }
}

static void test_codes(void **state)
{
    (void)state;
    static const struct {
        int code;
        uint32_t grpc;
    } rows[] = {
        { ERR_OK, 0 },
        { ERR_CANCELED, 1 },
        { ERR_INPUT, 3 },
        { ERR_LIMIT, 3 },
        { ERR_TIMEOUT, 4 },
        { ERR_NOT_FOUND, 5 },
        { ERR_FORBIDDEN, 7 },
        { ERR_RATE, 8 },
        { ERR_TOO_LARGE, 8 },
        { ERR_CONFIG, 9 },
        { ERR_UNIMPLEMENTED, 12 },
        { ERR_METHOD, 12 },
        { ERR_INTERNAL, 13 },
        { ERR_IO, 13 },
        { ERR_BUSY, 14 },
        { ERR_UNAVAILABLE, 14 },
        { ERR_NO_SPACE, 14 },
        { ERR_CORRUPT, 15 },
        { ERR_UNAUTHENTICATED, 16 },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (svc_grpc_code(rows[i].code) != rows[i].grpc)
            fail_msg("row %zu: %u", i, svc_grpc_code(rows[i].code));
    for (uint32_t n = 0; n < 20; n++) { /* there and back is the same code */
        int code = svc_err_code(n);
        assert_int_equal(svc_err_code(svc_grpc_code(code)), code);
    }
    struct buf out;
    buf_init(&out, KIB);
    svc_percent(STR("100% \xc3\xbc\n~"), &out);
    assert_true(str_eqc(buf_str(&out), "100%25 %C3%BC%0A~"));
    buf_deinit(&out);
}

static void test_frames(void **state)
{
    (void)state;
    static const struct {
        struct str body;
        int code; /* of svc_frame_only */
        const char *says;
    } rows[] = {
        { { "\0\0\0\0\2hi", 7 }, 0, "hi" },
        { { "\1\0\0\0\0", 5 }, 0, "" },
        { { "", 0 }, ERR_INPUT, "no message" },
        { { "\0\0\0", 3 }, ERR_INPUT, "ends after 3" },
        { { "\0\0\0\0\3hi", 7 }, ERR_INPUT, "8 bytes ends after 7" },
        { { "\0\xff\xff\xff\xffhi", 7 }, ERR_INPUT, "ends after 7" },
        { { "\0\0\0\0\1hi", 7 }, ERR_INPUT, "1 bytes behind" },
        { { "\x80\0\0\0\2hi", 7 }, ERR_INPUT, "flags 0x80" },
        { { "\2\0\0\0\2hi", 7 }, ERR_INPUT, "flags 0x02" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct svc_frame f = { 0, STR("") };
        struct err e = { 0 };
        if (svc_frame_only(rows[i].body, &f, &e) != rows[i].code ||
            !(rows[i].code ? strstr(e.text, rows[i].says) != NULL : str_eqc(f.bytes, rows[i].says)))
            fail_msg("row %zu: %s", i, e.text);
    }
    struct str rest = { "\0\0\1\0\0x", 6 };
    struct svc_frame f;
    struct err e;
    size_t need;
    assert_int_equal(svc_frame_take(&rest, 65535, &f, &need, &e), -ERR_TOO_LARGE);
    assert_int_equal(svc_frame_take(&rest, 65536, &f, &need, &e), 0);
    assert_int_equal(need, 65541);
}

/* ---- a service ------------------------------------------------------------------------------ */

static const struct inflate_limits small = { .bytes_max = 64 * KIB, .ratio_max = 200 };

/* Replies with the text it got, n times for "<n>*..."; "fail": an error. */
static void on_say(struct svc_call *c)
{
    struct buf tmp, out;
    struct str text;
    struct err e;

    buf_init(&tmp, 64 * KIB);
    buf_init(&out, MIB);
    if (svc_message(c, &small, &tmp, &text, &e)) {
        svc_reply_err(c, &e);
    } else if (str_eqc(text, "fail")) {
        err_set(&e, ERR_NOT_FOUND, "100%% \xc3\xbc");
        svc_reply_err(c, &e);
    } else if (str_eqc(text, "later")) {
        err_set_again(&e, ERR_RATE, 7, "slow down");
        svc_reply_err(c, &e);
    } else if (str_eqc(text, "big")) {
        while (out.len < 200000)
            buf_add_str(&out, STR("abcdefgh"));
        svc_reply(c, &out);
    } else {
        buf_add_str(&out, text);
        svc_reply(c, &out);
    }
    buf_deinit(&tmp);
    buf_deinit(&out);
}

static struct {
    struct svc_call *call;
    uint64_t bytes, messages;
    bool hold; /* the handler asks for no next one */
    int ended, gone;
} sum;

static void say_sum(struct svc_call *c)
{
    struct buf b;

    buf_init(&b, 64);
    buf_addf(&b, "%" PRIu64 "/%" PRIu64, sum.bytes, sum.messages);
    svc_send(c, &b);
}

static void on_sum_message(struct svc_call *c, struct str message)
{
    struct err e;

    sum.bytes += message.len;
    sum.messages++;
    if (str_eqc(message, "stop")) {
        err_set(&e, ERR_INPUT, "stopped");
        svc_end(c, &e);
        return;
    }
    if (str_eqc(message, "later")) {
        err_set_again(&e, ERR_RATE, 7, "slow down");
        svc_end(c, &e);
        return;
    }
    if (str_eqc(message, "say"))
        say_sum(c);
    if (!sum.hold)
        svc_next(c);
}

static void on_sum_end(struct svc_call *c)
{
    sum.ended++;
    say_sum(c);
    svc_end(c, NULL);
}

static void on_sum_gone(struct svc_call *c, const struct err *why)
{
    sum.gone = why->code;
    svc_end(c, why);
}

static void on_sum(struct svc_call *c)
{
    sum.call = c;
    c->on_message = on_sum_message;
    c->on_end = on_sum_end;
    c->on_gone = on_sum_gone;
}

static void open_world(struct net_world *w)
{
    memset(&sum, 0, sizeof(sum));
    site_open(w);
    w->budget.max = 4 * MIB;
    svc_service(w->server, "/t.Echo/*");
    svc_route(w->server, ECHO, SVC_PROTO | SVC_JSON, 64 * KIB, on_say, NULL);
    svc_route_stream(w->server, SUM, SVC_PROTO, 100000, on_sum, NULL);
}

static const char *const grpc[] = { "content-type", "application/grpc", "te", "trailers", NULL };

/* ---- unary ---------------------------------------------------------------------------------- */

static void test_grpc(void **state)
{
    (void)state;
    static const char *const gz[] = { "content-type",
                                      "application/grpc+proto",
                                      "grpc-encoding",
                                      "gzip",
                                      "grpc-accept-encoding",
                                      "identity,gzip",
                                      NULL };
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b, zip;
    struct err e;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, MIB);
    buf_init(&zip, MIB);
    push_gen_frame(0, STR("hello"), &b);
    s = net_h2_request(c, "POST", ECHO, grpc, buf_str(&b));
    assert_int_equal(s->status, 200);
    assert_int_equal(s->body_len, 10);
    assert_memory_equal(s->body, "\0\0\0\0\5hello", 10);
    EXPECT(s->headers, "content-type: application/grpc+proto\n", "!grpc-status",
           "!content-encoding");
    EXPECT(s->trailers, "grpc-status: 0\n");
    /* An error is nothing but trailers, and they are the head. */
    buf_reset(&b);
    push_gen_frame(0, STR("fail"), &b);
    s = net_h2_request(c, "POST", ECHO, grpc, buf_str(&b));
    assert_int_equal(s->status, 200);
    assert_int_equal(s->body_len, 0);
    assert_true(s->ended);
    EXPECT(s->headers, "grpc-status: 5\n", "grpc-message: 100%25 %C3%BC\n",
           "content-type: application/grpc+proto\n");
    s = net_h2_request(c, "POST", "/t.Echo/Shout", grpc, buf_str(&b));
    EXPECT(s->headers, "grpc-status: 12\n");
    s = net_h2_request(c, "POST", ECHO, grpc, STR("bad"));
    EXPECT(s->headers, "grpc-status: 3\n");
    /* gzip both ways */
    assert_int_equal(gzip(STR("big"), 1, &zip, &e), 0);
    buf_reset(&b);
    push_gen_frame(1, buf_str(&zip), &b);
    s = net_h2_request(c, "POST", ECHO, gz, buf_str(&b));
    EXPECT(s->headers, "grpc-encoding: gzip\n");
    assert_true(s->body_len > 5 && s->body_len < 20000 && s->body[0] == 1);
    EXPECT(s->trailers, "grpc-status: 0\n");
    struct buf plain;
    buf_init(&plain, MIB);
    assert_int_equal(
        gunzip(str_n(s->body + 5, s->body_len - 5), &(struct inflate_limits){ MIB, 0 }, &plain, &e),
        0);
    assert_int_equal(plain.len, 200000);
    buf_deinit(&plain);
    s = net_h2_request(c, "POST", ECHO, grpc, buf_str(&b)); /* compressed, and did not say so */
    EXPECT(s->headers, "grpc-status: 3\n");
    buf_deinit(&b);
    buf_deinit(&zip);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_connect_over_h2(void **state)
{
    (void)state;
    static const char *const json[] = { "content-type", "application/json", NULL };
    struct net_world w;
    struct net_h2_stream *s;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    s = net_h2_request(c, "POST", ECHO, json, STR("{\"a\":1}"));
    assert_int_equal(s->status, 200);
    assert_string_equal(s->body, "{\"a\":1}");
    EXPECT(s->headers, "content-type: application/json\n", "accept-encoding: gzip\n");
    s = net_h2_request(c, "POST", ECHO, json, STR("fail"));
    assert_int_equal(s->status, 404);
    assert_string_equal(s->body, "{\"code\":\"not_found\",\"message\":\"100% \xc3\xbc\"}");
    s = net_h2_request(c, "POST", SUM, json, STR("{}"));
    assert_int_equal(s->status, 415);
    EXPECT(s->headers, "accept-post: application/grpc, application/grpc+proto");
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* Status { 8, "slow down", RetryInfo { 7 s } }; by another hand. */
#define SLOW_DOWN \
    "CAgSCXNsb3cgZG93bhowCih0eXBlLmdvb2dsZWFwaXMuY29tL2dvb2dsZS5ycGMuUmV0cnlJbmZvEgQKAggH"

/* The error says when to retry if a retry may help, and otherwise does not. */
static void test_retry(void **state)
{
    (void)state;
    static const char *const json[] = { "content-type", "application/json", NULL };
    struct svc_retry retry;
    struct net_h2_stream *s;
    struct net_world w;
    struct net_mem *m;
    struct buf b;
    struct err e;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, MIB);
    push_gen_frame(0, STR("later"), &b);
    s = net_h2_request(c, "POST", ECHO, grpc, buf_str(&b));
    EXPECT(s->headers, "grpc-status: 8\n", "grpc-message: slow down\n",
           "grpc-retry-pushback-ms: 7000\n", "grpc-status-details-bin: " SLOW_DOWN "\n");
    s = net_h2_request(c, "POST", ECHO, json, STR("later"));
    EXPECT(s->headers, "retry-after: 7\n", "!pushback");
    buf_reset(&b);
    push_gen_frame(0, STR("fail"), &b);
    s = net_h2_request(c, "POST", ECHO, grpc, buf_str(&b));
    EXPECT(s->headers, "grpc-status: 5\n", "!pushback", "!details");
    buf_reset(&b); /* at the end of a stream that has begun */
    push_gen_frame(0, STR("say"), &b);
    push_gen_frame(0, STR("later"), &b);
    s = net_h2_begin_with(c, "POST", SUM, grpc, buf_str(&b));
    EXPECT(s->trailers, "grpc-status: 8\n", "grpc-retry-pushback-ms: 7000\n",
           "grpc-status-details-bin: " SLOW_DOWN "\n");
    buf_deinit(&b);
    net_h2_finish(c);
    m = net_connect(&w);
    net_send_c(m, "POST " ECHO " HTTP/1.1\r\n" HOST "Content-Type: application/grpc-web\r\n"
                  "Content-Length: 10\r\n\r\n");
    net_send(m, str_n("\0\0\0\0\5later", 10));
    for (size_t i = 0; i < m->out.len; i++)
        if (!m->out.ptr[i])
            m->out.ptr[i] = '~';
    EXPECT(net_got(m), "grpc-status: 8\r\n", "grpc-retry-pushback-ms: 7000\r\n",
           "grpc-status-details-bin: " SLOW_DOWN "\r\n");
    site_finish(&w, m);
    net_world_deinit(&w);

    /* The longest there is, and each code: only what may go away is to be tried again. */
    for (int code = 0; code < ERR_CODES; code++) {
        char text[2 * ERR_TEXT_MAX];
        bool again =
            code == ERR_RATE || code == ERR_BUSY || code == ERR_UNAVAILABLE || code == ERR_NO_SPACE;

        memset(text, 'x', sizeof(text));
        (void)err_set_again(&e, code, 4294967295, "%.*s", (int)sizeof(text), text);
        svc_retry_init(&retry, &e);
        assert_int_equal(retry.after_s, again ? 4294967295 : 0);
        assert_string_equal(retry.pushback_ms, again ? "4294967295000" : "");
        assert_true(again == (retry.details.len > ERR_TEXT_MAX));
        svc_retry_deinit(&retry);
    }
    svc_retry_init(&retry, NULL);
    assert_int_equal(retry.after_s, 0);
    svc_retry_deinit(&retry);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void test_stream(void **state)
{
    (void)state;
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, MIB);
    push_gen_frame(0, STR("one"), &b);
    push_gen_frame(0, STR(""), &b);
    push_gen_frame(0, STR("say"), &b);
    size_t half = b.len;
    push_gen_frame(0, STR("three"), &b);
    /* cut inside a frame; the answer to "say" comes while the client still sends */
    s = net_h2_begin_with(c, "POST", SUM, grpc, str_sub(buf_str(&b), 0, half + 3));
    assert_int_equal(sum.messages, 3);
    assert_memory_equal(s->body,
                        "\0\0\0\0\3"
                        "6/3",
                        8);
    assert_false(s->ended);
    net_h2_more(c, s, str_sub(buf_str(&b), half + 3, b.len), true);
    assert_int_equal(sum.ended, 1);
    assert_memory_equal(s->body + 8,
                        "\0\0\0\0\4"
                        "11/4",
                        9);
    EXPECT(s->trailers, "grpc-status: 0\n");
    assert_true(s->ended);
    /* no message at all */
    memset(&sum, 0, sizeof(sum));
    s = net_h2_request(c, "POST", SUM, grpc, STR_NULL);
    assert_int_equal(sum.ended, 1);
    EXPECT(s->trailers, "grpc-status: 0\n");
    /* the handler ends it early */
    buf_reset(&b);
    push_gen_frame(0, STR("stop"), &b);
    push_gen_frame(0, STR("more"), &b);
    s = net_h2_begin_with(c, "POST", SUM, grpc, buf_str(&b));
    EXPECT(s->headers, "grpc-status: 3\n", "grpc-message: stopped\n");
    assert_int_equal(sum.messages, 1);
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static const char *const gz[] = { "content-type", "application/grpc", "grpc-encoding", "gzip",
                                  NULL };

static void test_stream_zipped_and_large(void **state)
{
    (void)state;
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b, zip, big;
    struct err e;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, 2 * MIB);
    buf_init(&zip, MIB);
    buf_init(&big, MIB);
    for (uint64_t i = 0; big.len < 99990; i++)
        buf_add_u64(&big, i * 2654435761u);
    big.len = 99990;
    assert_int_equal(gzip(buf_str(&big), 1, &zip, &e), 0);
    for (int i = 0; i < 5; i++) {
        push_gen_frame(1, buf_str(&zip), &b);
        push_gen_frame(0, buf_str(&big), &b);
        push_gen_frame(1, str_sub(buf_str(&zip), 0, 0), &b);
        b.len -= 5;
    }
    s = net_h2_request(c, "POST", SUM, gz, buf_str(&b));
    net_settle(&w);
    net_h2_talk(c);
    assert_int_equal(sum.messages, 10);
    assert_int_equal(sum.bytes, 999900);
    EXPECT(s->trailers, "grpc-status: 0\n");
    buf_deinit(&b);
    buf_deinit(&zip);
    buf_deinit(&big);
    net_h2_finish(c);
    net_world_deinit(&w);
}

static void test_stream_refuses(void **state)
{
    (void)state;
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b, zip, big;
    struct err e;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, 2 * MIB);
    buf_init(&zip, MIB);
    buf_init(&big, MIB);
    memset(buf_room(&big, 200000), 'a', 200000);
    big.len = 200000;
    /* what is too long, or inflates to too much, or is no gzip */
    const struct {
        uint8_t flags;
        struct str bytes;
        const char *says;
    } rows[] = {
        { 0, { big.ptr, 99990 }, "grpc-status: 0" },
        { 1, STR("nonsense"), "grpc-status: 3\n" },
        { 9, STR("x"), "grpc-status: 3\n" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_reset(&b);
        push_gen_frame(rows[i].flags, rows[i].bytes, &b);
        s = net_h2_request(c, "POST", SUM, gz, buf_str(&b));
        net_settle(&w);
        net_h2_talk(c);
        if (!strstr(s->headers, rows[i].says) && !strstr(s->trailers, rows[i].says))
            fail_msg("row %zu: %s", i, s->headers);
    }
    assert_int_equal(gzip(buf_str(&big), 1, &zip, &e), 0);
    buf_reset(&b);
    push_gen_frame(1, buf_str(&zip), &b);
    s = net_h2_request(c, "POST", SUM, gz, buf_str(&b));
    net_settle(&w);
    net_h2_talk(c);
    EXPECT(s->headers, "grpc-status: 3\n");
    buf_reset(&b);
    push_gen_frame(0, buf_str(&big), &b);
    s = net_h2_request(c, "POST", SUM, gz, buf_str(&b));
    EXPECT(s->headers, "grpc-status: 8\n");
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    buf_deinit(&zip);
    buf_deinit(&big);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* A handler that works holds the client back; the end of the call is reported when it is done. */
static void test_stream_ends(void **state)
{
    (void)state;
    static const char *const timed[] = { "content-type", "application/grpc", "grpc-timeout", "2S",
                                         NULL };
    struct net_world w;
    struct net_h2_stream *s;
    struct buf b;

    open_world(&w);
    struct net_h2 *c = net_h2_connect(&w, false, 0);
    buf_init(&b, MIB);
    push_gen_frame(0, STR("one"), &b);
    /* the deadline, idle */
    s = net_h2_begin_with(c, "POST", SUM, timed, buf_str(&b));
    net_pass(&w, 1900);
    assert_int_equal(sum.gone, 0);
    net_pass(&w, 200);
    net_h2_talk(c);
    assert_int_equal(sum.gone, ERR_TIMEOUT);
    EXPECT(s->headers, "grpc-status: 4\n");
    /* the deadline, while a message is in work */
    memset(&sum, 0, sizeof(sum));
    sum.hold = true;
    s = net_h2_begin_with(c, "POST", SUM, timed, buf_str(&b));
    net_pass(&w, 2500);
    assert_int_equal(sum.gone, 0);
    svc_next(sum.call);
    assert_int_equal(sum.gone, ERR_TIMEOUT);
    /* the client resets it, idle and in work */
    for (int hold = 0; hold < 2; hold++) {
        memset(&sum, 0, sizeof(sum));
        sum.hold = hold;
        s = net_h2_begin_with(c, "POST", SUM, grpc, buf_str(&b));
        net_h2_reset(c, s);
        net_settle(&w);
        if (hold) {
            assert_int_equal(sum.gone, 0);
            svc_next(sum.call);
        }
        assert_int_equal(sum.gone, ERR_CANCELED);
    }
    /* it ends inside a frame */
    memset(&sum, 0, sizeof(sum));
    s = net_h2_request(c, "POST", SUM, grpc, str_sub(buf_str(&b), 0, 7));
    assert_int_equal(sum.gone, ERR_INPUT);
    EXPECT(s->headers, "grpc-status: 3\n");
    assert_int_equal(w.budget.used, 0);
    buf_deinit(&b);
    net_h2_finish(c);
    net_world_deinit(&w);
}

/* Over HTTP/1.1 as gRPC-Web, chunked. */
static void test_stream_web(void **state)
{
    (void)state;
    struct net_world w;
    struct net_mem *m;

    open_world(&w);
    m = net_connect(&w);
    net_send_c(m, "POST " SUM " HTTP/1.1\r\n" HOST "Content-Type: application/grpc-web\r\n"
                  "Transfer-Encoding: chunked\r\n\r\n8\r\n");
    net_send(m, str_n("\0\0\0\0\3one", 8));
    net_send_c(m, "\r\n0\r\n\r\n");
    for (size_t i = 0; i < m->out.len; i++)
        if (!m->out.ptr[i])
            m->out.ptr[i] = '~';
    EXPECT(net_got(m), "HTTP/1.1 200 OK\r\n", "Content-Type: application/grpc-web+proto\r\n",
           "Transfer-Encoding: chunked", "~~~~\0033/1", "grpc-status: 0\r\n");
    site_finish(&w, m);
    net_world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),          cmocka_unit_test(test_timeouts),
        cmocka_unit_test(test_codes),          cmocka_unit_test(test_frames),
        cmocka_unit_test(test_grpc),           cmocka_unit_test(test_connect_over_h2),
        cmocka_unit_test(test_stream),         cmocka_unit_test(test_stream_zipped_and_large),
        cmocka_unit_test(test_stream_refuses), cmocka_unit_test(test_stream_ends),
        cmocka_unit_test(test_stream_web),     cmocka_unit_test(test_retry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
