/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/mem.h"
#include "distributor/rules/md5.h"
#include "distributor/rules/relabel.h"

#define ABC "a=foo;b=bar;c=baz"

/* "a=1;b=2": labels of a test; values may not hold ; or =. */
static struct labels labels_of(const char *text, struct arena *a)
{
    struct str rest = str_c(text), one;
    struct labels l = { 0 };
    bool more = true;
    struct err e;

    while (rest.len && str_next(&rest, ';', &more, &one)) {
        ptrdiff_t at = str_find(one, '=');
        assert_true(at > 0);
        assert_int_equal(labels_set(&l, a, str_sub(one, 0, (size_t)at),
                                    str_sub(one, (size_t)at + 1, one.len), &e),
                         0);
    }
    return l;
}

/* 1, 0, -1 of relabel_apply; -2: the rules are refused. */
static int run(const char *rules, struct labels *l, struct arena *a, struct err *e)
{
    struct conf_node *root;
    struct relabel *r = NULL;
    int rc;

    if (conf_tree_parse("t.yaml", str_c(rules), a, &root, e) || relabel_conf(root, "t.yaml", &r, e))
        return -2;
    rc = relabel_apply(r, l, a, e);
    relabel_free(r);
    return rc;
}

/* What Prometheus makes of each: `want` NULL is a dropped set. */
static const struct {
    const char *rules, *in, *want;
} known[] = {
    { "[]", ABC, ABC },
    { "", ABC, ABC },
    { "- {source_labels: [a], regex: 'f(.*)', target_label: d, replacement: 'ch${1}-ch${1}'}", ABC,
      ABC ";d=choo-choo" },
    { "- {source_labels: [a, b], regex: 'f(.*);(.*)r', target_label: a, replacement: "
      "'b${1}${2}m'}\n- {source_labels: [c, a], regex: '(b).*b(.*)ba(.*)', target_label: d, "
      "replacement: '$1$2$2$3'}",
      ABC, "a=boobam;b=bar;c=baz;d=boooom" },
    { "- {source_labels: [a], regex: '.*o.*', action: drop}\n- {source_labels: [b], "
      "target_label: d}",
      "a=foo", NULL },
    { "- {source_labels: [a], regex: 'no-match', action: drop}", ABC, ABC },
    { "- {source_labels: [a], regex: 'f|o', action: drop}", ABC, ABC }, /* whole value */
    { "- {source_labels: [a], regex: 'no-match', action: keep}", ABC, NULL },
    { "- {source_labels: [a], regex: 'f.*', action: keep}", ABC, ABC },
    /* no match: nothing happens; an empty result removes */
    { "- {source_labels: [a], regex: 'x(.*)', target_label: b}", ABC, ABC },
    { "- {source_labels: [x], target_label: b}", ABC, "a=foo;c=baz" },
    { "- {target_label: d, replacement: v}", ABC, ABC ";d=v" },
    { "- {target_label: a, replacement: ''}", ABC, "b=bar;c=baz" },
    { "- {source_labels: [x], regex: '', target_label: d, replacement: none}", ABC, ABC ";d=none" },
    { "- {source_labels: [a], regex: '', target_label: d, replacement: none}", ABC, ABC },
    { "- {source_labels: [c], target_label: d, action: hashmod, modulus: 1000}", ABC,
      ABC ";d=976" },
    { "- {source_labels: [c], target_label: d, action: hashmod, modulus: 1000}", "c=foo\nbar",
      "c=foo\nbar;d=734" },
    { "- {source_labels: [x], target_label: d, action: hashmod, modulus: 1000}", "c=x",
      "c=x;d=958" },
    { "- {regex: '(b.*)', replacement: 'bar_${1}', action: labelmap}", "a=foo;b1=bar;b2=baz",
      "a=foo;b1=bar;b2=baz;bar_b1=bar;bar_b2=baz" },
    { "- {regex: '__meta_(my.*)', action: labelmap}", "__meta_my_bar=aaa;__meta_other=x",
      "__meta_my_bar=aaa;__meta_other=x;my_bar=aaa" },
    { "- {regex: 'a(.)', replacement: 'a', action: labelmap}", "a1=x;a2=y", "a=y;a1=x;a2=y" },
    { "- {regex: '(b.*)', action: labeldrop}", "a=foo;b1=bar;b2=baz", "a=foo" },
    { "- {regex: '(b.*)', action: labelkeep}", "a=foo;b1=bar;b2=baz", "b1=bar;b2=baz" },
    { "- {source_labels: [a], target_label: a, action: uppercase}\n- {source_labels: [b], "
      "target_label: l, action: lowercase}",
      "a=fOo;b=Bar", "a=FOO;b=Bar;l=bar" },
    { "- {source_labels: [a], target_label: b, action: keepequal}", "a=x;b=x", "a=x;b=x" },
    { "- {source_labels: [a], target_label: b, action: keepequal}", "a=x;b=y", NULL },
    { "- {source_labels: [a], target_label: b, action: dropequal}", "a=x;b=x", NULL },
    { "- {source_labels: [a], target_label: b, action: dropequal}", "a=x;b=y", "a=x;b=y" },
    { "- {source_labels: [x], target_label: y, action: dropequal}", "a=x", NULL },
    /* templates */
    { "- {source_labels: [a], regex: '(?P<one>f)(.*)', target_label: d, replacement: "
      "'${one}-$one-$2'}",
      ABC, ABC ";d=f-f-oo" },
    { "- {source_labels: [a], target_label: d, replacement: '$1x${1}y$$1$'}", ABC,
      ABC ";d=fooy$1$" },
    { "- {source_labels: [a], target_label: d, replacement: '${1-$9$01|${}'}", ABC,
      ABC ";d=${1-|${}" },
    { "- {source_labels: [a], regex: '(x)?foo', target_label: d, replacement: '<$1>'}", ABC,
      ABC ";d=<>" },
    { "- {source_labels: [a], regex: '(.*)', target_label: '${1}_n', replacement: v}", ABC,
      ABC ";foo_n=v" },
    { "- {source_labels: [x], regex: '(.*)', target_label: '$1', replacement: v}", ABC, ABC },
    { "- {source_labels: [a, b], separator: '', target_label: d}", ABC, ABC ";d=foobar" },
    { "- {source_labels: [a, x, b], separator: '/', target_label: d}", ABC, ABC ";d=foo//bar" },
    { "- {source_labels: a, target_label: d, regex: 'FOO'}", ABC, ABC },
    { "- {source_labels: a, target_label: d, regex: '(?i)FOO', replacement: $0}", ABC,
      ABC ";d=foo" },
    { "- {source_labels: [a], target_label: service.name, action: Replace}", "a=x",
      "a=x;service.name=x" },
};

