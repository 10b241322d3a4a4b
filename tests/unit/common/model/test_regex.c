/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>

#include "common/base/buf.h"
#include "common/base/mem.h"
#include "common/base/prng.h"
#include "common/model/regex.h"

static int match(struct str pattern, bool anchored, struct str value)
{
    struct err e = { 0 };
    struct regex *r = NULL;

    if (regex_new(pattern, anchored, &r, &e)) {
        print_message("%s\n", e.text);
        return -2;
    }
    int hit = regex_match(r, value, &e);
    regex_free(r);
    return hit;
}

static void test_matches(void **state)
{
    (void)state;
    static const struct {
        const char *pattern, *value;
        int whole, search;
    } rows[] = {
        { "", "", 1, 1 },
        { "", "x", 0, 1 },
        { ".*", "", 1, 1 },
        { ".+", "", 0, 0 },
        { "foo", "foobar", 0, 1 },
        { "foo|foobar", "foobar", 1, 1 }, /* the shorter branch first: must backtrack */
        { "a.b", "a\nb", 1, 1 },
        { "a$", "a\n", 0, 0 },
        { "(?m)a$", "a\nb", 0, 1 },
        { "^a", "ba", 0, 0 },
        { "(?i)FOO", "foo", 1, 1 },
        { "(?i:F)oo", "foo", 1, 1 },
        { "(?-s)a.b", "a\nb", 0, 0 },
        { "(?P<x>a+)(?<y>b)", "aab", 1, 1 },
        { "[[:alpha:]]+", "abc", 1, 1 },
        { "[[:^digit:]]+", "a1", 0, 1 },
        { "[]a]+", "]a", 1, 1 },
        { "[^]a]+", "bc", 1, 1 },
        { "[a\\]]+", "]a]", 1, 1 },
        { "\\Qa+b(\\E+", "a+b((", 1, 1 },
        { "\\x41\\x{42}", "AB", 1, 1 },
        { "\\pL+", "\xc3\xa9t\xc3\xa9", 1, 1 },
        { "\\p{^Lu}", "a", 1, 1 },
        { "\xc3\xa9.", "\xc3\xa9\xe2\x82\xac", 1, 1 }, /* a dot is one character */
        { "a{2,3}", "aaaa", 0, 1 },
        { "a{,2}", "a{,2}", 1, 1 }, /* literal text, as in RE2 */
        { "x{", "x{", 1, 1 },
        { "a{1", "a{1", 1, 1 },
        { "a+?b??", "aa", 1, 1 },
        { "a{1,2}?", "aa", 1, 1 },
        { "\\.\\-\\/\\_", ".-/_", 1, 1 },
        { "\\d\\w\\s", "1a ", 1, 1 },
        { "(pod|svc)-[0-9a-f]{4}", "pod-12ef", 1, 1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        print_message("%s on \"%s\"\n", rows[i].pattern, rows[i].value);
        assert_int_equal(match(str_c(rows[i].pattern), true, str_c(rows[i].value)), rows[i].whole);
        assert_int_equal(match(str_c(rows[i].pattern), false, str_c(rows[i].value)),
                         rows[i].search);
    }
}

static const char *const refused[] = {
    "(a)\\1",    "\\9",
    "\\g1",      "\\g{1}",
    "\\k<a>",    "(?=a)",
    "(?!a)",     "(?<=a)",
    "(?<!a)",    "(?>a)",
    "(?(1)a)",   "(?R)",
    "(?0)",      "(?1)",
    "(?+1)",     "(?-1)",
    "(?&n)",     "(?P=n)",
    "(?P>n)",    "(?C)",
    "(?C1)",     "(?#x)",
    "(?|a|b)",   "(?'n'a)",
    "(?^i)",     "(?J)",
    "(?x)a",     "(?n)",
    "(?i-)",     "(?)",
    "(*UTF)",    "(*ACCEPT)",
    "(*:x)",     "a*+",
    "a++",       "a?+",
    "a{2}+",     "a**",
    "a*?*",      "a{2}{3}",
    "a???",      "\\K",
    "\\G",       "\\C",
    "\\R",       "\\X",
    "\\N",       "\\h",
    "\\H",       "\\V",
    "\\v",       "\\Z",
    "\\l",       "\\u",
    "\\L",       "\\cA",
    "\\o{1}",    "\\e",
    "\\x",       "\\x4",
    "\\x{}",     "\\x{123456789}",
    "\\p",       "\\p{",
    "\\i",       "[\\b]",
    "[\\1]",     "[\\Qa]",
    "[[:<:]]",   "[[.a.]]",
    "[[=a=]]",   "[[:foo:]]",
    "[a",        "[",
    "a)",        "(a",
    "a{1001}",   "a{2,1}",
    "a{1,1001}", "a{99999999999999999999}",
    "\\",        "*",
    "+a",        "(?P<1>a)",
    "(?P<n a)",  "\\p{Nonsense}",
    "\\pl",      "\\p{greek}",
    "\\p{}",     "[z-a]",
    "\xff",
};

static void test_gate_refuses(void **state)
{
    (void)state;
    struct err e;
    struct regex *r = NULL;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        print_message("%s\n", refused[i]);
        assert_int_equal(regex_new(str_c(refused[i]), true, &r, &e), ERR_INPUT);
        assert_true(strlen(e.text) > 10);
    }
}

