/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests from protobuf and from proto3 JSON become the same struct; replies come out byte by byte
 * as other writers write them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "querier/messages/msg_out.h"
#include "querier/messages/v1.h"

#define LIT(s) str_n(s, sizeof(s) - 1)

static struct str strs_at(const struct msg_list *l, size_t i)
{
    assert_true(i < l->len);
    return msg_strs(l)[i];
}

#define assert_str(got, want) assert_int_equal(str_cmp((got), str_c(want)), 0)

/* ---- requests ---- */

static void test_proto_merge(void **state)
{
    (void)state;
    static const char good[] = "\x0a\x03t:y\x12\x02{}\x18\x05"
                               "\x20\xfb\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                               "\x28\x80\x80\x01\x30\x02"
                               "\x3a\x0b\x0a\x05\x0a\x03one\x0a\x02\x0a\x00"
                               "\x42\x01p\x42\x01q"
                               "\x4a\x04\x0a\x02id"
                               "\x4a\x02\x10\x01" /* the same message continues */
                               "\x5a\x04span"
                               "\xa0\x06\x07"         /* field 100: skipped */
                               "\x2d\x01\x02\x03\x04" /* max_nodes as fixed32: skipped */
        ;
    struct arena *a = arena_new(64 * KIB);
    struct v1_merge m;
    struct err e;

    assert_int_equal(msg_in_proto(&v1_stacktraces_desc, LIT(good), a, &m, &e), 0);
    assert_str(m.profile_type, "t:y");
    assert_str(m.label_selector, "{}");
    assert_int_equal(m.start, 5);
    assert_int_equal(m.end, -5);
    assert_int_equal(m.max_nodes, 16384);
    assert_int_equal(m.format, V1_TREE);
    assert_non_null(m.stack_trace_selector);
    assert_int_equal(m.stack_trace_selector->call_site.len, 2);
    const struct v1_location *sites = m.stack_trace_selector->call_site.ptr;
    assert_str(sites[0].name, "one");
    assert_str(sites[1].name, "");
    assert_null(m.stack_trace_selector->go_pgo);
    assert_int_equal(m.profile_ids.len, 2);
    assert_str(strs_at(&m.profile_ids, 1), "q");
    assert_non_null(m.async);
    assert_str(m.async->request_id, "id");
    assert_int_equal(m.async->type, 1);
    assert_str(strs_at(&m.spans, 0), "span");
    assert_int_equal(m.trace_ids.len, 0);
    assert_int_equal(msg_in_proto(&v1_stacktraces_desc, LIT("\x3a\x02\x0a\x09"), a, &m, &e),
                     ERR_INPUT);
    arena_free(a);
}

static void test_json_merge(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "{\"profileTypeID\":\"t:y\",\"labelSelector\":\"{}\",\"start\":\"5\",\"end\":-5,"
        "\"maxNodes\":16384,\"format\":\"PROFILE_FORMAT_TREE\",\"stackTraceSelector\":"
        "{\"callSite\":[{\"name\":\"one\"},{}],\"goPgo\":{\"keepLocations\":3,"
        "\"aggregateCallees\":true}},\"spanSelector\":[\"span\"],\"async\":null,\"new\":[{}]}",
        "{\"profile_typeID\":\"t:y\",\"label_selector\":\"{}\",\"start\":5.0,\"end\":\"-5\","
        "\"max_nodes\":\"16384\",\"format\":2,\"stack_trace_selector\":"
        "{\"call_site\":[{\"name\":\"one\"},{\"name\":null}],\"go_pgo\":{\"keep_locations\":\"3\","
        "\"aggregate_callees\":true}},\"span_selector\":[\"span\"]}",
    };
    struct arena *a = arena_new(64 * KIB);
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct json_doc *doc;
        struct v1_merge m;
        assert_int_equal(json_parse(str_c(texts[i]), &doc, &e), 0);
        assert_int_equal(msg_in_json(&v1_stacktraces_desc, json_root(doc), a, &m, &e), 0);
        assert_str(m.profile_type, "t:y");
        assert_str(m.label_selector, "{}");
        assert_int_equal(m.start, 5);
        assert_int_equal(m.end, -5);
        assert_int_equal(m.max_nodes, 16384);
        assert_int_equal(m.format, V1_TREE);
        assert_int_equal(m.stack_trace_selector->call_site.len, 2);
        assert_int_equal(m.stack_trace_selector->go_pgo->keep_locations, 3);
        assert_true(m.stack_trace_selector->go_pgo->aggregate_callees);
        assert_str(strs_at(&m.spans, 0), "span");
        assert_null(m.async);
        json_doc_free(doc);
    }
    arena_free(a);
}

