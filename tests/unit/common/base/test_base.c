/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/arena.h"
#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/list.h"
#include "common/base/map.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/base/rd.h"
#include "common/base/secret.h"
#include "common/base/size.h"
#include "common/base/vec.h"
#include "common/base/wr.h"

#define SEED UINT64_C(20261121)

static void test_err_wrap_and_cut(void **state)
{
    (void)state;
    struct err e;
    char wide[700];

    assert_int_equal(err_set(&e, ERR_INPUT, "line %d", 7), ERR_INPUT);
    assert_int_equal(err_wrap(&e, "file %s", "a"), ERR_INPUT);
    assert_string_equal(e.text, "file a: line 7");
    err_set(&e, ERR_LIMIT, "again: %s", e.text); /* an argument inside e->text */
    assert_string_equal(e.text, "again: file a: line 7");
    for (size_t i = 0; i + 3 < sizeof(wide); i += 3)
        memcpy(wide + i, "\xe2\x82\xac", 3);
    wide[699] = '\0';
    for (int pad = 0; pad < 3; pad++) { /* whatever the alignment, the text stays UTF-8 */
        err_set(&e, ERR_INPUT, "%.*s%s", pad, "xxx", wide);
        assert_true(str_utf8_valid(str_c(e.text)));
        err_wrap(&e, "%.*s", pad, "yyy");
        assert_true(str_utf8_valid(str_c(e.text)));
    }
}

static void test_err_statuses(void **state)
{
    (void)state;
    for (int code = 0; code < ERR_CODES; code++)
        assert_string_not_equal(err_name(code), code == ERR_INTERNAL ? "" : "ERR_INTERNAL");
    assert_int_equal(err_http_status(ERR_TOO_LARGE), 413);
    assert_int_equal(err_connect_status(ERR_TOO_LARGE), 429);
    assert_int_equal(err_http_status(9999), 500);
    assert_string_equal(err_connect_name(ERR_INPUT), "invalid_argument");
}

static void test_arena_limit_and_rewind(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(100 * KIB);
    char *first = arena_alloc(a, 10);

    memset(first, 'a', 10);
    struct arena_mark m = arena_mark(a);
    size_t n = 0;
    while (arena_alloc(a, 1000))
        n++;
    assert_int_equal(n, (100 * KIB - 16) / 1008);
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_calloc(a, SIZE_MAX / 2, 4));
    arena_rewind(a, m);
    assert_int_equal(arena_used(a), 16);
    assert_memory_equal(first, "aaaaaaaaaa", 10);
    assert_non_null(arena_alloc(a, 90 * KIB));
    arena_reset(a);
    assert_int_equal(arena_used(a), 0);
    struct str s = arena_strdup(a, STR("x\0y"));
    assert_int_equal(s.len, 3);
    assert_int_equal(s.ptr[3], 0);
}

static void test_arena_is_used_again(void **state)
{
    (void)state;
    CLEANUP(arena_freep) struct arena *a = arena_new(100 * KIB);
    char *middle;

    assert_non_null(arena_alloc(a, 4000));
    middle = arena_alloc(a, 8000);
    assert_non_null(arena_alloc(a, 16000));
    arena_reuse(a, 8 * KIB, 9000); /* keeps the largest chunk that may be kept */
    assert_int_equal(arena_used(a), 0);
    assert_int_equal(arena_limit(a), 9000);
    assert_ptr_equal(arena_alloc(a, 8000), middle);
    assert_null(arena_alloc(a, 1024));
    arena_reuse(a, 0, KIB); /* none may be */
    assert_non_null(arena_alloc(a, KIB));
    arena_reuse(a, KIB, 0);
    assert_null(arena_alloc(a, 1));
}

static void test_str_numbers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok;
        uint64_t value;
    } rows[] = {
        { "0", true, 0 },
        { "18446744073709551615", true, UINT64_MAX },
        { "18446744073709551616", false, 0 },
        { "", false, 0 },
        { "-1", false, 0 },
        { "+1", false, 0 },
        { " 1", false, 0 },
        { "1x", false, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 0;
        assert_int_equal(str_u64(str_c(rows[i].text), &v), rows[i].ok);
        if (rows[i].ok)
            assert_true(v == rows[i].value);
    }
    int64_t n;
    assert_true(str_i64(STR("-9223372036854775808"), &n) && n == INT64_MIN);
    assert_true(str_i64(STR("9223372036854775807"), &n) && n == INT64_MAX);
    assert_false(str_i64(STR("9223372036854775808"), &n));
    assert_false(str_i64(STR("-9223372036854775809"), &n));
    double d;
    assert_true(str_double(STR("1.5e3"), &d) && d > 1499 && d < 1501);
    assert_false(str_double(STR("nan"), &d) || str_double(STR("inf"), &d));
    assert_false(str_double(STR("0x10"), &d) || str_double(STR("1e999"), &d));
}

