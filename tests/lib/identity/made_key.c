/* SPDX-License-Identifier: Apache-2.0
 *
 * made_key: records through their JSON, and a checksum of its own: bit by bit, not by the table
 * of common/identity/key.c.
 */
#include "tests/lib/identity/made_key.h"

#include "common/base/buf.h"
#include "common/base/hex.h"

#define AT_ID    5
#define AT_CHECK (KEY_TEXT_LEN - KEY_CHECK_LEN)

const uint8_t made_key_pepper[KEY_PEPPER_BYTES] = { 1, 2, 3 };

struct key_record *made_key_record(const char *text, const struct made_key_form *f)
{
    static const uint8_t zeros[KEY_PEPPER_BYTES];
    uint8_t hash[KEY_HASH_BYTES];
    char hex[2 * KEY_HASH_BYTES + 1];
    struct key_record *r;
    struct key_text t;
    struct buf b;
    struct err e;

    CHECK(key_text_parse(str_c(text), &t));
    key_hash(f->offline ? zeros : f->pepper ? f->pepper : made_key_pepper, t.id, t.secret, hash);
    hex_put_c(hash, sizeof(hash), hex);
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    buf_addf(&b,
             "{\"id\":\"%.*s\",\"hash\":\"%s\",\"name\":\"%s\",\"grants\":%s,\"from\":%" PRId64
             ",\"until\":%" PRId64 ",\"nets\":%s}",
             STR_ARG(t.id), hex, f->name ? f->name : "",
             f->grants ? f->grants : "[{\"tenants\":[\"shop\"],\"roles\":[\"read\"]}]", f->from,
             f->until, f->nets ? f->nets : "[]");
    CHECK(buf_ok(&b) && record_key_read(buf_str(&b), &r, &e) == 0);
    r->from_file = f->file;
    r->offline_hash = f->offline;
    buf_deinit(&b);
    return r;
}

struct made_key made_key(struct env *env, const struct made_key_form *f)
{
    struct made_key k;

    key_make(env, KEY_API, k.text);
    k.r = made_key_record(k.text, f);
    return k;
}

void made_key_mix(const char *id_of, const char *secret_of, char to[KEY_TEXT_LEN + 1])
{
    static const char digits[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    uint32_t crc = UINT32_MAX;

    memmove(to, secret_of, KEY_TEXT_LEN + 1);
    memmove(to + AT_ID, id_of + AT_ID, KEY_ID_LEN);
    for (size_t i = 0; i < AT_CHECK; i++) {
        crc ^= (uint8_t)to[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    crc = ~crc;
    for (size_t i = KEY_TEXT_LEN; i-- > AT_CHECK; crc /= 62)
        to[i] = digits[crc % 62];
}
