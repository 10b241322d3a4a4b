/* SPDX-License-Identifier: Apache-2.0
 *
 * The envelope byte by byte (the example was made by another implementation, from the words of the
 * header), the keys by published vectors.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_seal.h"

static void of_hex(const char *hex, struct buf *out)
{
    buf_init(out, KIB);
    for (; *hex; hex++) {
        static const char digits[] = "0123456789abcdef";

        if (*hex == ' ')
            continue;
        const char *high = strchr(digits, hex[0]), *low = strchr(digits, hex[1]);

        assert_true(high && low);
        buf_add_c(out, (char)((high - digits) << 4 | (low - digits)));
        hex++;
    }
}

/* RFC 5869, test cases 1 and 3. */
static void hkdf_is_the_rfcs(void **state)
{
    static const char *const rows[][4] = {
        { "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "000102030405060708090a0b0c",
          "f0f1f2f3f4f5f6f7f8f9",
          "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865" },
        { "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "", "",
          "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8" },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf b[4];
        uint8_t got[42];

        for (int k = 0; k < 4; k++)
            of_hex(rows[i][k], &b[k]);
        rpc_hkdf(buf_str(&b[0]), buf_str(&b[1]), buf_str(&b[2]), got, sizeof(got));
        assert_int_equal(b[3].len, sizeof(got));
        assert_memory_equal(got, b[3].ptr, sizeof(got));
        for (int k = 0; k < 4; k++)
            buf_deinit(&b[k]);
    }
}

/* "The Galois/Counter Mode of Operation", test case 16. */
static void aead_is_aes_256_gcm(void **state)
{
    struct buf key, nonce, ad, plain, want;
    uint8_t got[128], back[128];
    struct rpc_aead *a;

    (void)state;
    of_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308", &key);
    of_hex("cafebabefacedbaddecaf888", &nonce);
    of_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2", &ad);
    of_hex(
        "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24"
        "49a6b525b16aedf5aa0de657ba637b39",
        &plain);
    of_hex(
        "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10"
        "56828838c5f61e6393ba7a0abcc9f662 76fc6ece0f4e1768cddf8853bb2d551b",
        &want);
    a = rpc_aead_new((const uint8_t *)(void *)key.ptr, true);
    /* In any two pieces. */
    for (size_t cut = 0; cut <= plain.len; cut++) {
        rpc_aead_seal(a, (const uint8_t *)(void *)nonce.ptr, buf_str(&ad),
                      str_sub(buf_str(&plain), 0, cut), str_sub(buf_str(&plain), cut, plain.len),
                      got);
        assert_memory_equal(got, want.ptr, want.len);
    }
    rpc_aead_free(a);
    a = rpc_aead_new((const uint8_t *)(void *)key.ptr, false);
    assert_true(
        rpc_aead_open(a, (const uint8_t *)(void *)nonce.ptr, buf_str(&ad), buf_str(&want), back));
    assert_memory_equal(back, plain.ptr, plain.len);
    want.ptr[want.len - 1] ^= 1;
    assert_false(
        rpc_aead_open(a, (const uint8_t *)(void *)nonce.ptr, buf_str(&ad), buf_str(&want), back));
    rpc_aead_free(a);
    buf_deinit(&key);
    buf_deinit(&nonce);
    buf_deinit(&ad);
    buf_deinit(&plain);
    buf_deinit(&want);
}

static struct rpc_seal example(void)
{
    struct rpc_seal s = { .cls = RPC_SEAL_GREETING, .epoch = 2 };
    uint8_t secret[RPC_KEY_BYTES];

    for (size_t i = 0; i < RPC_KEY_BYTES; i++)
        secret[i] = (uint8_t)i;
    for (size_t i = 0; i < RPC_SEAL_SALT; i++)
        s.salt[i] = (uint8_t)(0x10 + i);
    rpc_hkdf(str_n(secret, sizeof(secret)), STR_NULL, STR("embertree rpc mark 1"), s.key,
             RPC_KEY_MARK);
    return s;
}

