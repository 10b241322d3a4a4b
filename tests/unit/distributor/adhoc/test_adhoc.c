/* SPDX-License-Identifier: Apache-2.0
 *
 * Uploaded profiles as bytes and back: random pushes, damage, names, types, views, messages.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
/* cmocka wants the three first ones before it */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/prng.h"
#include "common/net/json_in.h"
#include "distributor/adhoc/adhoc_msg.h"
#include "distributor/adhoc/adhoc_view.h"
#include "tests/lib/roles/dist_push.h"

static struct limits limits;
static struct err e;

static void decode(struct dist_push *d, const char *name, const char *text)
{
    limits = limits_default();
    if (dist_decode(d, name, "groups", NULL, str_c(text), &limits, &e))
        fail_msg("%s", e.text);
}

/* ---- bodies ---------------------------------------------------------------------------------- */

static void same_u32(const uint32_t *a, const uint32_t *b, size_t n)
{
    assert_true(n == 0 || memcmp(a, b, n * sizeof(*a)) == 0);
}

static void same(const struct push *p, const struct adhoc_profile *q)
{
    struct stacks_view v = stacks_view(&p->stacks), w = q->stacks;

    assert_true(v.strings == w.strings && v.frames == w.frames && v.nodes == w.nodes);
    assert_true(str_eq(v.string_data, w.string_data));
    same_u32(v.string_len, w.string_len, v.strings);
    same_u32(v.frame_func, w.frame_func, v.frames);
    same_u32(v.frame_file, w.frame_file, v.frames);
    same_u32(v.frame_line, w.frame_line, v.frames);
    same_u32(v.frame_module, w.frame_module, v.frames);
    assert_true(!v.frames || !memcmp(v.frame_addr, w.frame_addr, v.frames * 8));
    same_u32(v.node_parent, w.node_parent, v.nodes);
    same_u32(v.node_frame, w.node_frame, v.nodes);
    assert_int_equal(p->series_len, q->len);
    for (size_t i = 0; i < q->len; i++) {
        const struct push_series *a = &p->series[i];
        const struct adhoc_series *b = &q->series[i];
        assert_true(str_eq(a->profile_type, b->type) && labels_eq(&a->labels, &b->labels));
        assert_true(a->gauge == b->gauge && a->total == b->total && a->len == b->len);
        same_u32(a->nodes, b->nodes, a->len);
        assert_true(!a->len || !memcmp(a->values, b->values, a->len * 8));
    }
}

static void random_text(struct prng *r, struct buf *out)
{
    buf_init(out, MIB);
    for (uint64_t i = 0, n = 1 + prng_below(r, 200); i < n; i++) {
        for (uint64_t k = 0, deep = 1 + prng_below(r, 12); k < deep; k++)
            buf_addf(out, "%sf%" PRIu64, k ? ";" : "", prng_below(r, 30));
        buf_addf(out, " %" PRIu64 "\n", 1 + (prng_u64(r) >> (20 + prng_below(r, 43))));
    }
}

static void test_round_trip(void **state)
{
    struct timespec t;
    struct prng r;

    (void)state;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    uint64_t seed = getenv("SEED") ? strtoull(getenv("SEED"), NULL, 0) : (uint64_t)t.tv_nsec;
    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&r, seed);
    for (int i = 0; i < 60; i++) {
        struct arena *a = arena_new(64 * MIB);
        struct adhoc_profile q;
        struct dist_push d;
        struct buf text, body;
        random_text(&r, &text);
        buf_add_c(&text, '\0');
        decode(&d, i % 2 ? "app.cpu" : "app.inuse_space", text.ptr);
        buf_init(&body, 16 * MIB);
        assert_int_equal(adhoc_profile_pack(&d.push, 64 * MIB, &body, &e), 0);
        assert_true(adhoc_profile_size(buf_str(&body)) > 0);
        if (adhoc_profile_read(buf_str(&body), 64 * MIB, a, &q, &e))
            fail_msg("%s", e.text);
        same(&d.push, &q);
        assert_true(arena_used(a) <= adhoc_profile_cost(adhoc_profile_size(buf_str(&body))));
        dist_push_free(&d);
        buf_deinit(&text);
        buf_deinit(&body);
        arena_free(a);
    }
}

