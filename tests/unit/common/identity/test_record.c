/* SPDX-License-Identifier: Apache-2.0
 *
 * Records and blocks as JSON, signatures (values of Python's hmac), ranges of addresses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/identity/record.h"
#include "common/identity/record_net.h"

#define ID    "3fT9aQz07LmB"
#define HASH  "00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF"
#define GRANT "[{\"tenants\":[\"shop\"],\"roles\":[\"push\"]}]"
/* As it is written. */
#define BODY                                                                                  \
    "{\"id\":\"" ID "\",\"hash\":\"00112233445566778899aabbccddeeff0011223344556677"          \
    "8899aabbccddeeff\",\"name\":\"the \\\"shop\\\"\",\"owner\":\"team-a\",\"grants\":" GRANT \
    ",\"from\":1,\"until\":2,\"replaces\":\"000000000000\",\"made_by\":\"key:abc\","          \
    "\"made_at\":3,\"nets\":[\"10.0.0.0/8\",\"::1/128\"]"
#define FULL  BODY "}"
#define BLOCK "{\"id\":\"" ID "\",\"at\":17,\"why\":\"lost\"}"
/* Of Python's hmac over the label, a line end, and the text. */
#define KEY_SIG      "d539090cc62192081b37b8bd07ef02cad1bac9d9fe055b2ad38cb7ba18441ff1"
#define BLOCK_SIG    "562dafd741e83e8d13f53396e86eba29d33571fc22aa8a0b7e414fd4d48d3a8b"
#define SIGNED_KEY   BODY ",\"sig\":\"" KEY_SIG "\"}"
#define SIGNED_BLOCK "{\"id\":\"" ID "\",\"at\":17,\"why\":\"lost\",\"sig\":\"" BLOCK_SIG "\"}"
/* The text of a block, signed as if it were a key. */
#define KEY_AS_BLOCK                                           \
    "{\"id\":\"" ID "\",\"at\":17,\"why\":\"lost\",\"sig\":\"" \
    "1751399fbe6faa671a67773d217e1f350e38ddd4a1eac20c3c65708dc658b1c5\"}"

static const uint8_t sign[RECORD_SIGN_BYTES] = { "an example of 32 bytes, no more." };

static struct key_record *read_key(struct str json)
{
    struct key_record *r;
    struct err e;

    if (record_key_read(json, &r, &e))
        fail_msg("%.*s: %s", STR_ARG(json), e.text);
    return r;
}

static struct str written(const struct key_record *r, const uint8_t *with, struct buf *b)
{
    buf_reset(b);
    record_key_write(r, with, b);
    assert_true(buf_ok(b));
    return buf_str(b);
}

static void test_key_there_and_back(void **state)
{
    (void)state;
    struct key_record *r = read_key(STR(FULL)), *again;
    struct buf b;

    assert_true(str_eqc(r->id, ID));
    assert_int_equal(r->hash[1], 0x11);
    assert_true(str_eqc(r->name, "the \"shop\""));
    assert_true(str_eqc(r->owner, "team-a"));
    assert_int_equal(r->grants.len, 1);
    assert_int_equal(r->from_ms, 1);
    assert_int_equal(r->until_ms, 2);
    assert_int_equal(r->made_ms, 3);
    assert_true(str_eqc(r->replaces, "000000000000"));
    assert_true(str_eqc(r->made_by, "key:abc"));
    assert_int_equal(r->nets_len, 2);
    assert_false(r->from_file);
    buf_init(&b, KEY_RECORD_BYTES_MAX);
    assert_true(str_eqc(written(r, NULL, &b), FULL));
    record_key_unref(r);
    /* Blanks, another order, and fields that may lack. */
    r = read_key(
        STR("{ \"grants\": [], \"hash\" : \"" HASH "\", \"id\":\"" ID "\", \"until\":null}"));
    assert_int_equal(r->until_ms, 0);
    assert_int_equal(r->name.len, 0);
    assert_true(written(r, sign, &b).len > 0);
    again = read_key(buf_str(&b));
    assert_true(str_eqc(again->id, ID));
    assert_memory_equal(again->hash, r->hash, sizeof(r->hash));
    record_key_unref(again);
    record_key_unref(r);
    buf_deinit(&b);
}

