/* SPDX-License-Identifier: Apache-2.0
 *
 * PushRequests to pushes, without HTTP and without the intake.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "distributor/formats/push_msg.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/gen/push_gen.h"
#include "tests/lib/roles/batch_keep.h"

#define NOW_MS INT64_C(1795000000000)
#define LABELS "__name__=process_cpu,service_name=svc"

struct bed {
    struct batch_keep keep;
    struct arena *arena;
    struct push_msg msg;
    struct json_doc *doc;
    struct err e;
};

static int open_proto(struct bed *b, struct str message, const struct limits *l)
{
    *b = (struct bed){ .arena = arena_new(8 * MIB) };
    batch_keep_init(&b->keep, l, NOW_MS);
    int rc = push_msg_proto(message, 100, b->arena, &b->msg, &b->e);
    return rc ? rc : push_msg_push(&b->msg, &b->keep.sink, &b->e);
}

static int open_json(struct bed *b, const char *text)
{
    *b = (struct bed){ .arena = arena_new(8 * MIB) };
    batch_keep_init(&b->keep, NULL, NOW_MS);
    int rc = json_parse(str_c(text), &b->doc, &b->e);
    if (!rc)
        rc = push_msg_json(json_root(b->doc), 100, b->arena, &b->msg, &b->e);
    return rc ? rc : push_msg_push(&b->msg, &b->keep.sink, &b->e);
}

static void close_bed(struct bed *b)
{
    json_doc_free(b->doc);
    batch_keep_free(&b->keep);
    arena_free(b->arena);
}

static bool has_label(const struct batch_kept *p, const char *name, const char *value)
{
    struct str v = labels_get(&p->push.series[0].labels, str_c(name));

    return value ? str_eqc(v, value) : v.ptr == NULL;
}

/* One profile with these labels. */
static int open_labels(struct bed *b, const char *labels)
{
    struct buf raw, message;

    buf_init(&raw, MIB);
    buf_init(&message, MIB);
    push_gen_pprof("leaf", 5, 0, &raw);
    push_gen_series(labels, &(struct str){ raw.ptr, raw.len }, NULL, 1, &message);
    int rc = open_proto(b, buf_str(&message), NULL);
    buf_deinit(&raw);
    buf_deinit(&message); /* a push keeps nothing of it */
    return rc;
}

static const struct {
    const char *labels, *type, *service;
    const char *has[3]; /* name, value or NULL: absent */
} label_rows[] = {
    { LABELS, "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "svc", { "app_name", NULL } },
    { "service_name=svc,__name__=memory,env=prod",
      "memory:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "env", "prod" } },
    { "__name__=a.b-c",
      "a_b_c:cpu:nanoseconds:cpu:nanoseconds",
      "unknown_service",
      { "pyroscope_spy", NULL } },
    { LABELS ",pyroscope_spy=gospy",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "pyroscope_spy", "gospy" } },
    { LABELS ",__session_id__=1",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "__session_id__", NULL } },
    { LABELS ",__delta__=false",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "__delta__", NULL } },
    { LABELS ",__type__=forged",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "__type__", "cpu" } },
    { LABELS ",__profile_type__=forged",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "__profile_type__", "process_cpu:cpu:nanoseconds:cpu:nanoseconds" } },
    { LABELS ",process.runtime.name=go",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "process.runtime.name", "go" } },
    { LABELS ",empty=", "process_cpu:cpu:nanoseconds:cpu:nanoseconds", "svc", { "empty", NULL } },
    { LABELS ",k\xc3\xa4se=v\xc3\xbc",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "k\xc3\xa4se", "v\xc3\xbc" } },
    { "__name__=godeltaprof_memory,service_name=svc",
      "memory:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "app_name", NULL } },
    { LABELS ",span_id=1122334455667788",
      "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
      "svc",
      { "span_id", NULL } },
};

static void test_labels(void **state)
{
    (void)state;

    for (size_t i = 0; i < ARRAY_LEN(label_rows); i++) {
        struct bed b;
        if (open_labels(&b, label_rows[i].labels) || b.keep.rejected || b.keep.pushes.len != 1)
            fail_msg("row %zu: %s %s", i, b.e.text, b.keep.why.text);
        struct batch_kept *p = b.keep.pushes.ptr[0];
        if (!str_eqc(p->push.series[0].profile_type, label_rows[i].type) ||
            !str_eqc(p->push.service, label_rows[i].service) ||
            !has_label(p, label_rows[i].has[0], label_rows[i].has[1]))
            fail_msg("row %zu: %.*s of %.*s", i, STR_ARG(p->push.series[0].profile_type),
                     STR_ARG(p->push.service));
        assert_int_equal(batch_keep_total(&b.keep, "cpu"), 5);
        close_bed(&b);
    }
}