/* Whatever is damaged is refused, or is another sound profile: never read past its end. */
static void test_damage(void **state)
{
    struct arena *a = arena_new(64 * MIB);
    struct adhoc_profile q;
    struct dist_push d;
    struct buf body;

    (void)state;
    decode(&d, "app.cpu", "a;b;c 3\na;d 4\ne 5\n");
    buf_init(&body, MIB);
    assert_int_equal(adhoc_profile_pack(&d.push, MIB, &body, &e), 0);
    for (size_t i = 0; i < body.len; i++) {
        arena_reset(a);
        int rc = adhoc_profile_read(str_sub(buf_str(&body), 0, i), MIB, a, &q, &e);
        assert_int_equal(rc, ERR_CORRUPT);
    }
    for (size_t i = 0; i < body.len; i++) {
        body.ptr[i] ^= 0x41;
        arena_reset(a);
        int rc = adhoc_profile_read(buf_str(&body), MIB, a, &q, &e);
        assert_true(rc == 0 || rc == ERR_CORRUPT || rc == ERR_LIMIT);
        body.ptr[i] ^= 0x41;
    }
    arena_reset(a);
    assert_int_equal(adhoc_profile_read(buf_str(&body), 10, a, &q, &e), ERR_LIMIT);
    struct arena *small = arena_new(200);
    assert_int_equal(adhoc_profile_read(buf_str(&body), MIB, small, &q, &e), ERR_LIMIT);
    arena_free(small);
    buf_reset(&body);
    assert_int_equal(adhoc_profile_pack(&d.push, 20, &body, &e), ERR_LIMIT);
    buf_deinit(&body);
    buf_init(&body, 20);
    assert_int_equal(adhoc_profile_pack(&d.push, MIB, &body, &e), ERR_LIMIT);
    buf_deinit(&body);
    dist_push_free(&d);
    arena_free(a);
}

/* The bytes of a stored profile are a format: they may not change without a new version. */
static void test_golden(void **state)
{
    static const char head[] = "\3\0\1\1ab"             /* strings */
                               "\2\1\2\0\0\0\0\0\0\0\0" /* frames */
                               "\2\1\1\0\1"             /* nodes */
                               "\1\x2bprocess_cpu:cpu:nanoseconds:cpu:nanoseconds\0";
    static const char tail[] = "\x80\x87\xa7\x0e" /* total */
                               "\1\3\x80\x87\xa7\x0e";
    struct arena *a = arena_new(MIB);
    struct adhoc_profile q;
    struct dist_push d;
    struct buf body, plain;

    (void)state;
    decode(&d, "app.cpu", "a;b 3\n");
    buf_init(&body, MIB);
    buf_init(&plain, MIB);
    assert_int_equal(adhoc_profile_pack(&d.push, MIB, &body, &e), 0);
    assert_int_equal(body.ptr[0], 1);
    size_t at = adhoc_profile_size(buf_str(&body)) < 128 ? 2 : 3;
    assert_int_equal(zstd_decompress(str_sub(buf_str(&body), at, body.len), MIB, &plain, &e), 0);
    assert_true(str_starts(buf_str(&plain), str_n(head, sizeof(head) - 1)));
    assert_true(str_ends(buf_str(&plain), str_n(tail, sizeof(tail) - 1)));
    body.ptr[0] = 2; /* of a later version */
    assert_int_equal(adhoc_profile_read(buf_str(&body), MIB, a, &q, &e), ERR_CORRUPT);
    assert_int_equal(adhoc_profile_size(buf_str(&body)), 0);
    arena_free(a);
    buf_deinit(&body);
    buf_deinit(&plain);
    dist_push_free(&d);
}

/* ---- ids and meta ---------------------------------------------------------------------------- */

