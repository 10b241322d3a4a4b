/* SPDX-License-Identifier: Apache-2.0
 *
 * Every pprof and folded sample file against the numbers that independent decoders worked out.
 *
 * The expected names are those of the file. Between them and ours stand the rules for names
 * (distributor/formats/normalize.c) and for frames without symbols; this file has its own, simple
 * copy of both for what occurs in the samples, so that a slip in one of them shows.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/formats/pprof/pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

/* Files whose expected names are those of a decoder that does not repair function ids. */
static const char *const names_unknown[] = { "dotnet_zero_function_ids.pb" };

/* Go: "f[go.shape.int]" is "f". The bracket may hold brackets. */
static void plain_name(struct str in, struct buf *out)
{
    buf_reset(out);
    for (size_t i = 0; i < in.len; i++) {
        if (str_starts(str_sub(in, i, in.len), STR("[go.shape."))) {
            int open = 0;
            do {
                open += in.ptr[i] == '[' ? 1 : in.ptr[i] == ']' ? -1 : 0;
                i++;
            } while (open > 0);
            i--;
            continue;
        }
        buf_add_c(out, in.ptr[i]);
    }
}

/* "file!0xADDR" with the address of the process: the same with the offset in the file. Looks for
 * the mapping by hand, in the columns of the parsed profile. */
static void plain_address(const struct pprof *p, struct buf *name)
{
    struct str s = buf_str(name), base;
    const char *mark = s.len ? memmem(s.ptr, s.len, "!0x", 3) : NULL;
    uint64_t address = 0;

    if (!mark || !p)
        return;
    base = str_sub(s, 0, (size_t)(mark - s.ptr));
    for (const char *c = mark + 3; c < s.ptr + s.len; c++)
        address = address * 16 + (uint64_t)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
    for (size_t i = 0; i < p->mappings.len; i++) {
        const struct pprof_mapping *m = &p->mappings.ptr[i];
        if (str_ends(pprof_str(p, m->file), base) && address >= m->start && address < m->limit) {
            name->len = base.len;
            buf_addf(name, "!0x%" PRIx64, address - m->start + m->offset);
            return;
        }
    }
}

static bool in_list(const char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* Two expected names may become one here, and then ours has the larger sum. */
static const char *const names_merge[] = { "pprof/ebpf_labels.pb.gz",
                                           "pprof/go_cpu_truncated.pb.gz" };

static void check_top(const json_t *top, const struct dist_summary *sum, const struct pprof *p,
                      const char *file)
{
    struct buf name;
    size_t i;
    json_t *row;

    buf_init(&name, MIB);
    json_array_foreach((json_t *)(uintptr_t)top, i, row)
    {
        const json_t *text = json_array_get(row, 0);
        uint64_t value = (uint64_t)json_integer_value(json_array_get(row, 1)), got = 0;
        plain_name(str_n(json_string_value(text), json_string_length(text)), &name);
        plain_address(p, &name);
        for (size_t k = 0; k < sum->self_len; k++)
            if (str_eq(str_n(sum->self[k].name, sum->self[k].len), buf_str(&name)))
                got = sum->self[k].value;
        bool merged = in_list(names_merge, ARRAY_LEN(names_merge), file) && got > value;
        if ((got != value && !merged) ||
            (i == 0 && (sum->self_len == 0 || sum->self[0].value < value)))
            fail_msg("%s: self of %.*s is %" PRIu64 ", want %" PRIu64, file,
                     STR_ARG(buf_str(&name)), got, value);
    }
    buf_deinit(&name);
}

static struct str unzipped(struct str body, struct buf *tmp)
{
    const struct inflate_limits l = { .bytes_max = 256 * MIB };
    struct err e;

    buf_init(tmp, 256 * MIB);
    if (!gzip_sniff(body))
        return body;
    assert_int_equal(gunzip(body, &l, tmp, &e), 0);
    return buf_str(tmp);
}

static void check_pprof(const char *path, const struct push *push, struct str body)
{
    char expected[512];
    struct buf tmp;
    struct pprof p;
    struct err e;
    struct limits l = limits_default();

    assert_int_equal(pprof_parse(&p, unzipped(body, &tmp), &l, &e), 0);
    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected);
    json_t *types = json_object_get(want, "sample_types"), *type;
    bool names = !in_list(names_unknown, ARRAY_LEN(names_unknown), strchr(path, '/') + 1);
    size_t i;
    json_array_foreach(types, i, type)
    {
        struct dist_summary sum;
        char word[256];
        const char *name = json_string_value(json_object_get(type, "type"));
        snprintf(word, sizeof(word), "%s", *name ? name : "unknown");
        for (char *c = word; *c; c++)
            *c = *c == '-' ? '_' : *c;
        dist_summarise(push, word, &sum);
        uint64_t total = (uint64_t)json_integer_value(json_object_get(type, "total"));
        assert_int_equal(json_integer_value(json_object_get(type, "negative_samples")), 0);
        if (sum.total != total)
            fail_msg("%s %s: total %" PRIu64 ", want %" PRIu64, path, word, sum.total, total);
        if (names)
            check_top(json_object_get(type, "top_self"), &sum, &p, path);
        int64_t stacks = json_integer_value(json_object_get(want, "distinct_stacks"));
        if (names && json_array_size(types) == 1 && (int64_t)sum.stacks != stacks)
            fail_msg("%s: %zu distinct stacks, want %" PRId64, path, sum.stacks, stacks);
        dist_summary_deinit(&sum);
    }
    json_decref(want);
    pprof_deinit(&p);
    buf_deinit(&tmp);
}

