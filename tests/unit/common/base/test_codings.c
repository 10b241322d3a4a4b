/* SPDX-License-Identifier: Apache-2.0
 *
 * Content codings besides gzip: whole, cut, with bytes behind them, and such as expand.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/hash.h"
#include "common/base/mem.h"

typedef int (*decode_fn)(struct str in, const struct inflate_limits *l, struct buf *out,
                         struct err *e);
#define BYTES(s)         \
    {                    \
        s, sizeof(s) - 1 \
    }

static const struct {
    const char *name;
    decode_fn fn;
    struct str in;
    const char *text;
} rows[] = {
    { "br", brotli_decompress, BYTES("\x0b\x02\x80\x68\x65\x6c\x6c\x6f\x03"), "hello" },
    { "zlib", deflate_decompress,
      BYTES("\x78\xda\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00\x3a\x2e\x06\x7d"),
      "hello hello hello" },
    { "raw deflate", deflate_decompress, BYTES("\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x90\x00"),
      "hello hello hello" },
    { "zstd without a size", zstd_inflate,
      BYTES("\x28\xb5\x2f\xfd\x04\x58\x29\x00\x00\x68\x65\x6c\x6c\x6f\xa3\x6d\x9f\x88"), "hello" },
    { "snappy block", snappy_inflate, BYTES("\x05\x10hello"), "hello" },
    { "snappy copies", snappy_inflate, BYTES("\x11\x14hello \x2a\x06\x00"), "hello hello hello" },
    { "zstd with a size", zstd_inflate,
      BYTES("\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00\x68\x65\x6c\x6c\x6f"), "hello" },
};

/* Calls on a copy of exactly the size, so that ASan sees a byte read past it. */
static int decode(decode_fn fn, struct str in, const struct inflate_limits *l, struct buf *out)
{
    struct err e;
    char *copy = in.len ? xmemdup(in.ptr, in.len) : xmalloc(1);

    buf_reset(out);
    int code = fn((struct str){ copy, in.len }, l, out, &e);
    xfree(copy);
    return code;
}

static void test_whole_cut_and_more(void **state)
{
    const struct inflate_limits l = { 1000, 200 };
    struct buf out;

    (void)state;
    buf_init(&out, MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char more[64];

        assert_int_equal(decode(rows[i].fn, rows[i].in, &l, &out), 0);
        assert_true(str_eqc(buf_str(&out), rows[i].text));
        for (size_t cut = 0; cut < rows[i].in.len; cut++) {
            if (decode(rows[i].fn, str_sub(rows[i].in, 0, cut), &l, &out) != ERR_INPUT)
                fail_msg("%s cut at %zu", rows[i].name, cut);
        }
        memcpy(more, rows[i].in.ptr, rows[i].in.len);
        more[rows[i].in.len] = 'x';
        assert_int_equal(decode(rows[i].fn, (struct str){ more, rows[i].in.len + 1 }, &l, &out),
                         ERR_INPUT);
    }
    buf_deinit(&out);
}

/* Frames one behind the other are one text (RFC 8878, 3.1), as parallel writers make them; what may
 * be skipped is. Cut between frames it is a shorter whole, as with members of gzip. */
static void test_frames_of_zstd(void **state)
{
    static const struct str frames[] = {
        BYTES("\x28\xb5\x2f\xfd\x20\x05\x29\x00\x00\x68\x65\x6c\x6c\x6f"),
        BYTES("\x28\xb5\x2f\xfd\x04\x58\x29\x00\x00\x68\x65\x6c\x6c\x6f\xa3\x6d\x9f\x88"),
        BYTES("\x52\x2a\x4d\x18\x03\x00\x00\x00\x61\x62\x63"),
    };
    static const size_t orders[][4] = {
        { 0, 1, 0, 1 }, { 1, 0, 1, 0 }, { 0, 2, 1, 2 }, { 2, 0, 2, 1 }
    };
    const struct inflate_limits l = { 1000, 200 }, nine = { 9, 0 };
    struct buf in, out;

    (void)state;
    buf_init(&in, MIB);
    buf_init(&out, MIB);
    for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
        const char *want = i < 2 ? "hellohellohellohello" : "hellohello";
        buf_reset(&in);
        for (size_t k = 0; k < 4; k++)
            buf_add_str(&in, frames[orders[i][k]]);
        assert_int_equal(decode(zstd_inflate, buf_str(&in), &l, &out), 0);
        assert_true(str_eqc(buf_str(&out), want));
        assert_int_equal(decode(zstd_inflate, buf_str(&in), &nine, &out), ERR_LIMIT);
        assert_true(out.len <= 9);
        assert_int_equal(decode(zstd_inflate, str_sub(buf_str(&in), 0, in.len - 1), &l, &out),
                         ERR_INPUT);
        buf_add_str(&in, STR("x"));
        assert_int_equal(decode(zstd_inflate, buf_str(&in), &l, &out), ERR_INPUT);
    }
    assert_int_equal(decode(zstd_inflate, frames[2], &l, &out),
                     0); /* nothing but what is skipped */
    assert_int_equal(out.len, 0);
    buf_deinit(&in);
    buf_deinit(&out);
}

static void test_limits(void **state)
{
    const struct inflate_limits four = { 4, 0 };
    struct buf out;

    (void)state;
    buf_init(&out, MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(decode(rows[i].fn, rows[i].in, &four, &out), ERR_LIMIT);
        assert_true(out.len <= 4);
    }
    buf_deinit(&out);
}

