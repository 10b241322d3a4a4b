/* SPDX-License-Identifier: Apache-2.0
 *
 * svc.h: RPC services over the HTTP server: Connect, gRPC and gRPC-Web on the same path.
 *
 * A method with one message each way is a route: its handler gets a call whose head was checked,
 * takes the message with svc_message (on the pool: deframed, inflated) and answers once, now or
 * later, with svc_reply or svc_reply_err. It does not see the caller's protocol, only whether
 * messages are proto or proto3 JSON. Errors in the head are answered before the handler runs.
 *
 * A method with streams gets its messages one by one (svc_route_stream); gRPC and gRPC-Web only.
 *
 * Thread: the loop's, but for svc_message.
 */
#ifndef COMMON_NET_SVC_SVC_H
#define COMMON_NET_SVC_SVC_H

#include "common/base/compress/compress.h"
#include "common/base/list.h"
#include "common/net/http.h"
#include "common/net/json_in.h"

enum svc_protocol { SVC_CONNECT, SVC_GRPC, SVC_GRPC_WEB };
/* Bits, so that a method can say which it takes. */
enum svc_codec { SVC_PROTO = 1, SVC_JSON = 2 };
#define SVC_FOREVER UINT64_MAX

struct inflate_limits;
typedef int (*svc_inflate_fn)(struct str in, const struct inflate_limits *l, struct buf *out,
                              struct err *e);

struct svc_stream;
struct svc_call {
    struct http_req *r; /* tenant, parameters, on_gone; not to be replied to by hand */
    enum svc_protocol protocol;
    enum svc_codec codec;
    bool base64;            /* gRPC-Web text: frames in base64, both ways */
    svc_inflate_fn inflate; /* of Connect's body, or of frames that say so; NULL: not compressed */
    bool gzip_reply;        /* the caller takes gzip'd frames */
    uint64_t deadline_ms;   /* monotonic, of the caller's timeout; SVC_FOREVER: none */
    void *cookie;           /* of the route */
    void *user;             /* the handler's */

    /* Streams: set by the handler before it returns. */
    void (*on_message)(struct svc_call *c, struct str message);
    void (*on_end)(struct svc_call *c);
    void (*on_gone)(struct svc_call *c, const struct err *why);
    struct svc_stream *stream; /* svc_stream.c's */
};
typedef void (*svc_fn)(struct svc_call *c);

/* ---- one message each way */

/* POST path. codecs: SVC_PROTO | SVC_JSON, else 415 with Accept-Post. The call is in r->arena. */
void svc_route(struct http_server *s, const char *path, unsigned codecs, size_t body_max, svc_fn fn,
               void *cookie);
/* Answers unknown methods below "/package.Service/" with `unimplemented` in the caller's protocol;
 * prefix is that path with a '*' behind it. */
void svc_service(struct http_server *s, const char *prefix);
/* The check alone, for handlers of plain routes: fills *ret, or answers and returns false. */
bool svc_accept(struct http_req *r, unsigned codecs, struct svc_call *ret);
/* Answers, before any handler has the call, with an error in the form of gRPC or gRPC-Web, if that
 * is what the request's head speaks. False: it speaks neither, and was not answered. */
bool svc_refuse(struct http_req *r, const struct err *e);
/* The message without its frame and compression: *ret points into the body or into *tmp, whose max
 * holds too. ERR_INPUT; ERR_LIMIT over the limits. Pool thread. */
NODISCARD int svc_message(const struct svc_call *c, const struct inflate_limits *l, struct buf *tmp,
                          struct str *ret, struct err *e);
/* A plain HTTP body that is a JSON object, without its Content-Encoding; for routes outside of
 * RPC. */
NODISCARD int svc_body_json(const struct http_req *r, const struct inflate_limits *l,
                            struct json_doc **ret, struct err *e);
/* The same as svc_message, parsed: c->codec must be SVC_JSON. The document refers to nothing
 * outside it. */
NODISCARD int svc_message_json(const struct svc_call *c, const struct inflate_limits *l,
                               struct json_doc **ret, struct err *e);
/* Moves *message out (NULL: the empty message, {} in JSON). Headers for the reply are set with
 * http_reply_header before. After svc_reply or svc_reply_err *c is gone. */
void svc_reply(struct svc_call *c, struct buf *message);
void svc_reply_err(struct svc_call *c, const struct err *e);
/* Adds the headers of a Connect message that is sent in pieces (http_stream_send with
 * *ret_type). */
void svc_stream_head(struct svc_call *c, const char **ret_type);
/* Milliseconds until the caller's deadline, at most `most`; 0: it is over. */
uint64_t svc_left_ms(const struct svc_call *c, uint64_t most);

/* ---- streams */

/* fn runs at the end of the head and sets on_message, on_end, on_gone. A message is at most
 * message_max bytes, framed and inflated. */
void svc_route_stream(struct http_server *s, const char *path, unsigned codecs, size_t message_max,
                      svc_fn fn, void *cookie);
/* on_message is called with one message at a time, inflated; it lives until svc_next, which asks
 * for the next one. on_end: all messages were handed over. on_gone: the client left, its deadline
 * passed, or its input is invalid; it is never called while a message is in work, but at the
 * svc_next after it. In all cases the handler ends the call with svc_end, and only with that. */
void svc_next(struct svc_call *c);
void svc_send(struct svc_call *c, struct buf *message); /* moves; ignored if the client left */
void svc_end(struct svc_call *c, const struct err *e);  /* NULL: ok. *c is gone. */

/* ---- codes */

/* Number of gRPC for an ERR_ code, and back (UNAVAILABLE is ERR_UNAVAILABLE, and so on). */
uint32_t svc_grpc_code(int code);
int svc_err_code(uint32_t grpc);
/* Percent-encodes text for grpc-message. */
void svc_percent(struct str text, struct buf *out);

/* ---- grpc.health.v1.Health */

#define SVC_HEALTH_WATCHES_MAX 256

/* Serves Check and Watch for every service that has a route here, and for "" (all of them). *h is
 * the caller's and must live as long as the server. */
struct svc_health {
    struct http_server *server;
    bool (*serving)(void *cookie);
    void *cookie;
    struct list watches; /* oldest first */
    size_t watches_len;
    bool stopped;
};
void svc_health_routes(struct svc_health *h, struct http_server *s, bool (*serving)(void *cookie),
                       void *cookie);
/* Asks again, and sends changes to the watching clients. Cheap: call it after every event that may
 * change the health. */
void svc_health_look(struct svc_health *h);
/* Call it before the server drains. Sends NOT_SERVING to the watching clients and ends their calls;
 * calls that come later get the same. */
void svc_health_stop(struct svc_health *h);

#endif
