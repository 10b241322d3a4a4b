/* SPDX-License-Identifier: Apache-2.0
 *
 * key: texts of API keys in base 62, their checksum, and their hash.
 *
 *   emb_ k id(12) _ secret(43) checksum(6)
 *
 * Digits are 0-9, A-Z, a-z in this order, the most significant one first. A secret is a number of
 * 256 bits: 62^43 is a little more than 2^256. Each character of an id is drawn alone, from bytes
 * below 248, which is four times 62, so that all are as likely. The checksum is the CRC-32 of zlib
 * and of Go's crc32.IEEE, which a scanner of source code has at hand, and not the crc32c of
 * base/hash.h. It protects from typing errors and tells a key from other text. It proves nothing.
 *
 * Secrets are wiped from the stack where they were made. Thread: any; no state.
 */
#include "common/identity/key.h"

#include "common/rpc/rpc_crypto.h"
#include "common/sys/env.h"

#define PREFIX     "emb_"
#define HASH_LABEL "embertree key 1"

enum {
    BASE = 62,
    FAIR = 248, /* bytes from here on would make some characters likelier */
    SECRET_BYTES = 32,
    AT_KIND = sizeof(PREFIX) - 1,
    AT_ID = AT_KIND + 1,
    AT_SECRET = AT_ID + KEY_ID_LEN + 1,
    AT_CHECK = AT_SECRET + KEY_SECRET_LEN,
};
static_assert(AT_CHECK + KEY_CHECK_LEN == KEY_TEXT_LEN, "the parts are the whole");
static_assert(KEY_HASH_BYTES == RPC_MAC_BYTES, "a hash is an HMAC-SHA256");

static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

static bool is_digit(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool are_digits(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (!is_digit(s.ptr[i]))
            return false;
    return true;
}

/* CRC-32 of IEEE 802.3, half a byte at a time: a key has 61 bytes before its checksum. */
static uint32_t crc32_of(struct str s)
{
    static const uint32_t steps[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4,
        0x4db26158, 0x5005713c, 0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c,
        0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
    };
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < s.len; i++) {
        crc ^= (uint8_t)s.ptr[i];
        crc = crc >> 4 ^ steps[crc & 15];
        crc = crc >> 4 ^ steps[crc & 15];
    }
    return ~crc;
}

static void put_check(struct str before, char *to)
{
    uint32_t crc = crc32_of(before);

    for (size_t i = KEY_CHECK_LEN; i-- > 0; crc /= BASE)
        to[i] = digits[crc % BASE];
}

/* Writes a number of 32 bytes as 43 digits; the number is 0 afterwards. */
static void put_secret(uint8_t number[SECRET_BYTES], char *to)
{
    for (size_t i = KEY_SECRET_LEN; i-- > 0;) {
        unsigned rest = 0;

        for (size_t k = 0; k < SECRET_BYTES; k++) {
            unsigned v = rest << 8 | number[k];
            number[k] = (uint8_t)(v / BASE);
            rest = v % BASE;
        }
        to[i] = digits[rest];
    }
}

static void put_id(struct env *env, char *to)
{
    size_t n = 0;

    while (n < KEY_ID_LEN) {
        uint8_t bytes[2 * KEY_ID_LEN];

        env->random(env, bytes, sizeof(bytes));
        for (size_t i = 0; i < sizeof(bytes) && n < KEY_ID_LEN; i++)
            if (bytes[i] < FAIR)
                to[n++] = digits[bytes[i] % BASE];
    }
}

void key_make(struct env *env, enum api_key_kind kind, char to[KEY_TEXT_LEN + 1])
{
    uint8_t secret[SECRET_BYTES];

    memcpy(to, PREFIX, AT_KIND);
    to[AT_KIND] = (char)kind;
    put_id(env, to + AT_ID);
    to[AT_SECRET - 1] = '_';
    env->random(env, secret, sizeof(secret));
    put_secret(secret, to + AT_SECRET);
    rpc_wipe(secret, sizeof(secret));
    put_check(str_n(to, AT_CHECK), to + AT_CHECK);
    to[KEY_TEXT_LEN] = '\0';
}

bool key_text_parse(struct str text, struct key_text *ret)
{
    char check[KEY_CHECK_LEN];

    if (text.len != KEY_TEXT_LEN || !str_starts(text, STR(PREFIX)))
        return false;
    char kind = text.ptr[AT_KIND];
    struct str id = str_sub(text, AT_ID, AT_SECRET - 1);
    struct str secret = str_sub(text, AT_SECRET, AT_CHECK);
    if (kind != KEY_API && kind != KEY_GATEWAY && kind != KEY_INVITE)
        return false;
    if (!are_digits(id) || text.ptr[AT_SECRET - 1] != '_' || !are_digits(secret))
        return false;
    put_check(str_sub(text, 0, AT_CHECK), check);
    if (memcmp(check, text.ptr + AT_CHECK, KEY_CHECK_LEN) != 0)
        return false;
    *ret = (struct key_text){ (enum api_key_kind)kind, id, secret };
    return true;
}

bool key_id_ok(struct str id)
{
    return id.len == KEY_ID_LEN && are_digits(id);
}

void key_hash_with(struct rpc_mac *m, struct str id, struct str secret, uint8_t ret[KEY_HASH_BYTES])
{
    const struct str parts[] = { STR(HASH_LABEL), id, secret };

    /* Lengths are fixed, so that no other id and secret give the same bytes. */
    CHECK(id.len == KEY_ID_LEN && secret.len == KEY_SECRET_LEN);
    rpc_mac(m, parts, ARRAY_LEN(parts), ret);
}

void key_hash(const uint8_t pepper[KEY_PEPPER_BYTES], struct str id, struct str secret,
              uint8_t ret[KEY_HASH_BYTES])
{
    struct rpc_mac *m = rpc_mac_new(str_n(pepper, KEY_PEPPER_BYTES));

    key_hash_with(m, id, secret, ret);
    rpc_mac_free(m);
}