static void test_bad_requests(void **state)
{
    (void)state;
    static const struct {
        const struct msg_desc *desc;
        const char *bytes;
        size_t len;
        const char *part; /* of the error; NULL: fine */
    } rows[] = {
        { &v1_types_desc, "", 0, NULL },
        { &v1_types_desc, "\x08", 1, "no protobuf" },
        { &v1_types_desc, "\x0b\x0c", 2, "no protobuf" }, /* a group */
        { &v1_types_desc, "\x12\xff\xff\xff\xff\x0f", 6, "no protobuf" },
        { &v1_stacktraces_desc, "\x0a\x02\xc3\x28", 4, "not UTF-8" },
        { &v1_stacktraces_desc, "\x30\x05", 2, "format: unknown value" },
        { &v1_stacktraces_desc, "\x30\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11, "format" },
        { &v1_stacktraces_desc, "\x3a\x02\x0a\x09", 4, "no protobuf" },
        { &v1_diff_desc, "\x0a\x02\x30\x09", 4, "format" },
    };
    struct arena *a = arena_new(64 * KIB);
    struct v1_diff room[8]; /* larger than any of them */
    struct buf many;
    struct err e;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int code = msg_in_proto(rows[i].desc, str_n(rows[i].bytes, rows[i].len), a, room, &e);
        assert_int_equal(code, rows[i].part ? ERR_INPUT : 0);
        if (code && !strstr(e.text, rows[i].part))
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, e.text, rows[i].part);
    }
    buf_init(&many, 64 * KIB);
    for (size_t i = 0; i < 1025; i++)
        buf_add_str(&many, LIT("\x0a\x00"));
    struct v1_labels l;
    assert_int_equal(msg_in_proto(&v1_label_names_desc, buf_str(&many), a, &l, &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "matchers: 1025 entries, the limit is 1024"));
    many.len -= 2;
    assert_int_equal(msg_in_proto(&v1_label_names_desc, buf_str(&many), a, &l, &e), 0);
    assert_int_equal(l.matchers.len, 1024);
    /* Pieces of one message whose sum passes the arena. */
    struct arena *small = arena_new(KIB);
    struct v1_merge m;
    many.len = 0;
    for (size_t i = 0; i < 400; i++)
        buf_add_str(&many, LIT("\x3a\x04\x0a\x02\x0a\x00"));
    assert_int_equal(msg_in_proto(&v1_stacktraces_desc, buf_str(&many), small, &m, &e), ERR_LIMIT);
    buf_deinit(&many);
    arena_free(small);
    arena_free(a);
}

/* Numbers of lists come packed and one by one, in any mixture. */
struct numbers {
    struct msg_list i64, doubles;
};
static const struct msg_field number_fields[] = {
    { "a", NULL, 1, MSG_I64, offsetof(struct numbers, i64), 6, NULL, NULL },
    { "b", NULL, 2, MSG_DOUBLE, offsetof(struct numbers, doubles), 6, NULL, NULL },
};
static const struct msg_desc numbers_desc = MSG_DESC("Numbers", struct numbers, number_fields);

static void test_packed(void **state)
{
    (void)state;
    struct arena *a = arena_new(4 * KIB);
    struct numbers n;
    struct err e;

    assert_int_equal(msg_in_proto(&numbers_desc,
                                  LIT("\x08\x07\x0a\x03\x01\x80\x02\x08\x09\x0a\x00\x12\x08"
                                      "\x00\x00\x00\x00\x00\x00\xf8\x3f\x11"
                                      "\x00\x00\x00\x00\x00\x00\x00\x40"),
                                  a, &n, &e),
                     0);
    const int64_t *v = n.i64.ptr;
    assert_int_equal(n.i64.len, 4);
    assert_int_equal(v[0], 7);
    assert_int_equal(v[1], 1);
    assert_int_equal(v[2], 256);
    assert_int_equal(v[3], 9);
    assert_int_equal(n.doubles.len, 2);
    assert_true(((const double *)n.doubles.ptr)[0] == 1.5);
    assert_true(((const double *)n.doubles.ptr)[1] == 2.0);
    assert_int_equal(msg_in_proto(&numbers_desc, LIT("\x0a\x02\x01\x80"), a, &n, &e), ERR_INPUT);
    assert_int_equal(msg_in_proto(&numbers_desc, LIT("\x12\x03\x01\x02\x03"), a, &n, &e),
                     ERR_INPUT);
    assert_int_equal(
        msg_in_proto(&numbers_desc, LIT("\x0a\x07\x01\x01\x01\x01\x01\x01\x01"), a, &n, &e),
        ERR_LIMIT);
    arena_free(a);
}

