/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <zlib.h>

#include "common/base/compress/compress.h"
#include "common/base/json.h"
#include "common/base/mem.h"
#include "common/base/prng.h"

static const struct inflate_limits roomy = { 64 * MIB, 0 };

static void make_text(struct buf *b, size_t n)
{
    struct prng p;

    prng_init(&p, n);
    while (b->len < n)
        buf_addf(b, "main;work%d %d\n", (int)prng_below(&p, 50), (int)prng_below(&p, 9));
}

static void test_gzip_round_trip_and_members(void **state)
{
    (void)state;
    struct buf text, gz, back;
    struct err e;

    buf_init(&text, 8 * MIB);
    buf_init(&gz, 8 * MIB);
    buf_init(&back, 64 * MIB);
    for (size_t n = 0; n < 3000000; n = n * 3 + 1) {
        buf_reset(&text), buf_reset(&gz), buf_reset(&back);
        make_text(&text, n);
        assert_int_equal(gzip(buf_str(&text), 1, &gz, &e), 0);
        assert_int_equal(gzip(STR("tail"), 6, &gz, &e), 0); /* a second member */
        assert_int_equal(gunzip(buf_str(&gz), &roomy, &back, &e), 0);
        assert_int_equal(back.len, text.len + 4);
        assert_memory_equal(back.ptr, text.ptr, text.len);
    }
    buf_deinit(&text), buf_deinit(&gz), buf_deinit(&back);
}

static void test_gunzip_refuses(void **state)
{
    (void)state;
    struct buf text, gz, back;
    struct err e;

    buf_init(&text, MIB), buf_init(&gz, MIB), buf_init(&back, MIB);
    make_text(&text, 5000);
    assert_int_equal(gzip(buf_str(&text), 6, &gz, &e), 0);
    for (size_t cut = 0; cut < gz.len; cut++) {
        buf_reset(&back);
        assert_int_equal(gunzip(str_sub(buf_str(&gz), 0, cut), &roomy, &back, &e), ERR_INPUT);
    }
    buf_add(&gz, "x", 1);
    buf_reset(&back);
    assert_int_equal(gunzip(buf_str(&gz), &roomy, &back, &e), ERR_INPUT);
    gz.len--;
    gz.ptr[gz.len - 6] ^= 1; /* crc */
    buf_reset(&back);
    assert_int_equal(gunzip(buf_str(&gz), &roomy, &back, &e), ERR_INPUT);
    buf_deinit(&text), buf_deinit(&gz), buf_deinit(&back);
}

static void test_gunzip_limits(void **state)
{
    (void)state;
    struct buf zeros, gz, back;
    struct err e;

    buf_init(&zeros, 16 * MIB), buf_init(&gz, MIB), buf_init(&back, 64 * MIB);
    memset(buf_room(&zeros, 16 * MIB), 0, 16 * MIB);
    zeros.len = 16 * MIB;
    assert_int_equal(gzip(buf_str(&zeros), 6, &gz, &e), 0);
    assert_int_equal(gunzip(buf_str(&gz), &(struct inflate_limits){ 16 * MIB, 0 }, &back, &e), 0);
    buf_reset(&back);
    assert_int_equal(gunzip(buf_str(&gz), &(struct inflate_limits){ 16 * MIB - 1, 0 }, &back, &e),
                     ERR_LIMIT);
    buf_deinit(&back);
    assert_int_equal(gunzip(buf_str(&gz), &(struct inflate_limits){ 64 * MIB, 200 }, &back, &e),
                     ERR_LIMIT);
    assert_non_null(strstr(e.text, "200:1"));
    assert_true(back.cap <= 4 * MIB); /* stopped by the ratio, not by the machine's memory */
    buf_deinit(&zeros), buf_deinit(&gz), buf_deinit(&back);
}

