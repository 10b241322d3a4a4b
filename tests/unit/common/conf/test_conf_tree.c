/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/conf/conf_tree.h"

/* As one line: {k:v,..} [a,b] "quoted" plain ~ */
static void show(const struct conf_node *n, struct buf *out)
{
    if (n->key.ptr)
        buf_addf(out, "%.*s:", STR_ARG(n->key));
    if (n->kind == CONF_NODE_NULL)
        buf_add_c(out, '~');
    else if (n->kind == CONF_NODE_SCALAR)
        buf_addf(out, n->quoted ? "\"%.*s\"" : "%.*s", STR_ARG(n->value));
    if (n->kind < CONF_NODE_MAP)
        return;
    buf_add_c(out, n->kind == CONF_NODE_MAP ? '{' : '[');
    for (const struct conf_node *i = n->first; i; i = i->next) {
        show(i, out);
        buf_add_str(out, i->next ? STR(",") : STR(""));
    }
    buf_add_c(out, n->kind == CONF_NODE_MAP ? '}' : ']');
}

static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *want; /* want begins with ! : the error's text has the rest */
    } rows[] = {
        { "", "~" },
        { "# nothing\n", "~" },
        { "x", "x" },
        { "a: 1\nb:\n  - x\n  - 'y'\nc: {d: ~, e: null, f: ''}",
          "{a:1,b:[x,\"y\"],c:{d:~,e:~,f:\"\"}}" },
        { "{\"a\": [1, true, null, {\"b\": \"\\u00e9\"}]}",
          "{a:[1,true,~,{b:\"\xc3\xa9\"}]}" }, /* JSON */
        { "[[], {}]", "[[],{}]" },
        { "'': x", "{:x}" },
        { "a: 1\na: 2", "!f line 2: \"a\" is given twice" },
        { "a: &x 1\nb: *x", "!f line 1: anchors" },
        { "a: !!str 1", "!anchors (&name) and tags" },
        { "a: 1\n---\nb: 2", "!a second document" },
        { "[a]: 1", "!a map or list cannot be a key" },
        { "a: [", "!f line" },
        { "\tb", "!f line" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct conf_node *root;
        struct err e = { 0 };
        struct buf out;
        buf_init(&out, MIB);
        int rc = conf_tree_parse("f", str_c(rows[i].text), a, &root, &e);
        if (rows[i].want[0] == '!') {
            if (rc != ERR_CONFIG || !strstr(e.text, rows[i].want + 1))
                fail_msg("row %zu: %d %s", i, rc, e.text);
        } else {
            if (rc)
                fail_msg("row %zu: %s", i, e.text);
            show(root, &out);
            if (!str_eqc(buf_str(&out), rows[i].want))
                fail_msg("row %zu: %.*s", i, STR_ARG(buf_str(&out)));
        }
        buf_deinit(&out);
        arena_free(a);
    }
}

static void test_bounds(void **state)
{
    (void)state;
    struct arena *a = arena_new(64 * KIB);
    struct conf_node *root;
    struct buf text;
    struct err e;

    buf_init(&text, 64 * MIB);
    for (int depth = CONF_TREE_DEPTH_MAX; depth <= CONF_TREE_DEPTH_MAX + 1; depth++) {
        buf_reset(&text);
        for (int i = 0; i < depth; i++)
            buf_add_c(&text, '[');
        for (int i = 0; i < depth; i++)
            buf_add_c(&text, ']');
        int code = conf_tree_parse("f", buf_str(&text), a, &root, &e);
        assert_int_equal(code, depth > CONF_TREE_DEPTH_MAX ? ERR_CONFIG : 0);
        assert_true(!code || strstr(e.text, "too deep"));
    }
    buf_reset(&text);
    for (int i = 0; i < 10000; i++)
        buf_addf(&text, "k%d: v\n", i);
    assert_int_equal(conf_tree_parse("f", buf_str(&text), a, &root, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "bytes of memory"));
    buf_reset(&text);
    while (text.len <= CONF_TREE_BYTES_MAX)
        buf_add_str(&text, STR("# x\n"));
    assert_int_equal(conf_tree_parse("f", buf_str(&text), a, &root, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "has more than"));
    arena_free(a);
    a = arena_new(1024 * MIB); /* enough: it is their number that ends it */
    buf_reset(&text);
    buf_add_c(&text, '[');
    for (int i = 0; i <= CONF_TREE_NODES_MAX; i++)
        buf_add_str(&text, STR("1,"));
    buf_add_c(&text, ']');
    assert_int_equal(conf_tree_parse("f", buf_str(&text), a, &root, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "too many values"));
    buf_deinit(&text);
    arena_free(a);
}