static void test_references(void **state)
{
    (void)state;
    struct key_record *r = read_key(STR(FULL));

    assert_int_equal(r->refs, 1);
    assert_ptr_equal(record_key_ref(r), r);
    assert_int_equal(r->refs, 2);
    record_key_unref(r);
    assert_true(str_eqc(r->id, ID));
    record_key_unref(r);
    record_key_unref(NULL);
}

static void test_shown_without_secrets(void **state)
{
    (void)state;
    struct key_record *r = read_key(STR(FULL));
    struct buf b;
    struct json j;

    buf_init(&b, 4 * KIB);
    json_init(&j, &b);
    json_obj(&j);
    record_key_show(r, &j);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&b), STR("\"owner\":\"team-a\"")));
    assert_true(str_contains(buf_str(&b), STR("\"id\":\"" ID "\"")));
    assert_false(str_contains(buf_str(&b), STR("hash")));
    assert_false(str_contains(buf_str(&b), STR("aabbcc")));
    buf_deinit(&b);
    record_key_unref(r);
}

#define WITH(more) "{\"id\":\"" ID "\",\"hash\":\"" HASH "\",\"grants\":" GRANT more "}"

static void test_refused_keys(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want;
    } rows[] = {
        { "", "JSON" },
        { "[]", "want an object" },
        { "{", "JSON" },
        { "{}", "id: want the id of a key" },
        { "{\"id\":\"abc\"}", "id: want the id" },
        { "{\"id\":\"" ID "\"}", "hash: want 64" },
        { "{\"id\":\"" ID "\",\"hash\":\"00\"}", "hash: want 64" },
        { "{\"id\":\"" ID "\",\"hash\":\"" HASH "\"}", "grants: want a list" },
        { WITH(",\"id\":\"" ID "\""), "JSON" },
        { WITH(",\"nets\":\"10.0.0.0/8\""), "nets: want a list" },
        { WITH(",\"nets\":[\"10.0.0.0/8\",\"x\"]"), "nets[1]: \"x\" is not an address" },
        { WITH(",\"nets\":[null]"), "nets[0]" },
        { WITH(",\"from\":-1"), "from: want milliseconds" },
        { WITH(",\"from\":2,\"until\":1"), "until: the key would end" },
        { WITH(",\"until\":\"soon\""), "until: want an integer" },
        { WITH(",\"name\":3"), "name: want a string" },
        { WITH(",\"name\":\"a\\nb\""), "name: a control character at byte 2" },
        { WITH(",\"replaces\":\"x\""), "replaces: want the id" },
        { WITH(",\"scope\":1"), "\"scope\" is not a field" },
        { "{\"id\":\"" ID "\",\"hash\":\"" HASH "\",\"grants\":[{}]}", "grants[0]: tenants" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct key_record *r;
        struct err e;
        int code = record_key_read(str_c(rows[i].text), &r, &e);

        if (code != ERR_INPUT || !strstr(e.text, rows[i].want))
            fail_msg("%s: %d, \"%s\"", rows[i].text, code, code ? e.text : "taken");
    }
}

/* A record of about so many bytes as it is written, in names of tenants. */
static void long_key(size_t bytes, struct buf *b)
{
    buf_reset(b);
    buf_add_str(b, STR("{\"id\":\"" ID "\",\"hash\":\"" HASH "\",\"grants\":["));
    for (size_t i = 0; b->len < bytes; i++) {
        buf_add_str(b, i ? STR(",") : STR(""));
        buf_add_str(
            b, STR("{\"tenants\":[\"a-tenant-with-a-long-name-in-each\"],\"roles\":[\"push\"]}"));
    }
    buf_add_str(b, STR("]}"));
}

static void test_limits(void **state)
{
    (void)state;
    struct key_record *r;
    struct buf b, out;
    struct err e;
    size_t most = 0;

    buf_init(&b, 8 * KIB);
    buf_init(&out, KEY_RECORD_BYTES_MAX);
    /* Whatever is taken can be written with a signature, and read again. */
    for (size_t bytes = 500; bytes < KEY_RECORD_BYTES_MAX + 200; bytes += 20) {
        long_key(bytes, &b);
        int code = record_key_read(buf_str(&b), &r, &e);
        if (code) {
            assert_int_equal(code, ERR_LIMIT);
            continue;
        }
        most = MAX(most, written(r, sign, &out).len);
        record_key_unref(r);
        record_key_unref(read_key(buf_str(&out)));
        assert_true(record_sig_ok(buf_str(&out), sign));
    }
    assert_in_range(most, KEY_RECORD_BYTES_MAX - 100, KEY_RECORD_BYTES_MAX);
    buf_reset(&b);
    buf_add_str(&b, STR("{\"id\":\"" ID "\",\"hash\":\"" HASH "\",\"grants\":[],\"name\":\""));
    for (int i = 0; i < RECORD_NAME_MAX; i++)
        buf_add_c(&b, 'n');
    size_t len = b.len;
    buf_add_str(&b, STR("\"}"));
    record_key_unref(read_key(buf_str(&b)));
    b.len = len;
    buf_add_str(&b, STR("n\"}"));
    assert_int_equal(record_key_read(buf_str(&b), &r, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "name: 101 bytes"));
    buf_deinit(&b);
    buf_deinit(&out);
}