static size_t files;

static void one_pprof(const char *name, void *dir)
{
    struct limits l = limits_default();
    struct dist_push d;
    struct buf body;
    struct err e;
    char path[512];

    snprintf(path, sizeof(path), "%s/%s", (const char *)dir, name);
    testdata_read(path, &body);
    if (dist_decode(&d, "app", "pprof", NULL, buf_str(&body), &l, &e))
        fail_msg("%s: %s", path, e.text);
    check_pprof(path, &d.push, buf_str(&body));
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_pprof(void **state)
{
    (void)state;
    char dir[] = "pprof", many[] = "pprof-many", delta[] = "pprof-delta";

    if (!testdata_here("pprof samples"))
        skip();
    files = 0;
    testdata_each(dir, one_pprof, dir);
    testdata_each(many, one_pprof, many);
    testdata_each(delta, one_pprof, delta);
    assert_true(files > 50);
}

static void check_folded(const char *path, struct str body)
{
    struct limits l = limits_default();
    struct dist_summary sum;
    struct dist_push d;
    struct err e;
    char expected[512];

    /* sampleRate=0: values are stored unchanged. */
    struct ingest_raw raw = { .name = STR("app.cpu"), .sample_rate = STR("0") };
    if (dist_decode_raw(&d, &raw, body, &l, &e))
        fail_msg("%s: %s", path, e.text);
    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected);
    dist_summarise(&d.push, NULL, &sum);
    assert_int_equal(sum.total, json_integer_value(json_object_get(want, "total")));
    assert_int_equal(sum.stacks, json_integer_value(json_object_get(want, "distinct_stacks")));
    assert_int_equal(d.push.drops[DROP_LINE],
                     json_integer_value(json_object_get(want, "invalid_lines")));
    check_top(json_object_get(want, "top_self"), &sum, NULL, path);
    dist_summary_deinit(&sum);
    json_decref(want);
    dist_push_free(&d);
}

