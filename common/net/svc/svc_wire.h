/* SPDX-License-Identifier: Apache-2.0
 *
 * svc_wire.h: what RPC protocols look like in bytes, as pure functions over slices: content types,
 * timeouts, frames, trailers, codes. Only common/net and its tests include it.
 *
 * Protocols: proto/WIRE.md, "Connect", "gRPC and gRPC-Web", "Error codes".
 */
#ifndef COMMON_NET_SVC_SVC_WIRE_H
#define COMMON_NET_SVC_SVC_WIRE_H

#include "common/net/svc/svc.h"

#define SVC_FRAME_HEAD 5 /* flags, length as u32 big-endian */
#define SVC_FRAME_GZIP 0x01
#define SVC_FRAME_TAIL 0x80 /* gRPC-Web: the trailers */

struct svc_type {
    enum svc_protocol protocol;
    enum svc_codec codec;
    bool base64;
};
/* False if it is not a content type of these protocols. */
bool svc_type_parse(struct str content_type, struct svc_type *ret);
/* The Content-Type of a reply. */
const char *svc_type_text(const struct svc_type *t);
/* The list for Accept-Post. */
void svc_accept_post(unsigned codecs, bool streams, struct buf *out);

/* "100m", "5S": <= 8 digits and a unit. Rounded up to whole milliseconds. */
bool svc_grpc_timeout(struct str text, uint64_t *ret_ms);
/* 1 to 10 digits of milliseconds. */
bool svc_connect_timeout(struct str text, uint64_t *ret_ms);

/* svc_accept, for methods with streams as well (svc.c). */
bool svc_check(struct http_req *r, unsigned codecs, bool streams, struct svc_call *ret);

struct svc_frame {
    uint8_t flags;
    struct str bytes;
};
/* Takes a whole frame off *rest: 1; 0 if there is not enough yet (*ret_need: bytes that the frame
 * has, SVC_FRAME_HEAD while that is not known); ERR_ code if the bytes are not a frame of a
 * request. */
int svc_frame_take(struct str *rest, size_t message_max, struct svc_frame *ret, size_t *ret_need,
                   struct err *e);
/* The only frame of a unary request. */
NODISCARD int svc_frame_only(struct str body, struct svc_frame *ret, struct err *e);
void svc_frame_head(uint8_t flags, size_t len, char to[SVC_FRAME_HEAD]);
/* The frame with the trailers of gRPC-Web. */
void svc_frame_tail(const struct err *e, struct buf *out);

/* 0 and "" where e is NULL. */
uint32_t svc_status(const struct err *e);
/* Percent-encoded and bounded. */
void svc_status_text(const struct err *e, struct buf *out);

/* When to retry, in the forms that gRPC callers read: libraries that retry by themselves take the
 * pushback; exporters of OTLP the RetryInfo, and without it they drop data that were refused for
 * their rate. */
struct svc_retry {
    uint32_t after_s; /* 0: another try does not help; nothing is said */
    char pushback_ms[16];
    struct buf details; /* google.rpc.Status with a RetryInfo, in base64 without padding */
};
#define SVC_RETRY_PUSHBACK "grpc-retry-pushback-ms"
#define SVC_RETRY_DETAILS  "grpc-status-details-bin"
/* NULL: none. */
void svc_retry_init(struct svc_retry *r, const struct err *e);
void svc_retry_deinit(struct svc_retry *r);

#endif
