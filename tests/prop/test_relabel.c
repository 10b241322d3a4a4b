/* SPDX-License-Identifier: Apache-2.0
 *
 * Relabelling beside a slow model of it: labels as an unsorted array of C strings, POSIX regexes,
 * templates by hand. Patterns are such that both dialects agree on what groups take.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
/* cmocka wants the three above first */
#include <cmocka.h>
#include <regex.h>

#include "common/base/mem.h"
#include "common/base/prng.h"
#include "distributor/rules/relabel.h"

#define ROUNDS 20000
#define SLOTS  64
#define TEXT   256

static const char *const names[] = { "a", "b", "c", "ab", "bc", "__x", "long_name" };
static const char *const values[] = { "a", "b", "ab", "abc", "A", "bB", "x;y", "" };
static const char *const patterns[] = { "(.*)", "a",  "a|b",    "(a)(.*)", "([^b]*)b(.*)",
                                        "",     ".+", "(a|ab)", "[a-c]+",  "__(.*)" };
static const char *const templates[] = {
    "$1", "x", "${1}_$2", "", "$0", "$$1", "$1$1", "${3}z", "a"
};

struct model {
    char names[SLOTS][TEXT], values[SLOTS][TEXT];
    size_t len;
};
struct pick {
    enum relabel_action action;
    struct str sources[2];
    const char *regex, *target, *replacement;
    uint64_t modulus;
    size_t sources_len;
};

static size_t find(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->len; i++)
        if (strcmp(m->names[i], name) == 0)
            return i;
    return SLOTS;
}

static const char *get(const struct model *m, const char *name)
{
    size_t i = find(m, name);

    return i < SLOTS ? m->values[i] : "";
}

static void put(struct model *m, const char *name, const char *value)
{
    size_t i = find(m, name);

    if (!value[0] && i < SLOTS) {
        m->len--;
        memmove(m->names[i], m->names[m->len], TEXT);
        memmove(m->values[i], m->values[m->len], TEXT);
    } else if (value[0]) {
        i = i < SLOTS ? i : m->len++;
        assert_true(i < SLOTS);
        (void)snprintf(m->names[i], TEXT, "%s", name);
        (void)snprintf(m->values[i], TEXT, "%s", value);
    }
}

static bool matches(const char *pattern, const char *value, regmatch_t g[4])
{
    char whole[TEXT];
    regex_t re;

    (void)snprintf(whole, sizeof(whole), "^(%s)$", pattern);
    assert_int_equal(regcomp(&re, whole, REG_EXTENDED), 0);
    bool hit = regexec(&re, value, 4, g, 0) == 0; /* g[1] is the whole, g[2] is group 1 */
    regfree(&re);
    return hit;
}