static void test_zstd(void **state)
{
    (void)state;
    struct buf text, z, back;
    struct err e;

    buf_init(&text, MIB), buf_init(&z, 2 * MIB), buf_init(&back, MIB);
    make_text(&text, 100000);
    assert_int_equal(zstd_compress(buf_str(&text), 3, &z, &e), 0);
    assert_int_equal(zstd_decompress(buf_str(&z), text.len - 1, &back, &e), ERR_LIMIT);
    assert_int_equal(zstd_decompress(buf_str(&z), text.len, &back, &e), 0);
    buf_reset(&back);
    assert_int_equal(zstd_decompress(str_sub(buf_str(&z), 0, z.len / 2), MIB, &back, &e),
                     ERR_INPUT);
    buf_reset(&back);
    assert_int_equal(zstd_decompress(buf_str(&z), MIB, &back, &e), 0);
    assert_memory_equal(back.ptr, text.ptr, text.len);
    assert_int_equal(zstd_decompress(STR("garbage"), MIB, &back, &e), ERR_INPUT);
    buf_deinit(&text), buf_deinit(&z), buf_deinit(&back);
}

/* RFC 1950: a stream, its checksum, and nothing behind it that another reader might take. */
static void test_zlib_and_what_follows(void **state)
{
    (void)state;
    const struct inflate_limits l = { .bytes_max = MIB };
    uLongf len = 1000;
    char packed[1000];
    struct buf back;
    struct err e;

    assert_int_equal(compress((Bytef *)packed, &len, (const Bytef *)"some text", 9), Z_OK);
    buf_init(&back, MIB);
    assert_int_equal(deflate_decompress(str_n(packed, len), &l, &back, &e), 0);
    assert_true(str_eqc(buf_str(&back), "some text"));
    packed[len] = 'x';
    assert_int_equal(deflate_decompress(str_n(packed, len + 1), &l, &back, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "1 bytes follow"));
    buf_deinit(&back);
}

/* Reads on with what is new in *gz; what can be read now is in *back. */
static void read_on(z_stream *z, const struct buf *gz, struct buf *back)
{
    z->next_in = (Bytef *)(void *)(gz->ptr + z->total_in);
    z->avail_in = (uInt)(gz->len - z->total_in);
    for (int rc = Z_OK; z->avail_in && rc != Z_STREAM_END;) {
        z->next_out = (Bytef *)(void *)buf_room(back, 64 * KIB);
        z->avail_out = 64 * KIB;
        rc = inflate(z, Z_SYNC_FLUSH);
        assert_true(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR);
        back->len += 64 * KIB - z->avail_out;
    }
}

/* Whatever the pieces: after each of them its bytes can be read, and the whole is one file. */
static void test_gzip_in_pieces(void **state)
{
    static const size_t sizes[] = { 1, 7, 1000, 16 * KIB, 65537, MIB };
    struct buf text, gz, back, whole;
    struct err e;

    (void)state;
    buf_init(&text, 8 * MIB), buf_init(&gz, 8 * MIB);
    buf_init(&back, 8 * MIB), buf_init(&whole, 8 * MIB);
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        struct gzip_stream *s = gzip_stream_new(4);
        z_stream z = { 0 };
        buf_reset(&text), buf_reset(&gz), buf_reset(&back), buf_reset(&whole);
        make_text(&text, MIN(sizes[i] * 3000, 3 * MIB));
        assert_int_equal(inflateInit2(&z, MAX_WBITS + 16), Z_OK);
        for (size_t at = 0, n; at < text.len; at += n) {
            struct str part = str_sub(buf_str(&text), at, MIN(at + sizes[i], text.len));
            n = part.len;
            assert_int_equal(gzip_stream_add(s, part, GZIP_STREAM_PIECE, &gz, &e), 0);
            assert_int_equal(gzip_stream_add(s, STR_NULL, GZIP_STREAM_PIECE, &gz, &e), 0);
            read_on(&z, &gz, &back);
            assert_int_equal(back.len, at + n);
        }
        assert_int_not_equal(gunzip(buf_str(&gz), &roomy, &whole, &e), 0); /* no end yet */
        assert_int_equal(gzip_stream_add(s, STR_NULL, GZIP_STREAM_END, &gz, &e), 0);
        assert_int_equal(inflateEnd(&z), Z_OK);
        buf_reset(&whole);
        assert_int_equal(gunzip(buf_str(&gz), &roomy, &whole, &e), 0);
        assert_true(str_eq(buf_str(&whole), buf_str(&text)));
        assert_true(sizes[i] < 1000 || gz.len < text.len / 2);
        gzip_stream_free(s);
    }
    buf_deinit(&text), buf_deinit(&gz), buf_deinit(&back), buf_deinit(&whole);
}

