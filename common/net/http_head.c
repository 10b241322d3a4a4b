/* SPDX-License-Identifier: Apache-2.0
 *
 * http_head: one strict gate in front of llhttp, and a second look behind it.
 *
 * Request smuggling needs two parsers that disagree where a message ends. llhttp 8.1, as packaged,
 * takes a bare CR for a line end, a folded line for a header of its own and CR CR for the end of
 * the head, so no head reaches it that has any of these:
 *
 *   bytes ──> gate (every byte: no control bytes, CRLF pairs only, no folded line, CRLFCRLF ends)
 *         ──> llhttp (request line, tokens, Content-Length, Transfer-Encoding)
 *         ──> check (single blanks in the request line, one Host, one framing, our own number)
 *
 * The check repeats from the header list what llhttp found out about framing, and a difference is a
 * refusal: the two have to be wrong in the same way before a length is believed. llhttp stops after
 * the head (HPE_PAUSED) and never sees a body: Content-Length bodies need no parser, and chunked
 * ones have the strict decoder of http_chunk.c.
 *
 * llhttp.h has an enum http_method of its own, so this file must not include http.h.
 */
#include "common/net/http_head.h"

#include <llhttp/llhttp.h>

enum gate_state {
    GATE_FIRST,    /* before the request line */
    GATE_FIRST_CR, /* an empty line before it, which old clients send after a POST */
    GATE_LINE,
    GATE_LINE_CR,
    GATE_LINE_START,
    GATE_END_CR,
};
#define GATE_BLANK_MAX 2

static bool is_text(uint8_t c)
{
    return (c >= 0x20 && c != 0x7f) || c == '\t';
}

bool http_is_tchar(uint8_t c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c);
}

/* The state after `c`, or why not. */
static const char *gate_byte(struct http_gate *g, uint8_t c)
{
    switch ((enum gate_state)g->state) {
    case GATE_FIRST:
        if (c == '\r') {
            g->state = GATE_FIRST_CR;
            return NULL;
        }
        g->state = GATE_LINE;
        return is_text(c) && c != ' ' && c != '\t' ? NULL : "the request does not begin a line";
    case GATE_FIRST_CR:
        g->state = GATE_FIRST;
        return c == '\n' && ++g->blank <= GATE_BLANK_MAX ? NULL
                                                         : "blank bytes before the request line";
    case GATE_LINE:
        if (c == '\r') {
            g->state = GATE_LINE_CR;
            return NULL;
        }
        if (is_text(c))
            return NULL;
        return c == '\n' ? "a line of the head ends in a bare LF" : "a control byte in the head";
    case GATE_LINE_CR:
        g->state = GATE_LINE_START;
        return c == '\n' ? NULL : "a bare CR in the head";
    case GATE_LINE_START:
        if (c == '\r') {
            g->state = GATE_END_CR;
            return NULL;
        }
        g->state = GATE_LINE;
        if (c == ' ' || c == '\t')
            return "a folded header line";
        return is_text(c) ? NULL : "a control byte in the head";
    case GATE_END_CR:
        return c == '\n' ? NULL : "a bare CR at the end of the head";
    }
    return "the gate lost its state";
}

enum http_gate_result http_gate_scan(struct http_gate *g, struct str in, size_t *pos,
                                     const char **ret_why)
{
    while (*pos < in.len) {
        bool last = g->state == GATE_END_CR;
        uint8_t c = (uint8_t)in.ptr[(*pos)++];
        const char *why = gate_byte(g, c);
        if (why) {
            *ret_why = why;
            return HTTP_GATE_BAD;
        }
        if (last)
            return HTTP_GATE_DONE;
    }
    return HTTP_GATE_MORE;
}

struct collect {
    struct http_head *head;
    bool too_many;
};

/* llhttp hands out a span per element; should it ever hand out two for one, they join. */
static void span_put(struct str *s, const char *at, size_t n)
{
    if (s->len && s->ptr + s->len == at)
        s->len += n;
    else
        *s = (struct str){ at, n };
}

static int on_method(llhttp_t *p, const char *at, size_t n)
{
    span_put(&((struct collect *)p->data)->head->method, at, n);
    return 0;
}

static int on_url(llhttp_t *p, const char *at, size_t n)
{
    span_put(&((struct collect *)p->data)->head->target, at, n);
    return 0;
}