static void fill(const char *t, const char *value, const regmatch_t g[4], char *out)
{
    size_t len = 0;

    for (; *t; t++) {
        if (t[0] == '$' && t[1] == '$') {
            out[len++] = '$';
            t++;
        } else if (t[0] == '$') {
            bool brace = t[1] == '{';
            int n = t[1 + brace] - '0' + 1;
            t += 1 + brace + brace;
            if (n < 4 && g[n].rm_so >= 0)
                for (regoff_t i = g[n].rm_so; i < g[n].rm_eo; i++)
                    out[len++] = value[i];
        } else {
            out[len++] = *t;
        }
    }
    out[len] = '\0';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void model_map(struct model *m, const struct pick *r)
{
    struct model before = *m;
    char sorted[SLOTS][TEXT], name[TEXT];
    regmatch_t g[4];

    memcpy(sorted, m->names, sizeof(sorted));
    qsort(sorted, m->len, TEXT, by_name);
    for (size_t i = 0; i < before.len; i++) {
        if (!matches(r->regex, sorted[i], g))
            continue;
        fill(r->replacement, sorted[i], g, name);
        if (name[0])
            put(m, name, get(&before, sorted[i]));
    }
}

static void model_names(struct model *m, const struct pick *r)
{
    struct model before = *m;
    regmatch_t g[4];

    for (size_t i = 0; i < before.len; i++)
        if (matches(r->regex, before.names[i], g) == (r->action == RELABEL_LABELDROP))
            put(m, before.names[i], "");
}

static void append(char *to, size_t size, const char *from)
{
    size_t at = strlen(to), n = strlen(from);

    assert_true(at + n < size);
    memcpy(to + at, from, n + 1);
}

static bool model_run(struct model *m, const struct pick *r)
{
    char value[3 * TEXT] = "", out[TEXT], target[TEXT];
    regmatch_t g[4];

    for (size_t i = 0; i < r->sources_len; i++) {
        append(value, sizeof(value), i ? ";" : "");
        append(value, sizeof(value), get(m, r->sources[i].ptr));
    }
    switch (r->action) {
    case RELABEL_REPLACE:
        if (!matches(r->regex, value, g))
            return true;
        fill(r->target, value, g, target);
        fill(r->replacement, value, g, out);
        if (target[0])
            put(m, target, out);
        return true;
    case RELABEL_KEEP:
        return matches(r->regex, value, g);
    case RELABEL_DROP:
        return !matches(r->regex, value, g);
    case RELABEL_KEEPEQUAL:
        return strcmp(get(m, r->target), value) == 0;
    case RELABEL_DROPEQUAL:
        return strcmp(get(m, r->target), value) != 0;
    case RELABEL_LABELMAP:
        model_map(m, r);
        return true;
    case RELABEL_LABELDROP:
    case RELABEL_LABELKEEP:
        model_names(m, r);
        return true;
    case RELABEL_LOWERCASE:
    case RELABEL_UPPERCASE:
        for (char *c = value; *c; c++)
            if (r->action == RELABEL_LOWERCASE ? *c >= 'A' && *c <= 'Z' : *c >= 'a' && *c <= 'z')
                *c = (char)(*c + (r->action == RELABEL_LOWERCASE ? 32 : -32));
        put(m, r->target, value);
        return true;
    case RELABEL_HASHMOD: /* known values: test_relabel of the unit tests */
    case RELABEL_ACTIONS:
        break;
    }
    return true;
}

static void pick_rule(struct prng *p, struct pick *r, struct relabel_rule *rule)
{
    bool bare, equal;

    do
        r->action = (enum relabel_action)prng_below(p, RELABEL_ACTIONS);
    while (r->action == RELABEL_HASHMOD);
    bare = r->action == RELABEL_LABELDROP || r->action == RELABEL_LABELKEEP;
    equal = r->action == RELABEL_KEEPEQUAL || r->action == RELABEL_DROPEQUAL;
    r->sources_len = bare ? 0 : prng_below(p, 3);
    for (size_t i = 0; i < r->sources_len; i++)
        r->sources[i] = str_c(names[prng_below(p, ARRAY_LEN(names))]);
    r->regex = patterns[prng_below(p, ARRAY_LEN(patterns))];
    r->target = names[prng_below(p, ARRAY_LEN(names))];
    if (r->action == RELABEL_REPLACE && prng_below(p, 4) == 0)
        r->target = "n_$1";
    do
        r->replacement = templates[prng_below(p, ARRAY_LEN(templates))];
    while (r->action == RELABEL_LABELMAP && !r->replacement[0]);
    *rule =
        (struct relabel_rule){ .action = r->action,
                               .sources = r->sources,
                               .sources_len = r->sources_len,
                               .regex = equal ? STR_NULL : str_c(r->regex),
                               .target = bare ? STR_NULL : str_c(r->target),
                               .replacement = bare || equal ? STR_NULL : str_c(r->replacement) };
}

static void compare(const struct model *m, const struct labels *l)
{
    if (m->len != l->len)
        fail_msg("%zu labels, the model has %zu", l->len, m->len);
    for (size_t i = 0; i < l->len; i++) {
        char name[TEXT];
        (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(l->ptr[i].name));
        if (!str_eqc(l->ptr[i].value, get(m, name)))
            fail_msg("%s is %.*s, the model has %s", name, STR_ARG(l->ptr[i].value), get(m, name));
        assert_true(i == 0 || str_cmp(l->ptr[i - 1].name, l->ptr[i].name) < 0);
    }
}

static void one_round(struct prng *p)
{
    struct relabel_rule rules[4];
    struct pick picks[4];
    size_t n = 1 + prng_below(p, ARRAY_LEN(picks));
    struct arena *a = arena_new(MIB);
    struct labels l = { 0 };
    struct relabel *r;
    struct model m = { .len = 0 };
    struct err e = { 0 };
    bool keep = true;

    for (size_t i = prng_below(p, 6); i > 0; i--) {
        const char *name = names[prng_below(p, ARRAY_LEN(names))];
        const char *value = values[prng_below(p, ARRAY_LEN(values) - 1)];
        assert_int_equal(labels_set(&l, a, str_c(name), str_c(value), &e), 0);
        put(&m, name, value);
    }
    for (size_t i = 0; i < n; i++)
        pick_rule(p, &picks[i], &rules[i]);
    if (relabel_new(rules, n, &r, &e))
        fail_msg("%s", e.text);
    for (size_t i = 0; i < n && keep; i++)
        keep = model_run(&m, &picks[i]);
    assert_int_equal(relabel_apply(r, &l, a, &e), keep);
    if (keep)
        compare(&m, &l);
    relabel_free(r);
    arena_free(a);
}

static void test_model(void **state)
{
    (void)state;
    const char *given = getenv("SEED");
    uint64_t seed = given ? strtoull(given, NULL, 10) : 20261121;
    struct prng p;

    print_message("SEED=%" PRIu64 "\n", seed);
    prng_init(&p, seed);
    for (int i = 0; i < ROUNDS; i++)
        one_round(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_model) };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
