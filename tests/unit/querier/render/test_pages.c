/* SPDX-License-Identifier: Apache-2.0
 *
 * DOT, tree bytes, SVG and HTML: values against the slow model, hostile names, and whole small
 * files in tests/golden/render (without the linked-in scripts and styles); UPDATE=1 writes those.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/rd.h"
#include "common/render/escape.h"
#include "common/render/folded.h"
#include "common/sys/fs.h"
#include "querier/render/amount.h"
#include "querier/render/dot.h"
#include "querier/render/html.h"
#include "querier/render/svg.h"
#include "querier/render/tree_bytes.h"
#include "tests/lib/roles/querier_gen.h"

static const uint64_t seed = 20261123;

/* Names that mean something in some language. */
static const char *const hostile[] = {
    "</script><script>alert(1)</script>",
    "]]></script>",
    "<!--",
    "\"><img src=x onerror=alert(1)>",
    "' onload='alert(1)",
    "a\\",
    "a\\\"b",
    "&lt;b&gt;",
    "line\nbreak\r\ttab",
    "\x01\x02\x1b[31m\x7f",
    "\xff\xfe broken \xc3",
    "\xed\xa0\x80 surrogate \xef\xbf\xbf",
    "\xe2\x80\xa8 separator",
    "\xf0\x9f\x94\xa5 flame",
    "}\n]; N1 -> N2",
    "%s%n{{x}}${y}",
    "",
    "javascript:alert(1)//",
    "a;b;c",
    "other",
};

/* "a;b 5" stacks by number of the name: path of `depth` names that starts with `first`. */
struct tree {
    struct stacks stacks;
    VEC(uint32_t) nodes;
    VEC(uint64_t) values;
    struct calltree t;
};

static void tree_begin(struct tree *tr)
{
    *tr = (struct tree){ 0 };
    stacks_init(&tr->stacks, GIB, 1);
}

static uint32_t down(struct tree *tr, uint32_t parent, const char *name, uint64_t value)
{
    struct frame f = { .func = stacks_string(&tr->stacks, str_c(name)), .line = 1 };
    uint32_t node = stacks_node(&tr->stacks, parent, stacks_frame(&tr->stacks, &f));

    vec_push(&tr->nodes, node);
    vec_push(&tr->values, value);
    return node;
}

static void tree_end(struct tree *tr)
{
    struct calltree_part part = { stacks_view(&tr->stacks), tr->nodes.ptr, tr->values.ptr,
                                  tr->nodes.len };
    struct err e;

    calltree_init(&tr->t, 7);
    assert_int_equal(calltree_add(&tr->t, &part, NULL, &e), 0);
}

static void tree_free(struct tree *tr)
{
    calltree_deinit(&tr->t);
    stacks_deinit(&tr->stacks);
    vec_free(&tr->nodes);
    vec_free(&tr->values);
}

static void small_tree(struct tree *tr, uint64_t factor)
{
    tree_begin(tr);
    uint32_t run = down(tr, 0, "main.run", 1 * factor);
    uint32_t serve = down(tr, run, "net/http.(*conn).serve", 0);
    down(tr, serve, "shop.pay<T>", 30 * factor);
    down(tr, down(tr, serve, "json.encode", 5), "json.encode", 7); /* recursion */
    down(tr, run, "runtime.gc & \"sweep\"", 9);
    tree_end(tr);
}

/* ---- DOT --------------------------------------------------------------------------------------*/

/* A slow reading of Graphviz' grammar: statements of identifiers, quoted strings, numbers, "->",
 * '=', brackets that match. Returns the number of quoted strings. */
static size_t check_dot(struct str s)
{
    size_t strings = 0, depth = 0;
    char open[8];

    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c == '"') {
            for (i++; i < s.len && s.ptr[i] != '"'; i++) {
                assert_true((unsigned char)s.ptr[i] >= 0x20);
                i += s.ptr[i] == '\\';
            }
            assert_true(i < s.len);
            strings++;
        } else if (c == '{' || c == '[') {
            assert_true(depth < sizeof(open));
            open[depth++] = c;
        } else if (c == '}' || c == ']') {
            assert_true(depth > 0 && open[--depth] == (c == '}' ? '{' : '['));
        } else if (c == '-') {
            assert_true(i + 1 < s.len && s.ptr[++i] == '>');
        } else {
            assert_true((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                        (c >= '0' && c <= '9') || c == '_' || c == ' ' || c == '\n' || c == '=');
        }
    }
    assert_int_equal(depth, 0);
    assert_true(str_utf8_valid(s));
    return strings;
}