static void one_folded(const char *name, void *cookie)
{
    (void)cookie;
    struct buf body, gz;
    struct err e;
    char path[512];

    snprintf(path, sizeof(path), "collapsed/%s", name);
    testdata_read(path, &body);
    check_folded(path, buf_str(&body));
    buf_init(&gz, 16 * MIB);
    assert_int_equal(gzip(buf_str(&body), 1, &gz, &e), 0);
    check_folded(path, buf_str(&gz)); /* gzip is seen by its magic */
    buf_deinit(&gz);
    buf_deinit(&body);
    files++;
}

static void test_folded(void **state)
{
    (void)state;

    if (!testdata_here("folded samples"))
        skip();
    files = 0;
    testdata_each("collapsed", one_folded, NULL);
    assert_true(files > 8);
}

/* ---- hostile files ----------------------------------------------------------------------------
 * */

/* The total without the bad samples of a `drop` file, where the expected numbers, which count
 * before our rules, differ. */
static bool drop_total(const char *file, uint64_t *ret)
{
    if (strcmp(file, "pp_negative_value.pb") == 0) {
        *ret = 7;
        return true;
    }
    return false;
}

static void accepted_pprof(const char *file, const struct push *push, struct str body)
{
    char path[512];
    uint64_t total;

    snprintf(path, sizeof(path), "corrupt/%s", file);
    if (strcmp(file, "pp_int64_overflow.pb") == 0) {
        assert_int_equal(push->series_len, 1);
        assert_true(push->series[0].total == INT64_MAX && push->drops[CHANGE_SATURATED] == 1);
    } else if (strcmp(file, "pp_value_count_short.pb") == 0) {
        /* The type is there twice: the second one is called cpu_2. */
        assert_int_equal(dist_series(push, "cpu")->total, 1);
        assert_int_equal(dist_series(push, "cpu_2")->total, 2);
    } else if (drop_total(file, &total)) {
        assert_int_equal(push->series[0].total, total);
    } else {
        check_pprof(path, push, body);
    }
    if (strcmp(file, "pp_no_samples.pb") == 0)
        assert_int_equal(push->series_len, 0);
    if (strcmp(file, "pp_reserved_labels.pb") == 0) {
        const struct labels *l = &push->series[0].labels;
        assert_true(str_eqc(labels_get(l, STR("service_name")), "app"));
        assert_true(str_eqc(labels_get(l, STR("__name__")), "process_cpu"));
    }
}

static void one_verdict(const char *file, const char *verdict, void *format)
{
    bool folded = strcmp(format, "collapsed") == 0;
    bool accept = strcmp(verdict, "ok") == 0 || strcmp(verdict, "drop") == 0;
    struct limits l = limits_default();
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };
    char path[512];

    snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = dist_decode(&d, "app", folded ? "folded" : "pprof", NULL, buf_str(&body), &l, &e);
    int want = accept ? 0 : strcmp(verdict, "limit") == 0 ? ERR_LIMIT : ERR_INPUT;
    if (rc != want)
        fail_msg("%s (%s): %s %s", file, verdict, err_name(rc), e.text);
    if (rc) {
        assert_int_equal(d.push.series_len, 0);
        assert_true(strlen(e.text) > 8);
    } else if (!folded) {
        accepted_pprof(file, &d.push, buf_str(&body));
    } else if (strcmp(file, "col_long_line.collapsed") != 0) {
        check_folded(path, buf_str(&body));
    } else {
        assert_int_equal(d.push.series[0].total, 3 * 10000000);
        assert_int_equal(d.push.drops[CHANGE_TRUNCATED], 1);
    }
    dist_push_free(&d);
    buf_deinit(&body);
    files++;
}

static void test_verdicts(void **state)
{
    (void)state;
    char pprof[] = "pprof", collapsed[] = "collapsed";

    if (!testdata_here("hostile samples"))
        skip();
    files = 0;
    testdata_verdicts("pprof", one_verdict, pprof);
    assert_true(files > 40);
    testdata_verdicts("collapsed", one_verdict, collapsed);
    assert_true(files > 44);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pprof),
        cmocka_unit_test(test_folded),
        cmocka_unit_test(test_verdicts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
