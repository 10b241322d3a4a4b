/* SPDX-License-Identifier: Apache-2.0
 *
 * OTLP profiles, from their HTTP request to the writes that arrive at the ingester, and back.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "common/base/compress/compress.h"
#include "tests/lib/gen/gen_otlp.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/roles/dist_bed.h"

#define HTTP    "/v1development/profiles"
#define SERVICE "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/"
#define EXPORT  SERVICE "Export"
#define PROTO   "Content-Type: application/x-protobuf\r\n"
#define JSON    "Content-Type: application/json\r\n"
#define WEB     "Content-Type: application/grpc-web+proto\r\n"
#define GZIP    "Content-Encoding: gzip\r\n"
#define PARTLY  "\"partialSuccess\":{\"rejectedProfiles\":\"1\",\"errorMessage\":\""

#define TIME_NS (UINT64_C(1749999990) * 1000000000 + 17) /* just before the clock of the bed */

static uint64_t total_of(const struct dist_bed *b, size_t at, char *type, size_t size)
{
    Embertree__WriteRequest *m = dist_bed_write(b, at);
    uint64_t sum = 0;

    for (size_t i = 0; i < m->n_series; i++) {
        for (size_t v = 0; v < m->series[i]->n_vectors; v++)
            for (size_t k = 0; k < m->series[i]->vectors[v]->n_value; k++)
                sum += m->series[i]->vectors[v]->value[k];
        for (size_t k = 0; k < m->series[i]->n_labels; k++) {
            const Embertree__LabelPair *l = m->series[i]->labels[k];
            if (str_eqc(str_n(l->name.data, l->name.len), "__profile_type__"))
                (void)snprintf(type, size, "%.*s", (int)MIN(l->value.len, 200),
                               (const char *)l->value.data);
        }
    }
    embertree__write_request__free_unpacked(m, NULL);
    return sum;
}

/* As dist_bed_push; bytes of zero become '~'. */
static int push(struct dist_bed *b, const char *target, const char *headers, struct str body,
                const char **ret)
{
    int status = 0;

    dist_bed_send(b, target, headers, body);
    for (int i = 0; i < 6000 && b->client->out.len == 0; i++)
        net_pass(&b->world, 10);
    for (size_t i = 0; i < b->client->out.len; i++)
        if (!b->client->out.ptr[i])
            b->client->out.ptr[i] = '~';
    const char *got = net_got(b->client);
    if (sscanf(got, "HTTP/1.1 %d", &status) != 1)
        status = 0;
    *ret = got;
    return status;
}

/* The canary of the reference servers: its stack has the location 0, which is a real one. */
static void canary(enum otlp_layout layout, bool json, struct buf *out)
{
    struct gen_otlp g;

    gen_otlp_canary(&g, TIME_NS);
    buf_init(out, MIB);
    if (json)
        gen_otlp_json(&g, layout, 0, out);
    else
        gen_otlp_proto(&g, layout, 0, out);
    gen_otlp_free(&g);
}

static void test_every_way(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf proto, json, gz, web;
    const char *got;
    char type[256];
    struct err e;

    dist_bed_init(&b, 1, NULL);
    canary(OTLP_110, false, &proto);
    canary(OTLP_110, true, &json);
    buf_init(&gz, MIB);
    buf_init(&web, MIB);
    assert_int_equal(gzip(buf_str(&proto), 1, &gz, &e), 0);
    int status = push(&b, HTTP, PROTO, buf_str(&proto), &got);
    if (status != 200)
        fail_msg("%s", got);
    assert_non_null(strstr(got, "Content-Type: application/x-protobuf\r\n"));
    assert_non_null(strstr(got, "Content-Length: 0\r\n"));
    assert_int_equal(push(&b, HTTP, PROTO GZIP, buf_str(&gz), &got), 200);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 200);
    assert_non_null(strstr(got, "\r\n\r\n{}"));
    assert_int_equal(push(&b, EXPORT, PROTO, buf_str(&proto), &got), 200);
    assert_int_equal(push(&b, EXPORT, JSON, buf_str(&json), &got), 200);
    assert_int_equal(push(&b, EXPORT, "Content-Type: application/proto\r\n", buf_str(&proto), &got),
                     200);
    push_gen_frame(0, buf_str(&proto), &web);
    assert_int_equal(push(&b, EXPORT, WEB, buf_str(&web), &got), 200);
    assert_non_null(strstr(got, "grpc-status: 0\r\n"));
    assert_int_equal(b.writes.len, 7);
    for (size_t i = 0; i < b.writes.len; i++) {
        assert_int_equal(total_of(&b, i, type, sizeof(type)), GEN_OTLP_CANARY);
        assert_string_equal(type, "otlp_test:otlp_test:count:otlp_test:samples");
    }
    assert_int_equal(dist_bed_metric(&b, "embertree_distributor_requests_total{format=\"otlp\"}"),
                     7);
    buf_deinit(&proto);
    buf_deinit(&json);
    buf_deinit(&gz);
    buf_deinit(&web);
    dist_bed_deinit(&b);
}