/* The example in rpc_seal.h. */
static void a_ping_byte_by_byte(void **state)
{
    static const char *const want =
        "45 4d 42 53 01 01 00 00 92 21 e3 b0 4f a9 b2 3e 10 11 12 13 14 15 16 17 "
        "18 19 1a 1b 1c 1d 1e 1f 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00 "
        "00 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00 d9 43 ec 3a ce 93 e3 be "
        "d5 87 9e 31 3e be 9f 09 03 75 85 e5 a7 cd d1 8a a4 5a b4 46 87 1e db c0 "
        "5c 24 a7 72 ca d3 2e 4e 6f bf e7 e6 3b 8c fe bc 64 40 9d 2d a4 c9 f5 53 "
        "5e ec 3c 43 44 93 c6 50 6f a3 a5 44 31 d7 b8 03 a7 22 61 55 e2 d0 c5 ee "
        "5c 88 e4 b5 93 68 38 a3 80 c8 30 aa 43 6d 05 f9 cb bb 64 05 25 39 4c b5 "
        "19 69 c1 d9 25 2f be 4d 68 c3 07 95 ";
    static const struct rpc_frame ping = {
        .version = 1,
        .speaks_min = 1,
        .speaks_max = 1,
        .kind = RPC_PING,
        .epoch = 2,
        .seq = 3,
        .id = 4,
        .link = 1,
        .total = 8,
        .raw = 8,
        .addr = { "ipc:///a", 8 },
        .body = { "\1\2\3\4\5\6\7\10", 8 },
    };
    uint8_t secret[RPC_KEY_BYTES], key[RPC_KEY_BYTES], nonce[RPC_NONCE_BYTES];
    uint8_t head[RPC_FRAME_HEAD_MAX], got[256];
    struct rpc_seal s = example();
    size_t n = rpc_frame_head_bare(&ping, head);
    struct rpc_aead *a;
    struct buf b;

    (void)state;
    for (size_t i = 0; i < RPC_KEY_BYTES; i++)
        secret[i] = (uint8_t)i;
    s.length = (uint32_t)(n + ping.body.len);
    rpc_seal_put(&s, got);
    rpc_seal_nonce(&s, nonce);
    rpc_seal_greeting_key(secret, &s, key);
    a = rpc_aead_new(key, true);
    rpc_aead_seal(a, nonce, str_n(got, RPC_SEAL_HEAD), str_n(head, n), ping.body,
                  got + RPC_SEAL_HEAD);
    rpc_aead_free(a);
    of_hex(want, &b);
    if (b.len != s.length + RPC_SEAL_MORE || memcmp(b.ptr, got, b.len) != 0) {
        for (size_t i = 0; i < s.length + RPC_SEAL_MORE; i++)
            print_message("%02x%s", got[i], i % 32 == 31 ? "\n" : " ");
        fail_msg("not the bytes in rpc_seal.h");
    }
    buf_deinit(&b);
}

static void heads_come_back(void **state)
{
    struct prng p;

    (void)state;
    prng_init(&p, 11);
    for (int i = 0; i < 1000; i++) {
        bool bound = prng_below(&p, 2);
        struct rpc_seal s = { 0 }, got;
        uint8_t bytes[RPC_SEAL_MORE + 200] = { 0 };

        s.cls = bound ? RPC_SEAL_BOUND : RPC_SEAL_GREETING;
        s.lane = (uint8_t)prng_below(&p, RPC_LANES);
        s.epoch = prng_u64(&p) | 1;
        s.ticket = prng_u64(&p) | 1;
        s.counter = bound ? 1 + prng_below(&p, UINT32_MAX) : 0;
        s.length = (uint32_t)(RPC_FRAME_FIXED + prng_below(&p, 200 - RPC_FRAME_FIXED));
        for (size_t k = 0; k < RPC_SEAL_SALT; k++)
            s.salt[k] = (uint8_t)prng_u64(&p);
        memcpy(s.key, s.salt, RPC_KEY_MARK);
        rpc_seal_put(&s, bytes);
        assert_int_equal(rpc_seal_parse(str_n(bytes, s.length + RPC_SEAL_MORE), &got),
                         RPC_DROP_NONE);
        assert_memory_equal(&got, &s, sizeof(s));
        assert_int_equal(rpc_seal_parse(str_n(bytes, s.length + RPC_SEAL_MORE - 1), &got),
                         RPC_DROP_SHORT);
        assert_int_equal(rpc_seal_parse(str_n(bytes, s.length + RPC_SEAL_MORE + 1), &got),
                         RPC_DROP_SHORT);
    }
}

