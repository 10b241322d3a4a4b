/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/hash.h"
#include "common/base/prng.h"
#include "common/base/wr.h"
#include "common/rpc/rpc_frame.h"

static const struct rpc_frame request = {
    .version = 1,
    .speaks_min = 1,
    .speaks_max = 1,
    .kind = RPC_REQUEST,
    .method = 2,
    .epoch = 0x1122334455667788,
    .seq = 9,
    .id = 77,
    .left_ms = 1500,
    .total = 5,
    .raw = 5,
    .link = 0x0a0b0c0d,
    .addr = { "tcp://10.0.0.7:9095", 19 },
    .body = { "hello", 5 },
};

static void encode(const struct rpc_frame *f, struct buf *out)
{
    uint8_t head[RPC_FRAME_HEAD_MAX];
    size_t n = rpc_frame_head(f, head);

    buf_add(out, head, n);
    buf_add_str(out, f->body);
}

/* The checksum again, after a test changed bytes: offset 76, over everything with it zero. */
static void seal(struct buf *b)
{
    put_u32le(b->ptr + 76, 0);
    put_u32le(b->ptr + 76, crc32c(0, b->ptr, b->len));
}

static enum rpc_drop parse(const struct buf *b, struct rpc_frame *ret)
{
    enum rpc_drop why;
    struct err e;
    int code = rpc_frame_parse(buf_str(b), 1, 1, ret, &why, &e);

    assert_int_equal(code == 0, why == RPC_DROP_NONE);
    return why;
}

static void what_goes_in_comes_out(void **state)
{
    struct rpc_frame f = request, got;
    struct buf b;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&f, &b);
    assert_int_equal(b.len, 80 + 19 + 4 + 5);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_int_equal(got.kind, RPC_REQUEST);
    assert_int_equal(got.method, 2);
    assert_true(got.epoch == f.epoch && got.seq == 9 && got.id == 77 && got.left_ms == 1500);
    assert_true(str_eq(got.addr, f.addr) && str_eq(got.body, f.body));
    assert_int_equal(got.total, 5);
    assert_int_equal(got.link, 0x0a0b0c0d);
    buf_deinit(&b);
}

/* Errors may say when to try again, behind what builds before read; nothing else does. */
static void errors_say_when_to_try_again(void **state)
{
    struct rpc_frame f = request, got;
    struct buf b;

    (void)state;
    f.kind = RPC_ERROR;
    f.method = 0;
    f.code = ERR_BUSY;
    f.again_s = 42;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&f, &b);
    assert_int_equal(b.len, 80 + 19 + 4 + 4 + 5);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_int_equal(got.again_s, 42);
    assert_int_equal(got.link, f.link);
    assert_true(str_eqc(got.body, "hello"));
    b.ptr[7] = RPC_REQUEST;
    b.ptr[12] = 2;
    b.ptr[14] = 0;
    seal(&b);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_int_equal(got.again_s, 0);
    buf_reset(&b);
    f.again_s = 0;
    encode(&f, &b);
    assert_int_equal(b.len, 80 + 19 + 4 + 5);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_int_equal(got.again_s, 0);
    buf_deinit(&b);
}

/* Only where it is known; builds before the field pass over it, as over all that is appended. */
static void the_cluster_is_said_behind_the_link(void **state)
{
    struct rpc_frame f = request, got;
    struct buf b;

    (void)state;
    f.cluster = 0x1122334455667788;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&f, &b);
    assert_int_equal(b.len, 80 + 19 + 4 + 4 + 8 + 5);
    assert_memory_equal(b.ptr + 103, "\0\0\0\0\x88\x77\x66\x55\x44\x33\x22\x11hello", 17);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_true(got.cluster == f.cluster && str_eqc(got.body, "hello"));
    buf_deinit(&b);
}

/* Builds before the field: the head ends with the address. */
static void a_head_without_a_link_is_read(void **state)
{
    struct rpc_frame got;
    struct buf b;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&request, &b);
    memmove(b.ptr + 99, b.ptr + 103, 5);
    b.len -= 4;
    b.ptr[8] = 99;
    seal(&b);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_int_equal(got.link, 0);
    assert_true(str_eqc(got.body, "hello"));
    buf_deinit(&b);
}