static void test_refused(void **state)
{
    (void)state;
    struct dist_bed b;
    struct buf json, proto;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    canary(OTLP_110, true, &json);
    canary(OTLP_110, false, &proto);
    assert_int_equal(push(&b, HTTP, "Content-Type: text/plain\r\n", STR("x"), &got), 415);
    assert_int_equal(push(&b, HTTP, JSON, STR("{"), &got), 400);
    assert_non_null(strstr(got, "{\"code\":3,\"message\":\"JSON, line 1"));
    assert_int_equal(push(&b, HTTP, PROTO, STR(""), &got), 400);
    assert_non_null(strstr(got, "Content-Type: application/x-protobuf\r\n"));
    assert_non_null(strstr(got, "\x08\x03\x12"));
    assert_non_null(strstr(got, "the body is empty"));
    assert_int_equal(push(&b, HTTP, PROTO, STR("\x07\x07\x07"), &got), 400);
    assert_int_equal(push(&b, HTTP, PROTO GZIP, buf_str(&proto), &got), 400);
    assert_int_equal(push(&b, SERVICE "Import", WEB, STR("~~~~~"), &got), 200);
    assert_non_null(strstr(got, "grpc-status: 12"));
    assert_int_equal(b.writes.len, 0);
    b.answer = DIST_BED_FAIL;
    b.fail = ERR_BUSY;
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 503);
    assert_non_null(strstr(got, "Retry-After: "));
    assert_non_null(strstr(got, "{\"code\":14,"));
    buf_deinit(&json);
    buf_deinit(&proto);
    dist_bed_deinit(&b);
}

/* One of two profiles is of the year 1985. */
static void test_partly(void **state)
{
    (void)state;
    struct dist_bed b;
    struct gen_otlp g;
    struct buf json, proto;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    gen_otlp_canary(&g, TIME_NS);
    gen_otlp_copy(&g, 0)->time_ns = (int64_t)500000000 * 1000000000;
    buf_init(&json, MIB);
    buf_init(&proto, MIB);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    gen_otlp_proto(&g, OTLP_110, 0, &proto);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 200);
    assert_non_null(strstr(got, PARTLY));
    assert_int_equal(push(&b, HTTP, PROTO, buf_str(&proto), &got), 200);
    assert_non_null(strstr(got, "before 1990"));
    assert_int_equal(b.writes.len, 2);
    g.profiles.ptr[0].time_ns = g.profiles.ptr[1].time_ns;
    buf_reset(&json);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 400); /* none is left */
    buf_deinit(&json);
    buf_deinit(&proto);
    gen_otlp_free(&g);
    dist_bed_deinit(&b);
}

/* One of two samples has neither a value nor a time: the 200 says so, by HTTP and by gRPC. */
static void test_left_out(void **state)
{
    (void)state;
    static const char told[] = "X-Embertree-Left-Out: value_count=1\r\n";
    struct dist_bed b;
    struct gen_otlp g;
    struct buf json, proto, web;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    gen_otlp_canary(&g, TIME_NS);
    struct gen_otlp_sample none = g.profiles.ptr[0].samples.ptr[0];
    none.values_len = none.times_len = 0;
    vec_push(&g.profiles.ptr[0].samples, none);
    buf_init(&json, MIB);
    buf_init(&proto, MIB);
    buf_init(&web, MIB);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    gen_otlp_proto(&g, OTLP_110, 0, &proto);
    push_gen_frame(0, buf_str(&proto), &web);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 200);
    assert_non_null(strstr(got, told));
    assert_int_equal(push(&b, HTTP, PROTO, buf_str(&proto), &got), 200);
    assert_non_null(strstr(got, told));
    assert_int_equal(push(&b, EXPORT, WEB, buf_str(&web), &got), 200);
    assert_non_null(strstr(got, told));
    assert_non_null(strstr(got, "grpc-status: 0\r\n"));
    g.profiles.ptr[0].samples.len--;
    buf_reset(&json);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 200);
    assert_null(strstr(got, "Left-Out"));
    buf_deinit(&json);
    buf_deinit(&proto);
    buf_deinit(&web);
    gen_otlp_free(&g);
    dist_bed_deinit(&b);
}

