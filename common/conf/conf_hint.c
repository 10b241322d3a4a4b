/* SPDX-License-Identifier: Apache-2.0
 *
 * conf_hint: suggests a known name for an unknown one. Nearness is the number of single edits
 * (insert, delete, replace, swap neighbours) between two names.
 */
#include <stdio.h>

#include "common/base/mem.h"
#include "common/conf/conf_impl.h"

/* Optimal string alignment distance; both at most FLAG_MAX bytes. */
enum { FLAG_MAX = 2 * CONF_NAME_MAX };

static size_t edits(struct str a, struct str b)
{
    size_t rows[3][FLAG_MAX + 1];

    for (size_t j = 0; j <= b.len; j++)
        rows[0][j] = j;
    for (size_t i = 1; i <= a.len; i++) {
        size_t *two = rows[(i + 1) % 3], *one = rows[(i - 1) % 3], *now = rows[i % 3];

        now[0] = i;
        for (size_t j = 1; j <= b.len; j++) {
            size_t best = one[j - 1] + (a.ptr[i - 1] != b.ptr[j - 1]);

            best = MIN(best, one[j] + 1);
            best = MIN(best, now[j - 1] + 1);
            if (i > 1 && j > 1 && a.ptr[i - 1] == b.ptr[j - 2] && a.ptr[i - 2] == b.ptr[j - 1])
                best = MIN(best, two[j - 2] + 1);
            now[j] = best;
        }
    }
    return rows[a.len % 3][b.len];
}

const char *conf_nearest(struct str wrong, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t least = SIZE_MAX;

    if (wrong.len > FLAG_MAX)
        return NULL;
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(names[i]);
        size_t d = len <= FLAG_MAX ? edits(wrong, str_c(names[i])) : SIZE_MAX;

        /* A third of the letters wrong is still a slip; more is another word. */
        if (d < least && d <= MAX(len, wrong.len) / 3 + 1 && d < len) {
            least = d;
            best = names[i];
        }
    }
    return best;
}

static struct conf_hint hint(struct str wrong, const char *const *names, size_t n,
                             const char *before)
{
    const char *near = conf_nearest(wrong, names, n);
    struct conf_hint h = { "" };

    if (near)
        (void)snprintf(h.text, sizeof(h.text), "; did you mean \"%s%.*s\"?", before, FLAG_MAX,
                       near);
    return h;
}

/* "http.listen: x", as flags are called. */
static bool dotted(const struct conf *c, struct str wrong, struct conf_hint *ret)
{
    ptrdiff_t dot = str_find(wrong, '.');
    struct str section = dot > 0 ? str_sub(wrong, 0, (size_t)dot) : STR_NULL;

    if (!section.len || !conf_has_section(c, section))
        return false;
    (void)snprintf(ret->text, sizeof(ret->text),
                   "; write \"%.*s:\", and in a line below it \"  %.*s:\"", STR_ARG(section),
                   CONF_NAME_MAX, conf_quote(str_sub(wrong, (size_t)dot + 1, wrong.len)).text);
    return true;
}

struct conf_hint conf_hint_section(const struct conf *c, struct str wrong)
{
    VEC(const char *) names = { 0 };
    struct conf_hint h = { "" };

    if (dotted(c, wrong, &h))
        return h;
    for (size_t i = 0; i < c->tables_len; i++)
        vec_push(&names, c->tables[i]->section);
    h = hint(wrong, names.ptr, names.len, "");
    vec_free(&names);
    return h;
}

struct conf_hint conf_hint_name(const struct conf *c, struct str section, struct str wrong)
{
    VEC(const char *) names = { 0 };
    struct conf_hint h;

    for (size_t i = 0; i < c->tables_len; i++)
        for (size_t j = 0; j < c->tables[i]->rows_len && str_eqc(section, c->tables[i]->section);
             j++)
            vec_push(&names, c->tables[i]->rows[j].name);
    h = hint(wrong, names.ptr, names.len, "");
    vec_free(&names);
    return h;
}

/* --listen for --http.listen: the first section that has it. */
static bool bare(const struct conf *c, struct str wrong, struct conf_hint *ret)
{
    for (size_t i = 0; i < c->tables_len; i++)
        for (size_t j = 0; j < c->tables[i]->rows_len; j++) {
            if (!str_eqc(wrong, c->tables[i]->rows[j].name))
                continue;
            (void)snprintf(ret->text, sizeof(ret->text), "; did you mean \"--%s.%s\"?",
                           c->tables[i]->section, c->tables[i]->rows[j].name);
            return true;
        }
    return false;
}

struct conf_hint conf_hint_flag(const struct conf *c, struct str wrong)
{
    static const char *const fixed[] = { "config", "help", "version", "print-config",
                                         "print-reference" };
    VEC(const char *) names = { 0 };
    VEC(char *) owned = { 0 };
    struct conf_hint h = { "" };

    if (bare(c, wrong, &h))
        return h;
    for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
        vec_push(&names, fixed[i]);
    for (size_t i = 0; i < c->tables_len; i++)
        for (size_t j = 0; j < c->tables[i]->rows_len; j++) {
            char *full = xmalloc(FLAG_MAX);

            (void)snprintf(full, FLAG_MAX, "%s.%s", c->tables[i]->section,
                           c->tables[i]->rows[j].name);
            vec_push(&owned, full);
            vec_push(&names, full);
        }
    h = hint(wrong, names.ptr, names.len, "--");
    vec_for (i, &owned)
        xfree(owned.ptr[i]);
    vec_free(&owned);
    vec_free(&names);
    return h;
}

struct conf_hint conf_quote(struct str s)
{
    struct conf_hint h = { "" };
    size_t n = MIN(s.len, (size_t)CONF_NAME_MAX);

    for (size_t i = 0; i < n; i++) {
        char ch = s.ptr[i];

        h.text[i] = ch >= ' ' && ch < 0x7f ? ch : '?';
    }
    if (s.len > n)
        memcpy(h.text + n, "...", 4);
    return h;
}