/* The drawing in rpc_frame.h, by hand. */
static void bytes_are_where_the_header_draws_them(void **state)
{
    static const uint8_t want[] = {
        'E',  'M',  'B',  'R',  1,    1,    1,    3,    /* magic, version, speaks, kind */
        103,  0,    0,    0,    2,    0,    0,    0,    /* head, flags, lane, method, code */
        0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, /* epoch */
        0,    0,    0,    0,    0,    0,    0,    0,    /* to_epoch */
        9,    0,    0,    0,    0,    0,    0,    0,    /* seq */
        77,   0,    0,    0,    0,    0,    0,    0,    /* id */
        0xdc, 0x05, 0,    0,    0,    0,    0,    0,    /* left_ms, offset */
        5,    0,    0,    0,    5,    0,    0,    0,    /* total, raw */
        5,    0,    0,    0,    19,   0,    0,    0,    /* length, address, zero */
        0,    0,    0,    0,                            /* zero */
    };
    struct buf b;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&request, &b);
    assert_memory_equal(b.ptr, want, sizeof(want));
    assert_memory_equal(b.ptr + 80, "tcp://10.0.0.7:9095\x0d\x0c\x0b\x0ahello", 28);
    buf_deinit(&b);
}

static void every_flipped_bit_is_seen(void **state)
{
    struct rpc_frame got;
    struct buf b;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&request, &b);
    for (size_t bit = 0; bit < b.len * 8; bit++) {
        b.ptr[bit / 8] = (char)(b.ptr[bit / 8] ^ 1 << bit % 8);
        assert_int_not_equal(parse(&b, &got), RPC_DROP_NONE);
        b.ptr[bit / 8] = (char)(b.ptr[bit / 8] ^ 1 << bit % 8);
    }
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    buf_deinit(&b);
}

static void every_cut_is_seen(void **state)
{
    struct rpc_frame got;
    struct buf b;
    size_t len;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&request, &b);
    len = b.len;
    for (b.len = 0; b.len < len; b.len++)
        assert_int_equal(parse(&b, &got), RPC_DROP_SHORT);
    b.len = len;
    buf_add_c(&b, 'x');
    assert_int_equal(parse(&b, &got), RPC_DROP_SHORT);
    buf_deinit(&b);
}

/* Fields changed one at a time, checksum made right again. */
static void contradictions_are_refused(void **state)
{
    static const struct {
        const char *name;
        size_t at;
        uint8_t to;
        enum rpc_drop want;
    } rows[] = {
        { "magic", 0, 'X', RPC_DROP_MAGIC },
        { "version 0", 4, 0, RPC_DROP_VERSION },
        { "version 2", 4, 2, RPC_DROP_VERSION },
        { "speaks nothing", 5, 0, RPC_DROP_HEADER },
        { "speaks backwards", 5, 2, RPC_DROP_HEADER },
        { "kind 0", 7, 0, RPC_DROP_HEADER },
        { "kind 9", 7, 9, RPC_DROP_HEADER },
        { "cancel with a method", 7, RPC_CANCEL, RPC_DROP_HEADER },
        { "error without a code", 7, RPC_ERROR, RPC_DROP_HEADER },
        { "head too short", 8, 98, RPC_DROP_SHORT },
        { "head past the end", 9, 1, RPC_DROP_SHORT },
        { "unknown flag", 10, 2, RPC_DROP_HEADER },
        { "lane 2", 11, 2, RPC_DROP_HEADER },
        { "no method", 12, 0, RPC_DROP_HEADER },
        { "a code", 14, 3, RPC_DROP_HEADER },
        { "seq 0", 32, 0, RPC_DROP_HEADER },
        { "offset not of a chunk", 52, 1, RPC_DROP_HEADER },
        { "offset past the end", 54, 4, RPC_DROP_HEADER },
        { "total over length", 56, 6, RPC_DROP_HEADER },
        { "total under length", 56, 4, RPC_DROP_HEADER },
        { "raw, not compressed", 60, 6, RPC_DROP_HEADER },
        { "length", 64, 4, RPC_DROP_SHORT },
        { "no address", 68, 0, RPC_DROP_HEADER },
        { "address past the head", 69, 1, RPC_DROP_SHORT },
        { "reserved", 70, 1, RPC_DROP_HEADER },
        { "reserved, last", 75, 1, RPC_DROP_HEADER },
        { "NUL in address", 82, 0, RPC_DROP_HEADER },
        { "blank in address", 82, ' ', RPC_DROP_HEADER },
        { "high byte in address", 82, 0xff, RPC_DROP_HEADER },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct rpc_frame got;
        enum rpc_drop why;
        struct buf b;

        buf_init(&b, RPC_FRAME_MAX);
        encode(&request, &b);
        b.ptr[rows[i].at] = (char)rows[i].to;
        seal(&b);
        why = parse(&b, &got);
        if (why != rows[i].want)
            fail_msg("%s: %s", rows[i].name, rpc_drop_name(why));
        buf_deinit(&b);
    }
}