/* Of 300 attributes of a profile itself 256 are looked at: the 200 says that 44 were left out. */
static void test_attributes_left_out(void **state)
{
    (void)state;
    static const char place[] = "\"profiles\":[{";
    struct dist_bed b;
    struct gen_otlp g;
    struct buf json, more;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    gen_otlp_canary(&g, TIME_NS);
    buf_init(&json, MIB);
    buf_init(&more, MIB);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    char *at = memmem(json.ptr, json.len, place, strlen(place));
    assert_non_null(at);
    size_t head = (size_t)(at - json.ptr) + strlen(place);
    (void)buf_add_str(&more, (struct str){ json.ptr, head });
    (void)buf_add_c(&more, '"');
    (void)buf_add_str(&more, STR("attributeIndices\":["));
    for (int i = 0; i < 300; i++)
        (void)buf_addf(&more, "%s0", i ? "," : "");
    (void)buf_add_str(&more, STR("],"));
    (void)buf_add_str(&more, (struct str){ json.ptr + head, json.len - head });
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&more), &got), 200);
    assert_non_null(strstr(got, "X-Embertree-Left-Out: sample_label=44\r\n"));
    buf_deinit(&json);
    buf_deinit(&more);
    gen_otlp_free(&g);
    dist_bed_deinit(&b);
}

/* An impossible time is reported as sent, with the time that the sender may have meant. */
static void test_times_told(void **state)
{
    (void)state;
    static const struct {
        uint64_t sent;
        const char *why;
    } rows[] = {
        { UINT64_MAX, "the profile's time is 18446744073709551615 ns (-1 if it had a sign)" },
        { UINT64_C(1) << 63, "9223372036854775808 ns (-9223372036854775808 if it had a sign)" },
        { INT64_MAX, "a profile of time 9223372036854775807 ns" },
    };
    struct dist_bed b;
    struct gen_otlp g;
    struct buf json, proto;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    buf_init(&json, MIB);
    buf_init(&proto, MIB);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        gen_otlp_canary(&g, rows[i].sent);
        buf_reset(&json);
        buf_reset(&proto);
        gen_otlp_json(&g, OTLP_110, 0, &json);
        gen_otlp_proto(&g, OTLP_110, 0, &proto);
        assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 400);
        if (!strstr(got, rows[i].why))
            fail_msg("JSON row %zu: %s", i, got);
        assert_int_equal(push(&b, HTTP, PROTO, buf_str(&proto), &got), 400);
        if (!strstr(got, rows[i].why))
            fail_msg("row %zu: %s", i, got);
        gen_otlp_free(&g);
    }
    assert_int_equal(b.writes.len, 0);
    buf_deinit(&json);
    buf_deinit(&proto);
    dist_bed_deinit(&b);
}

/* Samples without a value and without a time say nothing: this is reported, not taken for zeros. */
static void test_without_values(void **state)
{
    (void)state;
    struct dist_bed b;
    struct gen_otlp g;
    struct buf json, proto;
    const char *got;

    dist_bed_init(&b, 1, NULL);
    gen_otlp_canary(&g, TIME_NS);
    gen_otlp_copy(&g, 0)->samples.ptr[0].values_len = 0;
    buf_init(&json, MIB);
    buf_init(&proto, MIB);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    gen_otlp_proto(&g, OTLP_110, 0, &proto);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 200);
    assert_non_null(strstr(got, PARTLY));
    assert_non_null(strstr(got, "none of its 1 samples has a value or a time"));
    assert_int_equal(push(&b, HTTP, PROTO, buf_str(&proto), &got), 200);
    assert_non_null(strstr(got, "none of its 1 samples has a value or a time"));
    assert_int_equal(b.writes.len, 2); /* the other profile */
    g.profiles.ptr[0].samples.ptr[0].values_len = 0;
    buf_reset(&json);
    gen_otlp_json(&g, OTLP_110, 0, &json);
    assert_int_equal(push(&b, HTTP, JSON, buf_str(&json), &got), 400);
    assert_int_equal(b.writes.len, 2);
    buf_deinit(&json);
    buf_deinit(&proto);
    gen_otlp_free(&g);
    dist_bed_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_way),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_partly),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_attributes_left_out),
        cmocka_unit_test(test_times_told),
        cmocka_unit_test(test_without_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
