/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/lib/net/net_tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <sys/stat.h>

#include "common/base/mem.h"

void net_cert(const char *dir, const char *name)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    char path[512];
    FILE *f;

    (void)umask(077); /* a key that others may read is refused */
    CHECK(key && x);
    X509_set_version(x, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -3600);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400);
    X509_set_pubkey(x, key);
    X509_NAME *subject = X509_get_subject_name(x);
    CHECK(X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                     (const unsigned char *)(const void *)name, -1, -1, 0));
    CHECK(X509_set_issuer_name(x, subject) && X509_sign(x, key, EVP_sha256()));
    (void)snprintf(path, sizeof(path), "%s/%s.crt", dir, name);
    f = fopen(path, "w");
    CHECK(f && PEM_write_X509(f, x));
    (void)fclose(f);
    (void)snprintf(path, sizeof(path), "%s/%s.key", dir, name);
    f = fopen(path, "w");
    CHECK(f && PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL, NULL));
    (void)fclose(f);
    X509_free(x);
    EVP_PKEY_free(key);
}

/* Bytes both ways, until nothing moves. */
static void carry(struct net_tls *t)
{
    char b[16384];
    int n;

    for (;;) {
        bool moved = false;
        while ((n = BIO_read(t->out, b, sizeof(b))) > 0) {
            if (!t->m->closed && !t->m->ended)
                net_send(t->m, (struct str){ b, (size_t)n });
            moved = true;
        }
        net_settle(t->m->world);
        if (t->m->out.len) {
            CHECK(BIO_write(t->in, t->m->out.ptr, (int)t->m->out.len) == (int)t->m->out.len);
            buf_reset(&t->m->out);
            moved = true;
        }
        if (!moved)
            return;
        if (!SSL_is_init_finished(t->ssl))
            return;
    }
}

void net_tls_talk(struct net_tls *t)
{
    char b[16384];
    size_t n;

    carry(t);
    while (SSL_read_ex(t->ssl, b, sizeof(b), &n) == 1) {
        CHECK(buf_add(&t->plain, b, n));
        carry(t);
    }
    int why = SSL_get_error(t->ssl, 0);
    t->ended = t->ended || why == SSL_ERROR_ZERO_RETURN;
    t->failed = t->failed || why == SSL_ERROR_SSL;
    ERR_clear_error();
}

struct net_tls *net_tls_connect(struct net_world *w, const char *alpn, const char *dir,
                                const char *cert)
{
    struct net_tls *t = XNEW(struct net_tls);
    char path[512];

    t->m = net_connect(w);
    t->ctx = SSL_CTX_new(TLS_client_method());
    CHECK(t->ctx);
    buf_init(&t->plain, 64 * MIB);
    if (cert) {
        (void)snprintf(path, sizeof(path), "%s/%s.crt", dir, cert);
        CHECK(SSL_CTX_use_certificate_file(t->ctx, path, SSL_FILETYPE_PEM) == 1);
        (void)snprintf(path, sizeof(path), "%s/%s.key", dir, cert);
        CHECK(SSL_CTX_use_PrivateKey_file(t->ctx, path, SSL_FILETYPE_PEM) == 1);
    }
    t->ssl = SSL_new(t->ctx);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    CHECK(t->ssl && t->in && t->out);
    SSL_set_bio(t->ssl, t->in, t->out);
    SSL_set_connect_state(t->ssl);
    if (alpn)
        CHECK(SSL_set_alpn_protos(t->ssl, (const unsigned char *)(const void *)alpn,
                                  (unsigned)strlen(alpn)) == 0);
    for (int i = 0; i < 10 && !t->failed; i++) {
        int r = SSL_do_handshake(t->ssl);
        t->failed = r != 1 && SSL_get_error(t->ssl, r) != SSL_ERROR_WANT_READ;
        ERR_clear_error();
        carry(t);
        if (r == 1)
            break;
    }
    return t;
}

void net_tls_send(struct net_tls *t, struct str bytes)
{
    size_t n;

    while (bytes.len && SSL_write_ex(t->ssl, bytes.ptr, MIN(bytes.len, (size_t)16000), &n) == 1) {
        bytes = str_sub(bytes, n, bytes.len);
        carry(t);
    }
    net_tls_talk(t);
}

const char *net_tls_got(struct net_tls *t)
{
    CHECK(buf_add_c(&t->plain, '\0'));
    buf_reset(&t->plain);
    return t->plain.ptr;
}

void net_tls_free(struct net_tls *t)
{
    SSL_free(t->ssl);
    SSL_CTX_free(t->ctx);
    buf_deinit(&t->plain);
    xfree(t);
}