static void test_known(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        struct arena *a = arena_new(MIB);
        struct labels l = labels_of(known[i].in, a);
        struct err e = { 0 };
        int rc = run(known[i].rules, &l, a, &e);
        struct labels want = labels_of(known[i].want ? known[i].want : known[i].in, a);
        if (rc != (known[i].want != NULL) || !labels_eq(&l, &want)) {
            struct buf b;
            buf_init(&b, MIB);
            labels_format(&l, &b);
            fail_msg("row %zu: %d %.*s %s", i, rc, STR_ARG(buf_str(&b)), e.text);
        }
        arena_free(a);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *rules, *why;
    } rows[] = {
        { "- {action: hashmod, target_label: d}", "modulus" },
        { "- {action: hashmod, modulus: 8}", "target_label" },
        { "- {action: hashmod, modulus: 0, target_label: d}", "modulus: 0 is less than 1" },
        { "- {source_labels: [a]}", "target_label" },
        { "- {action: uppercase}", "target_label" },
        { "- {action: uppercase, target_label: '$1'}", "is no target_label" },
        { "- {action: labeldrop, source_labels: [a]}", "a regex only" },
        { "- {action: keepequal, target_label: a, regex: x}", "source_labels and target_label" },
        { "- {action: fly}", "no action" },
        { "- {action: drop, regexp: x}", "did you mean \"regex\"?" },
        { "- {action: drop, regex: '(x'}", "rule 1: regex" },
        { "- {action: keep, regex: 'a'}\n- {action: drop, regex: '(?=a)'}", "rule 2" },
        { "{action: drop}", "a list" },
        { "- [a]", "a map" },
        { "- {action: drop, action: keep}", "twice" },
        { "- &x {action: drop}\n- *x", "line 1: anchors" },
        { "- {action: drop, regex: [a]}", "wants one value" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct arena *a = arena_new(MIB);
        struct labels l = { 0 };
        struct err e = { 0 };
        assert_int_equal(run(rows[i].rules, &l, a, &e), -2);
        assert_int_equal(e.code, ERR_CONFIG);
        if (!strstr(e.text, rows[i].why))
            fail_msg("row %zu: %s", i, e.text);
        arena_free(a);
    }
}

