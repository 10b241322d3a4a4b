/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the first two above first */
#include <cmocka.h>

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "tests/lib/gen/gen_jfr.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"

#define FORM "multipart/form-data; boundary=b"

static uint64_t seed_of_run(void)
{
    const char *given = getenv("SEED");
    uint64_t seed = 20261121;

    if (given)
        CHECK(str_u64(str_c(given), &seed));
    return seed;
}

static void add_part(struct buf *form, const char *name, struct str content, bool zip,
                     const char *boundary)
{
    struct buf gz;
    struct err e;

    buf_init(&gz, 64 * MIB);
    if (zip)
        assert_int_equal(gzip(content, 1, &gz, &e), 0);
    buf_addf(form,
             "--%s\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\n"
             "Content-Type: application/octet-stream\r\n\r\n",
             boundary, name, name);
    buf_add_str(form, zip ? buf_str(&gz) : content);
    buf_add_str(form, STR("\r\n"));
    buf_deinit(&gz);
}

static void make_form(struct buf *form, struct str jfr, struct str labels, bool zip,
                      const char *boundary)
{
    buf_init(form, 64 * MIB);
    add_part(form, "jfr", jfr, zip, boundary);
    if (labels.len)
        add_part(form, "labels", labels, zip, boundary);
    buf_addf(form, "--%s--\r\n", boundary);
}

/* As the Java agent pushes it. */
static int decode_form(struct dist_push *d, struct str form, const struct limits *l, struct err *e)
{
    const struct ingest_raw raw = {
        .name = STR("app"), .format = STR("jfr"), .sample_rate = STR("0"), .content_type = STR(FORM)
    };

    return dist_decode_raw(d, &raw, form, l, e);
}

static int decode(struct dist_push *d, struct str body, const char *rate, struct err *e)
{
    struct limits l = limits_default();
    const struct ingest_raw raw = { .name = STR("app"),
                                    .format = STR("jfr"),
                                    .sample_rate = str_c(rate) };

    return dist_decode_raw(d, &raw, body, &l, e);
}

/* ---- against the model ----- */

static void first_difference(struct str got, struct str want, uint64_t seed)
{
    size_t i = 0, from;

    while (i < got.len && i < want.len && got.ptr[i] == want.ptr[i])
        i++;
    from = i > 80 ? i - 80 : 0;
    fail_msg("seed %" PRIu64 " at byte %zu of %zu and %zu:\n got ...%.*s\nwant ...%.*s", seed, i,
             got.len, want.len, STR_ARG(str_sub(got, from, i + 120)),
             STR_ARG(str_sub(want, from, i + 120)));
}

static void test_random(void **state)
{
    (void)state;
    struct limits l = limits_default();
    uint64_t seed = seed_of_run();

    printf("seed %" PRIu64 "\n", seed);
    for (uint64_t i = 0; i < 60; i++) {
        struct gen_jfr_random r;
        struct dist_push d;
        struct prng p;
        struct buf form, rows;
        struct err e = { 0 };
        prng_init(&p, seed + i);
        gen_jfr_random(&p, prng_below(&p, 800), &r);
        make_form(&form, buf_str(&r.file), buf_str(&r.labels), i % 2, "b");
        if (decode_form(&d, buf_str(&form), &l, &e))
            fail_msg("seed %" PRIu64 ": %s", seed + i, e.text);
        dist_rows(&d.push, &rows);
        if (!str_eq(buf_str(&rows), buf_str(&r.rows)))
            first_difference(buf_str(&rows), buf_str(&r.rows), seed + i);
        assert_int_equal(d.push.samples, r.samples);
        assert_int_equal(d.push.drops[DROP_NO_STACK], r.no_stack);
        buf_deinit(&form);
        buf_deinit(&rows);
        dist_push_free(&d);
        gen_jfr_random_deinit(&r);
    }
}

/* ---- small recordings ----- */