/* Wherever a refused construct stands, the pattern stays refused. */
static void test_gate_refuses_inside(void **state)
{
    (void)state;
    static const char *const around[][2] = { { "a|", "|b" },  { "(", ")" },   { "(?i:x", "y)*" },
                                             { "[)]", "" },   { "\\\\", "" }, { "\\Q(\\E", "c" },
                                             { "[\\]]", "z" } };
    struct err e;
    struct regex *r = NULL;

    for (size_t i = 0; i < ARRAY_LEN(refused); i++)
        for (size_t k = 0; k < ARRAY_LEN(around); k++) {
            struct str p = str_c(refused[i]);
            /* Alone they are errors of nesting or place; surrounded they may become right. */
            if (p.len == 1 || str_ends(p, STR("\\")) || str_eqc(p, "(a") || str_eqc(p, "a)") ||
                str_eqc(p, "[a") || str_eqc(p, "+a") || str_eqc(p, "\\p{") || str_eqc(p, "\\x4") ||
                str_eqc(p, "(?P<n a)"))
                continue;
            struct buf b;
            buf_init(&b, 4096);
            buf_addf(&b, "%s%s%s", around[k][0], refused[i], around[k][1]);
            if (regex_new(buf_str(&b), true, &r, &e) == 0)
                fail_msg("accepted: %.*s", STR_ARG(buf_str(&b)));
            buf_deinit(&b);
        }
}

static void test_limits_are_errors(void **state)
{
    (void)state;
    static const char *const evil[] = { "(a*)*[bc]", "(a|aa)+[bc]", "(.*.*.*.*.*)*[xy]",
                                        "(a?){30}a{30}[bc]" };
    char *value = xmalloc(4000);
    struct err e = { 0 };

    memset(value, 'a', 4000);
    for (size_t i = 0; i < ARRAY_LEN(evil); i++) {
        struct regex *r = NULL;
        assert_int_equal(regex_new(str_c(evil[i]), true, &r, &e), 0);
        int hit = regex_match(r, str_n(value, 4000), &e);
        assert_int_not_equal(hit, 1);
        if (hit < 0) {
            assert_int_equal(e.code, ERR_LIMIT);
            assert_non_null(strstr(e.text, "simpler pattern"));
        }
        regex_free(r);
    }
    assert_int_equal(match(STR("(a*)*[bc]"), true, str_n(value, 4000)), -1);
    xfree(value);
}

/* Classic bombs over 100,000 values: each pattern either answers every value rightly, or the whole
 * ends in an error after a bounded number of matches: the purse of 20 million steps pays for at
 * most 200 tries of 100,000 steps. */
static void test_bombs_over_many_values_are_bounded(void **state)
{
    (void)state;
    static const char *const bombs[] = {
        "(a+)+$",
        "(a+)+",
        "(a*)*[bc]",
        "(a|a)*[bc]",
        "(a|aa)+[bc]",
        "((a+)+)+[bc]",
        "(.*)*[bc]",
        "(.*.*.*.*.*)*[xy]",
        "(a?){30}a{30}b",
        "([a-z]+)*[0-9]",
        "(x+x+)+y",
        "(.*){1,1000}[xy]",
        "(.*)+(.*)+[xy]",
        "(a{1,50})+[xy]",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
    };
    enum { VALUES = 100000 };
    int too_large = 0, gave_up = 0, answered = 0;

    for (size_t i = 0; i < ARRAY_LEN(bombs); i++)
        for (int anchored = 0; anchored < 2; anchored++) {
            struct regex *r = NULL;
            struct err e = { 0 };
            uint64_t steps = REGEX_QUERY_STEPS;
            char value[64];
            int v = 0, hit = 0;

            if (regex_new(str_c(bombs[i]), anchored, &r, &e)) {
                assert_int_equal(e.code, ERR_INPUT); /* too large when compiled */
                too_large++;
                continue;
            }
            regex_limit(r, &steps);
            for (; v < VALUES && hit >= 0; v++) {
                int n = snprintf(value, sizeof(value), "aaaaaaaaaaaaaaaaaaaaaaaaaaaa-%d-", v);
                hit = regex_match(r, str_n(value, (size_t)n), &e);
            }
            if (hit < 0) {
                assert_int_equal(e.code, ERR_LIMIT);
                gave_up++;
            } else {
                assert_int_equal(v, VALUES);
                answered++;
            }
            regex_free(r);
        }
    print_message("%d refused, %d answered all values, %d gave up\n", too_large, answered, gave_up);
    assert_true(gave_up > 0 && answered > 0);
}

