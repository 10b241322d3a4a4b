/* SPDX-License-Identifier: Apache-2.0
 *
 * Keys: the bytes drawn in keys.h, and that bytes sort as what they mean.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <time.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/store/codec/keys.h"

static const struct member M = { 1, 2, 3, 0xabcdef0123456789 };
static const uint8_t WID[16] = { 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15 };

static void want_hex(struct str got, const char *hex)
{
    char text[512];
    size_t n = 0;

    for (size_t i = 0; i < got.len; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%02x", (uint8_t)got.ptr[i]);
    text[n] = '\0';
    assert_string_equal(text, hex);
}

static void want_key(const struct key *k, const char *hex)
{
    want_hex(key_str(k), hex);
}

static void test_drawn_bytes(void **state)
{
    struct key k;
    struct buf b;

    (void)state;
    key_raw(&k, &M, 37500003, WID);
    want_key(&k, "002faf080000000100000002023c34630003abcdef0123456789"
                 "000102030405060708090a0b0c0d0e0f");
    key_member(&k, 0, &M, 37500002);
    want_key(&k, "00000021e800000001000000020003abcdef0123456789023c3462");
    key_post_tail(&k, 1, 5, 65537);
    want_key(&k, "33000000010000000500010001");
    key_post(&k, 1, 5, 1);
    want_key(&k, "3300000001000000050001");
    key_wid(&k, 7, 1, WID);
    want_key(&k, "0000000700000001000102030405060708090a0b0c0d0e0f");
    key_format(&k);
    want_key(&k, "01");
    key_control(&k, CONTROL_RAW_LOW);
    want_key(&k, "0203");
    key_tenant(&k, 9);
    want_key(&k, "1100000009");
    key_scope(&k, 9, 8);
    want_key(&k, "130000000900000008");
    key_ptype(&k, 9, 8);
    want_key(&k, "15000000090008");
    key_epoch(&k, 1, 2, 3);
    want_key(&k, "20000000010000000200000003");
    key_dict(&k, 1, 2, 3, DICT_NODES, 1024);
    want_key(&k, "210000000100000002000000030300000400");
    key_active(&k, 1, 2, 3);
    want_key(&k, "2200000001000000020003");
    key_series(&k, 1, 2, 0x1122334455667788);
    want_key(&k, "3000000001000000021122334455667788");
    key_ord(&k, 1, 2);
    want_key(&k, "310000000100000002");
    key_ord_type(&k, 1, 2, 3);
    want_key(&k, "3100000001000000020003");
    key_seal(&k, 5);
    want_key(&k, "400000000000000005");
    buf_init(&b, KIB);
    assert_true(key_tenant_name(&b, STR("ab")));
    want_hex(buf_str(&b), "106162");
    assert_true(key_name(&b, KEY_SCOPE_NAME, 1, STR("ab")));
    want_hex(buf_str(&b), "12000000016162");
    assert_true(key_pair(&b, 1, STR("a\0b"), STR("v")));
    want_hex(buf_str(&b), "32000000016100ff62000176");
    buf_deinit(&b);
    buf_init(&b, 8);
    assert_false(key_pair(&b, 1, STR("long name"), STR("v")));
    buf_deinit(&b);
}

static void test_levels_nest(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < KEY_LEVELS; i++) {
        const struct key_level *l = &LEVELS[i];
        assert_int_equal(l->bucket % l->node, 0);
        assert_int_equal(l->bucket % l->tl_chunk, 0);
        assert_int_equal(l->tl_chunk % l->tl_point, 0);
        if (i)
            assert_int_equal(l->node % LEVELS[i - 1].node, 0);
        assert_true(l->bucket <= UINT32_MAX - KEY_SLOT_MAX);
    }
    assert_int_equal(LEVELS[0].tl_chunk % RAW_BUCKET_SLOTS, 0);
}

static void test_read_back(void **state)
{
    struct member m;
    struct key k;
    const uint8_t *wid;
    uint32_t level, t;

    (void)state;
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        key_member(&k, l, &M, 123456);
        assert_true(key_member_read(key_str(&k), &level, &m, &t));
        assert_int_equal(level, l);
        assert_int_equal(t, 123456);
        assert_memory_equal(&m.series, &M.series, sizeof(m.series));
        assert_int_equal(m.tenant, 1);
        assert_int_equal(m.scope, 2);
        assert_int_equal(m.ptype, 3);
        k.b[4]++; /* a bucket that is not t's */
        assert_false(key_member_read(key_str(&k), &level, &m, &t));
    }
    key_member(&k, 0, &M, 1);
    assert_false(key_member_read(str_sub(key_str(&k), 0, 26), &level, &m, &t));
    k.b[0] = KEY_LEVELS;
    assert_false(key_member_read(key_str(&k), &level, &m, &t));
    key_raw(&k, &M, 99, WID);
    assert_true(key_raw_read(key_str(&k), &m, &t, &wid));
    assert_int_equal(t, 99);
    assert_memory_equal(wid, WID, 16);
    assert_false(key_raw_read(str_sub(key_str(&k), 0, 41), &m, &t, &wid));
    k.b[3]++;
    assert_false(key_raw_read(key_str(&k), &m, &t, &wid));
}

