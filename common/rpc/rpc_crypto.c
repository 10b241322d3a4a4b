/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_crypto: the only file of rpc that knows OpenSSL.
 *
 * A cipher context keeps the expanded key; each frame only sets a nonce, which is what makes small
 * frames cheap. Nothing here can fail but for memory and for a tag that does not match, so every
 * other result is a CHECK.
 */
#include "common/rpc/rpc_crypto.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include "common/base/mem.h"

struct rpc_aead {
    EVP_CIPHER_CTX *ctx; /* owned; expanded key */
    bool sealing;
};

static const uint8_t *bytes_of(struct str s)
{
    return (const uint8_t *)(const void *)s.ptr;
}

struct rpc_aead *rpc_aead_new(const uint8_t key[RPC_KEY_BYTES], bool sealing)
{
    struct rpc_aead *a = XNEW(struct rpc_aead);

    a->sealing = sealing;
    a->ctx = EVP_CIPHER_CTX_new();
    CHECK(a->ctx);
    CHECK(EVP_CipherInit_ex(a->ctx, EVP_aes_256_gcm(), NULL, key, NULL, sealing) == 1);
    CHECK(EVP_CIPHER_CTX_get_iv_length(a->ctx) == RPC_NONCE_BYTES);
    return a;
}

void rpc_aead_free(struct rpc_aead *a)
{
    if (!a)
        return;
    EVP_CIPHER_CTX_free(a->ctx); /* clears it */
    xfree(a);
}

/* Nonce and associated data. */
static void begin(struct rpc_aead *a, const uint8_t *nonce, struct str ad)
{
    int n;

    CHECK(ad.len <= INT32_MAX);
    CHECK(EVP_CipherInit_ex(a->ctx, NULL, NULL, NULL, nonce, a->sealing) == 1);
    CHECK(EVP_CipherUpdate(a->ctx, NULL, &n, bytes_of(ad), (int)ad.len) == 1);
}

static uint8_t *step(struct rpc_aead *a, struct str in, uint8_t *out)
{
    int n = 0;

    CHECK(in.len <= INT32_MAX);
    if (in.len == 0)
        return out;
    CHECK(EVP_CipherUpdate(a->ctx, out, &n, bytes_of(in), (int)in.len) == 1);
    CHECK(n >= 0 && (size_t)n == in.len);
    return out + n;
}

void rpc_aead_seal(struct rpc_aead *a, const uint8_t nonce[RPC_NONCE_BYTES], struct str ad,
                   struct str head, struct str body, uint8_t *out)
{
    int n = 0;

    CHECK(a->sealing);
    begin(a, nonce, ad);
    out = step(a, body, step(a, head, out));
    CHECK(EVP_CipherFinal_ex(a->ctx, out, &n) == 1 && n == 0);
    CHECK(EVP_CIPHER_CTX_ctrl(a->ctx, EVP_CTRL_AEAD_GET_TAG, RPC_TAG_BYTES, out) == 1);
}

bool rpc_aead_open(struct rpc_aead *a, const uint8_t nonce[RPC_NONCE_BYTES], struct str ad,
                   struct str sealed, uint8_t *out)
{
    uint8_t tag[RPC_TAG_BYTES];
    size_t len = sealed.len - RPC_TAG_BYTES;
    bool ok;
    int n = 0;

    CHECK(!a->sealing && sealed.len >= RPC_TAG_BYTES);
    memcpy(tag, sealed.ptr + len, RPC_TAG_BYTES);
    begin(a, nonce, ad);
    out = step(a, str_sub(sealed, 0, len), out);
    CHECK(EVP_CIPHER_CTX_ctrl(a->ctx, EVP_CTRL_AEAD_SET_TAG, RPC_TAG_BYTES, tag) == 1);
    ok = EVP_CipherFinal_ex(a->ctx, out, &n) == 1;
    if (!ok)
        ERR_clear_error();
    return ok;
}

void rpc_hkdf(struct str key, struct str salt, struct str info, uint8_t *out, size_t n)
{
    /* OpenSSL takes no empty parameters; the RFC says what they stand for. */
    static const char zero[32];
    struct str some_salt = salt.len ? salt : str_n(zero, sizeof(zero));
    struct str some_info = info.len ? info : str_n(zero, 0);
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *ctx = EVP_KDF_CTX_new(kdf);
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)key.ptr, key.len),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)some_salt.ptr,
                                          some_salt.len),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)some_info.ptr,
                                          some_info.len),
        OSSL_PARAM_construct_end(),
    };

    CHECK(kdf && ctx);
    CHECK(EVP_KDF_derive(ctx, out, n, params) == 1);
    EVP_KDF_CTX_free(ctx);
    EVP_KDF_free(kdf);
}

struct rpc_mac {
    EVP_MAC_CTX *ctx; /* owned; has the key */
};

struct rpc_mac *rpc_mac_new(struct str key)
{
    static const uint8_t none[1];
    struct rpc_mac *m = XNEW(struct rpc_mac);
    EVP_MAC *mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
    char digest[] = "SHA256";
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
        OSSL_PARAM_construct_end(),
    };

    CHECK(mac);
    m->ctx = EVP_MAC_CTX_new(mac);
    EVP_MAC_free(mac); /* the context has a reference */
    CHECK(m->ctx);
    /* NULL would mean the previous key, even where there was no key yet. */
    CHECK(EVP_MAC_init(m->ctx, key.len ? bytes_of(key) : none, key.len, params) == 1);
    CHECK(EVP_MAC_CTX_get_mac_size(m->ctx) == RPC_MAC_BYTES);
    return m;
}

void rpc_mac_free(struct rpc_mac *m)
{
    if (!m)
        return;
    EVP_MAC_CTX_free(m->ctx); /* clears it */
    xfree(m);
}

void rpc_mac(struct rpc_mac *m, const struct str *parts, size_t n, uint8_t ret[RPC_MAC_BYTES])
{
    size_t len = 0;

    CHECK(EVP_MAC_init(m->ctx, NULL, 0, NULL) == 1); /* begins again under the same key */
    for (size_t i = 0; i < n; i++)
        if (parts[i].len)
            CHECK(EVP_MAC_update(m->ctx, bytes_of(parts[i]), parts[i].len) == 1);
    CHECK(EVP_MAC_final(m->ctx, ret, &len, RPC_MAC_BYTES) == 1 && len == RPC_MAC_BYTES);
}

void rpc_hmac(struct str key, struct str text, uint8_t ret[RPC_MAC_BYTES])
{
    struct rpc_mac *m = rpc_mac_new(key);

    rpc_mac(m, &text, 1, ret);
    rpc_mac_free(m);
}

void rpc_wipe(void *p, size_t n)
{
    OPENSSL_cleanse(p, n);
}