/* What of the model's stacks contains a function, or a call: each stack once. */
static uint64_t cost_of(const struct gen_model *m, const char *from, const char *to)
{
    uint64_t sum = 0;

    vec_for (i, &m->paths) {
        struct str rest = str_c(m->paths.ptr[i].text), name, last = STR_NULL;
        bool more = rest.len > 0, hit = false;
        while (more && str_next(&rest, '\n', &more, &name)) {
            hit |= to ? last.ptr && str_eqc(last, from) && str_eqc(name, to) : str_eqc(name, from);
            last = name;
        }
        sum += hit ? m->paths.ptr[i].self : 0;
    }
    return sum;
}

/* Every tooltip, "name 12 (3%)" or "from -> to 12 (3%)", says what the model says. */
static size_t check_tooltips(struct str dot, const struct gen_model *m)
{
    struct str line;
    bool more = true;
    size_t seen = 0;

    while (str_next(&dot, '\n', &more, &line)) {
        char from[256], to[256];
        unsigned long long v;
        char *text = xmemdup(line.ptr ? line.ptr : "", line.len + 1);
        text[line.len] = '\0';
        const char *tip = strstr(text, "tooltip=\"");
        if (tip && sscanf(tip, "tooltip=\"%255s -> %255s %llu (", from, to, &v) == 3) {
            assert_int_equal(v, cost_of(m, from, to));
            seen++;
        } else if (tip && sscanf(tip, "tooltip=\"%255s %llu (", from, &v) == 2) {
            assert_int_equal(v, cost_of(m, from, NULL));
            seen++;
        } else {
            assert_null(tip);
        }
        xfree(text);
    }
    return seen;
}

static void test_dot_costs_equal_the_model(void **state)
{
    (void)state;
    struct prng p;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 80; round++) {
        struct gen_opts o = { .nodes_max = 1 + prng_below(&p, 80),
                              .functions = 2 + prng_below(&p, 12),
                              .frames_per_function = 2,
                              .value_chance = prng_unit(&p),
                              .value_max = 50,
                              .unsymbolized = prng_chance(&p, 0.3) };
        struct dot_opts opts = { .unit = STR("count"), .nodes = round % 2 ? 0 : 4 };
        struct gen_model m = { 0 };
        struct gen_part g;
        struct calltree t;
        struct buf out;
        struct err e;
        gen_part_make(&g, &p, &o);
        gen_model_add(&m, &g);
        calltree_init(&t, 9);
        assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
        buf_init(&out, MIB);
        dot_write(&t, &opts, &out);
        check_dot(buf_str(&out));
        if (opts.nodes == 0) /* all functions are drawn: every call is between neighbours */
            assert_true(check_tooltips(buf_str(&out), &m) > 0 || calltree_total(&t) == 0 ||
                        m.paths.len == 1 || cost_of(&m, "", NULL) == 0);
        assert_true(calltree_total(&t) > 0 || out.len == 0);
        buf_deinit(&out);
        calltree_deinit(&t);
        gen_model_free(&m);
        gen_part_free(&g);
    }
}

static void test_dot_skips(void **state)
{
    (void)state;
    struct tree tr;
    struct buf out;

    tree_begin(&tr);
    uint32_t a = down(&tr, 0, "a", 1), lost = down(&tr, a, "lost", 0);
    down(&tr, lost, "b", 50);
    down(&tr, down(&tr, a, "z", 60), "z", 40); /* calls itself: no arrow */
    tree_end(&tr);
    buf_init(&out, MIB);
    dot_write(&tr.t, &(struct dot_opts){ .unit = STR("count"), .nodes = 3 }, &out);
    buf_add_c(&out, '\0');
    assert_non_null(strstr(out.ptr, "tooltip=\"a -> z 100 (66.23%)\"]\n"));
    assert_null(strstr(out.ptr, "z -> z"));
    /* "lost" costs as much as "b" and is the fourth by name. */
    assert_non_null(strstr(out.ptr, "a -> b 50 (33.11%)\" style=\"dashed\"]"));
    buf_deinit(&out);
    tree_free(&tr);
}

/* ---- tree bytes -------------------------------------------------------------------------------*/

