/* SPDX-License-Identifier: Apache-2.0
 *
 * Parca's messages in proto3 JSON: what is read equals the same message in protobuf, what is wrong
 * is named, and answers come out as proto3 JSON has them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/wr.h"
#include "distributor/parca/debuginfo/debuginfo_rpc.h"
#include "distributor/parca/parca_labels.h"
#include "distributor/parca/parca_raw.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/roles/parca_bed.h"

static int read_text(const char *text, const struct parca_shape *shape, struct buf *out,
                     struct err *e)
{
    struct json_doc *doc;

    buf_reset(out);
    assert_int_equal(json_parse(str_c(text), &doc, e), 0);
    int rc = parca_json_read(json_root(doc), shape, out, e);
    json_doc_free(doc);
    return rc;
}

static void test_debuginfo(void **state)
{
    struct debuginfo_msg m, file;
    struct buf b;
    struct err e;

    (void)state;
    buf_init(&b, 64 * KIB);
    assert_int_equal(read_text("{\"buildId\":\"ab\",\"size\":\"200000\",\"hash\":\"h\","
                               "\"force\":true,\"type\":\"DEBUGINFO_TYPE_EXECUTABLE\",\"x\":[1]}",
                               &parca_initiate_in, &b, &e),
                     0);
    assert_int_equal(debuginfo_rpc_read(buf_str(&b), &m, &e), 0);
    assert_true(str_eqc(m.text[1], "ab") && str_eqc(m.text[3], "h"));
    assert_int_equal(m.num[2], 200000);
    assert_int_equal(m.num[4], 1);
    assert_int_equal(m.num[5], 1);
    /* the other spelling, numbers for enums, null, nothing at all */
    assert_int_equal(read_text("{\"build_id\":\"cd\",\"size\":7,\"hash\":null,\"type\":2}",
                               &parca_initiate_in, &b, &e),
                     0);
    assert_int_equal(debuginfo_rpc_read(buf_str(&b), &m, &e), 0);
    assert_true(str_eqc(m.text[1], "cd") && !m.text[3].ptr);
    assert_int_equal(m.num[2], 7);
    assert_int_equal(m.num[5], 2);
    assert_int_equal(read_text("{}", &parca_initiate_in, &b, &e), 0);
    assert_int_equal(b.len, 0);
    /* a message inside */
    assert_int_equal(read_text("{\"file\":{\"gnu_build_id\":\"ee\",\"name\":\"/bin/x\","
                               "\"type\":\"TYPE_EXECUTABLE_NO_TEXT\"}}",
                               &alloy_should_in, &b, &e),
                     0);
    assert_int_equal(debuginfo_rpc_read(buf_str(&b), &m, &e), 0);
    assert_int_equal(debuginfo_rpc_read(m.text[1], &file, &e), 0);
    assert_true(str_eqc(file.text[1], "ee") && str_eqc(file.text[4], "/bin/x"));
    assert_int_equal(file.num[5], 2);
    buf_deinit(&b);
}

static void test_refused(void **state)
{
    static const struct {
        const char *text, *says;
        const struct parca_shape *shape;
        int code;
    } rows[] = {
        { "[]", "no JSON object", &parca_should_in, ERR_INPUT },
        { "{\"buildId\":1}", "buildId", &parca_should_in, ERR_INPUT },
        { "{\"force\":\"yes\"}", "force", &parca_should_in, ERR_INPUT },
        { "{\"type\":\"EXECUTABLE\"}", "type is \"EXECUTABLE\"", &parca_should_in, ERR_INPUT },
        { "{\"type\":{}}", "type", &parca_should_in, ERR_INPUT },
        { "{\"size\":\"a lot\"}", "size", &parca_initiate_in, ERR_INPUT },
        { "{\"file\":[]}", "file: no JSON object", &alloy_should_in, ERR_INPUT },
        { "{\"file\":{\"name\":7}}", "file: name", &alloy_should_in, ERR_INPUT },
        { "{\"series\":{}}", "series is no array", &parca_write_raw, ERR_INPUT },
        { "{\"series\":[null]}", "series: no JSON object", &parca_write_raw, ERR_INPUT },
        { "{\"series\":[{\"samples\":[{\"rawProfile\":\"%%\"}]}]}", "rawProfile is no base64",
          &parca_write_raw, ERR_INPUT },
        { "{\"ipcBuffer\":\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"}", "24 bytes", &parca_write_arrow,
          ERR_LIMIT },
    };
    struct buf b;
    struct err e;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        buf_init(&b, 24);
        int rc = read_text(rows[i].text, rows[i].shape, &b, &e);
        if (rc != rows[i].code || !strstr(e.text, rows[i].says))
            fail_msg("row %zu: %d %s", i, rc, rc ? e.text : "");
        buf_deinit(&b);
    }
}

