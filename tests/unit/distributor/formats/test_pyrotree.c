/* SPDX-License-Identifier: Apache-2.0
 *
 * trie and tree: worked examples, refusals, random stacks against a tally, and the sample files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/prng.h"
#include "common/base/wr.h"
#include "tests/lib/gen/gen_pprof.h"
#include "tests/lib/roles/dist_push.h"
#include "tests/lib/testdata.h"

static int decode(struct dist_push *d, const char *format, struct str body, struct err *e)
{
    static struct limits l;
    struct ingest_raw raw = { .name = STR("app.cpu"),
                              .sample_rate = STR("0"),
                              .format = str_c(format) };

    l = limits_default();
    return dist_decode_raw(d, &raw, body, &l, e);
}

static void check(const char *format, struct str body, const char *want)
{
    struct dist_push d;
    struct buf rows;
    struct err e = { 0 };

    if (decode(&d, format, body, &e))
        fail_msg("%s refused: %s", format, e.text);
    dist_rows(&d.push, &rows);
    buf_add_c(&rows, '\0');
    assert_string_equal(rows.ptr, want);
    buf_deinit(&rows);
    dist_push_free(&d);
}

#define BYTES(s)     str_n(s, sizeof(s) - 1)
#define ROW(path, v) "samples\t{}\t" path "\t" #v "\n"
#define TRIE_EXAMPLE "\0\0\1\2a;\0\2\1b\1\0\1c\2\0"
#define TREE_EXAMPLE "\0\0\1\1a\0\2\1b\1\0\1c\2\0"

static void test_examples(void **state)
{
    (void)state;

    check("trie", BYTES(TRIE_EXAMPLE), ROW("a;b", 1) ROW("a;c", 2));
    check("tree", BYTES(TREE_EXAMPLE), ROW("a;b", 1) ROW("a;c", 2));
    /* A name split anywhere, values at inner nodes, a name over two bytes of a character. */
    check("trie", BYTES("\0\0\1\1m\5\1\1a\0\2\3in;\0\1\1x\7\0\1\xc3\0\1\1\xa4\3\0"),
          ROW("m", 5) ROW("main;x", 7) ROW("ma\xc3\xa4", 3));
    check("trie", BYTES("\0\0\2\1a\1\0"), ROW("a", 1));       /* ends where a node could begin */
    check("trie", BYTES("\0\0\1\1a\1\1\0\2\0"), ROW("a", 3)); /* an empty name: the same key */
    check("trie", BYTES("\0\3\0"), ROW("[unknown]", 3));
    check("tree", BYTES("\0\0\1\1a\4\1\0\2\0"), ROW("a", 4) ROW("a;[unknown]", 2));
    check("tree", BYTES("\0\0\0"), "");
    check("tree", BYTES("\0\0\1\1a\x80\2\0"), ROW("a", 256));
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *format, *bytes;
        size_t len;
    } rows[] = {
#define BAD(f, s) { f, s, sizeof(s) - 1 }
        BAD("trie", ""),
        BAD("tree", ""),
        BAD("trie", "\0\0"),
        BAD("trie", "\0\0\1\2a"),
        BAD("tree", "\0\0\1"),               /* the child is missing */
        BAD("tree", "\0\0\1\1a\1\0x"),       /* bytes behind the end */
        BAD("trie", "\0\0\1\1a\1\0\1b\1\0"), /* the same */
        BAD("tree", "\0\0\x90\x4e\1a\1\0"),  /* 10,000 children in 4 bytes */
        BAD("trie", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0\0"),
        BAD("trie", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\2\0\0"), /* 65 bits */
        BAD("tree", "\0\0\1\1a\xff\xff\xff\xff\xff\xff\xff\xff\xff\1\0"),
#undef BAD
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct dist_push d;
        struct err e = { 0 };
        if (decode(&d, rows[i].format, str_n(rows[i].bytes, rows[i].len), &e) != ERR_INPUT)
            fail_msg("row %zu: %s", i, e.text);
        dist_push_free(&d);
    }
}

static void put_node(struct buf *b, struct str name, uint64_t value, uint64_t children)
{
    wr_varint(b, name.len);
    buf_add_str(b, name);
    wr_varint(b, value);
    wr_varint(b, children);
}

/* Three levels of three frames with random self values; the trie cuts each key at a random byte. */
static void random_tree(struct prng *p, bool trie, struct buf *body, struct buf *want)
{
    static const char *const names[] = { "f0", "f1", "f2" };
    char path[32];

    put_node(body, STR_NULL, 0, 3);
    for (unsigned a = 0; a < 3; a++) {
        uint64_t va = prng_below(p, 3) * prng_below(p, 1000);
        if (trie && prng_below(p, 2)) {
            put_node(body, STR("f"), 0, 1);
            put_node(body, str_sub(str_c(names[a]), 1, 2), va, 3);
        } else {
            put_node(body, str_c(names[a]), va, 3);
        }
        if (va)
            buf_addf(want, "samples\t{}\tf%u\t%" PRIu64 "\n", a, va);
        for (unsigned b = 0; b < 3; b++) {
            uint64_t vb = prng_below(p, 1000);
            (void)snprintf(path, sizeof(path), "%sf%u", trie ? ";" : "", b);
            put_node(body, str_c(path), vb, 0);
            if (vb)
                buf_addf(want, "samples\t{}\tf%u;f%u\t%" PRIu64 "\n", a, b, vb);
        }
    }
}

static void test_random(void **state)
{
    (void)state;
    struct buf body, want, rows;
    struct dist_push d;
    struct prng p;
    struct err e;

    prng_init(&p, 5);
    buf_init(&body, MIB);
    buf_init(&want, MIB);
    for (int i = 0; i < 200; i++) {
        bool trie = i % 2 == 0;
        buf_reset(&body);
        buf_reset(&want);
        random_tree(&p, trie, &body, &want);
        gen_sort_lines(&want);
        assert_int_equal(decode(&d, trie ? "trie" : "tree", buf_str(&body), &e), 0);
        dist_rows(&d.push, &rows);
        assert_true(str_eq(buf_str(&rows), buf_str(&want)));
        buf_deinit(&rows);
        dist_push_free(&d);
        /* Cut anywhere: an answer, never more than was sent. */
        size_t cut = (size_t)prng_below(&p, body.len);
        (void)decode(&d, trie ? "trie" : "tree", str_sub(buf_str(&body), 0, cut), &e);
        dist_push_free(&d);
    }
    buf_deinit(&body);
    buf_deinit(&want);
}

/* Names from the root of a node of a random tree, for each format. */
struct stem {
    const char *names[64];
    size_t len;
};

static void put_line(const struct stem *s, uint64_t value, struct buf *folded)
{
    for (size_t i = 0; i < s->len; i++)
        buf_addf(folded, "%s%s", i ? ";" : "", s->names[i]);
    buf_addf(folded, " %" PRIu64 "\n", value);
}

/* A node and what is below it, in all three formats, stacks in the same order. */
static void random_node(struct prng *p, struct stem *s, struct buf *tree, struct buf *trie,
                        struct buf *folded)
{
    static const char *const names[] = { "a", "b", "long", "x" };
    size_t deep = s->len, children = deep < 40 ? prng_below(p, deep < 12 ? 4 : 2) : 0;
    uint64_t value = deep ? prng_below(p, 3) : 0;
    char key[16];

    if (!deep)
        children = 3;
    (void)snprintf(key, sizeof(key), "%s%s", deep > 1 ? ";" : "", deep ? s->names[deep - 1] : "");
    put_node(tree, deep ? str_c(s->names[deep - 1]) : STR_NULL, value, children);
    put_node(trie, str_c(key), value, children);
    if (value)
        put_line(s, value, folded);
    for (size_t i = 0; i < children; i++) {
        s->names[s->len++] = names[(i + prng_below(p, 2)) % ARRAY_LEN(names)];
        random_node(p, s, tree, trie, folded);
        s->len--;
    }
}

static void rows_of(const char *format, const struct buf *body, const struct limits *l,
                    struct buf *rows, uint64_t *ret_over)
{
    struct ingest_raw raw = { .name = STR("app.cpu"),
                              .sample_rate = STR("0"),
                              .format = str_c(format) };
    struct dist_push d;
    struct err e;

    if (dist_decode_raw(&d, &raw, buf_str(body), l, &e))
        fail_msg("%s: %s", format, e.text);
    dist_rows(&d.push, rows);
    *ret_over = d.push.drops[CHANGE_STACKS] * 1000000 + d.push.drops[CHANGE_TRUNCATED];
    dist_push_free(&d);
}

/* What a stack shares with the one before is not walked again, and comes out as if it were: as the
 * same stacks in text, where each stands alone. */
static void test_as_text(void **state)
{
    struct buf bodies[3], rows[3];
    uint64_t over[3];
    struct prng p;

    (void)state;
    prng_init(&p, 11);
    for (int round = 0; round < 300; round++) {
        static const char *const formats[] = { "tree", "trie", "" };
        struct limits l = limits_default();
        struct stem s = { .len = 0 };

        l.frames_keep = 3 + prng_below(&p, 20);
        l.stacks = round % 3 ? 1000000 : 5 + prng_below(&p, 50);
        for (size_t i = 0; i < 3; i++)
            buf_init(&bodies[i], 64 * MIB);
        random_node(&p, &s, &bodies[0], &bodies[1], &bodies[2]);
        if (!bodies[2].len)
            buf_addf(&bodies[2], "a 0\n"); /* a text must not be empty */
        for (size_t i = 0; i < 3; i++)
            rows_of(formats[i], &bodies[i], &l, &rows[i], &over[i]);
        for (size_t i = 0; i < 2; i++) {
            assert_true(str_eq(buf_str(&rows[i]), buf_str(&rows[2])));
            assert_int_equal(over[i], over[2]);
        }
        for (size_t i = 0; i < 3; i++) {
            buf_deinit(&bodies[i]);
            buf_deinit(&rows[i]);
        }
    }
}

/* Kilobytes that mean gigabytes of frames: nothing is lost, and little is made of it. */
static void test_deep_chain(void **state)
{
    enum { DEEP = 30000 };

    (void)state;
    for (int trie = 0; trie < 2; trie++) {
        struct dist_push d;
        struct buf body;
        struct err e = { 0 };
        struct prng p;
        uint64_t sum = 0;

        prng_init(&p, 3);
        buf_init(&body, MIB);
        put_node(&body, STR_NULL, 0, 1);
        for (int i = 0; i < DEEP; i++) {
            const char *name = prng_below(&p, 2) ? "a;" : "b;";
            put_node(&body, str_n(name, trie ? 2 : 1), 1, i < DEEP - 1);
        }
        if (decode(&d, trie ? "trie" : "tree", buf_str(&body), &e))
            fail_msg("%s", e.text);
        for (size_t i = 0; i < d.push.series[0].len; i++)
            sum += d.push.series[0].values[i];
        assert_int_equal(sum, DEEP);
        assert_true(d.push.drops[CHANGE_STACKS] > 0);
        assert_true(d.push.stacks.node_parent.len < 2000000);
        dist_push_free(&d);
        buf_deinit(&body);
    }
}

/* A small body that stood for hours of walking: a chain of 60,000 frames with a million leaves.
 * What ends it is how many samples may be. */
static void test_work_is_bounded(void **state)
{
    (void)state;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };

    buf_init(&body, 16 * MIB);
    put_node(&body, STR_NULL, 0, 1);
    for (unsigned i = 0; i < 60000; i++)
        put_node(&body, STR("f"), 0, 1);
    for (unsigned i = 0; i < 60; i++)
        put_node(&body, STR("x"), 0, 1);
    for (unsigned i = 0; i < 100; i++) {
        put_node(&body, STR("y"), 0, 16000);
        for (unsigned k = 0; k < 15999; k++)
            put_node(&body, STR("z"), 1, 0);
    }
    put_node(&body, STR("z"), 1, 0);
    for (unsigned i = 0; i < 99; i++)
        put_node(&body, STR("z"), 1, 0);
    assert_int_equal(decode(&d, "tree", buf_str(&body), &e), ERR_LIMIT);
    assert_non_null(strstr(e.text, "more than 1000000 stacks"));
    dist_push_free(&d);
    buf_deinit(&body);
}