/* ---- replies ---- */

static void put_sample(struct msg_out *o)
{
    struct label pairs[] = { { STR("a"), STR("b") }, { STR("c"), STR("") } };
    struct labels labels = { pairs, 2 };
    uint64_t numbers[] = { 0, 300, UINT64_MAX };
    uint32_t counts[] = { 0, 5 };
    double edges[] = { 0.5 };

    msg_out_str(o, 1, "empty", STR(""));
    msg_out_str(o, 1, "text", STR("x\"y"));
    msg_out_i64(o, 2, "zero", 0);
    msg_out_i64(o, 2, "minus", -1);
    msg_out_i32(o, 3, "small", 4);
    msg_out_u64(o, 4, "large", UINT64_MAX);
    msg_out_double(o, 5, "half", 0.5);
    msg_out_bool(o, 6, "yes", true);
    msg_out_bool(o, 6, "no", false);
    msg_out_enum(o, 7, "kind", 2, "KIND_TWO");
    msg_out_enum(o, 7, "none", 0, "KIND_NONE");
    msg_out_bytes(o, 8, "bytes", LIT("\x00\xff"));
    msg_out_labels(o, 9, "labels", &labels);
    msg_out_i64s(o, 10, "numbers", numbers, 3);
    msg_out_i32s(o, 11, "counts", counts, 2);
    msg_out_doubles(o, 12, "edges", edges, 1);
    msg_out_list(o, 13, "absent");
    msg_out_list_end(o);
    msg_out_list(o, 14, "items");
    msg_out_str(o, MSG_ITEM, STR(""));
    msg_out_str(o, MSG_ITEM, STR("z"));
    msg_out_list_end(o);
    msg_out_obj(o, 15, "nothing");
    msg_out_obj_end(o);
}

static void test_replies(void **state)
{
    (void)state;
    static const char want_json[] =
        "{\"text\":\"x\\\"y\",\"minus\":\"-1\",\"small\":4,\"large\":\"18446744073709551615\","
        "\"half\":0.5,\"yes\":true,\"kind\":\"KIND_TWO\",\"bytes\":\"AP8=\","
        "\"labels\":[{\"name\":\"a\",\"value\":\"b\"},{\"name\":\"c\"}],"
        "\"numbers\":[\"0\",\"300\",\"9223372036854775807\"],\"counts\":[0,5],\"edges\":[0.5],"
        "\"items\":[\"\",\"z\"],\"nothing\":{}}";
    static const char want_proto[] = "\x0a\x03x\"y"
                                     "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                     "\x18\x04"
                                     "\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
                                     "\x29\x00\x00\x00\x00\x00\x00\xe0\x3f"
                                     "\x30\x01\x38\x02\x42\x02\x00\xff"
                                     "\x4a\x06\x0a\x01\x61\x12\x01\x62\x4a\x03\x0a\x01\x63"
                                     "\x52\x0c\x00\xac\x02\xff\xff\xff\xff\xff\xff\xff\xff\x7f"
                                     "\x5a\x02\x00\x05"
                                     "\x62\x08\x00\x00\x00\x00\x00\x00\xe0\x3f"
                                     "\x72\x00\x72\x01z\x7a\x00";
    struct msg_out o;
    struct buf b;

    for (int json = 0; json < 2; json++) {
        struct str want = json ? LIT(want_json) : LIT(want_proto);
        buf_init(&b, 4 * KIB);
        msg_out_init(&o, json, &b);
        put_sample(&o);
        msg_out_end(&o);
        assert_true(buf_ok(&b));
        assert_int_equal(b.len, want.len);
        assert_memory_equal(b.ptr, want.ptr, want.len);
        buf_deinit(&b);
    }
}