/* Reads nodes back as folded text. */
static void unfold(struct rd *r, struct buf *out)
{
    struct {
        uint64_t left;
        size_t path_len;
    } stack[512];
    size_t depth = 0;
    struct buf path;

    buf_init(&path, MIB);
    do {
        uint64_t len = 0, self = 0, children = 0;
        struct str name;
        assert_true(rd_varint(r, &len) && rd_bytes(r, len, &name) && rd_varint(r, &self) &&
                    rd_varint(r, &children));
        size_t before = path.len;
        if (depth) {
            if (path.len)
                buf_add_c(&path, ';');
            buf_add_str(&path, name);
        }
        if (self)
            buf_addf(out, "%.*s %" PRIu64 "\n",
                     STR_ARG(path.len ? buf_str(&path) : STR("(empty stack)")), self);
        assert_true(depth < ARRAY_LEN(stack));
        stack[depth].left = children;
        stack[depth++].path_len = before;
        while (depth && stack[depth - 1].left == 0)
            path.len = stack[--depth].path_len;
        if (depth)
            stack[depth - 1].left--;
    } while (depth);
    assert_int_equal(rd_left(r), 0);
    buf_deinit(&path);
}

static int by_line(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

static size_t sorted_lines(struct str text, struct str *ret, size_t max)
{
    struct str line;
    bool more = text.len > 0;
    size_t n = 0;

    while (more && str_next(&text, '\n', &more, &line))
        if (line.len) {
            assert_true(n < max);
            ret[n++] = line;
        }
    qsort(ret, n, sizeof(*ret), by_line);
    return n;
}

static void test_tree_bytes_say_what_folded_text_says(void **state)
{
    (void)state;
    static struct str got[1024], want[1024];
    struct prng p;

    prng_init(&p, seed);
    for (int round = 0; round < 100; round++) {
        struct gen_opts o = { .nodes_max = 1 + prng_below(&p, 120),
                              .functions = 2 + prng_below(&p, 20),
                              .frames_per_function = 2,
                              .value_chance = prng_unit(&p),
                              .value_max = 50 };
        size_t max_nodes = round % 2 ? 0 : 1 + prng_below(&p, 20);
        struct gen_part g;
        struct calltree t;
        struct layout l;
        struct buf bytes, folded, text;
        struct err e;
        gen_part_make(&g, &p, &o);
        calltree_init(&t, 9);
        assert_int_equal(calltree_add(&t, &g.part, NULL, &e), 0);
        layout_init(&l, &t, max_nodes);
        buf_init(&bytes, MIB);
        buf_init(&folded, MIB);
        buf_init(&text, MIB);
        tree_bytes_write(&l, &t, &bytes);
        folded_write(&l, &t, &folded);
        assert_true((bytes.len == 0) == (calltree_total(&t) == 0));
        if (bytes.len) {
            struct rd r = rd_of(buf_str(&bytes));
            unfold(&r, &text);
        }
        size_t n = sorted_lines(buf_str(&text), got, ARRAY_LEN(got));
        assert_int_equal(n, sorted_lines(buf_str(&folded), want, ARRAY_LEN(want)));
        for (size_t i = 0; i < n; i++)
            assert_true(str_eq(got[i], want[i]));
        buf_deinit(&bytes);
        buf_deinit(&folded);
        buf_deinit(&text);
        layout_deinit(&l);
        calltree_deinit(&t);
        gen_part_free(&g);
    }
}

static void test_tree_bytes_example(void **state)
{
    (void)state;
    static const char want[] = "\0\0\1\1a\0\2\1b\1\0\1c\2\0"; /* FORMATS.md, "Tree" */
    struct tree tr;
    struct layout l;
    struct buf out;

    tree_begin(&tr);
    uint32_t a = down(&tr, 0, "a", 0);
    down(&tr, a, "b", 1);
    down(&tr, a, "c", 2);
    tree_end(&tr);
    layout_init(&l, &tr.t, 0);
    buf_init(&out, MIB);
    tree_bytes_write(&l, &tr.t, &out);
    assert_int_equal(out.len, sizeof(want) - 1);
    assert_memory_equal(out.ptr, want, out.len);
    buf_deinit(&out);
    layout_deinit(&l);
    tree_free(&tr);
}

/* ---- pages ------------------------------------------------------------------------------------*/

static size_t count(struct str s, const char *what)
{
    size_t n = 0, len = strlen(what);

    for (size_t i = 0; i + len <= s.len; i++)
        n += memcmp(s.ptr + i, what, len) == 0;
    return n;
}

enum { PAGE_SVG, PAGE_HTML, PAGE_DOT, PAGES };

static void write_page(int page, const struct calltree *left, const struct calltree *right,
                       struct str title, struct buf *out)
{
    struct viewer_head h = { title, STR("cpu"), STR("nanoseconds") };
    struct layout l;
    struct flame f;
    struct diff d;

    if (page == PAGE_DOT) {
        dot_write(left, &(struct dot_opts){ .title = title, .unit = h.unit }, out);
        return;
    }
    if (right) {
        diff_init(&d, left, right, 0);
        if (page == PAGE_SVG)
            svg_diff(&d, &h, out);
        else
            html_diff(&d, &h, out);
        diff_deinit(&d);
        return;
    }
    layout_init(&l, left, 0);
    flame_init(&f, &l, left);
    if (page == PAGE_SVG)
        svg_flame(&f, &h, out);
    else
        html_flame(&f, &h, out);
    flame_deinit(&f);
    layout_deinit(&l);
}

/* A wide tree of these names, so that each has a label; one chain below the first. */
static void tree_of_names(struct tree *tr, const char *const *names, size_t n)
{
    uint32_t at = 0;

    tree_begin(tr);
    for (size_t i = 0; i < n; i++)
        down(tr, 0, names[i], 100 + i);
    for (size_t i = 0; i < n; i++)
        at = down(tr, at, names[i], 1);
    tree_end(tr);
}

/* Markup does not depend on names: there is as much of it as with harmless ones. */
static void test_hostile_names_make_no_markup(void **state)
{
    (void)state;
    static const char *const marks[] = { "<", "<script", "</script", ">", "\"", "]]>" };
    char texts[ARRAY_LEN(hostile)][16];
    const char *harmless[ARRAY_LEN(hostile)];
    struct tree bad, good;

    for (size_t i = 0; i < ARRAY_LEN(hostile); i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "harmless%zu", i);
        harmless[i] = strcmp(hostile[i], "other") == 0 ? "other" : texts[i];
        if (!*hostile[i]) /* a frame without a name shows where it is */
            harmless[i] = "unknown!0x0";
    }
    tree_of_names(&bad, hostile, ARRAY_LEN(hostile));
    tree_of_names(&good, harmless, ARRAY_LEN(hostile));
    for (size_t k = 0; k < ARRAY_LEN(hostile); k++)
        for (int page = 0; page < PAGES; page++)
            for (int two = 0; two < (page == PAGE_DOT ? 1 : 2); two++) {
                struct buf out, want;
                buf_init(&out, 16 * MIB);
                buf_init(&want, 16 * MIB);
                write_page(page, &bad.t, two ? &bad.t : NULL, str_c(hostile[k]), &out);
                write_page(page, &good.t, two ? &good.t : NULL,
                           str_c(*hostile[k] ? "harmless" : ""), &want);
                assert_true(buf_ok(&out) && str_utf8_valid(buf_str(&out)));
                for (size_t i = 0; i < out.len; i++)
                    assert_true((unsigned char)out.ptr[i] >= 0x20 || out.ptr[i] == '\n');
                /* JSON may hold '>' and quotes; what begins markup it may not. */
                size_t checked = page == PAGE_SVG ? ARRAY_LEN(marks) : page == PAGE_HTML ? 3 : 0;
                for (size_t i = 0; i < checked; i++)
                    assert_int_equal(count(buf_str(&out), marks[i]),
                                     count(buf_str(&want), marks[i]));
                if (page == PAGE_DOT)
                    assert_int_equal(check_dot(buf_str(&out)), check_dot(buf_str(&want)));
                buf_deinit(&out);
                buf_deinit(&want);
            }
    tree_free(&bad);
    tree_free(&good);
}

