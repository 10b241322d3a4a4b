/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/base/prng.h"
#include "common/model/label.h"

static struct arena *arena;

static int setup(void **state)
{
    (void)state;
    arena = arena_new(MIB);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static struct labels make(const char *const *pairs)
{
    struct labels l = { 0 };
    struct err e;

    for (; *pairs; pairs += 2)
        assert_int_equal(labels_set(&l, arena, str_c(pairs[0]), str_c(pairs[1]), &e), 0);
    return l;
}

static void test_set_get_del(void **state)
{
    struct labels l = make((const char *const[]){ "m", "1", "b", "2", "z", "3", "a", "4", NULL });
    struct err e;

    (void)state;
    assert_int_equal(l.len, 4);
    assert_true(str_eqc(l.ptr[0].name, "a") && str_eqc(l.ptr[1].name, "b"));
    assert_true(str_eqc(l.ptr[2].name, "m") && str_eqc(l.ptr[3].name, "z"));
    assert_int_equal(labels_set(&l, arena, STR("b"), STR("new"), &e), 0);
    assert_int_equal(l.len, 4);
    assert_true(str_eqc(labels_get(&l, STR("b")), "new"));
    assert_null(labels_get(&l, STR("c")).ptr);
    labels_del(&l, STR("c"));
    labels_del(&l, STR("a"));
    labels_del(&l, STR("z"));
    assert_int_equal(l.len, 2);
    assert_null(labels_get(&l, STR("z")).ptr);
    assert_true(str_eqc(labels_get(&l, STR("m")), "1"));
    assert_int_equal(labels_set(&l, arena, STR_NULL, STR("v"), &e), ERR_INPUT);
}

static void test_set_does_not_touch_a_copy(void **state)
{
    struct labels l = make((const char *const[]){ "a", "1", NULL });
    struct labels copy = l;
    struct err e;

    (void)state;
    assert_int_equal(labels_set(&l, arena, STR("b"), STR("2"), &e), 0);
    assert_int_equal(copy.len, 1);
    assert_false(labels_eq(&l, &copy));
    labels_del(&l, STR("b"));
    assert_true(labels_eq(&l, &copy));
}

static void test_set_over_the_arena(void **state)
{
    struct arena *small = arena_new(256);
    struct labels l = { 0 };
    struct err e = { 0 };
    int rc = 0;

    (void)state;
    for (size_t i = 0; i < 26 && !rc; i++)
        rc = labels_set(&l, small, str_n(&"abcdefghijklmnopqrstuvwxyz"[i], 1), STR("v"), &e);
    assert_int_equal(rc, ERR_LIMIT);
    assert_true(l.len < 26);
    arena_free(small);
}

static void test_sort(void **state)
{
    struct label three[] = { { STR("c"), STR("1") },
                             { STR("a"), STR("2") },
                             { STR("b"), STR("") } };
    struct label twice[] = { { STR("b"), STR("1") },
                             { STR("a"), STR("2") },
                             { STR("b"), STR("") } };
    struct label empty[] = { { STR("b"), STR("1") }, { STR(""), STR("2") } };
    struct labels l = { three, 3 };
    struct err e = { 0 };

    (void)state;
    assert_int_equal(labels_sort(&l, &e), 0);
    assert_true(str_eqc(three[0].name, "a") && str_eqc(three[2].value, "1"));
    assert_int_equal(labels_sort(&(struct labels){ twice, 3 }, &e), ERR_INPUT);
    assert_string_equal(e.text, "label \"b\" is given twice");
    assert_int_equal(labels_sort(&(struct labels){ empty, 2 }, &e), ERR_INPUT);
    assert_int_equal(labels_sort(&(struct labels){ NULL, 0 }, &e), 0);
}

static void test_bytes(void **state)
{
    struct labels l = make((const char *const[]){ "bc", "", "a", "xyz", NULL });
    struct buf b;

    (void)state;
    buf_init(&b, 64);
    labels_encode(&l, &b);
    assert_int_equal(b.len, 11);
    assert_memory_equal(b.ptr,
                        "\x02\x01"
                        "a\x03xyz\x02"
                        "bc\0",
                        11);
    buf_deinit(&b);
    buf_init(&b, 10);
    labels_encode(&l, &b); /* one byte too few: the buffer says so */
    assert_false(buf_ok(&b));
    buf_deinit(&b);
}

static void test_decode_refuses(void **state)
{
    static const struct {
        const char *name, *bytes;
        size_t len;
    } rows[] = {
        { "nothing", "", 0 },
        { "count without labels", "\x01", 1 },
        { "huge count", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 10 },
        { "bytes behind", "\x00\x00", 2 },
        { "long form of the count", "\x80\x00", 2 },
        { "long form of a length", "\x01\x81\x00\x61\x00", 5 },
        { "name cut off", "\x01\x05\x61\x00", 4 },
        { "value cut off", "\x01\x01\x61\x02\x61", 5 },
        { "length beyond 2^63", "\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x61", 12 },
        { "empty name", "\x01\x00\x01\x61", 4 },
        { "equal names", "\x02\x01\x61\x00\x01\x61\x00", 7 },
        { "descending names", "\x02\x01\x62\x00\x01\x61\x00", 7 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct labels l = { 0 };
        struct err e = { 0 };
        int rc = labels_decode(str_n(rows[i].bytes, rows[i].len), arena, &l, &e);
        if (rc != ERR_CORRUPT)
            fail_msg("%s: %s", rows[i].name, err_name(rc));
        assert_null(l.ptr);
    }
}

/* Random sets: decode(encode(x)) = x, equal sets have equal bytes whatever the order of building,
 * and no proper prefix of an encoding decodes. */
static void test_round_trip(void **state)
{
    struct prng p;
    struct err e;

    (void)state;
    prng_init(&p, 42);
    for (int round = 0; round < 2000; round++) {
        struct labels l = { 0 }, back, other = { 0 };
        char text[8][4];
        size_t n = prng_below(&p, 9);
        struct buf b, b2;

        arena_reset(arena);
        buf_init(&b, KIB);
        buf_init(&b2, KIB);
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < 4; k++)
                text[i][k] = (char)prng_below(&p, 4);
            struct str name = { text[i], 1 + prng_below(&p, 2) };
            struct str value = { text[i] + 2, prng_below(&p, 3) };
            assert_int_equal(labels_set(&l, arena, name, value, &e), 0);
        }
        for (size_t i = l.len; i-- > 0;)
            assert_int_equal(labels_set(&other, arena, l.ptr[i].name, l.ptr[i].value, &e), 0);
        labels_encode(&l, &b);
        labels_encode(&other, &b2);
        assert_true(str_eq(buf_str(&b), buf_str(&b2)));
        assert_int_equal(labels_decode(buf_str(&b), arena, &back, &e), 0);
        assert_true(labels_eq(&l, &back));
        assert_int_equal(labels_hash(&l, 7), labels_hash(&back, 7));
        assert_int_not_equal(labels_hash(&l, 7), labels_hash(&l, 8));
        for (size_t cut = 0; cut < b.len; cut++)
            assert_int_equal(labels_decode(str_n(b.ptr, cut), arena, &back, &e), ERR_CORRUPT);
        buf_deinit(&b);
        buf_deinit(&b2);
    }
}

