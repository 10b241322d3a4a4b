/* SPDX-License-Identifier: Apache-2.0
 *
 * The sample files of the old formats, sample by sample, beside what google/pprof prints of them:
 *
 *   Samples:
 *   contentions/count delay/nanoseconds
 *          2700  608881724: 1 2 3          values, numbers of locations
 *   Locations
 *        1: 0xbccc96 M=1                   or 1: 0x0 com.Foo.bar Foo.java:3:0 s=0
 *   Mappings
 *   1: 0x400000/0xfcb000/0x0 server        start, limit, offset
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "distributor/formats/legacy/legacy_impl.h"
#include "distributor/formats/pprof/pprof.h"
#include "tests/lib/testdata.h"

struct want_location {
    uint64_t pc;
    struct str name;
    uint64_t mapping; /* its start; 0: none */
};
struct want {
    struct buf text;
    struct str samples; /* their lines */
    VEC(struct want_location) locations;
    VEC(uint64_t) maps;
};

static struct str section(struct str text, const char *from, const char *to)
{
    const char *a = memmem(text.ptr, text.len, from, strlen(from));
    const char *b;

    assert_non_null(a);
    a += strlen(from);
    b = to ? memmem(a, (size_t)(text.ptr + text.len - a), to, strlen(to)) : text.ptr + text.len;
    assert_non_null(b);
    return str_n(a, (size_t)(b - a));
}

static void want_read(struct want *w, const char *path)
{
    struct legacy lines = { .rest = STR_NULL };
    struct str line;
    uint64_t n, v;

    *w = (struct want){ .samples = STR_NULL };
    testdata_read(path, &w->text);
    w->samples = section(buf_str(&w->text), "Samples:\n", "Locations\n");
    lines.rest = section(buf_str(&w->text), "Mappings\n", NULL);
    while (legacy_line(&lines, &line))
        if (scan_u64(&line, &n) && scan_text(&line, ": 0x") && scan_hex(&line, &v))
            vec_push(&w->maps, v);
    lines.rest = section(buf_str(&w->text), "Locations\n", "Mappings\n");
    while (legacy_line(&lines, &line)) {
        struct want_location at = { 0 };
        assert_true(scan_u64(&line, &n) && scan_text(&line, ": 0x") && scan_hex(&line, &at.pc));
        assert_int_equal(n, w->locations.len + 1);
        if (scan_text(&line, "M=") && scan_u64(&line, &v))
            at.mapping = w->maps.ptr[v - 1];
        scan_blanks(&line);
        at.name = str_sub(line, 0, (size_t)MAX(str_find(line, ' '), 0));
        vec_push(&w->locations, at);
    }
}

static void want_deinit(struct want *w)
{
    buf_deinit(&w->text);
    vec_free(&w->locations);
    vec_free(&w->maps);
}

static void check_location(const char *file, const struct pprof *p, uint64_t id,
                           const struct want_location *want)
{
    uint32_t i = pprof_find(&p->location_ids, id);
    const struct pprof_location *at = &p->locations.ptr[i];
    struct str name = STR_NULL;
    uint64_t mapping = 0;

    assert_int_not_equal(i, PPROF_NONE);
    if (at->mapping_id)
        mapping = p->mappings.ptr[pprof_find(&p->mapping_ids, at->mapping_id)].start;
    if (i ? at->lines_end > p->locations.ptr[i - 1].lines_end : at->lines_end > 0) {
        uint64_t function = p->lines.ptr[at->lines_end - 1].function_id;
        name = pprof_str(p, p->functions.ptr[pprof_find(&p->function_ids, function)].name);
    }
    if (!str_eq(name, want->name) || mapping != want->mapping ||
        (!name.len && at->address != want->pc))
        fail_msg("%s: location 0x%" PRIx64 " %.*s, mapping 0x%" PRIx64 ", want 0x%" PRIx64
                 " %.*s, 0x%" PRIx64,
                 file, at->address, STR_ARG(name), mapping, want->pc, STR_ARG(want->name),
                 want->mapping);
}

static void check_sample(const char *file, const struct pprof *p, size_t i, struct str line,
                         const struct want *w)
{
    struct limits l = limits_default();
    struct pprof_sample s = { 0 };
    struct err e;
    uint64_t n;
    size_t at = 0;

    assert_int_equal(pprof_sample_read(p, i, &l, &s, &e), 0);
    assert_int_equal(pprof_sample_unpack(p, &l, &s, &e), 0);
    for (size_t k = 0; k < p->types_len; k++) {
        if (!scan_u64(&line, &n))
            fail_msg("%s: sample %zu", file, i);
        assert_int_equal(s.values[k], n);
    }
    assert_true(scan_text(&line, ":"));
    for (; scan_u64(&line, &n); at++) {
        assert_true(at < s.locations.len);
        check_location(file, p, s.locations.ptr[at], &w->locations.ptr[n - 1]);
    }
    assert_int_equal(at, s.locations.len);
    pprof_sample_deinit(&s);
}

static void check_types(const struct pprof *p, struct str line)
{
    for (size_t i = 0; i < p->types_len; i++) {
        struct str type = pprof_str(p, p->types[i].type), unit = pprof_str(p, p->types[i].unit);
        assert_true(str_starts(line, type));
        line = str_sub(line, type.len + 1, line.len);
        assert_true(str_starts(line, unit));
        line = str_trim(str_sub(line, unit.len, line.len));
    }
    assert_int_equal(line.len, 0);
}

static void check_file(const char *path, struct str body)
{
    struct limits l = limits_default();
    struct legacy lines = { .rest = STR_NULL };
    struct str line;
    struct want w;
    struct buf message;
    struct pprof p;
    struct err e = { 0 };
    uint64_t left_out;
    char string[1024];
    size_t n = 0;

    snprintf(string, sizeof(string), "%s.string", path);
    want_read(&w, string);
    lines.rest = w.samples;
    buf_init(&message, 64 * MIB);
    if (!legacy_sniff(body) || legacy_to_pprof(body, &l, &message, &left_out, &e) ||
        pprof_parse(&p, buf_str(&message), &l, &e))
        fail_msg("%s: %s", path, e.text);
    assert_true(legacy_line(&lines, &line));
    check_types(&p, line);
    while (legacy_line(&lines, &line)) {
        if (str_contains(line, STR(":["))) /* a number label: bytes:[9216] */
            continue;
        check_sample(path, &p, n++, line, &w);
    }
    assert_int_equal(n, p.samples.len);
    assert_int_equal(left_out, 0);
    pprof_deinit(&p);
    buf_deinit(&message);
    want_deinit(&w);
}

static void one(const char *name, void *cookie)
{
    size_t *files = cookie;
    struct buf body;
    char path[512];

    if (str_ends(str_c(name), STR(".string")))
        return;
    snprintf(path, sizeof(path), "pprof-legacy/%s", name);
    testdata_read(path, &body);
    check_file(path, buf_str(&body));
    buf_deinit(&body);
    ++*files;
}

static void test_files(void **state)
{
    (void)state;
    size_t files = 0;

    if (!testdata_here("old pprof formats"))
        skip();
    testdata_each("pprof-legacy", one, &files);
    assert_int_equal(files, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_files) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
