/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts of keys: form, checksum, what is refused; hashes against values of Python's hmac and zlib.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/hex.h"
#include "common/identity/key.h"
#include "common/rpc/rpc_crypto.h"
#include "common/sys/env.h"

/* zlib.crc32 of the first 61 characters, in base 62. */
#define GOOD "emb_k3fT9aQz07LmB_00ZzUpL1234567890abcdefghijABCDEFGHIJklmnop0uAzL9"
/* The same for what no key is. */
#define OTHER_KIND "emb_x3fT9aQz07LmB_00ZzUpL1234567890abcdefghijABCDEFGHIJklmnop1LHSaU"
#define BAD_LETTER "emb_k3fT9aQz07L-B_00ZzUpL1234567890abcdefghijABCDEFGHIJklmnop0T5nWa"

static void test_made_keys(void **state)
{
    (void)state;
    static const enum api_key_kind kinds[] = { KEY_API, KEY_GATEWAY, KEY_INVITE };
    struct env_sim world;
    char text[KEY_TEXT_LEN + 1], last[KEY_TEXT_LEN + 1] = "";
    unsigned seen[128] = { 0 };
    struct key_text t;

    env_sim_init(&world, env_real()->clock, env_real()->fs, 1);
    for (int i = 0; i < 3000; i++) {
        enum api_key_kind kind = kinds[i % 3];

        key_make(&world.env, kind, text);
        assert_int_equal(strlen(text), KEY_TEXT_LEN);
        assert_true(key_text_parse(str_c(text), &t));
        assert_int_equal(t.kind, kind);
        assert_ptr_equal(t.id.ptr, text + 5);
        assert_true(key_id_ok(t.id));
        assert_int_equal(t.secret.len, KEY_SECRET_LEN);
        assert_string_not_equal(text, last);
        memcpy(last, text, sizeof(last));
        for (size_t k = 0; k < t.id.len; k++)
            seen[(unsigned char)t.id.ptr[k]]++;
    }
    /* 36,000 characters of 62: 581 of each, give or take five deviations of 24. */
    for (int c = 0; c < 128; c++)
        if (strchr("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", c) && c)
            assert_in_range(seen[c], 581 - 120, 581 + 120);
        else
            assert_int_equal(seen[c], 0);
}

/* Hands out bytes of a script. */
static void scripted(struct env *env, void *p, size_t n)
{
    const uint8_t *byte = env->random_state;

    memset(p, *byte, n);
}

static void test_the_ends_of_the_secret(void **state)
{
    (void)state;
    struct env_sim world;
    char text[KEY_TEXT_LEN + 1];
    struct key_text t;
    uint8_t byte = 0;

    env_sim_init(&world, env_real()->clock, env_real()->fs, 1);
    world.env.random = scripted;
    world.env.random_state = &byte;
    key_make(&world.env, KEY_API, text);
    assert_true(key_text_parse(str_c(text), &t));
    assert_true(str_eqc(t.id, "000000000000"));
    assert_true(str_eqc(t.secret, "0000000000000000000000000000000000000000000"));
    byte = 247; /* 247 % 62 is 61; as a number, bytes of f7 */
    key_make(&world.env, KEY_API, text);
    assert_true(key_text_parse(str_c(text), &t));
    assert_true(str_eqc(t.id, "zzzzzzzzzzzz"));
    assert_true(str_eqc(t.secret, "wnf2SwFZ4UbK5seAaYTqeFzKQfcuKIQxQzTotrKZVXr"));
}

static void test_refused(void **state)
{
    (void)state;
    struct env_sim world;
    char good[KEY_TEXT_LEN + 1], bad[KEY_TEXT_LEN + 2];
    struct key_text t;

    assert_true(key_text_parse(STR(GOOD), &t));
    assert_true(str_eqc(t.id, "3fT9aQz07LmB"));
    env_sim_init(&world, env_real()->clock, env_real()->fs, 7);
    key_make(&world.env, KEY_API, good);
    for (size_t i = 0; i < KEY_TEXT_LEN; i++) {
        /* Any other character anywhere: a CRC sees each change of a byte. */
        for (int c = 0; c < 256; c++) {
            memcpy(bad, good, sizeof(good));
            bad[i] = (char)c;
            assert_int_equal(key_text_parse(str_n(bad, KEY_TEXT_LEN), &t), bad[i] == good[i]);
        }
        assert_false(key_text_parse(str_n(good, i), &t));
    }
    for (size_t i = 5; i + 1 < KEY_TEXT_LEN; i++) {
        memcpy(bad, good, sizeof(good));
        bad[i] = good[i + 1];
        bad[i + 1] = good[i];
        assert_int_equal(key_text_parse(str_n(bad, KEY_TEXT_LEN), &t), good[i] == good[i + 1]);
    }
    memcpy(bad, good, KEY_TEXT_LEN);
    bad[KEY_TEXT_LEN] = '0';
    assert_false(key_text_parse(str_n(bad, KEY_TEXT_LEN + 1), &t));
    assert_false(key_text_parse(STR_NULL, &t));
    /* A right checksum alone is not enough. */
    assert_false(key_text_parse(STR(OTHER_KIND), &t));
    assert_false(key_text_parse(STR(BAD_LETTER), &t));
}