static void test_end_of_a_prefix(void **state)
{
    struct key k = { .len = 3, .b = { 1, (char)0xff, (char)0xff } };

    (void)state;
    key_end(&k);
    want_key(&k, "02");
    k = (struct key){ .len = 2, .b = { 1, 2 } };
    key_end(&k);
    want_key(&k, "0103");
}

static int cmp(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int sign(int v)
{
    return v < 0 ? -1 : v > 0;
}

/* Byte order of raw keys is the order of (minute, tenant, scope, t, type, series). */
static void test_order(void **state)
{
    struct prng p;
    uint64_t seed = (uint64_t)time(NULL);

    (void)state;
    printf("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < 20000; i++) {
        struct member m[2];
        uint32_t t[2];
        struct key k[2];
        for (int j = 0; j < 2; j++) {
            m[j] = (struct member){ (uint32_t)prng_below(&p, 2), (uint32_t)prng_below(&p, 300),
                                    (uint16_t)prng_below(&p, 300), prng_below(&p, 3) << 40 };
            t[j] = (uint32_t)prng_below(&p, 400);
            key_raw(&k[j], &m[j], t[j], WID);
        }
        int want = cmp(t[0] / 12, t[1] / 12);
        want = want ? want : cmp(m[0].tenant, m[1].tenant);
        want = want ? want : cmp(m[0].scope, m[1].scope);
        want = want ? want : cmp(t[0], t[1]);
        want = want ? want : cmp(m[0].ptype, m[1].ptype);
        want = want ? want : cmp(m[0].series, m[1].series);
        assert_int_equal(sign(str_cmp(key_str(&k[0]), key_str(&k[1]))), want);
    }
}

static struct str any_text(struct prng *p, char *room)
{
    size_t n = prng_below(p, 5);

    for (size_t i = 0; i < n; i++)
        room[i] = "\0\1\377ab"[prng_below(p, 5)];
    return str_n(room, n);
}

/* Pairs sort by name, then value, whatever bytes they have, and can be read back. */
static void test_pairs_sort_by_text(void **state)
{
    struct prng p;
    struct buf b[2], name;
    char room[4][8];
    struct str value;

    (void)state;
    prng_init(&p, 5);
    buf_init(&b[0], KIB);
    buf_init(&b[1], KIB);
    buf_init(&name, KIB);
    for (int i = 0; i < 20000; i++) {
        struct str n[2], v[2];
        for (int j = 0; j < 2; j++) {
            n[j] = any_text(&p, room[j]);
            v[j] = any_text(&p, room[2 + j]);
            assert_true(key_pair(&b[j], 1, n[j], v[j]));
            assert_true(key_pair_read(buf_str(&b[j]), &name, &value));
            assert_true(str_eq(buf_str(&name), n[j]) && str_eq(value, v[j]));
        }
        int want = sign(str_cmp(n[0], n[1]));
        want = want ? want : sign(str_cmp(v[0], v[1]));
        assert_int_equal(sign(str_cmp(buf_str(&b[0]), buf_str(&b[1]))), want);
    }
    assert_false(key_pair_read(STR("\x32\0\0\0\1ab"), &name, &value));
    assert_false(key_pair_read(STR("\x32\0\0\0\1ab\0"), &name, &value));
    assert_false(key_pair_read(STR("\x32\0\0\0\1ab\0\7x"), &name, &value));
    buf_deinit(&b[0]);
    buf_deinit(&b[1]);
    buf_deinit(&name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_drawn_bytes), cmocka_unit_test(test_levels_nest),
        cmocka_unit_test(test_read_back),   cmocka_unit_test(test_end_of_a_prefix),
        cmocka_unit_test(test_order),       cmocka_unit_test(test_pairs_sort_by_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