static void test_ids(void **state)
{
    /* The ULID specification's example time; the ends of the random part. */
    static const struct {
        int64_t ms;
        int fill;
        const char *name, *want;
    } rows[] = {
        { 1469918176385, 0, "a b/c\\d e.pprof", "01ARYZ6S410000000000000000-d_e.pprof" },
        { 1469918176385, 0xff, "", "01ARYZ6S41ZZZZZZZZZZZZZZZZ-profile" },
        { 0, 1, "\xc3\xa9<x>", "0000000000040G2081040G2081-___x_" },
        { INT64_C(281474976710655), 0, "../..", "7ZZZZZZZZZ0000000000000000-.." },
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t random[10];
        struct buf id;
        memset(random, rows[i].fill, sizeof(random));
        buf_init(&id, KIB);
        adhoc_id_make(rows[i].ms, random, str_c(rows[i].name), &id);
        if (!str_eqc(buf_str(&id), rows[i].want))
            fail_msg("want %s, got %.*s", rows[i].want, STR_ARG(buf_str(&id)));
        assert_int_equal(adhoc_id_check(buf_str(&id), &e), 0);
        assert_true(adhoc_id_ms(buf_str(&id)) == rows[i].ms);
        buf_deinit(&id);
    }
    static const char *const bad[] = { "",
                                       "x",
                                       "01ARYZ6S410000000000000000",
                                       "01ARYZ6S410000000000000000-",
                                       "01ARYZ6S41000000000000000U-a",
                                       "81ARYZ6S410000000000000000-a",
                                       "01ARYZ6S410000000000000000-a/b",
                                       "01ARYZ6S410000000000000000_a" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(adhoc_id_check(str_c(bad[i]), &e), ERR_INPUT);
}

static void test_long_name(void **state)
{
    char name[400];
    uint8_t random[10] = { 0 };
    struct buf id;

    (void)state;
    memset(name, 'n', sizeof(name));
    memcpy(name + sizeof(name) - 6, ".pprof", 6);
    buf_init(&id, KIB);
    adhoc_id_make(1, random, str_n(name, sizeof(name)), &id);
    assert_int_equal(adhoc_id_check(buf_str(&id), &e), 0);
    assert_int_equal(id.len, ADHOC_ULID_LEN + 1 + ADHOC_NAME_MAX);
    assert_true(str_ends(buf_str(&id), STR("n.pprof")));
    buf_deinit(&id);
}

static void test_meta(void **state)
{
    const struct adhoc_type types[] = { { STR("p:x:count:p:n"), STR_NULL, 7 },
                                        { STR("q:x:count:p:n"), STR_NULL, INT64_MAX },
                                        { STR("q:y:bytes:p:n"), STR_NULL, 0 } };
    struct adhoc_meta m = { STR("a name"), STR("pprof"), 12345, 678, types, 3, STR_NULL }, got;
    struct arena *a = arena_new(MIB);
    struct buf b;

    (void)state;
    buf_init(&b, 16 * KIB);
    adhoc_meta_pack(&m, &b);
    assert_int_equal(adhoc_meta_read(buf_str(&b), a, &got, &e), 0);
    assert_true(str_eqc(got.name, "a name") && str_eqc(got.format, "pprof"));
    assert_true(got.size == 12345 && got.samples == 678 && got.types_len == 3);
    for (size_t i = 0; i < 3; i++)
        assert_true(str_eq(got.types[i].id, types[i].id) && got.types[i].total == types[i].total);
    assert_true(str_eqc(got.types[1].shown, "q:x:count:p:n")); /* two are called x */
    assert_true(str_eqc(got.types[2].shown, "y"));
    assert_int_equal(got.owner.len, 0);
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(adhoc_meta_read(str_sub(buf_str(&b), 0, i), a, &got, &e), ERR_CORRUPT);
    /* The owner stands behind what older versions wrote, and read. */
    size_t without = b.len;
    buf_reset(&b);
    m.owner = STR("aaaaaaaaaaaa");
    adhoc_meta_pack(&m, &b);
    assert_int_equal(adhoc_meta_read(buf_str(&b), a, &got, &e), 0);
    assert_true(str_eqc(got.owner, "aaaaaaaaaaaa") && got.types_len == 3);
    for (size_t i = 0; i < b.len; i++)
        assert_int_equal(adhoc_meta_read(str_sub(buf_str(&b), 0, i), a, &got, &e),
                         i == without ? 0 : ERR_CORRUPT);
    buf_deinit(&b);
    arena_free(a);
}

static void test_meta_is_cut(void **state)
{
    struct adhoc_type types[100];
    struct arena *a = arena_new(MIB);
    struct adhoc_meta m = { .types = types, .types_len = 100 }, got;
    char id[1000];
    struct buf b;

    (void)state;
    memset(id, 'x', sizeof(id));
    for (size_t i = 0; i < 100; i++)
        types[i] = (struct adhoc_type){ .id = str_n(id, i < 20 ? sizeof(id) : 5) };
    buf_init(&b, 16 * KIB);
    adhoc_meta_pack(&m, &b);
    assert_true(buf_ok(&b));
    assert_int_equal(adhoc_meta_read(buf_str(&b), a, &got, &e), 0);
    assert_int_equal(got.types_len, 12);
    buf_deinit(&b);
    arena_free(a);
}

/* ---- views ----------------------------------------------------------------------------------- */

struct opened {
    struct dist_push d;
    struct arena *arena;
    struct adhoc_profile profile;
    struct adhoc_meta meta;
    struct buf body;
};

static void open_text(struct opened *o, const char *name, const char *text)
{
    decode(&o->d, name, text);
    o->arena = arena_new(64 * MIB);
    buf_init(&o->body, MIB);
    assert_int_equal(adhoc_profile_pack(&o->d.push, MIB, &o->body, &e), 0);
    assert_int_equal(adhoc_profile_read(buf_str(&o->body), MIB, o->arena, &o->profile, &e), 0);
    assert_int_equal(adhoc_types_of(&o->profile, o->arena, &o->meta, &e), 0);
}

static void close_text(struct opened *o)
{
    dist_push_free(&o->d);
    arena_free(o->arena);
    buf_deinit(&o->body);
}

static void expect(const struct buf *got, const char *want)
{
    if (!str_eqc(buf_str(got), want))
        fail_msg("got  %.*s\nwant %s", STR_ARG(buf_str(got)), want);
}

static void test_views(void **state)
{
    struct opened o[3];
    struct adhoc_side sides[2];
    struct buf out;
    struct json j;

    (void)state;
    open_text(&o[0], "app.inuse_space", "a;b 30\na 10\n");
    open_text(&o[1], "app.inuse_space", "a;b 10\nc 5\n");
    open_text(&o[2], "app.cpu", "a 1\n");
    buf_init(&out, MIB);
    sides[0] = (struct adhoc_side){ &o[0].profile, &o[0].meta, NULL };
    sides[1] = (struct adhoc_side){ &o[1].profile, &o[1].meta, NULL };
    assert_int_equal(adhoc_choose(sides, 1, STR("inuse_space"), &e), 0);
    assert_int_equal(adhoc_choose(sides, 2, STR_NULL, &e), 0);
    json_init(&j, &out);
    json_obj(&j);
    assert_int_equal(adhoc_view_flame(sides, 0, 1, &j, &e), 0);
    json_obj_end(&j);
    expect(&out, "{\"version\":1,\"flamebearer\":{\"names\":[\"total\",\"a\",\"b\"],\"levels\":"
                 "[[0,40,0,0],[0,40,10,1],[10,30,30,2]],\"numTicks\":40,\"maxSelf\":30},"
                 "\"metadata\":{\"format\":\"single\",\"spyName\":\"\",\"sampleRate\":100,"
                 "\"units\":\"bytes\",\"name\":\"inuse_space\"},\"timeline\":null,\"groups\":null,"
                 "\"heatmap\":null}");
    buf_reset(&out);
    json_init(&j, &out);
    json_obj(&j);
    assert_int_equal(adhoc_view_diff(sides, 0, 1, &j, &e), 0);
    json_obj_end(&j);
    assert_true(str_contains(buf_str(&out), STR("[[0,40,0,0,15,0,0],[0,40,10,0,10,0,1,0,0,0,0,5,5,"
                                                "2],[10,30,30,0,10,10,3]]")));
    assert_true(str_contains(buf_str(&out), STR("\"leftTicks\":40,\"rightTicks\":15")));
    assert_true(str_contains(buf_str(&out), STR("\"format\":\"double\"")));
    buf_reset(&out);
    assert_int_equal(adhoc_view_folded(sides, 0, 1, &out, &e), 0);
    expect(&out, "a 10\na;b 30\n");

    assert_int_equal(adhoc_choose(sides, 1, STR("cpu"), &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "no type \"cpu\", but inuse_space"));
    sides[1] = (struct adhoc_side){ &o[2].profile, &o[2].meta, NULL };
    assert_int_equal(adhoc_choose(sides, 2, STR_NULL, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "inuse_space and cpu"));
    assert_int_equal(adhoc_choose(sides, 1, STR_NULL, &e), 0);
    buf_deinit(&out);
    buf_init(&out, 30);
    json_init(&j, &out);
    json_obj(&j);
    assert_int_equal(adhoc_view_flame(sides, 0, 1, &j, &e), ERR_LIMIT);
    buf_deinit(&out);
    for (size_t i = 0; i < 3; i++)
        close_text(&o[i]);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void test_asks(void **state)
{
    struct json_doc *doc;
    struct adhoc_ask q;

    (void)state;
    assert_int_equal(
        adhoc_ask_proto(ADHOC_UPLOAD, STR("\x0a\1n\x12\4YQ==\x18\xac\2\x78\1"), &q, &e), 0);
    assert_true(str_eqc(q.name, "n") && str_eqc(q.profile, "YQ==") && q.nodes == 300);
    assert_int_equal(adhoc_ask_proto(ADHOC_DIFF, STR("\x0a\1l\x12\1r\x1a\1t\x20\7"), &q, &e), 0);
    assert_true(str_eqc(q.id, "l") && str_eqc(q.other_id, "r") && str_eqc(q.type, "t"));
    assert_int_equal(q.nodes, 7);
    assert_int_equal(adhoc_ask_proto(ADHOC_GET, STR("\x0a\5l"), &q, &e), ERR_INPUT);
    assert_int_equal(adhoc_ask_proto(ADHOC_LIST, STR_NULL, &q, &e), 0);

    assert_int_equal(
        json_parse(STR("{\"left_id\":\"l\",\"rightId\":\"r\",\"maxNodes\":\"9\"}"), &doc, &e), 0);
    assert_int_equal(adhoc_ask_json(ADHOC_DIFF, json_root(doc), &q, &e), 0);
    assert_true(str_eqc(q.id, "l") && str_eqc(q.other_id, "r") && q.nodes == 9 && !q.type.len);
    json_doc_free(doc);
    assert_int_equal(json_parse(STR("{\"id\":7}"), &doc, &e), 0);
    assert_int_equal(adhoc_ask_json(ADHOC_GET, json_root(doc), &q, &e), ERR_INPUT);
    json_doc_free(doc);
}

static void test_answers(void **state)
{
    const struct str types[] = { STR("cpu"), STR("x") };
    const struct adhoc_answer a = {
        { STR("i"), STR("n"), 300 }, STR("cpu"), types, 2, STR("{\"a\":\"b\"}")
    };
    struct buf out;

    (void)state;
    buf_init(&out, MIB);
    adhoc_answer_write(ADHOC_GET, false, &a, &out);
    expect(&out, "\x0a\1i\x12\1n\x18\xac\2\"\3cpu*\3cpu*\1x2\x09{\"a\":\"b\"}");
    buf_reset(&out);
    adhoc_answer_write(ADHOC_DIFF, false, &a, &out);
    expect(&out, "\x0a\3cpu\x0a\1x\x12\x09{\"a\":\"b\"}");
    buf_reset(&out);
    adhoc_answer_write(ADHOC_UPLOAD, true, &a, &out);
    expect(&out,
           "{\"id\":\"i\",\"name\":\"n\",\"uploadedAt\":\"300\",\"profileType\":\"cpu\","
           "\"profileTypes\":[\"cpu\",\"x\"],\"flamebearerProfile\":\"{\\\"a\\\":\\\"b\\\"}\"}");
    buf_reset(&out);
    adhoc_rows_write(false, &a.row, 1, &out);
    expect(&out, "\x0a\x09\x0a\1i\x12\1n\x18\xac\2");
    buf_reset(&out);
    adhoc_rows_write(true, NULL, 0, &out);
    expect(&out, "{\"profiles\":[]}");
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_damage),
        cmocka_unit_test(test_golden),      cmocka_unit_test(test_ids),
        cmocka_unit_test(test_long_name),   cmocka_unit_test(test_meta),
        cmocka_unit_test(test_meta_is_cut), cmocka_unit_test(test_views),
        cmocka_unit_test(test_asks),        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