/* Readers of proto3 take no other text. */
static void test_text_is_mended(void **state)
{
    (void)state;
    struct msg_out o;
    struct buf b;

    buf_init(&b, KIB);
    msg_out_init(&o, false, &b);
    msg_out_str(&o, 1, "s", LIT("a\xff\xc3\xa4\xe2\x82"));
    msg_out_end(&o);
    assert_int_equal(b.len, 14);
    assert_memory_equal(b.ptr,
                        "\x0a\x0c"
                        "a\xef\xbf\xbd\xc3\xa4\xef\xbf\xbd\xef\xbf\xbd",
                        14);
    buf_deinit(&b);
}

/* Random nesting with guesses of all sizes: what is read back is what was written. */
static void test_lengths(void **state)
{
    (void)state;
    const char *text = getenv("SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : 20261121;
    struct prng p;
    struct buf b, payload;

    printf("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    buf_init(&b, 4 * MIB);
    buf_init(&payload, MIB);
    for (int round = 0; round < 300; round++) {
        static const size_t sizes[] = { 0, 1, 100, 120, 127, 128, 300, 16383, 16384, 40000 };
        size_t n = sizes[prng_u64(&p) % ARRAY_LEN(sizes)];
        unsigned depth = 1 + (unsigned)(prng_u64(&p) % 6);
        struct msg_out o;
        buf_reset(&b);
        buf_reset(&payload);
        for (size_t i = 0; i < n; i++)
            buf_add_c(&payload, (char)('a' + prng_u64(&p) % 26));
        msg_out_init(&o, false, &b);
        for (unsigned d = 0; d < depth; d++)
            msg_out_obj_of(&o, d + 1, "x", sizes[prng_u64(&p) % ARRAY_LEN(sizes)]);
        msg_out_str(&o, 9, "s", buf_str(&payload));
        for (unsigned d = 0; d < depth; d++) {
            msg_out_obj_end(&o);
            msg_out_i64(&o, 20, "behind", 1);
        }
        msg_out_end(&o);
        struct str in = buf_str(&b);
        struct pb_field f;
        for (unsigned d = 0; d < depth; d++) {
            struct rd r = rd_of(in);
            assert_int_equal(rd_pb(&r, &f), 1);
            assert_int_equal(f.number, d + 1);
            in = f.bytes;
            assert_int_equal(rd_pb(&r, &f), 1);
            assert_int_equal(f.number, 20);
            assert_int_equal(rd_pb(&r, &f), 0);
        }
        struct rd r = rd_of(in);
        assert_int_equal(rd_pb(&r, &f), n ? 1 : 0);
        if (n) {
            assert_int_equal(f.bytes.len, n);
            assert_memory_equal(f.bytes.ptr, payload.ptr, n);
        }
        /* The shortest lengths: what a writer that knows them beforehand writes. */
        size_t least = n ? msg_out_size(9, n) : 0;
        for (unsigned d = depth; d > 0; d--)
            least = msg_out_size(d, least) + 3;
        assert_int_equal(b.len, least);
    }
    buf_deinit(&b);
    buf_deinit(&payload);
}

static void test_a_full_buffer_fails(void **state)
{
    (void)state;
    struct buf whole, b;
    struct msg_out o;

    buf_init(&whole, 4 * KIB);
    msg_out_init(&o, false, &whole);
    put_sample(&o);
    msg_out_end(&o);
    for (int json = 0; json < 2; json++)
        for (size_t max = 0; max < whole.len; max++) {
            buf_init(&b, max);
            msg_out_init(&o, json, &b);
            put_sample(&o);
            msg_out_end(&o);
            assert_false(buf_ok(&b));
            buf_deinit(&b);
        }
    buf_deinit(&whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_proto_merge),  cmocka_unit_test(test_json_merge),
        cmocka_unit_test(test_bad_requests), cmocka_unit_test(test_packed),
        cmocka_unit_test(test_replies),      cmocka_unit_test(test_text_is_mended),
        cmocka_unit_test(test_lengths),      cmocka_unit_test(test_a_full_buffer_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