static void test_labels_refused(void **state)
{
    (void)state;
    static char long_name[2048], long_value[4096];
    const struct {
        const char *labels, *says;
    } rows[] = {
        { "", "missing_labels" },
        { "service_name=svc", "there is no __name__" },
        { LABELS ",a=1,a=2", "duplicate_label_names" },
        { LABELS ",=v", "invalid_labels" },
        { LABELS ",a=\xff", "invalid_labels" },
        { LABELS ",\xc3=v", "invalid_labels" },
        { long_name, "label_name_too_long" },
        { long_value, "label_value_too_long" },
        { "__name__=x,a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1,r=1,s=1,"
          "t=1,u=1,v=1,w=1,x=1,y=1,z=1,A=1,B=1,C=1,D=1",
          "max_label_names_per_series: the series has 31" },
    };

    memset(long_name, 'n', 1025);
    memcpy(long_name + 1025, "=v", 3);
    memcpy(long_value, "__name__=", 9);
    memset(long_value + 9, 'v', 2049);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct bed b;
        if (open_labels(&b, rows[i].labels) || b.keep.rejected != 1 || b.keep.pushes.len != 0 ||
            !strstr(b.keep.why.text, rows[i].says))
            fail_msg("row %zu: %s %s", i, b.e.text, b.keep.why.text);
        close_bed(&b);
    }
}