/* The same profiles in JSON and in protobuf are the same pushes. */
static void test_write_raw(void **state)
{
    const struct parca_opts o = { .drop_labels = PARCA_DROP_LABELS, .seed = 1 };
    struct parca_bed bed;
    struct buf profile, coded, text, b;
    struct err e;

    (void)state;
    parca_bed_init(&bed);
    buf_init(&profile, KIB);
    buf_init(&coded, 4 * KIB);
    buf_init(&text, 16 * KIB);
    buf_init(&b, 16 * KIB);
    push_gen_pprof("leaf", 1000, 1767225600000000000, &profile);
    for (int url = 0; url < 2; url++) {
        buf_reset(&coded);
        push_gen_base64(buf_str(&profile), url, &coded);
        buf_reset(&text);
        buf_addf(&text,
                 "{\"series\":[{\"labels\":{\"labels\":[{\"name\":\"job\",\"value\":\"a\"},"
                 "{\"name\":\"__name__\",\"value\":\"process_cpu\"}]},\"samples\":["
                 "{\"%s\":\"%.*s\"}]},{}],\"normalized\":false}",
                 url ? "raw_profile" : "rawProfile", (int)coded.len, coded.ptr);
        buf_add_c(&text, '\0');
        assert_int_equal(read_text(text.ptr, &parca_write_raw, &b, &e), 0);
        parca_bed_reset(&bed);
        if (parca_raw_push(buf_str(&b), &o, &bed.sink, &e))
            fail_msg("%s", e.text);
        assert_int_equal(bed.ended, 1);
        assert_int_equal(bed.rejected, 0);
        buf_add_c(&bed.rows, '\0');
        assert_string_equal(bed.rows.ptr, "a\tcpu\t{job=a}\tmain;leaf\t1000\n");
    }
    buf_deinit(&profile);
    buf_deinit(&coded);
    buf_deinit(&text);
    buf_deinit(&b);
    parca_bed_free(&bed);
}

static void test_answers(void **state)
{
    struct buf b, in, file, t, out;

    (void)state;
    buf_init(&b, KIB);
    buf_init(&in, KIB);
    buf_init(&file, KIB);
    buf_init(&t, KIB);
    buf_init(&out, 4 * KIB);
    parca_json_write(STR(""), &parca_should_out, &out);
    debuginfo_rpc_num(&b, 1, 1);
    debuginfo_rpc_text(&b, 2, STR("say \"so\""));
    parca_json_write(buf_str(&b), &parca_should_out, &out);
    debuginfo_rpc_text(&file, 1, STR("ee"));
    debuginfo_rpc_num(&file, 5, 9); /* an unknown enum value */
    debuginfo_rpc_num(&t, 1, 1767225600);
    debuginfo_rpc_num(&t, 2, 7000000);
    debuginfo_rpc_text(&in, 1, buf_str(&file));
    debuginfo_rpc_num(&in, 2, 1);
    debuginfo_rpc_text(&in, 3, buf_str(&t));
    debuginfo_rpc_num(&in, 5, 1 << 20);
    buf_reset(&b);
    debuginfo_rpc_text(&b, 1, buf_str(&in));
    debuginfo_rpc_text(&b, 1, buf_str(&in));
    parca_json_write(buf_str(&b), &alloy_list_out, &out);
    buf_add_c(&out, '\0');
#define OBJECT                                                                   \
    "{\"file\":{\"gnuBuildId\":\"ee\",\"type\":9},\"state\":\"STATE_UPLOADED\"," \
    "\"startedAt\":\"2026-01-01T00:00:00.007Z\",\"sizeBytes\":\"1048576\"}"
    assert_string_equal(out.ptr, "{}{\"shouldInitiateUpload\":true,\"reason\":\"say \\\"so\\\"\"}"
                                 "{\"object\":[" OBJECT "," OBJECT "]}");
    buf_deinit(&b);
    buf_deinit(&in);
    buf_deinit(&file);
    buf_deinit(&t);
    buf_deinit(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_debuginfo),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_write_raw),
        cmocka_unit_test(test_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