/* All else about it is right: its length is the rest from there. */
static void offsets_are_whole_chunks(void **state)
{
    static char body[1000];

    (void)state;
    for (uint32_t shift = 0; shift < 2; shift++) {
        struct rpc_frame f = request, got;
        struct buf b;

        f.total = f.raw = (uint32_t)RPC_FRAME_CHUNK + 1000;
        f.offset = (uint32_t)RPC_FRAME_CHUNK + shift;
        f.body = str_n(body, 1000 - shift);
        buf_init(&b, RPC_FRAME_MAX);
        encode(&f, &b);
        assert_int_equal(parse(&b, &got), shift ? RPC_DROP_HEADER : RPC_DROP_NONE);
        /* And the payload is all of it from there: a byte less would leave a hole. */
        buf_reset(&b);
        f.offset = (uint32_t)RPC_FRAME_CHUNK;
        f.body = str_n(body, 999);
        encode(&f, &b);
        assert_int_equal(parse(&b, &got), RPC_DROP_HEADER);
        buf_deinit(&b);
    }
}

static void small_kinds_stay_small(void **state)
{
    static const uint8_t kinds[] = { RPC_PING, RPC_PONG, RPC_CANCEL, RPC_FIN, RPC_FINACK };
    static const char body[2000];

    (void)state;
    for (size_t i = 0; i <= ARRAY_LEN(kinds); i++) {
        bool error = i == ARRAY_LEN(kinds);
        size_t most = error ? ERR_TEXT_MAX : RPC_FRAME_SMALL_MAX;

        for (size_t len = most; len <= most + 1; len++) {
            struct rpc_frame f = request, got;
            struct buf b;

            f.kind = error ? RPC_ERROR : kinds[i];
            f.method = 0;
            f.code = error ? 5 : 0;
            f.body = str_n(body, len);
            f.total = f.raw = (uint32_t)len;
            buf_init(&b, RPC_FRAME_MAX);
            encode(&f, &b);
            assert_int_equal(parse(&b, &got), len > most ? RPC_DROP_HEADER : RPC_DROP_NONE);
            buf_deinit(&b);
        }
    }
}

/* A build that reads 2 to 3 meets version 1: only pings and pongs, in all later versions, too. */
static void pings_are_read_by_every_build(void **state)
{
    struct rpc_frame f = request, got;
    enum rpc_drop why;
    struct buf b;
    struct err e;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    encode(&f, &b);
    assert_int_equal(rpc_frame_parse(buf_str(&b), 2, 3, &got, &why, &e), ERR_UNAVAILABLE);
    assert_int_equal(why, RPC_DROP_VERSION);
    assert_string_equal(e.text, "frame is in rpc version 1, this build reads 2 to 3: upgrade one "
                                "version at a time");
    f.kind = RPC_PING;
    f.method = 0;
    buf_reset(&b);
    encode(&f, &b);
    assert_int_equal(rpc_frame_parse(buf_str(&b), 2, 3, &got, &why, &e), 0);
    /* And N reads N - 1. */
    f.kind = RPC_REQUEST;
    f.method = 1;
    f.version = 2;
    buf_reset(&b);
    encode(&f, &b);
    assert_int_equal(rpc_frame_parse(buf_str(&b), 2, 3, &got, &why, &e), 0);
    assert_int_equal(rpc_frame_parse(buf_str(&b), 1, 2, &got, &why, &e), 0);
    assert_int_equal(rpc_frame_parse(buf_str(&b), 1, 1, &got, &why, &e), ERR_UNAVAILABLE);
    buf_deinit(&b);
}

