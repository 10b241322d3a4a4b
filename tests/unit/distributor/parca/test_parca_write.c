/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "common/base/map.h"
#include "distributor/parca/arrow/arrow.h"
#include "distributor/parca/parca_labels.h"
#include "distributor/parca/parca_write.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/roles/parca_bed.h"
#include "tests/lib/testdata.h"

static const struct parca_opts opts = { .drop_labels = PARCA_DROP_LABELS, .seed = 7 };

/* Lines with one key are added up: what was one row in the model may be two pushes. */
static void add_up(struct buf *rows)
{
    struct str rest, line, last = STR_NULL;
    uint64_t sum = 0, v;
    bool more = true;
    struct buf out;

    gen_sort_lines(rows);
    buf_init(&out, 256 * MIB);
    rest = buf_str(rows);
    while (more) {
        if (!str_next(&rest, '\n', &more, &line))
            line = STR_NULL;
        ptrdiff_t tab = str_rfind(line, '\t');
        struct str key = tab < 0 ? STR_NULL : str_sub(line, 0, (size_t)tab);
        if (last.ptr && !str_eq(key, last)) {
            buf_addf(&out, "%.*s\t%" PRIu64 "\n", STR_ARG(last), sum);
            sum = 0;
        }
        last = key;
        if (key.ptr && str_u64(str_sub(line, (size_t)tab + 1, line.len), &v))
            sum += v;
    }
    buf_move(rows, &out);
}

static void check_rows(struct parca_bed *b, struct buf *want, const char *what)
{
    add_up(&b->rows);
    add_up(want);
    if (!str_eq(buf_str(&b->rows), buf_str(want)))
        fail_msg("%s: got\n%.2000s\nwant\n%.2000s", what, b->rows.len ? b->rows.ptr : "",
                 want->ptr);
    assert_int_equal(b->rejected, 0);
}

/* ---- the sample files --------------------------------------------------------------------------
 */

static void expected_rows(struct buf *out)
{
    json_t *doc = testdata_json("expected/parca-arrow.json"), *sample, *name;
    size_t i, k;
    const char *key;
    json_t *value;

    buf_init(out, MIB);
    json_array_foreach(json_object_get(doc, "samples"), i, sample)
    {
        json_t *labels = json_object_get(sample, "labels");
        json_t *stack = json_object_get(sample, "stack_root_first");
        char type[128];
        (void)snprintf(type, sizeof(type), "%s",
                       json_string_value(json_object_get(sample, "type")));
        char *first = strchr(type, ':') + 1;
        *strchr(first, ':') = 0;
        buf_addf(out, "%s\t%s\t{comm=%s", json_string_value(json_object_get(labels, "comm")), first,
                 json_string_value(json_object_get(labels, "comm")));
        json_object_foreach(labels, key,
                            value) if (strcmp(key, "comm") != 0 && strcmp(key, "thread_id") != 0)
            buf_addf(out, ",%s=%s", key, json_string_value(value));
        buf_add_str(out, STR("}\t"));
        if (json_array_size(stack) == 0)
            buf_add_str(out, STR("[unknown]"));
        json_array_foreach(stack, k, name)
            buf_addf(out, "%s%s", k ? ";" : "", json_string_value(name));
        buf_addf(out, "\t%lld\n", (long long)json_integer_value(json_object_get(sample, "value")));
    }
    json_decref(doc);
}

static void check_v2(const char *path)
{
    struct buf body, want;
    struct parca_bed b;
    struct err e;

    testdata_read(path, &body);
    parca_bed_init(&b);
    expected_rows(&want);
    if (parca_arrow_push(buf_str(&body), &opts, &b.sink, &e))
        fail_msg("%s: %s", path, e.text);
    check_rows(&b, &want, path);
    assert_int_equal(b.begun, 3); /* demo, python3, idle */
    assert_int_equal(b.first_ns, INT64_C(1767225600000000007));
    buf_deinit(&body);
    buf_deinit(&want);
    parca_bed_free(&b);
}

static void test_samples_v2(void **state)
{
    (void)state;
    if (!testdata_here("Parca's streams"))
        return;
    check_v2("parca-arrow/v2_samples.arrows");
    check_v2("parca-arrow/v2_samples_lz4.arrows");
    check_v2("corrupt/arrow_no_eos.arrows");
}