/* Values that grow with every rule end at a limit, and so does the number of labels. */
static void test_limits(void **state)
{
    (void)state;
    struct arena *a = arena_new(64 * MIB);
    struct buf rules;
    struct err e = { 0 };
    struct labels l = labels_of("a=xxxxxxxxxxxxxxxx", a), before = l;

    buf_init(&rules, MIB);
    for (int i = 0; i < 40; i++)
        buf_add_str(&rules, STR("- {source_labels: [a, a], target_label: a}\n"));
    buf_add_c(&rules, '\0');
    assert_int_equal(run(rules.ptr, &l, a, &e), -1);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_true(labels_eq(&l, &before));

    buf_reset(&rules);
    for (int i = 0; i < 12; i++)
        buf_addf(&rules, "- {action: labelmap, regex: '(.*)', replacement: '${1}%d'}\n", i);
    buf_add_c(&rules, '\0');
    assert_int_equal(run(rules.ptr, &l, a, &e), -1);
    assert_non_null(strstr(e.text, "more than 1000 labels"));

    struct arena *small = arena_new(64);
    l = before;
    assert_int_equal(run("- {target_label: b, replacement: v}", &l, a, &e), 1);
    struct conf_node *root;
    struct relabel *r;
    assert_int_equal(conf_tree_parse("f", STR("- {target_label: c, replacement: v}"), a, &root, &e),
                     0);
    assert_int_equal(relabel_conf(root, "f", &r, &e), 0);
    assert_int_equal(relabel_apply(r, &l, small, &e), -1);
    assert_int_equal(e.code, ERR_LIMIT);
    relabel_free(r);
    arena_free(small);
    buf_deinit(&rules);
    arena_free(a);
}

/* What is printed reads back to the same rules. */
static void test_format(void **state)
{
    (void)state;
    static const char *text =
        "- {action: replace, source_labels: ['a''b', \"c\\nd\"], regex: "
        "'(.*)\\d', separator: '', target_label: x, replacement: 'a\"$1'}\n"
        "- {action: hashmod, modulus: 18446744073709551615, target_label: t}\n"
        "- {action: labeldrop, regex: \"\\x01\\\"\"}\n";
    struct arena *a = arena_new(MIB);
    struct buf one, two;
    struct conf_node *root;
    struct relabel *r;
    struct err e = { 0 };

    buf_init(&one, MIB);
    buf_init(&two, MIB);
    assert_int_equal(conf_tree_parse("f", str_c(text), a, &root, &e), 0);
    assert_int_equal(relabel_conf(root, "f", &r, &e), 0);
    assert_int_equal(relabel_len(r), 3);
    relabel_format(r, 0, &one);
    relabel_free(r);
    if (conf_tree_parse("f", buf_str(&one), a, &root, &e) || relabel_conf(root, "f", &r, &e))
        fail_msg("%s\n%.*s", e.text, STR_ARG(buf_str(&one)));
    relabel_format(r, 0, &two);
    assert_true(str_eq(buf_str(&one), buf_str(&two)));
    assert_true(str_contains(buf_str(&one), STR("'a''b', \"c\\x0ad\"")));
    relabel_free(r);
    buf_deinit(&one);
    buf_deinit(&two);
    arena_free(a);
}

/* The test suite of RFC 1321. */
static void test_md5(void **state)
{
    (void)state;
    static const struct {
        const char *in, *hex;
    } rows[] = {
        { "", "d41d8cd98f00b204e9800998ecf8427e" },
        { "a", "0cc175b9c0f1b6a831c399e269772661" },
        { "abc", "900150983cd24fb0d6963f7d28e17f72" },
        { "message digest", "f96b697d7cb7938d525a2f31aaf161d0" },
        { "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
          "d174ab98d277d9f5a5611c2c9f419d9f" },
        { "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
          "57edf4a22be3c955ac49da2e2107b67a" },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint8_t d[MD5_BYTES];
        char hex[2 * MD5_BYTES + 1];
        md5(str_c(rows[i].in), d);
        for (size_t k = 0; k < MD5_BYTES; k++)
            (void)snprintf(hex + 2 * k, 3, "%02x", d[k]);
        assert_string_equal(hex, rows[i].hex);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_known),  cmocka_unit_test(test_refused),
        cmocka_unit_test(test_limits), cmocka_unit_test(test_format),
        cmocka_unit_test(test_md5),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