/* What a later build appends to the head is skipped. */
static void a_longer_head_is_skipped(void **state)
{
    struct rpc_frame f = request, got;
    uint8_t head[RPC_FRAME_HEAD_MAX];
    struct buf b;

    (void)state;
    buf_init(&b, RPC_FRAME_MAX);
    rpc_frame_head(&f, head);
    buf_add(&b, head, 99);
    buf_add(&b, "new field", 9);
    buf_add_str(&b, f.body);
    b.ptr[8] = 99 + 9;
    seal(&b);
    assert_int_equal(parse(&b, &got), RPC_DROP_NONE);
    assert_true(str_eqc(got.body, "hello"));
    buf_deinit(&b);
}

static void random_frames_round_trip(void **state)
{
    uint64_t seed = 20210711;
    struct prng p;

    (void)state;
    prng_init(&p, seed);
    for (int i = 0; i < 2000; i++) {
        uint32_t chunks = (uint32_t)prng_below(&p, 4);
        uint32_t tail = (uint32_t)prng_below(&p, 300);
        uint32_t total = chunks * (uint32_t)RPC_FRAME_CHUNK + tail;
        uint32_t at = (uint32_t)prng_below(&p, chunks + 1) * (uint32_t)RPC_FRAME_CHUNK;
        struct rpc_frame f = request, got;
        struct buf body, b;

        if (at == total && total)
            at -= (uint32_t)RPC_FRAME_CHUNK;
        buf_init(&body, RPC_FRAME_MAX);
        for (uint32_t k = 0; k < MIN(total - at, (uint32_t)RPC_FRAME_CHUNK); k++)
            buf_add_c(&body, (char)k);
        f.kind = prng_chance(&p, 0.5) ? RPC_REQUEST : RPC_REPLY;
        f.method = f.kind == RPC_REQUEST ? (uint16_t)(1 + prng_below(&p, 60000)) : 0;
        f.epoch = prng_u64(&p) | 1;
        f.to_epoch = prng_u64(&p);
        f.seq = prng_u64(&p) | 1;
        f.id = prng_u64(&p);
        f.left_ms = (uint32_t)prng_u64(&p);
        f.flags = total && prng_chance(&p, 0.5) ? RPC_FLAG_ZSTD : 0;
        f.total = total;
        f.raw = f.flags ? (uint32_t)prng_u64(&p) | 1 : total;
        f.offset = at;
        f.body = buf_str(&body);
        buf_init(&b, RPC_FRAME_MAX);
        encode(&f, &b);
        if (parse(&b, &got) != RPC_DROP_NONE)
            fail_msg("seed %ju, frame %d", (uintmax_t)seed, i);
        assert_true(got.id == f.id && got.seq == f.seq && got.offset == at && got.raw == f.raw);
        assert_true(got.flags == f.flags && got.to_epoch == f.to_epoch && got.total == total);
        assert_true(str_eq(got.body, f.body) && str_eq(got.addr, f.addr));
        buf_deinit(&b);
        buf_deinit(&body);
    }
}

static void every_drop_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < RPC_DROPS; i++)
        assert_true(rpc_drop_name((enum rpc_drop)i)[0] != 0);
    assert_string_equal(rpc_kind_name(RPC_FINACK), "fin_ack");
    assert_string_equal(rpc_kind_name(200), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_goes_in_comes_out),
        cmocka_unit_test(errors_say_when_to_try_again),
        cmocka_unit_test(a_head_without_a_link_is_read),
        cmocka_unit_test(the_cluster_is_said_behind_the_link),
        cmocka_unit_test(bytes_are_where_the_header_draws_them),
        cmocka_unit_test(every_flipped_bit_is_seen),
        cmocka_unit_test(every_cut_is_seen),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(offsets_are_whole_chunks),
        cmocka_unit_test(small_kinds_stay_small),
        cmocka_unit_test(pings_are_read_by_every_build),
        cmocka_unit_test(a_longer_head_is_skipped),
        cmocka_unit_test(random_frames_round_trip),
        cmocka_unit_test(every_drop_has_a_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