static void test_samples_v1(void **state)
{
    struct buf first, second, asked, ask, want;
    struct limits l = limits_default();
    struct parca_bed b;
    struct err e;
    size_t ids;

    (void)state;
    if (!testdata_here("Parca's streams"))
        return;
    testdata_read("parca-arrow/v1_1_samples.arrows", &first);
    testdata_read("parca-arrow/v1_2_server_unknown_ids.arrows", &asked);
    testdata_read("parca-arrow/v1_3_locations.arrows", &second);
    buf_init(&ask, MIB);
    assert_int_equal(parca_samples_ask(buf_str(&first), &l, 7, &ask, &ids, &e), 0);
    assert_int_equal(ids, 4);
    /* The same rows as in the file, by our own reader. */
    const struct str both[] = { buf_str(&ask), buf_str(&asked) };
    for (size_t k = 0; k < 2; k++) {
        struct arena *arena = arena_new(MIB);
        struct arrow a;
        struct str id;
        bool more;
        assert_int_equal(arrow_open(&a, both[k], &l, arena, &e), 0);
        assert_int_equal(arrow_next(&a, &more, &e), 0);
        assert_true(more);
        assert_int_equal(a.batch.rows, 4);
        uint32_t f = arrow_column(&a.schema, STR("stacktrace_id"));
        for (uint64_t i = 0; i < 4; i++) {
            assert_true(arrow_bytes(&a, arrow_cell(&a, f, i), &id));
            assert_int_equal(id.len, 16);
            assert_int_equal(id.ptr[0], i + 1);
        }
        arrow_close(&a);
        arena_free(arena);
    }
    parca_bed_init(&b);
    expected_rows(&want);
    if (parca_samples_push(buf_str(&first), buf_str(&second), &opts, &b.sink, &e))
        fail_msg("v1: %s", e.text);
    check_rows(&b, &want, "v1");
    buf_deinit(&first);
    buf_deinit(&second);
    buf_deinit(&asked);
    buf_deinit(&ask);
    buf_deinit(&want);
    parca_bed_free(&b);
}

static void verdict(const char *file, const char *want, void *cookie)
{
    struct parca_bed *b = cookie;
    char path[256];
    struct err e = { 0 };
    struct buf body;

    (void)snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = parca_arrow_push(buf_str(&body), &opts, &b->sink, &e);
    if (strcmp(want, "ok") == 0 ? rc != 0 : rc != ERR_INPUT && rc != ERR_LIMIT)
        fail_msg("%s: want %s, got %d %s", file, want, rc, e.text);
    buf_deinit(&body);
    parca_bed_reset(b);
}

static void test_verdicts(void **state)
{
    struct parca_bed b;

    (void)state;
    parca_bed_init(&b);
    if (testdata_here("Parca's streams"))
        testdata_verdicts("parca-arrow", verdict, &b);
    parca_bed_free(&b);
}

/* ---- generated ---------------------------------------------------------------------------------
 */

static void one_machine(uint64_t seed)
{
    struct arena *arena = arena_new(512 * MIB);
    struct buf want, out, second;
    struct parca_model m;
    struct parca_bed b;
    struct err e;
    char what[64];
    size_t samples = 1 + seed % 7 * (seed % 7) * 20;

    (void)snprintf(what, sizeof(what), "seed %llu", (unsigned long long)seed);
    parca_gen(&m, arena, seed, samples, DIST_NOW_MS * 1000000);
    parca_bed_init(&b);
    buf_init(&want, 64 * MIB);
    buf_init(&out, 64 * MIB);
    buf_init(&second, 64 * MIB);
    parca_gen_rows(&m, &want);
    parca_gen_v2(&m, (enum ga_codec)(seed % 3), 1 + seed % 4, &out);
    if (parca_arrow_push(buf_str(&out), &opts, &b.sink, &e))
        fail_msg("%s: %s", what, e.text);
    check_rows(&b, &want, what);
    parca_bed_reset(&b);
    buf_reset(&out);
    parca_gen_v1_samples(&m, (enum ga_codec)(seed % 3), &out);
    parca_gen_v1_stacks(&m, (enum ga_codec)(seed % 3), &second);
    if (parca_samples_push(buf_str(&out), buf_str(&second), &opts, &b.sink, &e))
        fail_msg("%s: %s", what, e.text);
    check_rows(&b, &want, what);
    buf_deinit(&want);
    buf_deinit(&out);
    buf_deinit(&second);
    parca_bed_free(&b);
    arena_free(arena);
}