/* ---- blocks, signatures ---------------------------------------------------------------------- */

static void test_block_there_and_back(void **state)
{
    (void)state;
    static const char *const bad[] = { "{}", "[]", "{\"id\":\"" ID "\",\"at\":-1}",
                                       "{\"id\":\"x\",\"at\":1}",
                                       "{\"id\":\"" ID "\",\"at\":1,\"why\":3}" };
    struct arena *a = arena_new(64 * KIB), *full = arena_new(0);
    struct block_record block;
    struct buf b;
    struct err e;

    buf_init(&b, KIB);
    assert_int_equal(record_block_read(STR(BLOCK), a, &block, &e), 0);
    assert_true(str_eqc(block.id, ID));
    assert_true(str_eqc(block.why, "lost"));
    assert_int_equal(block.at_ms, 17);
    record_block_write(&block, NULL, &b);
    assert_true(str_eqc(buf_str(&b), BLOCK));
    buf_reset(&b);
    record_block_write(&block, sign, &b);
    assert_true(str_eqc(buf_str(&b), SIGNED_BLOCK));
    /* Of a later version: a block holds nevertheless. */
    assert_int_equal(
        record_block_read(STR("{\"id\":\"" ID "\",\"at\":1,\"kind\":\"key\"}"), a, &block, &e), 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(record_block_read(str_c(bad[i]), a, &block, &e), ERR_INPUT);
    assert_int_equal(record_block_read(STR(BLOCK), full, &block, &e), ERR_LIMIT);
    buf_deinit(&b);
    arena_free(a);
    arena_free(full);
}

static void test_signatures(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        bool ok;
    } rows[] = {
        { "key", SIGNED_KEY, true },
        { "block", SIGNED_BLOCK, true },
        { "key without", FULL, false },
        { "block without", BLOCK, false },
        { "no JSON", "x", false },
        { "no object", "[]", false },
        { "not a text", "{\"id\":\"" ID "\",\"at\":17,\"why\":\"lost\",\"sig\":3}", false },
        { "short", "{\"id\":\"" ID "\",\"at\":17,\"why\":\"lost\",\"sig\":\"00\"}", false },
        { "key as a block", KEY_AS_BLOCK, false },
        { "unreadable key", "{\"hash\":\"x\",\"sig\":\"" HASH "\"}", false },
        { "unreadable block", "{\"sig\":\"" HASH "\"}", false },
    };
    const uint8_t other[RECORD_SIGN_BYTES] = { 0 };
    struct key_record *r = read_key(STR(FULL));
    struct buf b;

    buf_init(&b, KEY_RECORD_BYTES_MAX);
    assert_true(str_eqc(written(r, sign, &b), SIGNED_KEY));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (record_sig_ok(str_c(rows[i].text), sign) != rows[i].ok)
            fail_msg("%s", rows[i].name);
        assert_false(record_sig_ok(str_c(rows[i].text), other));
    }
    /* Each byte of a signed text matters; blanks do not. */
    for (size_t i = 0; i < b.len; i++) {
        char was = b.ptr[i];

        b.ptr[i] = was == 'a' || was == 'A' ? 'b' : 'a';
        assert_false(record_sig_ok(buf_str(&b), sign));
        b.ptr[i] = was;
    }
    assert_true(record_sig_ok(buf_str(&b), sign));
    b.len--;
    buf_add_str(&b, STR(" }\n"));
    assert_true(record_sig_ok(buf_str(&b), sign));
    buf_deinit(&b);
    record_key_unref(r);
}