static void test_str_units(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool duration, ok;
        uint64_t value;
    } rows[] = {
        { "64KiB", false, true, 65536 },
        { "2 MiB", false, true, 2097152 },
        { "1.5GiB", false, true, 1610612736 },
        { "1GB", false, true, 1000000000 },
        { "17", false, true, 17 },
        { "1XB", false, false, 0 },
        { "99999999999GiB", false, false, 0 },
        { "-1KiB", false, false, 0 },
        { "250ms", true, true, 250 },
        { "10s", true, true, 10000 },
        { "1.5h", true, true, 5400000 },
        { "7d", true, true, 604800000 },
        { "0", true, true, 0 },
        { "10", true, false, 0 },
        { "", true, false, 0 },
        { "1.2.3s", true, false, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t v = 0;
        bool ok = rows[i].duration ? str_duration_ms(str_c(rows[i].text), &v)
                                   : str_bytes(str_c(rows[i].text), &v);
        assert_int_equal(ok, rows[i].ok);
        if (ok)
            assert_true(v == rows[i].value);
    }
}

static void test_str_split(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        size_t parts;
    } rows[] = { { "a,b,c", 3 }, { "a,", 2 }, { ",", 2 }, { "a", 1 }, { "", 1 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct str rest = str_c(rows[i].text), part;
        bool more = true;
        size_t n = 0;
        while (str_next(&rest, ',', &more, &part))
            n++;
        assert_int_equal(n, rows[i].parts);
    }
    assert_true(str_eq(str_trim(STR(" \t a b \r\n")), STR("a b")));
    assert_true(str_contains(STR("abc"), STR("bc")) && !str_contains(STR(""), STR("b")));
    assert_true(str_cmp(STR("a"), STR("ab")) < 0 && str_cmp(STR_NULL, STR("")) == 0);
}

