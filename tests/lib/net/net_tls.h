/* SPDX-License-Identifier: Apache-2.0
 *
 * net_tls.h: certificates made on the spot, and a TLS client (by OpenSSL) on the memory streams of
 * net_mem.h. Thread: one.
 */
#ifndef TESTS_LIB_NET_NET_TLS_H
#define TESTS_LIB_NET_NET_TLS_H

#include <openssl/ssl.h>

#include "tests/lib/net/net_mem.h"

/* Writes dir/NAME.crt and dir/NAME.key: a certificate of `name` that signs itself. */
void net_cert(const char *dir, const char *name);

struct net_tls {
    struct net_mem *m;
    SSL_CTX *ctx;
    SSL *ssl;
    BIO *in, *out;
    struct buf plain; /* arrived, decrypted */
    bool failed, ended;
};
/* Shakes hands; alpn: in wire format, or NULL. cert: of dir, for the client, or NULL. */
struct net_tls *net_tls_connect(struct net_world *w, const char *alpn, const char *dir,
                                const char *cert);
void net_tls_send(struct net_tls *t, struct str bytes);
void net_tls_talk(struct net_tls *t); /* decrypts what arrived */
const char *net_tls_got(struct net_tls *t);
void net_tls_free(struct net_tls *t); /* leaves m */

#endif