static void test_gzip_in_pieces_and_limits(void **state)
{
    struct buf noise, gz, back;
    struct prng p;
    struct err e;

    (void)state;
    buf_init(&noise, MIB), buf_init(&gz, 100000), buf_init(&back, MIB);
    prng_init(&p, 5);
    while (noise.len < 200000)
        buf_add_c(&noise, (char)prng_below(&p, 256));
    gzip_stream_free(NULL);
    struct gzip_stream *s = gzip_stream_new(4);
    struct str half = str_sub(buf_str(&noise), 0, 90000);
    assert_int_equal(gzip_stream_add(s, half, GZIP_STREAM_MORE, &gz, &e), 0);
    assert_int_equal(gzip_stream_add(s, buf_str(&noise), GZIP_STREAM_END, &gz, &e), ERR_LIMIT);
    assert_true(gz.len <= 100000);
    gzip_stream_free(s); /* in the middle: nothing is left behind */

    buf_deinit(&gz), buf_init(&gz, MIB);
    s = gzip_stream_new(4);
    assert_int_equal(gzip_stream_add(s, half, GZIP_STREAM_MORE, &gz, &e), 0);
    assert_int_equal(gzip_stream_add(s, buf_str(&noise), GZIP_STREAM_END, &gz, &e), 0);
    assert_true(gz.len < noise.len + half.len + KIB);
    assert_int_equal(gunzip(buf_str(&gz), &roomy, &back, &e), 0);
    assert_int_equal(back.len, half.len + noise.len);
    assert_memory_equal(back.ptr, half.ptr, half.len);
    assert_memory_equal(back.ptr + half.len, noise.ptr, noise.len);
    gzip_stream_free(s);
    buf_deinit(&noise), buf_deinit(&gz), buf_deinit(&back);
}

static void test_json_writer(void **state)
{
    (void)state;
    struct buf b;
    struct json j;

    buf_init(&b, MIB);
    json_init(&j, &b);
    json_obj(&j);
    json_key(&j, "a\"b");
    json_arr(&j);
    json_u64(&j, UINT64_MAX);
    json_i64_str(&j, -5);
    json_double(&j, 0.1);
    json_double(&j, 1.0 / 0.0);
    json_bool(&j, true);
    json_null(&j);
    json_arr(&j);
    json_arr_end(&j);
    json_arr_end(&j);
    json_key(&j, "s");
    json_str(&j, STR("<\x01\n\\\xe2\x80\xa8\xff\xc3\xa9\xe2\x82"));
    json_obj_end(&j);
    assert_true(str_eq(buf_str(&b),
                       STR("{\"a\\\"b\":[18446744073709551615,\"-5\",0.1,null,true,null,[]],"
                           "\"s\":\"\\u003c\\u0001\\n\\\\\\u2028\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd"
                           "\xef\xbf\xbd\"}")));
    buf_deinit(&b);
}

static void test_json_pairs(void **state)
{
    (void)state;
    struct buf b;
    struct json j;

    buf_init(&b, 4096);
    json_init(&j, &b);
    json_obj(&j);
    json_put_str(&j, "s", STR("x\"y"));
    json_put_cstr(&j, "c", "z");
    json_put_u64(&j, "u", UINT64_MAX);
    json_put_i64(&j, "i", -5);
    json_put_i64_str(&j, "t", -5);
    json_put_double(&j, "d", 0.5);
    json_put_bool(&j, "b", false);
    json_obj_end(&j);
    assert_true(str_eqc(buf_str(&b), "{\"s\":\"x\\\"y\",\"c\":\"z\",\"u\":18446744073709551615,"
                                     "\"i\":-5,\"t\":\"-5\",\"d\":0.5,\"b\":false}"));
    buf_deinit(&b);
}