static void test_values(void **state)
{
    (void)state;
    static const char *const keys[] = { "n", "size", "time", "d", "yes", "pick", "list", NULL };
    const char *text = "n: 7\nsize: 2KiB\ntime: 3s\nd: 0.5\nyes: on\npick: b\nlist: [x, y]\n";
    struct arena *a = arena_new(MIB);
    uint64_t n = 0, size = 0, ms = 0, none = 99;
    struct str pick = STR_NULL, *list;
    struct conf_node *root;
    size_t list_len = 0;
    struct err e = { 0 };
    bool yes = false;
    double d = 0;

    assert_int_equal(conf_tree_parse("f", str_c(text), a, &root, &e), 0);
    assert_int_equal(conf_node_keys(root, "f", keys, &e), 0);
    assert_int_equal(conf_node_keys(root, "f", keys + 1, &e), ERR_CONFIG);
    assert_int_equal(conf_node_u64(conf_node_get(root, "n"), "f", 1, 7, &n, &e), 0);
    assert_int_equal(conf_node_u64(conf_node_get(root, "m"), "f", 1, 7, &none, &e), 0);
    assert_int_equal(conf_node_bytes(conf_node_get(root, "size"), "f", 0, 4096, &size, &e), 0);
    assert_int_equal(conf_node_ms(conf_node_get(root, "time"), "f", 0, 4096, &ms, &e), 0);
    assert_int_equal(conf_node_double(conf_node_get(root, "d"), "f", 0, 1, &d, &e), 0);
    assert_int_equal(conf_node_bool(conf_node_get(root, "yes"), "f", &yes, &e), 0);
    assert_int_equal(conf_node_choice(conf_node_get(root, "pick"), "f", "a|b", &pick, &e), 0);
    assert_int_equal(conf_node_strs(conf_node_get(root, "list"), "f", a, &list, &list_len, &e), 0);
    assert_true(n == 7 && none == 99 && size == 2048 && ms == 3000 && d > 0.4 && d < 0.6 && yes);
    assert_true(str_eqc(pick, "b") && list_len == 2 && str_eqc(list[1], "y"));
    assert_int_equal(conf_node_u64(conf_node_get(root, "n"), "f", 8, 9, &n, &e), ERR_CONFIG);
    assert_non_null(strstr(e.text, "f line 1: n: 7 is not within 8 and 9"));
    assert_int_equal(conf_node_u64(conf_node_get(root, "list"), "f", 8, 9, &n, &e), ERR_CONFIG);
    assert_int_equal(conf_node_choice(conf_node_get(root, "pick"), "f", "a|c", &pick, &e),
                     ERR_CONFIG);
    assert_int_equal(conf_node_bool(conf_node_get(root, "n"), "f", &yes, &e), ERR_CONFIG);
    arena_free(a);
}

/* The error for a value out of bounds shows it as written, and the bounds in its unit. */
static void test_out_of_bounds(void **state)
{
    (void)state;
    typedef int read_fn(const struct conf_node *n, const char *file, uint64_t min, uint64_t max,
                        uint64_t *ret, struct err *e);
    static const struct {
        const char *value;
        read_fn *read;
        uint64_t min, max;
        const char *why;
    } rows[] = {
        { "0s", conf_node_ms, 1000, 86400000, "f line 1: x: 0s is not within 1s and 1d" },
        { "25h", conf_node_ms, 1000, 86400000, "x: 25h is not within 1s and 1d" },
        { "5ms", conf_node_ms, 10, 90000, "x: 5ms is not within 10ms and 90s" },
        { "2h", conf_node_ms, 0, 3600000, "x: 2h is not within 0 and 1h" },
        { "1s", conf_node_ms, 60000, UINT64_MAX, "x: 1s is less than 1m" },
        { "15", conf_node_ms, 1000, 86400000, "x: \"15\" is no duration, such as 15s" },
        { "-1s", conf_node_ms, 1000, 86400000, "x: \"-1s\" is no duration" },
        { "1KiB", conf_node_bytes, 1500, 3 * GIB, "x: 1KiB is not within 1500 and 3GiB" },
        { "0", conf_node_bytes, KIB, UINT64_MAX, "x: 0 is less than 1KiB" },
        { "99", conf_node_u64, 1, 64, "x: 99 is not within 1 and 64" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct conf_node *root;
        struct err e = { 0 };
        uint64_t v = 99;
        struct buf text;
        buf_init(&text, KIB);
        buf_addf(&text, "x: %s", rows[i].value);
        assert_int_equal(conf_tree_parse("f", buf_str(&text), a, &root, &e), 0);
        const struct conf_node *n = conf_node_get(root, "x");
        assert_int_equal(rows[i].read(n, "f", rows[i].min, rows[i].max, &v, &e), ERR_CONFIG);
        if (!strstr(e.text, rows[i].why))
            fail_msg("row %zu: %s", i, e.text);
        assert_int_equal(v, 99);
        buf_deinit(&text);
        arena_free(a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_out_of_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