static void test_random_machines(void **state)
{
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);

    (void)state;
    print_message("SEED=%llu\n", (unsigned long long)seed);
    for (int i = 0; i < (given ? 1 : 21); i++)
        one_machine(seed + (uint64_t)i);
}

/* ---- limits ------------------------------------------------------------------------------------
 */

static uint64_t sum_of(const struct buf *rows)
{
    struct str rest = buf_str(rows), line;
    uint64_t sum = 0, v;
    bool more = true;

    while (str_next(&rest, '\n', &more, &line))
        if (str_u64(str_sub(line, (size_t)(str_rfind(line, '\t') + 1), line.len), &v))
            sum += v;
    return sum;
}

/* Over the number of series label sets share one; totals stay, no series is there twice. */
static void test_overflow(void **state)
{
    struct arena *arena = arena_new(64 * MIB);
    struct parca_model m;
    struct parca_bed b;
    struct buf out, want;
    struct err e;

    (void)state;
    parca_gen(&m, arena, 3, 300, DIST_NOW_MS * 1000000);
    for (size_t i = 0; i < m.samples_len; i++) {
        char pod[16];
        (void)snprintf(pod, sizeof(pod), "pod-%zu", i % 50);
        m.samples[i].labels[2] = arena_strdup(arena, str_c(pod)).ptr;
        m.samples[i].labels[3] = "batch";
    }
    m.samples[7].labels[2] = m.samples[8].labels[2] = PARCA_OVERFLOW;
    parca_bed_init(&b);
    b.limits.series = 15; /* of three types: five sets */
    buf_init(&out, 16 * MIB);
    buf_init(&want, 16 * MIB);
    parca_gen_rows(&m, &want);
    parca_gen_v2(&m, GA_LZ4, 1, &out);
    assert_int_equal(parca_arrow_push(buf_str(&out), &opts, &b.sink, &e), 0);
    assert_int_equal(b.rejected, 0);
    assert_true(sum_of(&b.rows) == sum_of(&want));
    assert_true(b.drops[CHANGE_OVERFLOW] > 100);
    assert_non_null(strstr(b.rows.ptr, "pod=[overflow]"));
    buf_deinit(&out);
    buf_deinit(&want);
    parca_bed_free(&b);
    arena_free(arena);
}

static int push_with(const struct limits *l, const struct parca_model *m, struct parca_bed *b,
                     struct err *e)
{
    struct buf out;

    parca_bed_reset(b);
    b->limits = *l;
    buf_init(&out, 16 * MIB);
    parca_gen_v2(m, GA_PLAIN, 1, &out);
    e->code = 0;
    int rc = parca_arrow_push(buf_str(&out), &opts, &b->sink, e);
    buf_deinit(&out);
    return rc;
}

static void test_limits(void **state)
{
    struct arena *arena = arena_new(64 * MIB);
    struct limits l = limits_default();
    struct parca_model m;
    struct parca_bed b;
    struct err e;

    (void)state;
    parca_gen(&m, arena, 5, 200, DIST_NOW_MS * 1000000);
    parca_bed_init(&b);
    l.samples = 199;
    assert_int_equal(push_with(&l, &m, &b, &e), ERR_LIMIT);
    l.samples = 200;
    assert_int_equal(push_with(&l, &m, &b, &e), 0);
    assert_int_equal(b.rejected, 0);
    l.lines_per_location = 1; /* some pushes have such a location: they are rejected, no others */
    assert_int_equal(push_with(&l, &m, &b, &e), 0);
    assert_true(b.rejected > 0 && b.why.code == ERR_LIMIT);
    l = limits_default();
    l.symbol_bytes = 20;
    l.symbol_keep_bytes = 20;
    assert_int_equal(push_with(&l, &m, &b, &e), 0);
    assert_true(b.rejected > 0 && b.why.code == ERR_LIMIT);
    l = limits_default();
    l.frames = 16;
    assert_int_equal(push_with(&l, &m, &b, &e), 0);
    assert_true(b.rejected > 0);
    l = limits_default();
    l.decode_bytes = MIB / 32;
    assert_int_not_equal(push_with(&l, &m, &b, &e), 0);
    parca_bed_free(&b);
    arena_free(arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples_v2), cmocka_unit_test(test_samples_v1),
        cmocka_unit_test(test_verdicts),   cmocka_unit_test(test_random_machines),
        cmocka_unit_test(test_overflow),   cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
