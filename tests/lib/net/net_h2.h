/* SPDX-License-Identifier: Apache-2.0
 *
 * net_h2.h: a client that speaks HTTP/2 (by nghttp2) to the server of net_mem.h, and frames by hand
 * for what no client would send. Thread: one.
 */
#ifndef TESTS_LIB_NET_NET_H2_H
#define TESTS_LIB_NET_NET_H2_H

#include <nghttp2/nghttp2.h>

#include "tests/lib/net/net_mem.h"

#define NET_H2_STREAMS 512

/* What came back on one stream. */
struct net_h2_stream {
    int32_t id;
    int status;
    char *headers; /* owned; "name: value\n" ... */
    char *trailers;
    char *body;
    size_t headers_len, trailers_len, body_len;
    bool ended;  /* END_STREAM */
    bool closed; /* by RST_STREAM or because both sides ended */
    uint32_t error;
    /* what goes out */
    struct str send;
    size_t sent;
    bool hold; /* no END_STREAM behind it */
};

struct net_h2 {
    struct net_mem *m;
    nghttp2_session *session;
    struct net_h2_stream streams[NET_H2_STREAMS];
    size_t len;
    bool goaway;
    uint32_t goaway_error;
    int32_t goaway_last;
    bool manual; /* windows are opened by net_h2_open only */
};

/* Connects and greets. manual: see there. window: of each stream, 0 for the usual one. */
struct net_h2 *net_h2_connect(struct net_world *w, bool manual, uint32_t window);
/* On a connection the caller made; nothing is sent yet. */
struct net_h2 *net_h2_on(struct net_mem *m, bool manual, uint32_t window);
/* Frees the client; the connection m stays. */
void net_h2_free(struct net_h2 *c);
/* Frees both: the client leaves, the server must have closed. */
void net_h2_finish(struct net_h2 *c);
/* Moves bytes both ways until nothing moves. */
void net_h2_talk(struct net_h2 *c);
/* Sends a request and talks; extra: pairs of name and value, NULL at the end, may be NULL. */
struct net_h2_stream *net_h2_request(struct net_h2 *c, const char *method, const char *path,
                                     const char *const *extra, struct str body);
/* The same with a body that does not end; net_h2_more sends on. */
struct net_h2_stream *net_h2_begin(struct net_h2 *c, const char *method, const char *path,
                                   struct str body);
/* The same with extra headers, as net_h2_request takes them. */
struct net_h2_stream *net_h2_begin_with(struct net_h2 *c, const char *method, const char *path,
                                        const char *const *extra, struct str body);
void net_h2_more(struct net_h2 *c, struct net_h2_stream *s, struct str body, bool last);
void net_h2_reset(struct net_h2 *c, struct net_h2_stream *s);
void net_h2_open(struct net_h2 *c, struct net_h2_stream *s, size_t bytes);
/* One frame as bytes appended to *b. */
void net_h2_frame(struct buf *b, uint8_t type, uint8_t flags, uint32_t stream, struct str payload);
/* A literal header field without indexing, names and values below 127 bytes. */
void net_h2_field(struct buf *b, const char *name, const char *value);
/* The fields of a request to path, the common ones. */
void net_h2_fields(struct buf *b, const char *method, const char *path);

#endif
