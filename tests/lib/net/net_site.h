/* SPDX-License-Identifier: Apache-2.0
 *
 * net_site.h: a site to test the server with, on the world of net_mem.h, and helpers that look at
 * replies. For tests with cmocka: failures fail the test.
 *
 *   POST /echo (64 KiB)  its body        GET,POST /hold (1 KiB)  waits for site_reply_held
 *   GET /big?n=          n bytes         GET /err?code= /connect?code=  an error reply
 *   GET /file            a static file   GET /p/...  empty, X-Path says the path   PUT /big  echo
 *   POST /stream (1 MiB) a body in pieces into seen.data; replies with its length at the end
 * GET,POST /feed begins a reply in pieces, which the test continues (seen.held)
 */
#ifndef TESTS_LIB_NET_NET_SITE_H
#define TESTS_LIB_NET_NET_SITE_H

#include "tests/lib/net/net_mem.h"

#define HOST "Host: h\r\n"

struct site_seen {
    int handled;
    struct http_req *held; /* by "/hold" */
    int gone;
    struct buf data; /* of "/stream" */
    size_t untaken;  /* of it, while keep is set */
    bool keep;       /* the handler takes nothing */
    int end_code;    /* of on_end; -1 before it */
    int room;        /* calls of on_room */
};
extern struct site_seen seen;

/* Requests that two parsers could read in two ways. Each is followed, in its text, by a request to
 * /echo that must not run; `status` is the only answer. */
struct site_trick {
    const char *name;
    struct str text;
    int status;
};
extern const struct site_trick site_tricks[];
extern const size_t site_tricks_len;

void site_open(struct net_world *w);
void site_routes(struct net_world *w); /* on a world the caller made */
void site_reply_held(const char *text);
void site_feed(const char *text, size_t times); /* one more piece of the reply of "/feed" */
/* Fails unless each part is in `got`, and no part that begins with '!' is (without the '!'). */
void site_expect(const char *got, const char *const *parts, size_t n);
#define EXPECT(got, ...)                                     \
    site_expect((got), (const char *const[]){ __VA_ARGS__ }, \
                sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *))
bool site_has(const char *text, const char *part);
int site_count(const char *text, const char *part);
/* The client leaves after it read everything; the server must have closed by then. */
void site_finish(struct net_world *w, struct net_mem *m);

#endif