static void test_utf8(void **state)
{
    (void)state;
    static const char *const good[] = { "", "abc", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x94\xa5" };
    static const char *const bad[] = {
        "\xc0\x80",         "\xe0\x80\x80", "\xed\xa0\x80", "\xff",
        "\xf4\x90\x80\x80", "\xe2\x82",     "\x80",         "a\xc3"
    };
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(str_utf8_valid(str_c(good[i])));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(str_utf8_valid(str_c(bad[i])));
}

static void test_buf_maximum_is_sticky(void **state)
{
    (void)state;
    struct buf b;

    buf_init(&b, 100);
    assert_true(buf_addf(&b, "%060d", 1));
    assert_false(buf_addf(&b, "%060d", 1));
    assert_int_equal(b.len, 60);
    assert_false(buf_add_c(&b, 'x') && buf_ok(&b));
    assert_false(buf_ok(&b));
    buf_reset(&b);
    assert_true(buf_add_i64(&b, INT64_MIN));
    assert_true(str_eq(buf_str(&b), STR("-9223372036854775808")));
    buf_reset(&b);
    assert_true(buf_addf(&b, "%0100d", 5) && b.len == 100);
    struct str taken = buf_take(&b);
    assert_int_equal(taken.len, 100);
    char *owned = NULL;
    memcpy(&owned, &taken.ptr, sizeof(owned));
    xfree(owned);
    buf_deinit(&b);
}

static void test_varints_round_trip_and_refuse(void **state)
{
    (void)state;
    struct prng p;
    struct buf b;

    prng_init(&p, SEED);
    buf_init(&b, MIB);
    for (int i = 0; i < 2000; i++) {
        uint64_t v = prng_u64(&p) >> prng_below(&p, 64), back = 0;
        buf_reset(&b);
        wr_varint(&b, v);
        assert_int_equal(b.len, varint_len(v));
        struct rd r = rd_of(buf_str(&b));
        assert_true(rd_varint(&r, &back) && back == v && rd_left(&r) == 0);
        r = rd_of(str_sub(buf_str(&b), 0, b.len - 1));
        assert_false(rd_varint(&r, &back));
        assert_int_equal(rd_left(&r), b.len - 1);
    }
    uint64_t v;
    struct rd r = rd_of(STR("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"));
    assert_false(rd_varint(&r, &v)); /* 65 bits */
    r = rd_of(STR("\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x00"));
    assert_false(rd_varint(&r, &v)); /* 11 bytes */
    struct str three;
    r = rd_of(STR("abc"));
    assert_false(rd_bytes(&r, 4, &three) || rd_skip(&r, 4));
    assert_int_equal(rd_left(&r), 3);
    assert_true(rd_bytes(&r, 3, &three) && str_eqc(three, "abc") && rd_left(&r) == 0);
    r = rd_of(STR("\x80\x80\x00"));
    assert_true(rd_varint(&r, &v) && v == 0); /* overlong is legal */
    buf_deinit(&b);
}

static void test_protobuf_fields(void **state)
{
    (void)state;
    struct pb_field f;
    struct rd r = rd_of(STR("\x08\x96\x01\x12\x03"
                            "abc\x1d\x01\x02\x03\x04\x21\x01\x00\x00\x00\x00\x00\x00\x00"));
    assert_int_equal(rd_pb(&r, &f), 1);
    assert_true(f.number == 1 && f.wire == 0 && f.u64 == 150);
    assert_int_equal(rd_pb(&r, &f), 1);
    assert_true(f.number == 2 && str_eq(f.bytes, STR("abc")));
    assert_int_equal(rd_pb(&r, &f), 1);
    assert_true(f.number == 3 && f.u64 == 0x04030201);
    assert_int_equal(rd_pb(&r, &f), 1);
    assert_true(f.number == 4 && f.wire == 1 && f.u64 == 1);
    assert_int_equal(rd_pb(&r, &f), 0);
    static const struct str bad[] = {
        { "\x00\x01", 2 }, /* field 0 */
        { "\x0b\x0c", 2 }, /* group */
        { "\x0e", 1 },     /* wire 6 */
        { "\x12\x05"
          "ab",
          4 },                                                  /* length past the end */
        { "\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11 }, /* length 2^64-1 */
        { "\x1d\x01", 2 },                                      /* short fixed32 */
        { "\x80\x80\x80\x80\x80\x01\x01", 7 },                  /* number over 2^29-1 */
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        r = rd_of(bad[i]);
        assert_int_equal(rd_pb(&r, &f), -1);
    }
}

/* Short fields go a way of their own: it says what the other one says of the same in long form. */
static void test_rd_pb_short_and_long(void **state)
{
    (void)state;
    for (unsigned tag = 0; tag < 0x80; tag++)
        for (unsigned n = 0; n < 0x80; n++)
            for (unsigned cut = 0; cut < 3; cut++) {
                uint8_t text[160] = { (uint8_t)(tag | 0x80), 0, (uint8_t)n };
                size_t len = cut + n >= 2 ? 3 + n + 1 - cut : 3;
                uint8_t *from = text + 1;
                struct pb_field a = { 0 }, b = { 0 };
                struct rd slow = rd_of(str_n(text, len)), fast;
                int rc = rd_pb(&slow, &a);
                from[0] = (uint8_t)tag;
                fast = rd_of(str_n(from, len - 1));
                assert_int_equal(rd_pb(&fast, &b), rc);
                if (rc < 0) {
                    assert_ptr_equal(fast.p, from);
                    continue;
                }
                assert_true(a.number == b.number && a.wire == b.wire && a.u64 == b.u64);
                assert_true(a.bytes.ptr == b.bytes.ptr && a.bytes.len == b.bytes.len);
                assert_ptr_equal(slow.p, fast.p);
            }
}

static void test_map_u64_against_array(void **state)
{
    (void)state;
    struct map_u64 m;
    struct prng p;
    uint32_t model[512];

    prng_init(&p, SEED);
    memset(model, 0xff, sizeof(model));
    map_u64_init(&m);
    assert_true(map_u64_get(&m, 1) == MAP_U64_EMPTY);
    for (int i = 0; i < 20000; i++) {
        uint64_t k = prng_below(&p, 512);
        uint32_t got = map_u64_put(&m, k << 40, (uint32_t)i);
        assert_true(got == model[k]);
        if (model[k] == MAP_U64_EMPTY)
            model[k] = (uint32_t)i;
        assert_true(map_u64_get(&m, k << 40) == model[k]);
    }
    map_u64_reset(&m);
    assert_true(m.len == 0 && map_u64_get(&m, 0) == MAP_U64_EMPTY);
    map_u64_deinit(&m);
}

/* What hash_u64 makes y of. */
static uint64_t unhash(uint64_t y)
{
    y = (y ^ y >> 33) * 0x9cb4b2f8129337dbULL;
    y = (y ^ y >> 33) * 0x4f74430c22a54005ULL;
    return y ^ y >> 33;
}

/* Keys that would all fall on one slot if it were known where keys fall. */
static void test_map_u64_chosen_keys(void **state)
{
    (void)state;
    size_t longest = 0, row = 0;
    struct map_u64 m;

    assert_true(hash_u64(unhash(12345)) == 12345);
    assert_true(secret_word() == secret_word());
    map_u64_init(&m);
    for (uint64_t i = 0; i < 40000; i++)
        assert_true(map_u64_put(&m, unhash(i << 32 | 77), 1) == MAP_U64_EMPTY);
    for (size_t i = 0; i <= m.mask; i++) {
        row = m.vals[i] == MAP_U64_EMPTY ? 0 : row + 1;
        longest = MAX(longest, row);
    }
    assert_true(longest < 1000);
    map_u64_deinit(&m);
}

static void test_map_str_index(void **state)
{
    struct map_str *m = map_str_new();

    (void)state;
    assert_int_equal(map_str_index(m, STR("a"), 0), 0);
    assert_int_equal(map_str_index(m, STR("a"), 1), 0);
    assert_int_equal(map_str_index(m, STR("b"), 1), 1);
    assert_int_equal(map_str_index(m, STR("b"), 7), 1);
    assert_int_equal(map_str_index(m, STR("a"), 2), 0);
    assert_int_equal(map_str_len(m), 2);
    map_str_free(m);
}

static void test_vec_lower(void **state)
{
    (void)state;
    const uint64_t u64[] = { 3, 5, 5, UINT64_MAX };
    const uint32_t u32[] = { 0, 7, UINT32_MAX };

    assert_int_equal(vec_lower_u64(NULL, 0, 1), 0);
    assert_int_equal(vec_lower_u64(u64, 4, 0), 0);
    assert_int_equal(vec_lower_u64(u64, 4, 3), 0);
    assert_int_equal(vec_lower_u64(u64, 4, 4), 1);
    assert_int_equal(vec_lower_u64(u64, 4, 5), 1);
    assert_int_equal(vec_lower_u64(u64, 4, 6), 3);
    assert_int_equal(vec_lower_u64(u64, 4, UINT64_MAX), 3);
    assert_int_equal(vec_lower_u64(u64, 3, 6), 3);
    assert_int_equal(vec_lower_u32(u32, 3, 0), 0);
    assert_int_equal(vec_lower_u32(u32, 3, 1), 1);
    assert_int_equal(vec_lower_u32(u32, 3, 8), 2);
}

static void test_secrets_are_compared(void **state)
{
    (void)state;
    static const struct {
        const char *secret, *given;
        bool same;
    } rows[] = {
        { "abc", "abc", true },  { "abc", "abd", false },  { "abc", "bbc", false },
        { "abc", "ab", false },  { "abc", "abcd", false }, { "abc", "", false },
        { "abc", "ABC", false }, { "", "", true },         { "", "a", false },
        { "aU", "a", false }, /* 0x55 stands in for what is missing */
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (secret_eq(str_c(rows[i].secret), str_c(rows[i].given)) != rows[i].same)
            fail_msg("\"%s\" and \"%s\"", rows[i].secret, rows[i].given);
}

/* A table that was large once is not emptied at that price each time. */
static void test_map_u64_gives_back(void **state)
{
    (void)state;
    struct map_u64 m;

    map_u64_init(&m);
    for (uint64_t i = 0; i < 100000; i++)
        map_u64_put(&m, i, 1);
    size_t large = map_u64_bytes(&m);
    map_u64_reset(&m);
    assert_true(map_u64_bytes(&m) == large); /* it may be as many again */
    map_u64_put(&m, 7, 1);
    map_u64_reset(&m);
    assert_true(m.len == 0 && map_u64_bytes(&m) == 0 && map_u64_get(&m, 7) == MAP_U64_EMPTY);
    assert_true(map_u64_put(&m, 7, 2) == MAP_U64_EMPTY && map_u64_get(&m, 7) == 2);
    map_u64_deinit(&m);
}

static void test_map_str_with_deletes(void **state)
{
    (void)state;
    struct map_str *m = map_str_new();
    struct prng p;
    static char keys[300][8];
    bool there[300] = { false };
    size_t n = 0;

    prng_init(&p, SEED);
    for (int i = 0; i < 300; i++)
        snprintf(keys[i], sizeof(keys[i]), "k%d", i);
    for (int i = 0; i < 30000; i++) {
        size_t k = prng_below(&p, 300);
        if (prng_chance(&p, 0.5)) {
            assert_true(!!map_str_put(m, str_c(keys[k]), keys[k]) == there[k]);
            n += !there[k];
            there[k] = true;
        } else {
            assert_true(!!map_str_del(m, str_c(keys[k])) == there[k]);
            n -= there[k];
            there[k] = false;
        }
        assert_int_equal(map_str_len(m), n);
    }
    for (int i = 0; i < 300; i++)
        assert_true(map_str_get(m, str_c(keys[i])) == (there[i] ? keys[i] : NULL));
    size_t pos = 0, seen = 0;
    struct str key;
    void *val;
    while (map_str_next(m, &pos, &key, &val))
        seen += str_eqc(key, val);
    assert_int_equal(seen, n);
    map_str_free(m);
}

static void test_crc32c_and_hash(void **state)
{
    (void)state;
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283u); /* RFC 3720 check value */
    assert_int_equal(crc32c(crc32c(0, "1234", 4), "56789", 5), 0xe3069283u);
    assert_true(hash64("a", 1, 1) != hash64("a", 1, 2));
    assert_true(hash128_eq(hash128("a", 1, 1), hash128("a", 1, 1)));
}

static void test_prng_range(void **state)
{
    (void)state;
    struct prng p;
    unsigned seen[10] = { 0 };

    prng_init(&p, SEED);
    for (int i = 0; i < 10000; i++)
        seen[prng_below(&p, 10)]++;
    for (int i = 0; i < 10; i++)
        assert_in_range(seen[i], 800, 1200);
}

struct item {
    int n;
    struct list at;
};

static void test_list_and_vec(void **state)
{
    (void)state;
    struct list head;
    struct item items[3] = { { .n = 1 }, { .n = 2 }, { .n = 3 } };
    VEC(int) v = { 0 };

    list_init(&head);
    for (size_t i = 0; i < 3; i++)
        list_add_tail(&head, &items[i].at);
    list_for (it, &head) {
        vec_push(&v, container_of(it, struct item, at)->n);
        list_del(it);
        list_del(it); /* twice is harmless */
    }
    assert_true(list_empty(&head) && v.len == 3 && v.ptr[2] == 3);
    for (int i = 0; i < 1000; i++)
        vec_push(&v, i);
    assert_int_equal(v.ptr[1002], 999);
    vec_free(&v);
}

static void test_size_arithmetic(void **state)
{
    (void)state;
    size_t s = 5;
    uint64_t u;

    assert_false(size_add(SIZE_MAX, 1, &s) || size_mul(SIZE_MAX / 2, 3, &s));
    assert_int_equal(s, 5);
    assert_true(u64_mul(1u << 31, 2, &u) && u == 1ull << 32);
    assert_true(u64_add_sat(UINT64_MAX, 1) == UINT64_MAX);
    assert_true(u64_mul_sat(UINT64_MAX, 2) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_wrap_and_cut),
        cmocka_unit_test(test_err_statuses),
        cmocka_unit_test(test_arena_limit_and_rewind),
        cmocka_unit_test(test_arena_is_used_again),
        cmocka_unit_test(test_str_numbers),
        cmocka_unit_test(test_str_units),
        cmocka_unit_test(test_str_split),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_buf_maximum_is_sticky),
        cmocka_unit_test(test_varints_round_trip_and_refuse),
        cmocka_unit_test(test_protobuf_fields),
        cmocka_unit_test(test_rd_pb_short_and_long),
        cmocka_unit_test(test_map_u64_against_array),
        cmocka_unit_test(test_map_u64_chosen_keys),
        cmocka_unit_test(test_map_u64_gives_back),
        cmocka_unit_test(test_map_str_index),
        cmocka_unit_test(test_vec_lower),
        cmocka_unit_test(test_secrets_are_compared),
        cmocka_unit_test(test_map_str_with_deletes),
        cmocka_unit_test(test_crc32c_and_hash),
        cmocka_unit_test(test_prng_range),
        cmocka_unit_test(test_list_and_vec),
        cmocka_unit_test(test_size_arithmetic),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