/* ---- sample files ---------------------------------------------------------------------------- */

static size_t files;

static void check_file(const char *format, const char *path, struct str body)
{
    char expected[512];
    struct dist_summary sum;
    struct dist_push d;
    struct err e;

    if (decode(&d, format, body, &e))
        fail_msg("%s: %s", path, e.text);
    testdata_expected_path(path, expected, sizeof(expected));
    json_t *want = testdata_json(expected);
    dist_summarise(&d.push, NULL, &sum);
    assert_int_equal(sum.total, json_integer_value(json_object_get(want, "total")));
    assert_int_equal(sum.stacks, json_integer_value(json_object_get(want, "distinct_stacks")));
    dist_summary_deinit(&sum);
    json_decref(want);
    dist_push_free(&d);
}

static void one_file(const char *name, void *format)
{
    struct buf body;
    char path[512];

    (void)snprintf(path, sizeof(path), "%s/%s", (const char *)format, name);
    testdata_read(path, &body);
    check_file(format, path, buf_str(&body));
    buf_deinit(&body);
    files++;
}

static void one_verdict(const char *file, const char *verdict, void *format)
{
    int want = strcmp(verdict, "ok") == 0      ? 0
               : strcmp(verdict, "limit") == 0 ? ERR_LIMIT
                                               : ERR_INPUT;
    struct dist_push d;
    struct buf body;
    struct err e = { 0 };
    char path[512];

    (void)snprintf(path, sizeof(path), "corrupt/%s", file);
    testdata_read(path, &body);
    int rc = decode(&d, format, buf_str(&body), &e);
    if (rc != want)
        fail_msg("%s (%s): %s %s", file, verdict, err_name(rc), e.text);
    dist_push_free(&d);
    if (!rc)
        check_file(format, path, buf_str(&body));
    buf_deinit(&body);
    files++;
}

static void test_files(void **state)
{
    (void)state;
    char trie[] = "trie", tree[] = "tree";

    if (!testdata_here("trie and tree samples"))
        skip();
    files = 0;
    testdata_each(trie, one_file, trie);
    testdata_each(tree, one_file, tree);
    testdata_verdicts(trie, one_verdict, trie);
    testdata_verdicts(tree, one_verdict, tree);
    assert_true(files >= 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_random),   cmocka_unit_test(test_work_is_bounded),
        cmocka_unit_test(test_as_text),  cmocka_unit_test(test_deep_chain),
        cmocka_unit_test(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