/* Whatever bytes come in, what comes out is UTF-8 that cannot end what it stands in. */
static void test_escapes(void **state)
{
    (void)state;
    struct prng p;

    prng_init(&p, seed);
    for (int round = 0; round < 20000; round++) {
        char bytes[40];
        size_t n = prng_below(&p, sizeof(bytes));
        struct buf xml, dot;
        for (size_t i = 0; i < n; i++)
            bytes[i] =
                (char)(prng_chance(&p, 0.5) ? "<>&\"'\\]-\n\xe2\x80\xef\xbf"[prng_below(&p, 13)]
                                            : (char)prng_below(&p, 256));
        buf_init(&xml, MIB);
        buf_init(&dot, MIB);
        escape_xml(str_n(bytes, n), &xml);
        escape_dot(str_n(bytes, n), &dot);
        assert_true(str_utf8_valid(buf_str(&xml)) && str_utf8_valid(buf_str(&dot)));
        for (size_t i = 0; i < xml.len; i++)
            assert_true((unsigned char)xml.ptr[i] >= 0x20 && !strchr("<>\"'", xml.ptr[i]));
        for (size_t i = 0; i < dot.len; i++) {
            assert_true((unsigned char)dot.ptr[i] >= 0x20 && dot.ptr[i] != '"');
            i += dot.ptr[i] == '\\'; /* what it escapes must be there */
            assert_true(i < dot.len);
        }
        buf_deinit(&xml);
        buf_deinit(&dot);
    }
}