static void odd_heads_are_refused(void **state)
{
    static const struct {
        size_t at;
        uint8_t byte;
        enum rpc_drop why;
    } rows[] = {
        { 0, 'F', RPC_DROP_MAGIC },   { 3, 'R', RPC_DROP_MAGIC }, { 4, 0, RPC_DROP_VERSION },
        { 4, 2, RPC_DROP_VERSION },   { 5, 0, RPC_DROP_HEADER },  { 5, 3, RPC_DROP_HEADER },
        { 6, 2, RPC_DROP_HEADER },    { 7, 1, RPC_DROP_HEADER },  { 32, 0, RPC_DROP_HEADER },
        { 40, 0, RPC_DROP_HEADER },   { 48, 0, RPC_DROP_HEADER }, { 52, 1, RPC_DROP_HEADER },
        { 56, 100, RPC_DROP_SHORT },  { 58, 1, RPC_DROP_SHORT },  { 60, 1, RPC_DROP_HEADER },
        { 63, 128, RPC_DROP_HEADER },
    };
    struct rpc_seal s = { .cls = RPC_SEAL_BOUND, .epoch = 7, .ticket = 8, .counter = 9 }, got;
    uint8_t bytes[RPC_SEAL_MORE + RPC_FRAME_FIXED + 9] = { 0 };

    (void)state;
    s.length = RPC_FRAME_FIXED + 9;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        rpc_seal_put(&s, bytes);
        assert_int_equal(rpc_seal_parse(str_n(bytes, sizeof(bytes)), &got), RPC_DROP_NONE);
        bytes[rows[i].at] = rows[i].byte;
        if (rpc_seal_parse(str_n(bytes, sizeof(bytes)), &got) != rows[i].why)
            fail_msg("row %zu", i);
    }
    for (size_t n = 0; n < RPC_SEAL_MORE; n++)
        assert_int_equal(rpc_seal_parse(str_n(bytes, n), &got), RPC_DROP_SHORT);
}

/* What a key is made of: any other ingredient gives another key. */
static void every_ingredient_makes_another_key(void **state)
{
    uint8_t secret[RPC_KEY_BYTES] = { 1 }, keys[9][RPC_KEY_BYTES];
    struct rpc_seal s = { .cls = RPC_SEAL_BOUND, .epoch = 7, .ticket = 8 };
    struct str a = STR("tcp://a:1"), b = STR("tcp://b:1");

    (void)state;
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[0]);
    rpc_seal_bound_key(secret, &s, 6, a, b, keys[1]);
    rpc_seal_bound_key(secret, &s, 5, b, a, keys[2]);
    rpc_seal_bound_key(secret, &s, 5, STR("tcp://a:1t"), STR("cp://b:1"), keys[3]);
    s.epoch++;
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[4]);
    s.epoch--;
    s.ticket++;
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[5]);
    s.ticket--;
    s.salt[15] ^= 1;
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[6]);
    s.salt[15] ^= 1;
    secret[31] ^= 1;
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[7]);
    secret[31] ^= 1;
    rpc_seal_greeting_key(secret, &s, keys[8]);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
        for (size_t k = 0; k < i; k++)
            assert_memory_not_equal(keys[i], keys[k], RPC_KEY_BYTES);
    }
    rpc_seal_bound_key(secret, &s, 5, a, b, keys[1]);
    assert_memory_equal(keys[0], keys[1], RPC_KEY_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hkdf_is_the_rfcs),
        cmocka_unit_test(aead_is_aes_256_gcm),
        cmocka_unit_test(a_ping_byte_by_byte),
        cmocka_unit_test(heads_come_back),
        cmocka_unit_test(odd_heads_are_refused),
        cmocka_unit_test(every_ingredient_makes_another_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
