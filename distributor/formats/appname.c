/* SPDX-License-Identifier: Apache-2.0
 *
 * appname.c: one pass over `app{key=value,..}`; pairs are sorted, and of equal keys the last wins.
 *
 * Slices of the result point into the name or into the arena. Limits of labels are checked here,
 * before anything else of a push is read. Pure: any thread.
 */
#include "distributor/formats/appname.h"

#include <stdlib.h>

static bool plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.';
}

#define IN_APP   "a service name: letters, digits and _ . - / are"
#define IN_LABEL "a label name: letters, digits, _ and . are"

/* Names the character, by its number if it does not print (or starts a UTF-8 sequence). */
static int bad_char(struct err *e, const char *where, char c)
{
    if (c > ' ' && c < 0x7f)
        return err_set(e, ERR_INPUT, "name: character '%c' is not allowed in %s", c, where);
    return err_set(e, ERR_INPUT, "name: byte 0x%02x is not allowed in %s", (unsigned char)c, where);
}

static int check_app(struct str app, struct err *e)
{
    if (app.len == 0)
        return err_set(e, ERR_INPUT,
                       "name: the service name is empty; want for example name=my.app{env=dev}");
    for (size_t i = 0; i < app.len; i++)
        if (!plain(app.ptr[i]) && app.ptr[i] != '-' && app.ptr[i] != '/')
            return bad_char(e, IN_APP, app.ptr[i]);
    return 0;
}

static int check_pair(struct str key, struct str value, const struct appname_limits *l,
                      struct err *e)
{
    if (key.len == 0)
        return err_set(e, ERR_INPUT, "name: a label name is empty");
    for (size_t i = 0; i < key.len; i++)
        if (!plain(key.ptr[i]))
            return bad_char(e, IN_LABEL, key.ptr[i]);
    if (key.len > l->name_bytes_max)
        return err_set(e, ERR_LIMIT, "name: label name of %zu bytes is longer than %zu", key.len,
                       l->name_bytes_max);
    if (value.len > l->value_bytes_max)
        return err_set(e, ERR_LIMIT, "name: the value of label %.*s has %zu bytes, at most %zu",
                       STR_ARG(key), value.len, l->value_bytes_max);
    if (!str_utf8_valid(value))
        return err_set(e, ERR_INPUT, "name: the value of label %.*s is not valid UTF-8",
                       STR_ARG(key));
    return 0;
}

struct pair {
    struct label label;
    size_t at; /* position in the text: of equal keys the last one wins */
};

static int pair_cmp(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    int c = str_cmp(x->label.name, y->label.name);

    return c ? c : x->at < y->at ? -1 : x->at > y->at;
}

/* Sorted, the last of each key, empty values left out. */
static int finish(struct pair *pairs, size_t n, const struct appname_limits *l, struct arena *a,
                  struct appname *ret, struct err *e)
{
    struct labels out = { ARENA_ARRAY(a, struct label, n ? n : 1), 0 };

    if (!out.ptr)
        return err_set(e, ERR_LIMIT, "name: no memory left for %zu labels in this request", n);
    if (n)
        qsort(pairs, n, sizeof(*pairs), pair_cmp);
    for (size_t i = 0; i < n; i++) {
        if (i + 1 < n && str_eq(pairs[i].label.name, pairs[i + 1].label.name))
            continue;
        if (str_eqc(pairs[i].label.name, "__name__")) {
            if (check_app(pairs[i].label.value, e))
                return e->code;
            ret->app = pairs[i].label.value;
        } else if (pairs[i].label.value.len) {
            out.ptr[out.len++] = pairs[i].label;
        }
    }
    if (out.len > l->labels_max)
        return err_set(e, ERR_LIMIT, "name: %zu labels, at most %zu", out.len, l->labels_max);
    ret->labels = out;
    return 0;
}

int appname_parse(struct str s, const struct appname_limits *l, struct arena *a,
                  struct appname *ret, struct err *e)
{
    ptrdiff_t brace = str_find(s, '{');
    struct appname out = { .app = str_trim(brace < 0 ? s : str_sub(s, 0, (size_t)brace)) };
    struct str rest = brace < 0 ? STR_NULL : str_sub(s, (size_t)brace + 1, s.len);
    size_t commas = 1, n = 0;

    if (check_app(out.app, e))
        return e->code;
    for (size_t i = 0; i < rest.len; i++)
        commas += rest.ptr[i] == ',';
    struct pair *pairs = ARENA_ARRAY(a, struct pair, commas);
    if (!pairs)
        return err_set(e, ERR_LIMIT, "name: %zu labels, at most %zu", commas, l->labels_max);
    for (bool closed = false; rest.len && !closed;) {
        size_t end = 0;
        while (end < rest.len && rest.ptr[end] != ',' && rest.ptr[end] != '}')
            end++;
        closed = end < rest.len && rest.ptr[end] == '}';
        struct str part = str_sub(rest, 0, end);
        bool terminated = end < rest.len;
        rest = str_sub(rest, end + 1, rest.len);
        ptrdiff_t eq = str_find(part, '=');
        if (eq < 0 && str_trim(part).len == 0)
            continue; /* "{}" and a trailing comma */
        struct str key = str_trim(eq < 0 ? part : str_sub(part, 0, (size_t)eq));
        struct str value = eq < 0 ? STR_NULL : str_trim(str_sub(part, (size_t)eq + 1, part.len));
        if (check_pair(key, value, l, e))
            return e->code;
        if (eq < 0 && terminated)
            return err_set(e, ERR_INPUT, "name: label %.*s has no value", STR_ARG(key));
        if (terminated) {
            pairs[n] = (struct pair){ { key, value }, n };
            n++;
        }
    }
    if (finish(pairs, n, l, a, &out, e))
        return e->code;
    *ret = out;
    return 0;
}

void appname_format(const struct appname *n, struct buf *out)
{
    buf_add_str(out, n->app);
    buf_add_c(out, '{');
    for (size_t i = 0; i < n->labels.len; i++) {
        if (i)
            buf_add_c(out, ',');
        buf_add_str(out, n->labels.ptr[i].name);
        buf_add_c(out, '=');
        buf_add_str(out, n->labels.ptr[i].value);
    }
    buf_add_c(out, '}');
}