/* A record that was put together by hand may be too long for its buffer: then that says so. */
static void test_a_full_buffer(void **state)
{
    (void)state;
    struct key_record *r = read_key(STR(FULL));
    size_t whole;
    struct buf b;

    buf_init(&b, KEY_RECORD_BYTES_MAX);
    whole = written(r, sign, &b).len;
    buf_deinit(&b);
    for (size_t max = 0; max <= whole; max++) {
        buf_init(&b, max);
        record_key_write(r, sign, &b);
        assert_int_equal(buf_ok(&b), max == whole);
        buf_deinit(&b);
    }
    record_key_unref(r);
}

/* ---- addresses ------------------------------------------------------------------------------- */

static void test_ranges(void **state)
{
    (void)state;
    static const struct {
        const char *text, *out; /* out NULL: refused */
    } rows[] = {
        { "10.0.0.0/8", "10.0.0.0/8" },
        { "10.1.2.3", "10.1.2.3/32" },
        { "0.0.0.0/0", "0.0.0.0/0" },
        { "::1", "::1/128" },
        { "::/0", "::/0" },
        { "2001:DB8::/32", "2001:db8::/32" },
        { "::ffff:10.0.0.0/104", "10.0.0.0/8" },
        { "::ffff:0:0/95", NULL },
        { "fe80::/10", "fe80::/10" },
        { "10.0.0.0/33", NULL },
        { "::/129", NULL },
        { "10.1.2.3/8", NULL },
        { "2001:db8::1/64", NULL },
        { "10.0.0.0/", NULL },
        { "10.0.0.0/-1", NULL },
        { "10.0.0.0/8/8", NULL },
        { "10.0.0", NULL },
        { "/8", NULL },
        { "", NULL },
        { "localhost", NULL },
        { "1:2:3:4:5:6:7:8:9", NULL },
        { "0000:0000:0000:0000:0000:0000:0000:0000:0000:0000:0000", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char text[NET_RANGE_TEXT];
        struct net_range r;
        struct err e;
        int code = net_range_parse(str_c(rows[i].text), &r, &e);

        assert_int_equal(code, rows[i].out ? 0 : ERR_INPUT);
        if (code)
            continue;
        net_range_format(&r, text);
        assert_string_equal(text, rows[i].out);
    }
    assert_int_equal(
        net_range_parse(STR("10.0.0.1\0"), &(struct net_range){ 0 }, &(struct err){ 0 }),
        ERR_INPUT);
}

static void test_peers(void **state)
{
    (void)state;
    static const struct {
        const char *range, *peer;
        bool in;
    } rows[] = {
        { "10.0.0.0/8", "10.255.255.255:1", true },
        { "10.0.0.0/8", "11.0.0.0:1", false },
        { "10.0.0.0/9", "10.127.0.1:1", true },
        { "10.0.0.0/9", "10.128.0.1:1", false },
        { "10.1.2.3", "10.1.2.3:65535", true },
        { "10.1.2.3", "10.1.2.4:65535", false },
        { "10.0.0.0/8", "[::ffff:10.0.0.1]:1", true },
        { "0.0.0.0/0", "[::1]:1", false },
        { "::/0", "10.0.0.1:1", true },
        { "::1", "[::1]:9", true },
        { "::1", "[::2]:9", false },
        { "fe80::/10", "[fe80::1%eth0]:9", true },
        { "2001:db8::/33", "[2001:db8:7fff::1]:9", true },
        { "2001:db8::/33", "[2001:db8:8000::1]:9", false },
        { "::/0", "unix:/run/x", false },
        { "::/0", "unix:@", false },
        { "::/0", "", false },
        { "::/0", "[::1", false },
        { "::/0", "?:80", false },
        { "::/0", "10.0.0.1", true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct net_range r[2];
        struct err e;

        assert_int_equal(net_range_parse(STR("192.0.2.1"), &r[0], &e), 0);
        assert_int_equal(net_range_parse(str_c(rows[i].range), &r[1], &e), 0);
        if (net_range_has(r, 2, rows[i].peer) != rows[i].in)
            fail_msg("%s in %s", rows[i].peer, rows[i].range);
        assert_false(net_range_has(r, 0, rows[i].peer));
    }
    assert_false(net_range_has(NULL, 0, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_there_and_back),
        cmocka_unit_test(test_references),
        cmocka_unit_test(test_shown_without_secrets),
        cmocka_unit_test(test_refused_keys),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_block_there_and_back),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_a_full_buffer),
        cmocka_unit_test(test_ranges),
        cmocka_unit_test(test_peers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