static int on_field(llhttp_t *p, const char *at, size_t n)
{
    struct collect *c = p->data;
    struct http_head *h = c->head;

    if (h->headers_len && !h->headers[h->headers_len - 1].value.ptr) {
        struct str *name = &h->headers[h->headers_len - 1].name;
        if (name->ptr + name->len == at) {
            name->len += n;
            return 0;
        }
    }
    if (h->headers_len == HTTP_HEADERS_MAX) {
        c->too_many = true;
        return HPE_USER;
    }
    h->headers[h->headers_len++] = (struct http_header){ { at, n }, STR_NULL };
    return 0;
}

static int on_value(llhttp_t *p, const char *at, size_t n)
{
    struct http_head *h = ((struct collect *)p->data)->head;

    if (h->headers_len)
        span_put(&h->headers[h->headers_len - 1].value, at, n);
    return 0;
}

static int on_headers_complete(llhttp_t *p)
{
    (void)p;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_method = on_method,
    .on_url = on_url,
    .on_header_field = on_field,
    .on_header_value = on_value,
    .on_headers_complete = on_headers_complete,
};

static int refuse(int status, const char *why, const char **ret_why)
{
    *ret_why = why;
    return status;
}

/* "GET /x HTTP/1.1": single blanks, nothing else, a version we speak. */
static int check_line(struct str head, const struct http_head *h, const char **ret_why)
{
    const char *version = h->target.ptr + h->target.len + 1;
    size_t left = (size_t)(head.ptr + head.len - version);

    if (h->target.ptr != h->method.ptr + h->method.len + 1 || h->method.ptr[h->method.len] != ' ' ||
        version[-1] != ' ' || left < 10 || memcmp(version, "HTTP/", 5) != 0 || version[8] != '\r')
        return refuse(400, "the request line is not 'METHOD target HTTP/1.1'", ret_why);
    if (version[5] != '1' || version[6] != '.' || (version[7] != '0' && version[7] != '1'))
        return refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", ret_why);
    for (size_t i = 0; i < h->target.len; i++) {
        uint8_t c = (uint8_t)h->target.ptr[i];
        if (c <= ' ' || c == '#')
            return refuse(400, "a blank, TAB or '#' in the request target", ret_why);
    }
    return 0;
}

bool http_host_ok(struct str v)
{
    for (size_t i = 0; i < v.len; i++) {
        uint8_t c = (uint8_t)v.ptr[i];
        bool alnum = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!alnum && (c == 0 || !strchr("-._~!$&'()*+;=:[]%", c)))
            return false;
    }
    return true;
}

struct framing {
    size_t hosts, lengths, codings, expects;
    bool length_ok, chunked, continue_ok;
    uint64_t length;
};

static int read_framing(const struct http_head *h, struct framing *f, const char **ret_why)
{
    for (size_t i = 0; i < h->headers_len; i++) {
        struct str name = h->headers[i].name, value = h->headers[i].value;
        if (name.len == 0)
            return refuse(400, "a header without a name", ret_why);
        for (size_t k = 0; k < name.len; k++) {
            if (!http_is_tchar((uint8_t)name.ptr[k]))
                return refuse(400, "a header name has a byte that may not stand there", ret_why);
        }
        if (str_eq_nocase(name, STR("Host"))) {
            f->hosts++;
            if (!http_host_ok(value))
                return refuse(400, "the Host header is no host", ret_why);
        } else if (str_eq_nocase(name, STR("Content-Length"))) {
            f->lengths++;
            f->length_ok = str_u64(value, &f->length);
        } else if (str_eq_nocase(name, STR("Transfer-Encoding"))) {
            f->codings++;
            f->chunked = str_eq_nocase(value, STR("chunked"));
        } else if (str_eq_nocase(name, STR("Expect"))) {
            f->expects++;
            f->continue_ok = str_eq_nocase(value, STR("100-continue"));
        }
    }
    return 0;
}

