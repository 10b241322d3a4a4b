/* SPDX-License-Identifier: Apache-2.0
 *
 * key.h: the text of an API key, and the hash by which a server knows it.
 *
 *   emb_k3fT9aQz07LmB_<43 characters: 32 random bytes><6 characters: CRC-32 of all before>
 *   emb_ kind id       secret                          checksum
 *
 * All characters are of [0-9A-Za-z_], so that a key needs no escaping in a URL, a header or YAML.
 * The checksum lets a scanner of source code tell a key from random text without a server. Stored
 * is HMAC-SHA256(pepper, "embertree key 1" | id | secret): the secret has 256 random bits, so a
 * slow hash would buy nothing. Thread: any.
 */
#ifndef COMMON_IDENTITY_KEY_H
#define COMMON_IDENTITY_KEY_H

#include "common/base/err.h"
#include "common/base/str.h"

#define KEY_ID_LEN       12
#define KEY_SECRET_LEN   43
#define KEY_CHECK_LEN    6
#define KEY_TEXT_LEN     (4 + 1 + KEY_ID_LEN + 1 + KEY_SECRET_LEN + KEY_CHECK_LEN)
#define KEY_PEPPER_BYTES 32
#define KEY_HASH_BYTES   32

enum api_key_kind { KEY_API = 'k', KEY_GATEWAY = 'g', KEY_INVITE = 'i' };

struct key_text {
    enum api_key_kind kind;
    struct str id, secret; /* slices of what was parsed */
};
struct env;

/* Makes a new key from env->random. `to` gets KEY_TEXT_LEN characters and a NUL. */
void key_make(struct env *env, enum api_key_kind kind, char to[KEY_TEXT_LEN + 1]);
/* True if `text` has the form of a key and its checksum is right. What is refused costs no more
 * than reading it. */
bool key_text_parse(struct str text, struct key_text *ret);
/* True for an id as key_make writes it. */
bool key_id_ok(struct str id);
/* One-shot; for many keys under one pepper, key_hash_with takes a fifth of the time. */
void key_hash(const uint8_t pepper[KEY_PEPPER_BYTES], struct str id, struct str secret,
              uint8_t ret[KEY_HASH_BYTES]);
/* The same under the key of `m`, which is the pepper. */
struct rpc_mac;
void key_hash_with(struct rpc_mac *m, struct str id, struct str secret,
                   uint8_t ret[KEY_HASH_BYTES]);

#endif