static void lz4_text(struct buf *text, struct buf *z)
{
    struct err e;

    buf_init(text, 4 * MIB);
    buf_init(z, 16 * MIB);
    for (int i = 0; i < 100000; i++)
        buf_addf(text, "line %d\n", i * 7919);
    assert_int_equal(lz4_compress(buf_str(text), z, &e), 0);
    assert_true(lz4_sniff(buf_str(z)));
    assert_true(z->len < text->len);
}

static void test_lz4_into(void **state)
{
    (void)state;
    struct buf text, z;
    struct err e;

    lz4_text(&text, &z);
    char *to = xmalloc(text.len + 1);
    assert_int_equal(lz4_decompress_into(buf_str(&z), to, text.len, &e), 0);
    assert_memory_equal(to, text.ptr, text.len);
    assert_int_equal(lz4_decompress_into(buf_str(&z), to, text.len - 1, &e), ERR_INPUT);
    assert_int_equal(lz4_decompress_into(buf_str(&z), to, text.len + 1, &e), ERR_INPUT);
    assert_int_equal(lz4_decompress_into(STR("garbage"), to, 7, &e), ERR_INPUT);
    assert_int_equal(lz4_decompress_into(STR(""), to, 0, &e), ERR_INPUT);
    for (size_t cut = 0; cut < z.len; cut += 997)
        assert_int_equal(lz4_decompress_into(str_sub(buf_str(&z), 0, cut), to, text.len, &e),
                         ERR_INPUT);
    buf_reset(&z);
    assert_int_equal(zstd_compress(buf_str(&text), 3, &z, &e), 0);
    assert_int_equal(zstd_decompress_into(buf_str(&z), to, text.len, &e), 0);
    assert_memory_equal(to, text.ptr, text.len);
    assert_int_equal(zstd_decompress_into(buf_str(&z), to, text.len - 1, &e), ERR_INPUT);
    assert_int_equal(zstd_decompress_into(buf_str(&z), to, text.len + 1, &e), ERR_INPUT);
    xfree(to);
    buf_deinit(&text);
    buf_deinit(&z);
}

static void test_lz4_limits(void **state)
{
    (void)state;
    struct inflate_limits l = { .bytes_max = 4 * MIB, .ratio_max = 200 };
    struct buf text, z, back, zeros;
    struct err e;

    lz4_text(&text, &z);
    buf_init(&back, 8 * MIB);
    assert_int_equal(lz4_decompress(buf_str(&z), &l, &back, &e), 0);
    assert_true(str_eq(buf_str(&back), buf_str(&text)));
    buf_reset(&back);
    l.bytes_max = text.len;
    assert_int_equal(lz4_decompress(buf_str(&z), &l, &back, &e), 0);
    buf_reset(&back);
    l.bytes_max = text.len - 1;
    assert_int_equal(lz4_decompress(buf_str(&z), &l, &back, &e), ERR_LIMIT);
    buf_reset(&back);
    l.bytes_max = 4 * MIB;
    assert_int_equal(lz4_decompress(str_sub(buf_str(&z), 0, z.len - 1), &l, &back, &e), ERR_INPUT);
    buf_reset(&back);
    buf_init(&zeros, 8 * MIB);
    char *to = buf_room(&zeros, 8 * MIB - 64);
    memset(to, 0, 8 * MIB - 64);
    zeros.len = 8 * MIB - 64;
    buf_reset(&z);
    assert_int_equal(lz4_compress(buf_str(&zeros), &z, &e), 0);
    l.bytes_max = 64 * MIB;
    assert_int_equal(lz4_decompress(buf_str(&z), &l, &back, &e), ERR_LIMIT); /* 255:1 */
    buf_deinit(&zeros);
    buf_deinit(&text);
    buf_deinit(&back);
    buf_deinit(&z);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gzip_round_trip_and_members),
        cmocka_unit_test(test_gunzip_refuses),
        cmocka_unit_test(test_gzip_in_pieces),
        cmocka_unit_test(test_gzip_in_pieces_and_limits),
        cmocka_unit_test(test_gunzip_limits),
        cmocka_unit_test(test_zstd),
        cmocka_unit_test(test_zlib_and_what_follows),
        cmocka_unit_test(test_lz4_into),
        cmocka_unit_test(test_lz4_limits),
        cmocka_unit_test(test_json_writer),
        cmocka_unit_test(test_json_pairs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