/* What llhttp concluded must be what the header list says. */
static int check_framing(const llhttp_t *p, struct http_head *h, const char **ret_why)
{
    struct framing f = { 0 };
    int status = read_framing(h, &f, ret_why);

    if (status)
        return status;
    if (f.hosts != 1)
        return refuse(400,
                      f.hosts ? "more than one Host header"
                              : "no Host header: HTTP/1.0 needs one here, too (Host: name:port)",
                      ret_why);
    if (f.lengths > 1 || (f.lengths && !f.length_ok))
        return refuse(400, "Content-Length is not one decimal number", ret_why);
    if (f.codings && h->minor == 0)
        return refuse(400, "Transfer-Encoding on HTTP/1.0", ret_why);
    if (f.codings && f.lengths)
        return refuse(400, "both Transfer-Encoding and Content-Length", ret_why);
    if (f.codings > 1 || (f.codings && !f.chunked))
        return refuse(400, "the only Transfer-Encoding known here is 'chunked', once", ret_why);
    if (f.chunked != !!(p->flags & F_CHUNKED) || !!f.lengths != !!(p->flags & F_CONTENT_LENGTH) ||
        (f.lengths && f.length != p->content_length))
        return refuse(400, "the length of the body can be read in two ways", ret_why);
    if (f.expects > 1 || (f.expects && !f.continue_ok))
        return refuse(417, "the only expectation known here is '100-continue'", ret_why);
    h->chunked = f.chunked;
    h->length = f.length;
    h->expect_continue = f.expects && h->minor == 1;
    return 0;
}

/* The request line, without the empty lines that may stand before it. */
static struct str first_line(struct str head)
{
    size_t from = 0, to;

    while (from < head.len && (head.ptr[from] == '\r' || head.ptr[from] == '\n'))
        from++;
    to = from;
    while (to < head.len && head.ptr[to] != '\r')
        to++;
    return str_sub(head, from, to);
}

/* A token that is not a known method is 501 (RFC 9110 9.1), anything else is 400. */
static int refuse_method(struct str line, const char **ret_why)
{
    size_t i = 0;

    while (i < line.len && http_is_tchar((uint8_t)line.ptr[i]))
        i++;
    return refuse(i > 0 && i < line.len && line.ptr[i] == ' ' ? 501 : 400,
                  "the request does not begin with a known method", ret_why);
}

/* " HTTP/2.0" at the end of the line is a version, other bytes are just wrong. */
static int refuse_version(struct str line, const char **ret_why)
{
    struct str v = str_sub(line, line.len < 9 ? 0 : line.len - 9, line.len);

    if (v.len == 9 && str_starts(v, STR(" HTTP/")) && v.ptr[7] == '.' && v.ptr[6] >= '0' &&
        v.ptr[6] <= '9' && v.ptr[8] >= '0' && v.ptr[8] <= '9')
        return refuse(505, "only HTTP/1.0 and HTTP/1.1 are spoken here", ret_why);
    return refuse(400, "the request line is not 'METHOD target HTTP/1.1'", ret_why);
}

int http_head_parse(struct str head, struct http_head *ret, const char **ret_why)
{
    llhttp_t p;
    struct collect c = { .head = ret };

    *ret = (struct http_head){ 0 };
    llhttp_init(&p, HTTP_REQUEST, &settings);
    p.data = &c;
    llhttp_errno_t code = llhttp_execute(&p, head.ptr, head.len);
    if (c.too_many)
        return refuse(431, "more than 128 headers", ret_why);
    if (code == HPE_INVALID_METHOD)
        return refuse_method(first_line(head), ret_why);
    if (code == HPE_INVALID_VERSION || str_starts(head, STR("PRI * HTTP/2.0\r\n")))
        return refuse_version(first_line(head), ret_why);
    if (code != HPE_PAUSED)
        return refuse(400, code == HPE_OK ? "the head does not end" : llhttp_get_error_reason(&p),
                      ret_why);
    if (llhttp_get_error_pos(&p) != head.ptr + head.len - 1 &&
        llhttp_get_error_pos(&p) != head.ptr + head.len)
        return refuse(400, "the end of the head can be read in two ways", ret_why);
    if (!ret->method.ptr || !ret->target.ptr)
        return refuse(400, "the request line has no target", ret_why);
    int status = check_line(head, ret, ret_why);
    if (status)
        return status;
    ret->minor = p.http_minor;
    ret->keep_alive = llhttp_should_keep_alive(&p);
    for (size_t i = 0; i < ret->headers_len; i++)
        ret->headers[i].value = str_trim(ret->headers[i].value);
    return check_framing(&p, ret, ret_why);
}