static void test_hash_of_long_labels(void **state)
{
    static char text[2000];
    struct labels l = { 0 };
    struct err e;

    (void)state;
    memset(text, 'x', sizeof(text));
    assert_int_equal(labels_set(&l, arena, STR("a"), str_n(text, sizeof(text)), &e), 0);
    uint64_t h = labels_hash(&l, 1);
    text[1999] = 'y';
    assert_int_not_equal(labels_hash(&l, 1), h);
    text[1999] = 'x';
    assert_int_equal(labels_hash(&l, 1), h);
}

static void test_format(void **state)
{
    struct labels l = make((const char *const[]){ "plain_1", "v", "my.name", "a\"b\\c\n\t\r", "u",
                                                  "h\xc3\xa9\xff\x01\xe2\x82", NULL });
    struct buf b;

    (void)state;
    buf_init(&b, KIB);
    labels_format(&l, &b);
    buf_add_c(&b, 0);
    assert_string_equal(b.ptr, "{\"my.name\"=\"a\\\"b\\\\c\\n\\t\\r\", plain_1=\"v\", "
                               "u=\"h\xc3\xa9\\xff\\x01\\xe2\\x82\"}");
    buf_reset(&b);
    labels_format(&(struct labels){ NULL, 0 }, &b);
    assert_true(str_eqc(buf_str(&b), "{}"));
    buf_deinit(&b);
}

static void test_plain(void **state)
{
    (void)state;
    assert_true(label_name_plain(STR("__name__")));
    assert_true(label_name_plain(STR("Ab9")));
    assert_false(label_name_plain(STR("9a")));
    assert_false(label_name_plain(STR("a.b")));
    assert_false(label_name_plain(STR("a-b")));
    assert_false(label_name_plain(STR("\xc3\xa9")));
    assert_false(label_name_plain(STR_NULL));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_set_get_del),
        TEST(test_set_does_not_touch_a_copy),
        TEST(test_set_over_the_arena),
        TEST(test_sort),
        TEST(test_bytes),
        TEST(test_decode_refuses),
        TEST(test_round_trip),
        TEST(test_hash_of_long_labels),
        TEST(test_format),
        TEST(test_plain),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