/* Values that need some thousand steps each: no single match is refused, all together are. */
static void test_one_purse_for_all_matches(void **state)
{
    (void)state;
    struct regex *r[2] = { NULL, NULL };
    struct err e = { 0 };
    uint64_t steps = REGEX_QUERY_STEPS;
    char value[28];
    int done = 0, hit = 0;

    memset(value, 'a', sizeof(value));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(regex_new(STR(".*.*.*[bc]"), true, &r[i], &e), 0);
        assert_int_equal(regex_match(r[i], str_n(value, sizeof(value)), &e), 0);
        regex_limit(r[i], &steps);
    }
    while (done < 100000 && (hit = regex_match(r[done % 2], str_n(value, sizeof(value)), &e)) >= 0)
        done++;
    assert_int_equal(hit, -1);
    assert_int_equal(e.code, ERR_LIMIT);
    assert_non_null(strstr(e.text, "simpler patterns"));
    /* Each took one try of 10,000 steps from what both share. */
    assert_int_equal(done, REGEX_QUERY_STEPS / 10000);
    assert_int_equal(steps, 0);
    /* Cheap matches still work. */
    assert_int_equal(regex_match(r[0], STR("aab"), &e), 1);
    regex_free(r[0]);
    regex_free(r[1]);
}

/* Patterns that would grow when they are compiled: refused or compiled, in bounded memory. */
static void test_patterns_that_grow(void **state)
{
    (void)state;
    static const char *const patterns[] = {
        "((a{1,1000}){1,1000}){1,1000}",
        "(((a{100}){100}){100}){100}",
        "(.*){1,1000}",
        "((((((((((x?){2}){2}){2}){2}){2}){2}){2}){2}){2}){2}",
        "(\\pL{1000}){1000}",
        "([a-z]{1,1000}){1,1000}",
        "(|a){1000}(|b){1000}",
    };

    for (size_t i = 0; i < ARRAY_LEN(patterns); i++) {
        struct regex *r = NULL;
        struct err e = { 0 };
        int code = regex_new(str_c(patterns[i]), true, &r, &e);
        assert_true(code == 0 || code == ERR_INPUT);
        if (!code)
            assert_true(regex_match(r, STR("aaaaaaaaaaaaaaaaaaaaaaaab"), &e) <= 1);
        print_message("%s: %s\n", patterns[i], code ? e.text : "compiled");
        regex_free(r);
    }
}

static void test_sizes(void **state)
{
    (void)state;
    struct buf b;
    struct err e;
    struct regex *r = NULL;

    buf_init(&b, 2 * REGEX_PATTERN_MAX);
    while (b.len <= REGEX_PATTERN_MAX)
        buf_add_str(&b, STR("service-name|"));
    assert_int_equal(regex_new(buf_str(&b), true, &r, &e), ERR_INPUT);
    b.len = REGEX_PATTERN_MAX - 100;
    assert_int_equal(regex_new(buf_str(&b), true, &r, &e), 0);
    assert_int_equal(regex_match(r, STR("service-name"), &e), 1);
    regex_free(r);
    buf_reset(&b);
    for (int i = 0; i < 101; i++)
        buf_add_c(&b, '(');
    for (int i = 0; i < 101; i++)
        buf_add_c(&b, ')');
    assert_int_equal(regex_new(buf_str(&b), true, &r, &e), ERR_INPUT);
    /* Nested repeats stop at the compiler's own code limit, quickly. */
    assert_int_equal(regex_new(STR("(((a{1000}){1000}){1000}){1000}"), true, &r, &e), ERR_INPUT);
    buf_deinit(&b);
}

static void test_invalid_utf8_value_never_matches_text(void **state)
{
    (void)state;
    assert_int_equal(match(STR("a.b"), true,
                           str_n("a\xff"
                                 "b",
                                 3)),
                     0);
    assert_int_equal(match(STR("b"), false,
                           str_n("\xff"
                                 "b",
                                 2)),
                     1);
    assert_int_equal(match(STR("a.c"), true, str_n("a\0c", 3)), 1);
}