static void test_ids(void **state)
{
    (void)state;
    assert_true(key_id_ok(STR("3fT9aQz07LmB")));
    assert_false(key_id_ok(STR("3fT9aQz07Lm")));
    assert_false(key_id_ok(STR("3fT9aQz07LmBB")));
    assert_false(key_id_ok(STR("3fT9aQz07Lm/")));
    assert_false(key_id_ok(STR("3fT9aQz07Lm\0")));
    assert_false(key_id_ok(STR_NULL));
}

static void test_hashes(void **state)
{
    (void)state;
    uint8_t pepper[KEY_PEPPER_BYTES], hash[KEY_HASH_BYTES], kept[KEY_HASH_BYTES];
    char hex[2 * KEY_HASH_BYTES + 1];
    struct rpc_mac *m;
    struct key_text t;

    for (size_t i = 0; i < sizeof(pepper); i++)
        pepper[i] = (uint8_t)i;
    assert_true(key_text_parse(STR(GOOD), &t));
    key_hash(pepper, t.id, t.secret, hash);
    hex_put_c(hash, sizeof(hash), hex);
    assert_string_equal(hex, "fb3a95046cd0402a0721b14757f7d94455f0c288649238310a89dbf704714e9b");
    m = rpc_mac_new(str_n(pepper, sizeof(pepper)));
    for (int i = 0; i < 3; i++) {
        key_hash_with(m, t.id, t.secret, kept);
        assert_memory_equal(kept, hash, sizeof(hash));
    }
    rpc_mac_free(m);
}

/* RFC 4231, test cases 1, 2 and 6 (a key longer than a block); and an empty key. */
static void test_hmac_is_the_rfcs(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        { "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", "4869205468657265",
          "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7" },
        { "4a656665", "7768617420646f2079612077616e7420666f72206e6f7468696e673f",
          "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843" },
        { NULL,
          "54657374205573696e67204c6172676572205468616e20426c6f636b2d53697a65204b6579202d2048617368"
          "204b6579204669727374",
          "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54" },
        { "", "", "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t key[131], text[64], mac[RPC_MAC_BYTES], again[RPC_MAC_BYTES];
        size_t key_len = rows[i][0] ? strlen(rows[i][0]) / 2 : sizeof(key);
        size_t text_len = strlen(rows[i][1]) / 2;
        char hex[2 * RPC_MAC_BYTES + 1];

        memset(key, 0xaa, sizeof(key));
        if (rows[i][0])
            assert_true(hex_read(rows[i][0], key_len, key));
        assert_true(hex_read(rows[i][1], text_len, text));
        rpc_hmac(str_n(key, key_len), str_n(text, text_len), mac);
        hex_put_c(mac, sizeof(mac), hex);
        assert_string_equal(hex, rows[i][2]);
        /* In parts, by a kept key, after another text. */
        struct rpc_mac *m = rpc_mac_new(str_n(key, key_len));
        const struct str parts[] = { str_n(text, text_len / 2), STR_NULL,
                                     str_n(text + text_len / 2, text_len - text_len / 2) };
        rpc_mac(m, &(struct str){ "other", 5 }, 1, again);
        assert_memory_not_equal(again, mac, sizeof(mac));
        rpc_mac(m, parts, ARRAY_LEN(parts), again);
        assert_memory_equal(again, mac, sizeof(mac));
        rpc_mac_free(m);
    }
    rpc_mac_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_keys), cmocka_unit_test(test_the_ends_of_the_secret),
        cmocka_unit_test(test_refused),   cmocka_unit_test(test_ids),
        cmocka_unit_test(test_hashes),    cmocka_unit_test(test_hmac_is_the_rfcs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
