/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: a connected byte stream below a protocol: a TCP socket (tcp.c), TLS on another stream
 * (tls.c), memory in tests. The stream belongs to its protocol from attach on, until on_closed.
 * Thread: the loop's.
 */
#ifndef COMMON_NET_STREAM_H
#define COMMON_NET_STREAM_H

#include "common/base/str.h"

#define STREAM_SLICES_MAX 16 /* of one write */

enum stream_wrote {
    STREAM_ALL,   /* the bytes are no longer needed */
    STREAM_LATER, /* they stay borrowed until on_written */
    STREAM_BROKEN /* nothing can be written any more: close */
};

struct stream;
struct stream_ops {
    /* After STREAM_LATER no further write until on_written. */
    enum stream_wrote (*write)(struct stream *s, const struct str *v, size_t n);
    size_t (*unsent)(const struct stream *s); /* bytes of that write not yet gone */
    void (*read)(struct stream *s, bool on);  /* starts off */
    void (*shut)(struct stream *s);           /* the peer sees the end; reading continues */
    void (*close)(struct stream *s);          /* on_closed follows later, never from inside */
};

/* What the protocol hears. Never called from inside an operation, except where said. */
struct stream_events {
    void (*on_bytes)(void *cookie, struct str bytes); /* borrowed for the call */
    void (*on_end)(void *cookie, bool broken);        /* false: the peer closed its sending side */
    void (*on_written)(void *cookie, bool ok);
    void (*on_closed)(void *cookie); /* the last one; the stream is freed after it */
};

struct stream {
    const struct stream_ops *ops;
    const struct stream_events *up; /* set by the protocol */
    void *cookie;                   /* the protocol's */
    char peer[56];                  /* "127.0.0.1:40312" */
    bool own;   /* the other end is on this machine: loopback, or our own address */
    bool local; /* through the server's Unix socket */
    bool tls;
    bool h2; /* HTTP/2 was agreed on by ALPN */
};

#endif
