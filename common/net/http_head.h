/* SPDX-License-Identifier: Apache-2.0
 *
 * http_head.h: the head of a request, from bytes to checked fields (RFC 9112 sections 2-6).
 *
 * Two steps. The gate looks at every byte as it comes and finds the end of the head; it refuses
 * what two parsers could read in two ways. Then the whole head is parsed at once. Thread: any;
 * nothing here has state of its own.
 */
#ifndef COMMON_NET_HTTP_HEAD_H
#define COMMON_NET_HTTP_HEAD_H

#include "common/base/str.h"

#define HTTP_HEADERS_MAX 128 /* one more is 431 */

struct http_header {
    struct str name, value; /* value trimmed */
};

enum http_gate_result { HTTP_GATE_MORE, HTTP_GATE_DONE, HTTP_GATE_BAD };
struct http_gate {
    uint8_t state; /* zero at the start of a head */
    uint8_t blank; /* empty lines skipped before the request line */
};
/* Parses in[*pos..) and moves *pos behind the parsed bytes. DONE: *pos is the end of the head, its
 * last CRLF included. BAD: *ret_why (static) says what. */
enum http_gate_result http_gate_scan(struct http_gate *g, struct str in, size_t *pos,
                                     const char **ret_why);

struct http_head {
    struct str method; /* a method the parser knows, upper case */
    struct str target; /* as sent: "/a?b", "http://h/a", "*" or "host:port" */
    uint8_t minor;     /* HTTP/1.<minor>, 0 or 1 */
    bool keep_alive;
    bool chunked;         /* exactly "Transfer-Encoding: chunked" on HTTP/1.1 */
    bool expect_continue; /* Expect: 100-continue on HTTP/1.1 */
    uint64_t length;      /* Content-Length, 0 without one */
    struct http_header headers[HTTP_HEADERS_MAX];
    size_t headers_len;
};
/* `head` is what the gate let through. 0, or the status to refuse with and *ret_why (static).
 * All slices point into `head`. */
NODISCARD int http_head_parse(struct str head, struct http_head *ret, const char **ret_why);

/* A byte that may stand in a token (RFC 9110 5.6.2): methods, header names. */
bool http_is_tchar(uint8_t c);
bool http_host_ok(struct str v); /* bytes that may stand in Host or :authority */

#endif