static void test_amounts(void **state)
{
    (void)state;
    static const struct {
        uint64_t v;
        const char *unit, *want;
    } rows[] = {
        { 0, "nanoseconds", "0" },           { 1, "nanoseconds", "1ns" },
        { 1250, "nanoseconds", "1.25us" },   { 310000000, "nanoseconds", "310ms" },
        { 90, "seconds", "1.50min" },        { 864000, "seconds", "10d" },
        { 1536, "bytes", "1.50KiB" },        { 1, "bytes", "1B" },
        { 123456789, "count", "123456789" }, { UINT64_MAX, "", "18446744073709551615" },
        { UINT64_MAX, "bytes", "16384PiB" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct buf out;
        buf_init(&out, KIB);
        amount_put(rows[i].v, str_c(rows[i].unit), &out);
        buf_add_c(&out, '\0');
        assert_string_equal(out.ptr, rows[i].want);
        buf_deinit(&out);
    }
}

/* ---- whole files ------------------------------------------------------------------------------*/

/* Without what is linked in, which has files of its own. */
static void put_without(struct str page, struct str what, struct buf *out)
{
    for (size_t i = 0; i < page.len; i++)
        if (what.len && i + what.len <= page.len && memcmp(page.ptr + i, what.ptr, what.len) == 0)
            i += what.len - 1;
        else
            buf_add_c(out, page.ptr[i]);
}

static void stable(struct buf *page)
{
    struct str linked[] = { str_n(viewer_svg_js, (size_t)(viewer_svg_js_end - viewer_svg_js)),
                            str_n(viewer_page_js, (size_t)(viewer_page_js_end - viewer_page_js)),
                            str_n(viewer_page_css,
                                  (size_t)(viewer_page_css_end - viewer_page_css)) };

    for (size_t i = 0; i < ARRAY_LEN(linked); i++) {
        struct buf out;
        buf_init(&out, 16 * MIB);
        put_without(buf_str(page), linked[i], &out);
        buf_move(page, &out);
    }
}

static void test_golden_files(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int page;
        bool two;
    } rows[] = { { "flame.svg", PAGE_SVG, false },
                 { "diff.svg", PAGE_SVG, true },
                 { "flame.html", PAGE_HTML, false },
                 { "diff.html", PAGE_HTML, true },
                 { "graph.dot", PAGE_DOT, false } };
    const struct fs *fs = fs_real();
    struct tree left, right;

    small_tree(&left, 1);
    small_tree(&right, 3);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char path[128];
        struct buf got, want;
        struct err e;
        (void)snprintf(path, sizeof(path), "tests/golden/render/%s", rows[i].file);
        buf_init(&got, 16 * MIB);
        buf_init(&want, 16 * MIB);
        write_page(rows[i].page, &left.t, rows[i].two ? &right.t : NULL, STR("shop <cpu>"), &got);
        stable(&got);
        if (getenv("UPDATE"))
            assert_int_equal(fs->write_file(fs, path, buf_str(&got), &e), 0);
        else if (fs->read_file(fs, path, &want, &e))
            fail_msg("%s", e.text);
        else if (!str_eq(buf_str(&got), buf_str(&want)))
            fail_msg("%s: got\n%.*s", path, STR_ARG(buf_str(&got)));
        buf_deinit(&got);
        buf_deinit(&want);
    }
    tree_free(&left);
    tree_free(&right);
}

/* Writers stop where the buffer is full, and say so. */
static void test_full(void **state)
{
    (void)state;
    struct tree tr;

    small_tree(&tr, 1);
    for (int page = 0; page < PAGES; page++)
        for (size_t max = 0; max < 1500; max += 37) {
            struct buf out;
            buf_init(&out, max);
            write_page(page, &tr.t, NULL, STR("t"), &out);
            assert_true(!buf_ok(&out) || (page == PAGE_DOT && out.len <= max));
            buf_deinit(&out);
        }
    tree_free(&tr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dot_costs_equal_the_model),
        cmocka_unit_test(test_dot_skips),
        cmocka_unit_test(test_tree_bytes_say_what_folded_text_says),
        cmocka_unit_test(test_tree_bytes_example),
        cmocka_unit_test(test_hostile_names_make_no_markup),
        cmocka_unit_test(test_escapes),
        cmocka_unit_test(test_amounts),
        cmocka_unit_test(test_golden_files),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