static void test_expansion(void **state)
{
    /* 14 bytes that stand for 8 MiB */
    static const struct str bomb =
        BYTES("\x9b\xff\xff\x7f\xf8\x25\xc2\xe2\xb1\x40\x20\xf7\xfe\x0f");
    const struct inflate_limits free_ratio = { 64 * MIB, 0 }, ratio = { 64 * MIB, 200 };
    struct buf zeros, z, out;
    struct err e;

    (void)state;
    buf_init(&out, 64 * MIB);
    assert_int_equal(decode(brotli_decompress, bomb, &free_ratio, &out), 0);
    assert_int_equal(out.len, 8 * MIB);
    buf_deinit(&out);
    assert_int_equal(decode(brotli_decompress, bomb, &ratio, &out), ERR_LIMIT);
    assert_true(out.cap <= 2 * MIB);
    buf_init(&zeros, 8 * MIB);
    memset(buf_room(&zeros, 8 * MIB), 0, 8 * MIB);
    zeros.len = 8 * MIB;
    buf_init(&z, MIB);
    assert_int_equal(zstd_compress(buf_str(&zeros), 3, &z, &e), 0);
    buf_deinit(&out);
    assert_int_equal(decode(zstd_inflate, buf_str(&z), &ratio, &out), ERR_LIMIT);
    assert_true(out.cap <= 2 * MIB);
    assert_int_equal(decode(zstd_inflate, buf_str(&z), &free_ratio, &out), 0);
    assert_int_equal(out.len, 8 * MIB);
    buf_deinit(&zeros);
    buf_deinit(&z);
    buf_deinit(&out);
}

/* The checksum that a chunk begins with, as the format masks it. */
static void put_chunk(struct buf *b, char type, struct str body, struct str plain)
{
    uint32_t crc = crc32c(0, plain.ptr, plain.len), n = (uint32_t)body.len + 4;

    crc = ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    const char head[] = { type,      (char)n,          (char)(n >> 8),    (char)(n >> 16),
                          (char)crc, (char)(crc >> 8), (char)(crc >> 16), (char)(crc >> 24) };
    assert_true(buf_add(b, head, sizeof(head)) && buf_add_str(b, body));
}

#define IDENT STR("\xff\x06\x00\x00sNaPpY")

static void test_snappy_frames(void **state)
{
    const struct inflate_limits l = { 1000, 200 }, few = { 9, 200 };
    struct buf in, out;

    (void)state;
    buf_init(&in, MIB);
    buf_init(&out, MIB);
    buf_add_str(&in, IDENT);
    put_chunk(&in, 0, STR("\x05\x10hello"), STR("hello"));
    size_t first = in.len;
    buf_add_str(&in, STR("\xfe\x02\x00\x00zz")); /* padding */
    size_t second = in.len;
    put_chunk(&in, 1, STR(" you"), STR(" you"));
    buf_add_str(&in, IDENT); /* as where two streams are joined */
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &l, &out), 0);
    assert_true(str_eqc(buf_str(&out), "hello you"));
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &few, &out), 0);
    for (size_t cut = 11; cut < in.len; cut++) {
        bool whole = cut == first || cut == second || cut == in.len - 10;
        int code = decode(snappy_inflate, str_sub(buf_str(&in), 0, cut), &l, &out);
        if (code != (whole ? 0 : ERR_INPUT))
            fail_msg("cut at %zu: %d", cut, code);
    }
    in.ptr[18] ^= 1; /* a byte of the first block */
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &l, &out), ERR_INPUT);
    in.ptr[18] ^= 1;
    in.ptr[10] = 2; /* a type that must not be skipped */
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &l, &out), ERR_INPUT);
    buf_deinit(&in);
    buf_deinit(&out);
}

/* A forged length reserves nothing, and output over the limits is refused before it is made. */
static void test_snappy_bombs(void **state)
{
    const struct inflate_limits l = { MIB, 200 }, few = { 4, 200 };
    struct buf out;

    (void)state;
    buf_init(&out, 2 * MIB);
    assert_int_equal(decode(snappy_inflate, STR("\xff\xff\xff\xff\x0f\x10hello"), &l, &out),
                     ERR_LIMIT);
    assert_true(out.cap < MIB);
    assert_int_equal(decode(snappy_inflate, STR("\x80\x80\x08\x10hello"), &l, &out), ERR_INPUT);
    assert_int_equal(decode(snappy_inflate, STR("\x05\x10hello"), &few, &out), ERR_LIMIT);
    struct buf in;
    buf_init(&in, MIB);
    buf_add_str(&in, IDENT);
    put_chunk(&in, 0, STR("\x05\x10hello"), STR("hello"));
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &few, &out), ERR_LIMIT);
    buf_reset(&in);
    buf_add_str(&in, IDENT);
    put_chunk(&in, 1, STR("hello"), STR("hello"));
    assert_int_equal(decode(snappy_inflate, buf_str(&in), &few, &out), ERR_LIMIT);
    buf_deinit(&in);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_snappy_frames),
        cmocka_unit_test(test_snappy_bombs),
        cmocka_unit_test(test_whole_cut_and_more),
        cmocka_unit_test(test_frames_of_zstd),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_expansion),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
