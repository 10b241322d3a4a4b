/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/mem.h"
#include "common/net/http_chunk.h"
#include "common/net/http_head.h"

#define LINE "GET / HTTP/1.1\r\n"
#define HOST "Host: h\r\n"

/* The status for `text`, or 0; as one piece or byte by byte. Bytes after the head are allowed. */
static int verdict(struct str text, bool slowly, struct http_head *ret)
{
    struct http_gate g = { 0 };
    size_t pos = 0;
    const char *why = NULL;
    enum http_gate_result r = HTTP_GATE_MORE;

    for (size_t n = slowly ? 1 : text.len; r == HTTP_GATE_MORE && n <= text.len; n++)
        r = http_gate_scan(&g, str_sub(text, 0, n), &pos, &why);
    if (r == HTTP_GATE_MORE)
        return -1;
    if (r == HTTP_GATE_BAD) {
        assert_non_null(why);
        return 400;
    }
    int status = http_head_parse(str_sub(text, 0, pos), ret, &why);
    assert_true(status == 0 || why);
    return status;
}

static const struct {
    const char *name;
    struct str text;
    int status;
} rows[] = {
#define ROW(name, text, status)                  \
    {                                            \
        name, { text, sizeof(text) - 1 }, status \
    }
    ROW("plain", LINE HOST "\r\n", 0),
    ROW("all kinds of values", LINE HOST "A: \tb c\t \r\nB:\r\nC:  \r\nD: \xc3\xa9\xff\r\n\r\n", 0),
    ROW("leading empty line", "\r\n" LINE HOST "\r\n", 0),
    ROW("absolute target", "GET http://h/x HTTP/1.1\r\n" HOST "\r\n", 0),
    ROW("1.0", "GET / HTTP/1.0\r\n" HOST "\r\n", 0),
    ROW("chunked", LINE HOST "Transfer-Encoding: Chunked\r\n\r\n", 0),
    ROW("length", LINE HOST "Content-Length: 12\r\n\r\n", 0),
    ROW("host with port", LINE "Host: [::1]:4040\r\n\r\n", 0),
    ROW("empty host", LINE "Host:\r\n\r\n", 0),
    /* what llhttp 8.1 lets through */
    ROW("bare CR separates headers",
        "POST / HTTP/1.1\r\n" HOST "X:\rTransfer-Encoding: chunked\r\n\r\n", 400),
    ROW("folded header", "POST / HTTP/1.1\r\n" HOST "A: b\r\n Content-Length: 3\r\n\r\n", 400),
    ROW("folded with TAB", "POST / HTTP/1.1\r\n" HOST "A: b\r\n\tContent-Length: 3\r\n\r\n", 400),
    ROW("CR LF CR X ends the head", "POST / HTTP/1.1\r\n" HOST "\r\rXGET /a HTTP/1.1\r\n\r\n", 400),
    ROW("CRLF CR X ends the head", "POST / HTTP/1.1\r\n" HOST "\r\n\rX", 0), /* body: see below */
    ROW("empty line ends with CR X", "POST / HTTP/1.1\r\n" HOST "A: b\r\n\rX\r\n\r\n", 400),
    ROW("no Host", LINE "\r\n", 400),
    ROW("no Host, other header", LINE "Hosts: h\r\n\r\n", 400),
    ROW("two Hosts", LINE HOST HOST "\r\n", 400),
    ROW("two Hosts, other case", LINE HOST "hOST: i\r\n\r\n", 400),
    ROW("Host with a path", LINE "Host: h/x\r\n\r\n", 400),
    ROW("Host with a user", LINE "Host: a@h\r\n\r\n", 400),
    ROW("Host list", LINE "Host: a, b\r\n\r\n", 400),
    ROW("1.0 and Transfer-Encoding",
        "POST / HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n", 400),
    /* what llhttp refuses, too */
    ROW("length and chunked", LINE HOST "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        400),
    ROW("chunked and length", LINE HOST "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
        400),
    ROW("chunked, identity", LINE HOST "Transfer-Encoding: chunked, identity\r\n\r\n", 400),
    ROW("gzip, chunked", LINE HOST "Transfer-Encoding: gzip, chunked\r\n\r\n", 400),
    ROW("chunked twice",
        LINE HOST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
    ROW("chunked, chunked", LINE HOST "Transfer-Encoding: chunked, chunked\r\n\r\n", 400),
    ROW("identity", LINE HOST "Transfer-Encoding: identity\r\n\r\n", 400),
    ROW("xchunked", LINE HOST "Transfer-Encoding: xchunked\r\n\r\n", 400),
    ROW("empty coding", LINE HOST "Transfer-Encoding:\r\n\r\n", 400),
    ROW("chunked with vertical TAB",
        LINE HOST "Transfer-Encoding: \x0b"
                  "chunked\r\n\r\n",
        400),
    ROW("blank before colon", LINE HOST "Content-Length : 3\r\n\r\n", 400),
    ROW("blank in a name", LINE HOST "Content Length: 3\r\n\r\n", 400),
    ROW("no colon", LINE HOST "Content-Length\r\n\r\n", 400),
    ROW("empty name", LINE HOST ": x\r\n\r\n", 400),
    ROW("length twice, same", LINE HOST "Content-Length: 3\r\nContent-Length: 3\r\n\r\n", 400),
    ROW("length twice, other", LINE HOST "Content-Length: 3\r\nContent-Length: 4\r\n\r\n", 400),
    ROW("length list", LINE HOST "Content-Length: 3, 3\r\n\r\n", 400),
    ROW("length +3", LINE HOST "Content-Length: +3\r\n\r\n", 400),
    ROW("length -3", LINE HOST "Content-Length: -3\r\n\r\n", 400),
    ROW("length 0x3", LINE HOST "Content-Length: 0x3\r\n\r\n", 400),
    ROW("length 3 4", LINE HOST "Content-Length: 3 4\r\n\r\n", 400),
    ROW("length empty", LINE HOST "Content-Length:\r\n\r\n", 400),
    ROW("length too large", LINE HOST "Content-Length: 18446744073709551616\r\n\r\n", 400),
    ROW("bare LF", "GET / HTTP/1.1\nHost: h\n\n", 400),
    ROW("bare LF in the headers", LINE "Host: h\nA: b\r\n\r\n", 400),
    ROW("LF ends the head", LINE HOST "\n", 400),
    ROW("NUL in a value", LINE HOST "A: b\0c\r\n\r\n", 400),
    ROW("NUL in a name", LINE HOST "A\0: b\r\n\r\n", 400),
    ROW("DEL", LINE HOST "A: b\x7f\r\n\r\n", 400),
    ROW("ESC", LINE HOST "A: \x1b[0m\r\n\r\n", 400),
    ROW("1.9", "GET / HTTP/1.9\r\n" HOST "\r\n", 505),
    ROW("2.0", "GET / HTTP/2.0\r\n" HOST "\r\n", 505),
    ROW("preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\n", 505),
    ROW("1.1x", "GET / HTTP/1.1x\r\n" HOST "\r\n", 400),
    ROW("no version", "GET /\r\n" HOST "\r\n", 400),
    ROW("http/1.1", "GET / http/1.1\r\n" HOST "\r\n", 400),
    ROW("two blanks", "GET  / HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("two blanks behind", "GET /  HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("blank at the end", "GET / HTTP/1.1 \r\n" HOST "\r\n", 400),
    ROW("TAB in the line", "GET\t/ HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("TAB in the target", "GET /\ta HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("blank in the target", "GET /a b HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("fragment", "GET /a#b HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("blank first", " GET / HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("three empty lines", "\r\n\r\n\r\n" LINE HOST "\r\n", 400),
    ROW("CR first", "\rGET / HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("LF first", "\nGET / HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("TLS hello", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),
    ROW("unknown method", "BREW / HTTP/1.1\r\n" HOST "\r\n", 501),
    ROW("lower case method", "get / HTTP/1.1\r\n" HOST "\r\n", 501),
    ROW("method with a colon", "GE:T / HTTP/1.1\r\n" HOST "\r\n", 400),
    ROW("unknown expectation", LINE HOST "Expect: 200-ok\r\n\r\n", 417),
    ROW("unfinished", LINE HOST, -1),
#undef ROW
};

static void test_verdicts(void **state)
{
    struct http_head *h = xmalloc(sizeof(*h));

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        for (int slowly = 0; slowly < 2; slowly++) {
            int got = verdict(rows[i].text, slowly, h);
            if (got != rows[i].status)
                fail_msg("%s%s: want %d, got %d", rows[i].name, slowly ? ", byte by byte" : "",
                         rows[i].status, got);
        }
    }
    xfree(h);
}

static void test_fields(void **state)
{
    struct http_head *h = xmalloc(sizeof(*h));
    struct str text = STR("POST /a?b=c HTTP/1.1\r\nHost: h\r\nX-A: \t one two \t\r\nEmpty:\r\n"
                          "Content-Length: 17\r\nExpect: 100-Continue\r\n\r\n");

    (void)state;
    assert_int_equal(verdict(text, false, h), 0);
    assert_true(str_eqc(h->method, "POST"));
    assert_true(str_eqc(h->target, "/a?b=c"));
    assert_int_equal(h->headers_len, 5);
    assert_true(str_eqc(h->headers[1].name, "X-A"));
    assert_true(str_eqc(h->headers[1].value, "one two"));
    assert_true(str_eqc(h->headers[2].name, "Empty"));
    assert_int_equal(h->headers[2].value.len, 0);
    assert_int_equal(h->length, 17);
    assert_true(h->keep_alive && h->expect_continue && !h->chunked);
    assert_int_equal(verdict(STR(LINE HOST "Connection: x, Close\r\n\r\n"), false, h), 0);
    assert_false(h->keep_alive);
    assert_int_equal(verdict(STR("GET / HTTP/1.0\r\n" HOST "\r\n"), false, h), 0);
    assert_false(h->keep_alive);
    assert_int_equal(
        verdict(STR("GET / HTTP/1.0\r\n" HOST "Connection: keep-alive\r\n\r\n"), false, h), 0);
    assert_true(h->keep_alive && h->minor == 0);
    assert_int_equal(verdict(STR(LINE HOST "Transfer-Encoding: chunked\r\n\r\n"), false, h), 0);
    assert_true(h->chunked);
    xfree(h);
}

static void test_header_count(void **state)
{
    struct http_head *h = xmalloc(sizeof(*h));
    char text[8192];

    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        size_t n = (size_t)snprintf(text, sizeof(text), LINE HOST);
        for (int i = 1; i < HTTP_HEADERS_MAX + extra; i++)
            n += (size_t)snprintf(text + n, sizeof(text) - n, "H%d: v\r\n", i);
        n += (size_t)snprintf(text + n, sizeof(text) - n, "\r\n");
        assert_int_equal(verdict((struct str){ text, n }, false, h), extra ? 431 : 0);
    }
    xfree(h);
}

/* ---- chunked */

/* The body of `text` or NULL (bad), in pieces of `step` bytes; *ret_left: bytes not consumed. */
static const char *unchunk(struct str text, size_t step, size_t *ret_left)
{
    static char body[64 * 1024];
    struct http_chunk c = { 0 };
    size_t len = 0;

    for (size_t at = 0; at < text.len;) {
        struct str piece = str_sub(text, at, at + step), data = STR_NULL;
        size_t pos = 0;
        const char *why = NULL;
        enum http_chunk_result r;

        while ((r = http_chunk_next(&c, piece, &pos, &data, &why)) == HTTP_CHUNK_DATA) {
            assert_true(len + data.len < sizeof(body));
            memcpy(body + len, data.ptr, data.len);
            len += data.len;
        }
        at += pos;
        if (r == HTTP_CHUNK_BAD) {
            assert_non_null(why);
            return NULL;
        }
        if (r == HTTP_CHUNK_DONE) {
            *ret_left = text.len - at;
            body[len] = '\0';
            return body;
        }
        assert_int_equal(pos, piece.len);
    }
    return "(unfinished)";
}

static const struct {
    const char *name;
    struct str text;
    const char *body; /* NULL: refused */
    size_t left;
} chunk_rows[] = {
#define ROW(name, text, body, left)                  \
    {                                                \
        name, { text, sizeof(text) - 1 }, body, left \
    }
    ROW("empty", "0\r\n\r\n", "", 0),
    ROW("zeros", "0000\r\n\r\n", "", 0),
    ROW("one", "3\r\nabc\r\n0\r\n\r\n", "abc", 0),
    ROW("two and a rest", "3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nGET", "abc0123456789", 3),
    ROW("upper and lower case", "0a\r\n0123456789\r\n0B\r\n0123456789a\r\n0\r\n\r\n",
        "01234567890123456789a", 0),
    ROW("extension", "3;c=\"d e\"\r\nabc\r\n0;x\r\n\r\n", "abc", 0),
    ROW("trailer", "3\r\nabc\r\n0\r\nA: b\r\nC:\r\n\r\nX", "abc", 1),
    ROW("body with CRLF", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", 0),
    ROW("unfinished size", "3", "(unfinished)", 0),
    ROW("unfinished end", "0\r\n\r", "(unfinished)", 0),
    ROW("no size", "\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("no size but extension", ";a\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("0x3", "0x3\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("+3", "+3\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("-1", "-1\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("blank before", " 3\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("blank behind", "3 \r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("underscore", "1_0\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("not hexadecimal", "g\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("sixteen digits", "0000000000000003\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("overflow", "ffffffffffffffff1\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("LF behind the size", "3\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("CR X behind the size", "3\rXabc\r\n0\r\n\r\n", NULL, 0),
    ROW("LF behind the chunk", "3\r\nabc\n0\r\n\r\n", NULL, 0),
    ROW("CR X behind the chunk", "3\r\nabc\rX0\r\n\r\n", NULL, 0),
    ROW("longer than its size", "3\r\nabcd\r\n0\r\n\r\n", NULL, 0),
    ROW("LF at the end", "0\r\n\n", NULL, 0),
    ROW("CR X at the end", "0\r\n\rXGET", NULL, 0),
    ROW("two extensions", "3;a=1;2\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("quoted extension", "3;a=\";\"\r\nabc\r\n0;a=b\r\n\r\n", "abc", 0),
    ROW("quote left open", "3;a=\"\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("backslash in a quote", "3;a=\"x\\\"y\"\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("text behind a quote", "3;a=\"x\"y\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("extension without name", "3;\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("extension without value", "3;a=\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("blank in an extension", "3; a=b\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("LF in an extension", "3;a\nb\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("CR in an extension", "3;a\rb\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("NUL in an extension", "3;a\0b\r\nabc\r\n0\r\n\r\n", NULL, 0),
    ROW("folded trailer", "0\r\nA: b\r\n c\r\n\r\n", NULL, 0),
    ROW("trailer without colon", "0\r\nAbc\r\n\r\n", NULL, 0),
    ROW("trailer with framing", "0\r\nTransfer-Encoding: chunked\r\n\r\n", NULL, 0),
    ROW("trailer with a length", "0\r\nA: b\r\ncontent-length: 3\r\n\r\n", NULL, 0),
    ROW("trailers like it", "0\r\nTransfer-Encodings: x\r\nHosts:\r\n\r\n", "", 0),
    ROW("trailer with bare CR", "0\r\nA: b\rX: y\r\n\r\n", NULL, 0),
    ROW("trailer with bare LF", "0\r\nA: b\nX: y\r\n\r\n", NULL, 0),
    ROW("trailer with blank name", "0\r\nA : b\r\n\r\n", NULL, 0),
    ROW("trailer without name", "0\r\n: b\r\n\r\n", NULL, 0),
#undef ROW
};

static void test_chunks(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(chunk_rows); i++) {
        for (size_t step = 1; step < 8; step++) {
            size_t left = 0;
            const char *got = unchunk(chunk_rows[i].text, step, &left);
            if (!got != !chunk_rows[i].body || (got && strcmp(got, chunk_rows[i].body) != 0))
                fail_msg("%s, step %zu: want '%s', got '%s'", chunk_rows[i].name, step,
                         chunk_rows[i].body ? chunk_rows[i].body : "refused",
                         got ? got : "refused");
            assert_int_equal(left, chunk_rows[i].left);
        }
    }
}

static void test_chunk_extra_is_bounded(void **state)
{
    size_t n = HTTP_CHUNK_EXTRA_MAX + 64, left;
    char *text = xmalloc(n);

    (void)state;
    memset(text, 'x', n);
    memcpy(text, "3;", 2);
    assert_null(unchunk((struct str){ text, n }, n, &left));
    memset(text, 'x', n);
    memcpy(text, "0\r\nT:", 5);
    assert_null(unchunk((struct str){ text, n }, n, &left));
    memset(text, 'x', n);
    memcpy(text, "0\r\n", 3);
    assert_null(unchunk((struct str){ text, n }, n, &left));
    xfree(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verdicts),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_header_count),
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_chunk_extra_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