struct small {
    struct gen_jfr g;
    struct prng p;
    uint64_t trace;
};

static void small_begin(struct small *s)
{
    prng_init(&s->p, 7);
    gen_jfr_init(&s->g, &s->p);
    gen_jfr_chunk(&s->g);
    struct gen_jfr_frame frames[] = {
        { gen_jfr_method(&s->g, "demo/Main", "leaf"), 12 },
        { gen_jfr_method(&s->g, "demo/Main", "main"), -1 },
    };
    s->trace = gen_jfr_trace(&s->g, frames, 2);
}

static void small_event(struct small *s, enum gen_jfr_is is, int64_t value)
{
    gen_jfr_event(&s->g, &(struct gen_jfr_event){ .is = is, .trace = s->trace, .value = value });
}

static struct str small_end(struct small *s)
{
    gen_jfr_finish(&s->g);
    return buf_str(&s->g.file);
}

static void good(struct dist_push *d, struct str body, const char *rate)
{
    struct err e = { 0 };

    if (decode(d, body, rate, &e))
        fail_msg("%s", e.text);
}

static void test_types(void **state)
{
    (void)state;
    static const char *const want[] = {
        "process_cpu:cpu:nanoseconds:cpu:nanoseconds",
        "wall:wall:nanoseconds:wall:nanoseconds",
        "native:samples:count::",
        "process_cpu:cpu_time:nanoseconds:cpu:nanoseconds",
        "memory:alloc_in_new_tlab_objects:count:space:bytes",
        "memory:alloc_in_new_tlab_bytes:bytes:space:bytes",
        "memory:alloc_outside_tlab_objects:count:space:bytes",
        "memory:alloc_outside_tlab_bytes:bytes:space:bytes",
        "memory:alloc_sample_objects:count:space:bytes",
        "memory:alloc_sample_bytes:bytes:space:bytes",
        "mutex:contentions:count:mutex:count",
        "mutex:delay:nanoseconds:mutex:count",
        "mutex:native_contentions:count:mutex:count",
        "mutex:native_delay:nanoseconds:mutex:count",
        "block:contentions:count:block:count",
        "block:delay:nanoseconds:block:count",
        "memory:live:count:objects:count",
        "memory:malloc_objects:count::",
        "memory:malloc_bytes:bytes::",
    };
    struct dist_push d;
    struct small s;

    small_begin(&s);
    for (int is = 0; is < GEN_JFR_EVENTS; is++)
        small_event(&s, (enum gen_jfr_is)is, 3);
    good(&d, small_end(&s), "50");
    assert_int_equal(d.push.series_len, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        const struct push_series *found = NULL;
        for (size_t k = 0; k < d.push.series_len; k++)
            if (str_eqc(d.push.series[k].profile_type, want[i]))
                found = &d.push.series[k];
        if (!found)
            fail_msg("no series of type %s", want[i]);
        bool rate = i < 2;
        assert_int_equal(found->unit, rate ? 20000000 : 1);
        assert_int_equal(found->gauge, strstr(want[i], ":live:") != NULL);
    }
    assert_int_equal(dist_series(&d.push, "cpu")->total, 20000000);
    assert_int_equal(dist_series(&d.push, "wall")->total, 3 * 20000000);
    assert_int_equal(dist_series(&d.push, "cpu_time")->total, 3);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

static void cpu_at(struct small *s, uint64_t time)
{
    gen_jfr_event(&s->g,
                  &(struct gen_jfr_event){ .is = GEN_JFR_CPU, .trace = s->trace, .time = time });
}

/* A JDK's samples are worth the period that it says, which may change within a chunk, and may stand
 * behind the samples; a chunk that says nothing has the URL's rate. */
static void test_period(void **state)
{
    static const struct {
        const char *period, *rate;
        uint64_t total;
    } rows[] = {
        { "20 ms", NULL, 20000000 },      { "1 s", NULL, 1000000000 },
        { "500 us", "50", 500000 },       { "20 ms", "0", 1 },
        { "20ms", NULL, 20000000 },       { "everyChunk", NULL, 10000000 },
        { "everyChunk", "50", 20000000 }, { "0 ms", NULL, 10000000 },
        { "", NULL, 10000000 },           { "99999999999999999999 d", NULL, 10000000 },
    };
    struct dist_push d;
    struct small s;

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        small_begin(&s);
        cpu_at(&s, 5);
        gen_jfr_period(&s.g, 9, rows[i].period);
        good(&d, small_end(&s), rows[i].rate);
        assert_int_equal(dist_series(&d.push, "cpu")->total, rows[i].total);
        assert_int_equal(dist_series(&d.push, "cpu")->unit, rows[i].total);
        dist_push_free(&d);
        gen_jfr_deinit(&s.g);
    }
    small_begin(&s);
    gen_jfr_period(&s.g, 200, "10 ms");
    cpu_at(&s, 99);
    cpu_at(&s, 100);
    cpu_at(&s, 199);
    cpu_at(&s, 200);
    gen_jfr_period(&s.g, 100, "1 ms");
    gen_jfr_setting(&s.g, "period", "7 s"); /* of another event */
    gen_jfr_finish(&s.g);
    gen_jfr_chunk(&s.g);
    const struct gen_jfr_frame f = { gen_jfr_method(&s.g, "demo/Main", "main"), 1 };
    s.trace = gen_jfr_trace(&s.g, &f, 1);
    cpu_at(&s, 300);
    good(&d, small_end(&s), "2");
    assert_int_equal(dist_series(&d.push, "cpu")->total, 3 * 1000000 + 10000000 + 500000000);
    assert_int_equal(dist_series(&d.push, "cpu")->unit, 1);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

static void test_frames(void **state)
{
    (void)state;
    struct dist_push d;
    struct small s;

    small_begin(&s);
    small_event(&s, GEN_JFR_CPU, 0);
    small_event(&s, GEN_JFR_CPU, 0);
    good(&d, small_end(&s), NULL);
    const struct stacks *t = &d.push.stacks;
    assert_int_equal(d.push.series_len, 1);
    assert_int_equal(d.push.series[0].len, 1);
    assert_int_equal(d.push.series[0].total, 2 * 10000000);
    uint32_t leaf = d.push.series[0].nodes[0], main_ = t->node_parent.ptr[leaf - 1];
    uint32_t f = t->node_frame.ptr[leaf - 1], g = t->node_frame.ptr[main_ - 1];
    assert_true(str_eqc(stacks_string_at(t, t->frame_func.ptr[f]), "demo/Main.leaf"));
    assert_true(str_eqc(stacks_string_at(t, t->frame_func.ptr[g]), "demo/Main.main"));
    assert_int_equal(t->frame_line.ptr[f], 12);
    assert_int_equal(t->frame_line.ptr[g], 0);
    assert_int_equal(t->frame_file.ptr[f], 0);
    assert_int_equal(t->node_parent.ptr[main_ - 1], 0);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

/* Each encoding, gzip'd and not, in two chunks: the same rows. */
static void test_encodings(void **state)
{
    (void)state;
    for (int encoding = 2; encoding <= 5; encoding++) {
        struct dist_push d;
        struct small s;
        struct buf rows, gz;
        struct err e = { 0 };
        small_begin(&s);
        for (int chunk = 0; chunk < 2; chunk++) {
            gen_jfr_chunk(&s.g);
            s.g.encoding = encoding;
            struct gen_jfr_frame f = { gen_jfr_method(&s.g, "d/Caf\xc3\xa9", "r\xc3\xbcn"), 1 };
            s.trace = gen_jfr_trace(&s.g, &f, 1);
            gen_jfr_setting(&s.g, "event", "itimer");
            small_event(&s, GEN_JFR_CPU, 0);
            gen_jfr_finish(&s.g);
        }
        buf_init(&gz, 64 * MIB);
        assert_int_equal(gzip(buf_str(&s.g.file), 6, &gz, &e), 0);
        good(&d, encoding % 2 ? buf_str(&gz) : buf_str(&s.g.file), "0");
        dist_rows(&d.push, &rows);
        assert_true(
            str_eqc(buf_str(&rows), "cpu\t{jfr_event=itimer}\td/Caf\xc3\xa9.r\xc3\xbcn\t2\n"));
        buf_deinit(&rows);
        buf_deinit(&gz);
        dist_push_free(&d);
        gen_jfr_deinit(&s.g);
    }
}

static void test_ticks(void **state)
{
    (void)state;
    static const struct {
        uint64_t ticks_per_s;
        int64_t ticks;
        uint64_t ns;
        bool saturated;
    } rows[] = {
        { 1000000000, 7, 7, false },
        { UINT64_C(2419200000), 2419200001, 1000000000, false },
        { 3, 2, 666666666, false },
        { 3, INT64_C(9000000000), UINT64_C(3000000000000000000), false },
        { 1, INT64_MAX, INT64_MAX, true },
        { INT64_MAX, INT64_MAX, 1000000000, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct small s;
        small_begin(&s);
        s.g.ticks_per_s = rows[i].ticks_per_s;
        small_event(&s, GEN_JFR_PARK, rows[i].ticks);
        good(&d, small_end(&s), NULL);
        assert_int_equal(dist_series(&d.push, "delay")->total, rows[i].ns);
        assert_int_equal(dist_series(&d.push, "contentions")->total, 1);
        assert_int_equal(d.push.drops[CHANGE_SATURATED], rows[i].saturated);
        dist_push_free(&d);
        gen_jfr_deinit(&s.g);
    }
}

static void test_left_out(void **state)
{
    (void)state;
    struct dist_push d;
    struct small s;

    small_begin(&s);
    small_event(&s, GEN_JFR_MALLOC, -1);
    small_event(&s, GEN_JFR_MALLOC, 5);
    s.trace += 1;
    small_event(&s, GEN_JFR_MALLOC, 6);
    s.trace = 0;
    small_event(&s, GEN_JFR_CPU, 0);
    good(&d, small_end(&s), NULL);
    assert_int_equal(d.push.samples, 4);
    assert_int_equal(d.push.drops[DROP_NEGATIVE], 1);
    assert_int_equal(d.push.drops[DROP_NO_STACK], 2);
    assert_int_equal(d.push.series_len, 2);
    assert_int_equal(dist_series(&d.push, "malloc_bytes")->total, 5);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

/* ---- time, spans, forms ----- */

static void test_time(void **state)
{
    (void)state;
    struct dist_push d;
    struct small s;
    struct err e;

    small_begin(&s);
    gen_jfr_finish(&s.g);
    s.g.start_ns += INT64_C(10000000000);
    gen_jfr_chunk(&s.g);
    good(&d, small_end(&s), NULL);
    assert_true(d.push.has_time && d.push.has_identity);
    assert_int_equal(d.push.time_ns, INT64_C(1700000000123456789));
    assert_int_equal(d.push.duration_ns, INT64_C(20000000000));
    assert_int_equal(d.push.series_len, 0);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);

    small_begin(&s);
    s.g.start_ns = 0; /* no clock */
    good(&d, small_end(&s), NULL);
    assert_true(!d.push.has_time && !d.push.has_identity);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);

    small_begin(&s);
    s.g.start_ns = INT64_C(2000000000000000000);
    assert_int_equal(decode(&d, small_end(&s), NULL, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "a day ahead"));
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

static const struct push_exemplar *exemplar(const struct push_series *s, enum exid_kind kind,
                                            const char *id)
{
    char text[EXID_BYTES_MAX];

    for (size_t i = 0; i < s->exemplars_len; i++)
        if (s->exemplars[i].kind == kind &&
            str_eqc(str_n(text, exid_text(s->exemplars[i].id, text)), id))
            return &s->exemplars[i];
    return NULL;
}

static void test_spans(void **state)
{
    (void)state;
    struct dist_push d;
    struct small s;

    small_begin(&s);
    struct gen_jfr_event with = {
        .is = GEN_JFR_MALLOC, .trace = s.trace, .value = 8, .span = 0xbac2a5ab0c7, .trace_lo = 0xaa
    };
    struct gen_jfr_event high = {
        .is = GEN_JFR_MALLOC, .trace = s.trace, .value = 2, .trace_hi = 1
    };
    gen_jfr_event(&s.g, &with);
    gen_jfr_event(&s.g, &with);
    gen_jfr_event(&s.g, &high);
    small_event(&s, GEN_JFR_MALLOC, 1);
    good(&d, small_end(&s), NULL);
    assert_int_equal(d.push.series_len, 2);
    const struct push_series *bytes = dist_series(&d.push, "malloc_bytes");
    assert_int_equal(bytes->total, 19);
    assert_int_equal(bytes->exemplars_len, 3);
    const struct push_exemplar *x = exemplar(bytes, EXID_SPAN, "00000bac2a5ab0c7");
    assert_true(x && x->len == 1 && x->values[0] == 16);
    x = exemplar(bytes, EXID_TRACE, "000000000000000000000000000000aa");
    assert_true(x && x->len == 1 && x->values[0] == 16);
    x = exemplar(bytes, EXID_TRACE, "00000000000000010000000000000000");
    assert_true(x && x->len == 1 && x->values[0] == 2);
    x = exemplar(dist_series(&d.push, "malloc_objects"), EXID_SPAN, "00000bac2a5ab0c7");
    assert_true(x && x->len == 1 && x->values[0] == 2);
    dist_push_free(&d);
    gen_jfr_deinit(&s.g);
}

static void snapshot(struct buf *out, uint64_t contexts)
{
    struct buf label, context, entry;

    buf_init(out, MIB);
    for (uint64_t c = 1; c <= contexts; c++) {
        char value[32];
        snprintf(value, sizeof(value), "v%" PRIu64, c);
        buf_init(&label, 64);
        buf_init(&context, 64);
        buf_init(&entry, 64);
        gen_u64(&label, 1, 1);
        gen_u64(&label, 2, 1 + c);
        gen_bytes(&context, 1, buf_str(&label));
        gen_u64(&entry, 1, c);
        gen_bytes(&entry, 2, buf_str(&context));
        gen_bytes(out, 1, buf_str(&entry));
        buf_reset(&entry);
        gen_u64(&entry, 1, 1 + c);
        gen_bytes(&entry, 2, str_c(value));
        gen_bytes(out, 2, buf_str(&entry));
        buf_deinit(&label);
        buf_deinit(&context);
        buf_deinit(&entry);
    }
    buf_add_str(out, STR("\x12\x0a\x08\x01\x12\x06thread"));
}

/* More label sets than series: the rest goes to one, and nothing is lost. */
static void test_label_cap(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct buf labels, form;
    struct dist_push d;
    struct err e = { 0 };
    struct small s;
    uint64_t total = 0;
    bool overflow = false;

    l.series = 10;
    small_begin(&s);
    for (uint64_t c = 0; c <= 30; c++) {
        struct gen_jfr_event event = { .is = GEN_JFR_LIVE, .trace = s.trace, .context = c };
        gen_jfr_event(&s.g, &event);
    }
    snapshot(&labels, 30);
    make_form(&form, small_end(&s), buf_str(&labels), true, "b");
    if (decode_form(&d, buf_str(&form), &l, &e))
        fail_msg("%s", e.text);
    assert_int_equal(d.push.series_len, 10);
    for (size_t i = 0; i < d.push.series_len; i++) {
        total += d.push.series[i].total;
        overflow |= str_eqc(labels_get(&d.push.series[i].labels, STR("thread")), "[overflow]");
    }
    assert_int_equal(total, 31);
    assert_true(overflow && d.push.drops[CHANGE_OVERFLOW] > 0);
    dist_push_free(&d);
    buf_deinit(&form);
    buf_deinit(&labels);
    gen_jfr_deinit(&s.g);
}

static void collect(void *cookie, struct str bytes)
{
    buf_add_str(cookie, bytes);
    buf_add_c(cookie, '|');
}

static void test_forms(void **state)
{
    (void)state;
    struct limits l = limits_default();
    struct buf labels, form, other, same[2];
    struct dist_push d;
    struct err e;
    struct small s;

    small_begin(&s);
    struct str jfr = small_end(&s);
    buf_init(&form, MIB);
    add_part(&form, "profile", jfr, false, "b");
    buf_addf(&form, "--b--\r\n");
    assert_int_equal(decode_form(&d, buf_str(&form), &l, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "\"jfr\""));
    dist_push_free(&d);
    buf_deinit(&form);

    make_form(&form, jfr, STR("\x0a\xffnonsense"), false, "b");
    assert_int_equal(decode_form(&d, buf_str(&form), &l, &e), ERR_INPUT);
    assert_non_null(strstr(e.text, "labels"));
    dist_push_free(&d);
    buf_deinit(&form);

    /* Any event may refer to a context, and has all of its labels then. */
    for (size_t i = 100; i <= 101; i++) {
        struct buf context, entry;
        buf_init(&labels, KIB);
        buf_init(&context, KIB);
        buf_init(&entry, KIB);
        for (size_t k = 0; k < i; k++)
            gen_bytes(&context, 1, STR("\x08\x01\x10\x02"));
        gen_bytes(&entry, 2, buf_str(&context));
        gen_bytes(&labels, 1, buf_str(&entry));
        make_form(&form, jfr, buf_str(&labels), false, "b");
        assert_int_equal(decode_form(&d, buf_str(&form), &l, &e), i > 100 ? ERR_LIMIT : 0);
        assert_true(i == 100 || strstr(e.text, "distributor.labels_per_sample"));
        dist_push_free(&d);
        buf_deinit(&form);
        buf_deinit(&entry);
        buf_deinit(&context);
        buf_deinit(&labels);
    }

    /* A retry of a form has a boundary of its own. */
    snapshot(&labels, 2);
    make_form(&form, jfr, buf_str(&labels), false, "b");
    make_form(&other, jfr, buf_str(&labels), false, "another");
    assert_int_equal(decode_form(&d, buf_str(&form), &l, &e), 0);
    buf_init(&same[0], MIB);
    buf_init(&same[1], MIB);
    formats_identity(&d.in, buf_str(&form), d.arena, collect, &same[0]);
    d.in.raw.content_type = STR("multipart/form-data; boundary=another");
    formats_identity(&d.in, buf_str(&other), d.arena, collect, &same[1]);
    assert_true(same[0].len > jfr.len && str_eq(buf_str(&same[0]), buf_str(&same[1])));
    dist_push_free(&d);
    buf_deinit(&same[0]);
    buf_deinit(&same[1]);
    buf_deinit(&form);
    buf_deinit(&other);
    buf_deinit(&labels);
    gen_jfr_deinit(&s.g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),    cmocka_unit_test(test_types),
        cmocka_unit_test(test_period),    cmocka_unit_test(test_frames),
        cmocka_unit_test(test_encodings), cmocka_unit_test(test_ticks),
        cmocka_unit_test(test_left_out),  cmocka_unit_test(test_time),
        cmocka_unit_test(test_spans),     cmocka_unit_test(test_label_cap),
        cmocka_unit_test(test_forms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