static void test_json(void **state)
{
    (void)state;
    struct buf raw, std, url, text;
    struct bed b;

    buf_init(&raw, MIB);
    buf_init(&std, MIB);
    buf_init(&url, MIB);
    buf_init(&text, MIB);
    push_gen_pprof("l\xff\xfe\xfd?\?\?>>>", 5, 0, &raw); /* base64 of it has all letters */
    push_gen_base64(buf_str(&raw), false, &std);
    push_gen_base64(buf_str(&raw), true, &url);
    assert_false(str_eq(buf_str(&std), buf_str(&url)));
    buf_addf(&text,
             "{\"series\":[{\"labels\":[{\"name\":\"__name__\",\"value\":\"cpu\",\"more\":1}],"
             "\"annotations\":null,\"samples\":[{\"rawProfile\":\"%.*s\",\"ID\":\"one\"},"
             "{\"raw_profile\":\"%.*s\",\"ID\":null}]},{\"labels\":[],\"samples\":[]}],\"x\":[]}",
             STR_ARG(buf_str(&std)), STR_ARG(buf_str(&url)));
    buf_add_c(&text, '\0');
    assert_int_equal(open_json(&b, text.ptr), 0);
    assert_int_equal(b.keep.rejected, 0);
    assert_int_equal(b.keep.pushes.len, 2);
    assert_int_equal(batch_keep_total(&b.keep, "cpu"), 10);
    assert_int_equal(b.keep.pushes.ptr[0]->id_len, 3);
    assert_memory_equal(b.keep.pushes.ptr[0]->id, "one", 3);
    assert_int_equal(b.keep.pushes.ptr[1]->id_len, 0);
    assert_int_equal(b.keep.pushes.ptr[1]->identity_len, raw.len);
    close_bed(&b);
    static const struct {
        const char *text, *says;
    } rows[] = {
        { "{}", "no profiles received" },
        { "{\"series\":null}", "no profiles received" },
        { "{\"series\":[1]}", "series 0: a series is no object" },
        { "{\"series\":[{},{\"samples\":{}}]}", "series 1: " },
        { "{\"series\":[{\"samples\":[{}],\"labels\":{}}]}", "labels is no list" },
        { "{\"series\":[{\"samples\":[{\"rawProfile\":7}],\"labels\":[]}]}", "rawProfile" },
        { "{\"series\":[{\"samples\":[{\"ID\":{}}],\"labels\":[]}]}", "ID" },
        { "{\"series\":[{\"samples\":[{}],\"labels\":[{\"name\":[]}]}]}", "name of a label" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (open_json(&b, rows[i].text) != ERR_INPUT || !strstr(b.e.text, rows[i].says))
            fail_msg("row %zu: %s", i, b.e.text);
        close_bed(&b);
    }
    buf_deinit(&raw);
    buf_deinit(&std);
    buf_deinit(&url);
    buf_deinit(&text);
}

/* Every prefix of a message is refused or gives what was whole in it; no byte of it may be read
 * behind its end (ASan). */
static void test_truncated(void **state)
{
    (void)state;
    struct buf raw, message;

    buf_init(&raw, MIB);
    buf_init(&message, MIB);
    push_gen_pprof("leaf", 5, 0, &raw);
    struct str raws[] = { buf_str(&raw), buf_str(&raw) };
    push_gen_series(LABELS, raws, NULL, 2, &message);
    push_gen_series(LABELS, raws, NULL, 1, &message);
    for (size_t n = 0; n <= message.len; n++) {
        char *exact = xmalloc(n ? n : 1);
        struct bed b;
        memcpy(exact, message.ptr, n);
        int rc = open_proto(&b, str_n(exact, n), NULL);
        assert_true(rc == 0 || rc == ERR_INPUT);
        if (rc == 0)
            assert_true(batch_keep_total(&b.keep, "cpu") == (n == message.len ? 15 : 10));
        close_bed(&b);
        xfree(exact);
    }
    buf_deinit(&raw);
    buf_deinit(&message);
}

static void test_limits(void **state)
{
    (void)state;
    struct limits l;
    struct buf raw, zip, message;
    struct str raws[101];
    struct bed b;
    struct err e;

    buf_init(&raw, 4 * MIB);
    buf_init(&zip, MIB);
    buf_init(&message, 4 * MIB);
    push_gen_pprof("leaf", 5, 0, &raw);
    for (size_t i = 0; i < ARRAY_LEN(raws); i++)
        raws[i] = buf_str(&raw);
    push_gen_series(LABELS, raws, NULL, 101, &message);
    assert_int_equal(open_proto(&b, buf_str(&message), NULL), ERR_LIMIT);
    assert_non_null(strstr(b.e.text, "more than 100 profiles"));
    l = b.keep.limits;
    close_bed(&b);
    /* A bomb is one profile's fault; many that are just below it are the request's. */
    memset(buf_room(&raw, MIB), 'a', MIB);
    raw.len += MIB;
    assert_int_equal(gzip(buf_str(&raw), 6, &zip, &e), 0);
    l.inflated_bytes = MIB;
    raws[0] = buf_str(&zip);
    buf_reset(&message);
    push_gen_series(LABELS, raws, NULL, 1, &message);
    assert_int_equal(open_proto(&b, buf_str(&message), &l), 0);
    assert_non_null(strstr(b.keep.why.text, "profile_size_limit"));
    close_bed(&b);
    l.inflated_bytes = 2 * MIB;
    l.inflated_ratio = 1100;
    for (size_t i = 0; i < 10; i++)
        raws[i] = buf_str(&zip);
    buf_reset(&message);
    push_gen_series(LABELS, raws, NULL, 10, &message);
    assert_int_equal(open_proto(&b, buf_str(&message), &l), ERR_LIMIT);
    assert_non_null(strstr(b.e.text, "body_size_limit_exceeded"));
    assert_int_equal(b.keep.rejected, 7); /* no pprof behind the 'a's; the eighth is too much */
    close_bed(&b);
    /* gzip in gzip */
    struct buf twice;
    buf_init(&twice, MIB);
    assert_int_equal(gzip(buf_str(&zip), 6, &twice, &e), 0);
    raws[0] = buf_str(&twice);
    buf_reset(&message);
    push_gen_series(LABELS, raws, NULL, 1, &message);
    assert_int_equal(open_proto(&b, buf_str(&message), NULL), 0);
    assert_non_null(strstr(b.keep.why.text, "gzip inside gzip"));
    close_bed(&b);
    buf_deinit(&twice);
    buf_deinit(&raw);
    buf_deinit(&zip);
    buf_deinit(&message);
}

/* Two bytes of input must not cost many: a million labels, a million series. */
static void test_small_things(void **state)
{
    (void)state;
    struct buf series, message;
    struct bed b;

    buf_init(&series, 4 * MIB);
    buf_init(&message, 8 * MIB);
    for (int i = 0; i < 1000000; i++)
        gen_bytes(&series, 1, STR(""));
    gen_bytes(&message, 1, buf_str(&series)); /* no samples: leaves nothing */
    gen_bytes(&series, 2, STR(""));
    gen_bytes(&message, 1, buf_str(&series));
    for (int i = 0; i < 1000000; i++)
        gen_bytes(&message, 1, STR(""));
    assert_int_equal(open_proto(&b, buf_str(&message), NULL), 0);
    assert_int_equal(b.keep.rejected, 1);
    assert_non_null(strstr(b.keep.why.text, "the series has 1000000 labels"));
    assert_true(arena_used(b.arena) < 256 * KIB);
    close_bed(&b);
    buf_deinit(&series);
    buf_deinit(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_labels), cmocka_unit_test(test_labels_refused),
        cmocka_unit_test(test_json),   cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_small_things),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
