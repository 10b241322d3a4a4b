/* SPDX-License-Identifier: Apache-2.0
 *
 * tls.h: TLS 1.2 and 1.3 as one more stream, by OpenSSL. Thread: the loop's.
 */
#ifndef COMMON_NET_TLS_H
#define COMMON_NET_TLS_H

#include "common/base/err.h"
#include "common/net/stream.h"
#include "common/sys/loop.h"

#define TLS_COST        (40 * KIB) /* of an open connection, roughly */
#define TLS_FIRST_BYTE  0x16       /* a handshake record; no request begins like this */
#define TLS_CHECK_EVERY 60000      /* ms between looks at the files */

struct tls_ctx;
struct tls_opts {
    const char *cert;      /* PEM: the certificate, then its chain; borrowed like the others */
    const char *key;       /* PEM, without a password */
    const char *client_ca; /* PEM; NULL or "": clients need no certificate */
};
NODISCARD int tls_ctx_new(const struct tls_opts *o, struct tls_ctx **ret, struct err *e);
void tls_ctx_free(struct tls_ctx *c); /* open connections keep what they use; NULL is fine */
/* Reads the files again if they changed, looking at most each TLS_CHECK_EVERY; new connections get
 * what they hold. 0 with *ret_changed, or an error: then nothing has changed. */
NODISCARD int tls_ctx_check(struct tls_ctx *c, uint64_t now_ms, bool *ret_changed, struct err *e);
/* Seconds since 1970 at which the certificate ends. */
int64_t tls_ctx_not_after(const struct tls_ctx *c);

/* The server's side of TLS over `down`, which belongs to it from now on. The caller sets `up` and
 * `cookie` and turns reading on. A failed handshake is on_end(broken). `done` is called at the very
 * end, after on_closed. */
struct stream *tls_server_stream(struct tls_ctx *c, struct stream *down, struct loop *loop,
                                 void (*done)(void *cookie), void *done_cookie);

#endif
