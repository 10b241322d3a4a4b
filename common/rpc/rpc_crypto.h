/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_crypto.h: AES-256-GCM, HKDF-SHA256 and HMAC-SHA256, by OpenSSL. The caller must make sure
 * that no nonce is used twice under one key. Thread: one per object.
 */
#ifndef COMMON_RPC_RPC_CRYPTO_H
#define COMMON_RPC_RPC_CRYPTO_H

#include "common/base/base.h"
#include "common/base/str.h"

#define RPC_KEY_BYTES   32
#define RPC_NONCE_BYTES 12
#define RPC_TAG_BYTES   16
#define RPC_MAC_BYTES   32

struct rpc_aead;

/* A key for sealing, or one for opening. */
struct rpc_aead *rpc_aead_new(const uint8_t key[RPC_KEY_BYTES], bool sealing);
void rpc_aead_free(struct rpc_aead *a); /* wipes; NULL is fine */
/* Encrypts `head` and behind it `body` to `out`, and the tag behind that: RPC_TAG_BYTES more than
 * both. `ad` is authenticated and stays readable. `out` may not overlap them. */
void rpc_aead_seal(struct rpc_aead *a, const uint8_t nonce[RPC_NONCE_BYTES], struct str ad,
                   struct str head, struct str body, uint8_t *out);
/* Decrypts all of `sealed` but its tag to `out`, RPC_TAG_BYTES less. False: not sealed by this key
 * with this nonce and `ad`; then the bytes of `out` are not authentic and must not be used. */
bool rpc_aead_open(struct rpc_aead *a, const uint8_t nonce[RPC_NONCE_BYTES], struct str ad,
                   struct str sealed, uint8_t *out) NODISCARD;

/* RFC 5869, both steps. */
void rpc_hkdf(struct str key, struct str salt, struct str info, uint8_t *out, size_t n);
/* RFC 2104 with SHA-256. */
void rpc_hmac(struct str key, struct str text, uint8_t ret[RPC_MAC_BYTES]);
/* The same with a key that is kept: a sixth of the cost for a short text, since a key is two blocks
 * of SHA-256 and OpenSSL looks the algorithm up by its name. */
struct rpc_mac;
struct rpc_mac *rpc_mac_new(struct str key);
void rpc_mac_free(struct rpc_mac *m); /* wipes; NULL is fine */
/* Of the parts, one behind the other. */
void rpc_mac(struct rpc_mac *m, const struct str *parts, size_t n, uint8_t ret[RPC_MAC_BYTES]);
/* Overwrites a secret; no compiler leaves it out. */
void rpc_wipe(void *p, size_t n);

#endif