/* ---- property: PCRE2 behind the gate equals a naive matcher ------------------------------------
 * Random trees over the alphabet {a, b}; the naive matcher computes sets of end positions. */

enum { NODE_A, NODE_B, NODE_DOT, NODE_CAT, NODE_ALT, NODE_STAR, NODE_OPT, NODE_KINDS };
struct node {
    int kind, left, right;
};

static int node_make(struct prng *p, struct node *nodes, int *len, int depth)
{
    int me = (*len)++;
    int kind = depth == 0 ? (int)prng_below(p, 3) : (int)prng_below(p, NODE_KINDS);

    nodes[me] = (struct node){ kind, -1, -1 };
    if (kind >= NODE_CAT)
        nodes[me].left = node_make(p, nodes, len, depth - 1);
    if (kind == NODE_CAT || kind == NODE_ALT)
        nodes[me].right = node_make(p, nodes, len, depth - 1);
    return me;
}

static void node_print(const struct node *nodes, int n, struct buf *out)
{
    const struct node *x = &nodes[n];

    if (x->kind <= NODE_DOT) {
        buf_add_c(out, "ab."[x->kind]);
        return;
    }
    buf_add_str(out, STR("(?:"));
    node_print(nodes, x->left, out);
    if (x->kind == NODE_ALT)
        buf_add_c(out, '|');
    if (x->right >= 0)
        node_print(nodes, x->right, out);
    buf_add_c(out, ')');
    if (x->kind == NODE_STAR || x->kind == NODE_OPT)
        buf_add_c(out, x->kind == NODE_STAR ? '*' : '?');
}

/* Bit i of the result: a match of node n from some position in `from` may end at i. */
static uint32_t node_ends(const struct node *nodes, int n, struct str v, uint32_t from)
{
    const struct node *x = &nodes[n];
    uint32_t to = 0;

    switch (x->kind) {
    case NODE_CAT:
        return node_ends(nodes, x->right, v, node_ends(nodes, x->left, v, from));
    case NODE_ALT:
        return node_ends(nodes, x->left, v, from) | node_ends(nodes, x->right, v, from);
    case NODE_OPT:
        return from | node_ends(nodes, x->left, v, from);
    case NODE_STAR:
        for (to = from; (from = node_ends(nodes, x->left, v, to) & ~to);)
            to |= from;
        return to;
    default:
        for (size_t i = 0; i < v.len; i++)
            if ((from >> i & 1) && (x->kind == NODE_DOT || v.ptr[i] == "ab"[x->kind]))
                to |= 2u << i;
        return to;
    }
}

static void test_equals_naive_matcher(void **state)
{
    (void)state;
    uint64_t seed = 20261121;
    struct prng p;
    int gave_up = 0;

    print_message("seed %llu\n", (unsigned long long)seed);
    prng_init(&p, seed);
    for (int round = 0; round < 2000; round++) {
        struct node nodes[200];
        int len = 0;
        int root = node_make(&p, nodes, &len, 4);
        struct buf pattern;
        struct regex *r = NULL;
        struct err e;

        buf_init(&pattern, 4096);
        node_print(nodes, root, &pattern);
        assert_int_equal(regex_new(buf_str(&pattern), true, &r, &e), 0);
        for (int k = 0; k < 20; k++) {
            char text[12];
            struct str v = { text, prng_below(&p, sizeof(text)) };
            for (size_t i = 0; i < v.len; i++)
                text[i] = "ab"[prng_below(&p, 2)];
            int want = (node_ends(nodes, root, v, 1) >> v.len & 1) != 0;
            int got = regex_match(r, v, &e);
            gave_up += got < 0; /* nested stars may take exponentially many steps */
            if (got >= 0 && got != want)
                fail_msg("%.*s on %.*s: %d, want %d", STR_ARG(buf_str(&pattern)), STR_ARG(v), got,
                         want);
        }
        regex_free(r);
        buf_deinit(&pattern);
    }
    print_message("gave up %d times of 40000\n", gave_up);
    assert_true(gave_up < 400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_matches),
        cmocka_unit_test(test_gate_refuses),
        cmocka_unit_test(test_gate_refuses_inside),
        cmocka_unit_test(test_limits_are_errors),
        cmocka_unit_test(test_bombs_over_many_values_are_bounded),
        cmocka_unit_test(test_one_purse_for_all_matches),
        cmocka_unit_test(test_patterns_that_grow),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_invalid_utf8_value_never_matches_text),
        cmocka_unit_test(test_equals_naive_matcher),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
