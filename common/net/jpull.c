/* SPDX-License-Identifier: Apache-2.0
 *
 * jpull: RFC 8259, one pass, no recursion: nesting is the caller's, and what is skipped is
 * checked with a small stack of brackets.
 */
#include "common/net/jpull.h"

#include <string.h>

#include "common/base/hex.h"
#include "common/base/utf8.h"

#define NUMBER_MAX   64 /* characters */
#define EXACT_DIGITS 15 /* that every double has */

/* Nothing may be added to a null pointer, not even 0. */
static const char *end_of(struct str s)
{
    return s.len ? s.ptr + s.len : s.ptr;
}

void jpull_init(struct jpull *j, struct str text, struct arena *a, struct err *e)
{
    *j = (struct jpull){
        .start = text.ptr,
        .p = text.ptr,
        .end = end_of(text),
        .arena = a,
        .depth_max = JPULL_DEPTH,
        .e = e,
    };
}

void jpull_init_checked(struct jpull *j, struct str text, struct arena *a, struct err *e)
{
    jpull_init(j, text, a, e);
    j->checked = true;
}

void jpull_part(const struct jpull *j, struct str value, struct jpull *ret)
{
    *ret = *j;
    ret->p = value.ptr;
    ret->end = end_of(value);
}

int jpull_check(struct str text, size_t depth_max, struct err *e)
{
    struct jpull j;

    CHECK(depth_max <= JPULL_DEEPEST);
    jpull_init(&j, text.ptr ? text : STR(""), NULL, e);
    j.depth_max = depth_max;
    const char first = jpull_peek(&j);
    if (first != '{' && first != '[')
        (void)jpull_fault(&j, "want an object or an array");
    if (!jpull_skip(&j) || !jpull_end(&j))
        return e->code;
    return str_utf8_valid(text) ? 0 : err_set(e, ERR_INPUT, "JSON: the text is not UTF-8");
}

bool jpull_fault(struct jpull *j, const char *what)
{
    size_t line = 1;
    const char *begin = j->start;

    if (j->bad)
        return false;
    for (const char *c = j->start; c < j->p; c++)
        if (*c == '\n') {
            line++;
            begin = c + 1;
        }
    err_set(j->e, ERR_INPUT, "JSON, line %zu column %zu: %s", line, (size_t)(j->p - begin) + 1,
            what);
    j->bad = true;
    return false;
}

static void blanks(struct jpull *j)
{
    while (j->p < j->end && (*j->p == ' ' || *j->p == '\n' || *j->p == '\r' || *j->p == '\t'))
        j->p++;
}

char jpull_peek(struct jpull *j)
{
    blanks(j);
    if (j->bad || j->p == j->end)
        return 0;
    return *j->p == '-' || (*j->p >= '0' && *j->p <= '9') ? '0' : *j->p;
}

static bool word(struct jpull *j, const char *w)
{
    size_t n = strlen(w);

    if ((size_t)(j->end - j->p) < n || memcmp(j->p, w, n) != 0)
        return jpull_fault(j, "no value");
    j->p += n;
    return true;
}

/* True: null was there and is read. */
static bool null(struct jpull *j)
{
    return jpull_peek(j) == 'n' && word(j, "null");
}

bool jpull_open(struct jpull *j, char open, struct jpull_it *it)
{
    if (null(j))
        return false;
    if (jpull_peek(j) != open)
        return jpull_fault(j, open == '{' ? "want an object" : "want an array");
    j->p++;
    *it = (struct jpull_it){ .close = open == '{' ? '}' : ']' };
    return true;
}

bool jpull_element(struct jpull *j, struct jpull_it *it)
{
    char c = jpull_peek(j);

    if (j->bad)
        return false;
    if (c == it->close) {
        j->p++;
        return false;
    }
    if (it->more && c != ',')
        return jpull_fault(j, "want a comma or the end of the list");
    j->p += it->more;
    if (it->more && jpull_peek(j) == it->close)
        return jpull_fault(j, "nothing behind a comma");
    it->more = true;
    return j->p < j->end || jpull_fault(j, "the text ends too early");
}

/* ---- strings -------------------------------------------------------------------------------- */

static int hex4(const char *p)
{
    int v = 0;

    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v << 4 | d;
    }
    return v;
}

/* The code point of \uXXXX at *at, a pair if it is one; half a pair is U+FFFD. */
static bool code_point(const char **at, const char *end, uint32_t *ret)
{
    int high = end - *at >= 6 ? hex4(*at + 2) : -1, low;

    if (high < 0)
        return false;
    *at += 6;
    *ret = (uint32_t)high;
    if (high < 0xd800 || high > 0xdfff)
        return true;
    *ret = 0xfffd;
    if (high >= 0xdc00 || end - *at < 6 || (*at)[0] != '\\' || (*at)[1] != 'u')
        return true;
    low = hex4(*at + 2);
    if (low >= 0xdc00 && low <= 0xdfff) {
        *ret = 0x10000 + (((uint32_t)high & 0x3ff) << 10 | ((uint32_t)low & 0x3ff));
        *at += 6;
    }
    return true;
}

/* [p, end) has escapes; what they stand for is never longer. Without an arena they are checked
 * only. */
static bool unescape(struct jpull *j, const char *p, const char *end, struct str *ret)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char one[4], *out = j->arena ? arena_alloc(j->arena, (size_t)(end - p)) : one;
    const char *known;
    uint32_t c;
    size_t n = 0;

    if (!out) {
        err_set(j->e, ERR_LIMIT, "JSON: its strings take more than %zu bytes of memory",
                arena_limit(j->arena));
        j->bad = true;
        return false;
    }
    for (; p < end; n = j->arena ? n : 0) {
        if (*p != '\\') {
            out[n++] = *p++;
        } else if (p[1] == 'u') {
            if (!code_point(&p, end, &c))
                return jpull_fault(j, "no escape in the string");
            n += utf8_put(out + n, c);
        } else {
            known = p[1] ? strchr(from, p[1]) : NULL;
            if (!known)
                return jpull_fault(j, "no escape in the string");
            out[n++] = to[known - from];
            p += 2;
        }
    }
    *ret = str_n(out, n);
    return true;
}

static bool quoted(struct jpull *j, struct str *ret)
{
    const char *p = j->p + 1;
    bool escapes = false;

    while (p < j->end && *p != '"') {
        if ((unsigned char)*p < 0x20)
            return jpull_fault(j, "a control character in a string");
        escapes |= *p == '\\';
        p += *p == '\\' ? 2 : 1;
    }
    if (p >= j->end)
        return jpull_fault(j, "a string without end");
    *ret = str_n(j->p + 1, (size_t)(p - j->p - 1));
    if (escapes && !unescape(j, j->p + 1, p, ret))
        return false;
    j->p = p + 1;
    return true;
}

bool jpull_string(struct jpull *j, struct str *ret)
{
    if (null(j))
        return true;
    if (jpull_peek(j) != '"')
        return jpull_fault(j, "want a string");
    return quoted(j, ret);
}

bool jpull_key(struct jpull *j, struct jpull_it *it, struct str *ret)
{
    if (!jpull_element(j, it))
        return false;
    if (jpull_peek(j) != '"')
        return jpull_fault(j, "want a key in quotes");
    if (!quoted(j, ret))
        return false;
    if (jpull_peek(j) != ':')
        return jpull_fault(j, "want a colon behind a key");
    j->p++;
    return true;
}

bool jpull_key_is(struct str key, const char *camel)
{
    size_t i = 0;

    for (; *camel; camel++) {
        char c = *camel;
        if (i < key.len && key.ptr[i] == '_' && c >= 'A' && c <= 'Z') {
            i++;
            c = (char)(c - 'A' + 'a');
        }
        if (i >= key.len || key.ptr[i++] != c)
            return false;
    }
    return i == key.len;
}

/* ---- numbers -------------------------------------------------------------------------------- */

static bool digits(const char **p, const char *end)
{
    const char *from = *p;

    while (*p < end && **p >= '0' && **p <= '9')
        ++*p;
    return *p > from;
}

/* The characters of the number that is next. */
static bool number_text(struct jpull *j, struct str *ret)
{
    const char *p = j->p, *first;
    bool ok;

    p += p < j->end && *p == '-';
    first = p;
    ok = digits(&p, j->end) && (*first != '0' || p - first == 1);
    if (ok && p < j->end && *p == '.') {
        p++;
        ok = digits(&p, j->end);
    }
    if (ok && p < j->end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < j->end && (*p == '+' || *p == '-');
        ok = digits(&p, j->end);
    }
    if (!ok)
        return jpull_fault(j, "no number");
    *ret = str_n(j->p, (size_t)(p - j->p));
    j->p = p;
    return true;
}

/* A number, or a string that holds one. */
static bool number_or_string(struct jpull *j, struct str *ret)
{
    char c = jpull_peek(j);

    if (c == '"')
        return quoted(j, ret);
    return c == '0' ? number_text(j, ret) : jpull_fault(j, "want a number");
}

bool jpull_number(struct jpull *j, const char *what, uint64_t *ret)
{
    struct str text;
    int64_t i;
    double d;

    if (null(j))
        return true;
    if (!number_or_string(j, &text))
        return false;
    if (str_u64(text, ret))
        return true;
    if (str_i64(text, &i)) {
        *ret = (uint64_t)i;
        return true;
    }
    if (text.len < NUMBER_MAX && str_double(text, &d) && d >= -9223372036854775808.0 &&
        d < 18446744073709551616.0) {
        *ret = d < 0 ? (uint64_t)(int64_t)d : (uint64_t)d;
        if (d < 0 ? (double)(int64_t)*ret == d : (double)*ret == d)
            return true;
    }
    err_set(j->e, ERR_INPUT, "JSON: %s is %.*s, want a whole number of 64 bits", what,
            STR_ARG(str_sub(text, 0, NUMBER_MAX)));
    j->bad = true;
    return false;
}

bool jpull_signed(struct jpull *j, const char *what, int64_t *ret)
{
    uint64_t v = (uint64_t)*ret;

    if (null(j))
        return true;
    const char *first = jpull_peek(j) == '"' ? j->p + 1 : j->p;
    const bool negative = first < j->end && *first == '-';
    if (!jpull_number(j, what, &v))
        return false;
    if (v > INT64_MAX && !negative)
        return jpull_fault(j, "a number of more than 2^63 - 1 where that is the most");
    *ret = (int64_t)v;
    return true;
}

bool jpull_double(struct jpull *j, double *ret)
{
    struct str text;

    if (null(j))
        return true;
    if (!number_or_string(j, &text))
        return false;
    if (!str_double(text, ret))
        *ret = 0; /* "NaN", "Infinity": a value that is never used as a number */
    return true;
}

bool jpull_real(struct jpull *j, const char *what, double *ret)
{
    struct str text;
    uint64_t n;

    if (null(j))
        return true;
    if (!number_or_string(j, &text))
        return false;
    if (text.len <= EXACT_DIGITS && str_u64(text, &n)) {
        *ret = (double)n;
        return true;
    }
    if (str_double(text, ret))
        return true;
    err_set(j->e, ERR_INPUT, "JSON: %s is %.*s, want a number", what,
            STR_ARG(str_sub(text, 0, NUMBER_MAX)));
    j->bad = true;
    return false;
}

bool jpull_bool(struct jpull *j, bool *ret)
{
    char c = jpull_peek(j);

    if (null(j))
        return true;
    *ret = c == 't';
    return word(j, c == 't' ? "true" : "false");
}

/* ---- the rest ------------------------------------------------------------------------------- */

static bool skip_scalar(struct jpull *j)
{
    struct str ignored;
    bool truth;

    switch (jpull_peek(j)) {
    case '"':
        return quoted(j, &ignored);
    case '0':
        return number_text(j, &ignored);
    case 't':
    case 'f':
        return jpull_bool(j, &truth);
    case 'n':
        return word(j, "null");
    default:
        return jpull_fault(j, "want a value");
    }
}

/* An object or array of a checked text: its brackets match, so they need only be counted. */
static void skip_checked(struct jpull *j)
{
    const char *p = j->p;
    size_t depth = 0;

    do {
        switch (*p++) {
        case '"':
            while (p < j->end && *p != '"')
                p += *p == '\\' ? 2 : 1;
            p++;
            break;
        case '{':
        case '[':
            depth++;
            break;
        case '}':
        case ']':
            depth--;
            break;
        default:
            break;
        }
    } while (depth > 0 && p < j->end);
    CHECK(depth == 0 && p <= j->end);
    j->p = p;
}

static void skip_any(struct jpull *j)
{
    struct jpull_it stack[JPULL_DEEPEST];
    struct str key;
    size_t depth = 0;

    do {
        char c;
        if (depth) {
            struct jpull_it *it = &stack[depth - 1];
            if (!(it->close == '}' ? jpull_key(j, it, &key) : jpull_element(j, it))) {
                depth--;
                continue;
            }
        }
        c = jpull_peek(j);
        if (c != '{' && c != '[') {
            skip_scalar(j);
        } else if (depth == j->depth_max) {
            err_set(j->e, ERR_LIMIT, "JSON: nested more than %zu levels deep", j->depth_max);
            j->bad = true;
        } else {
            jpull_open(j, c, &stack[depth++]);
        }
    } while (depth > 0 && !j->bad);
}

bool jpull_skip(struct jpull *j)
{
    const char first = jpull_peek(j);
    struct arena *arena = j->arena;

    if (j->checked && !j->bad && (first == '{' || first == '[')) {
        skip_checked(j);
        return true;
    }
    j->arena = NULL; /* nothing of it is kept */
    skip_any(j);
    j->arena = arena;
    return !j->bad;
}

bool jpull_value(struct jpull *j, struct str *ret)
{
    const char c = jpull_peek(j), *from = j->p;

    if (!jpull_skip(j))
        return false;
    *ret = c == 'n' ? STR_NULL : str_n(from, (size_t)(j->p - from));
    return true;
}

bool jpull_object(struct jpull *j, struct jpull_obj *obj)
{
    *obj = (struct jpull_obj){ .seen = 0 };
    if (jpull_peek(j) == '{')
        return jpull_open(j, '{', &obj->it);
    (void)jpull_skip(j);
    return false;
}

bool jpull_array(struct jpull *j, struct jpull_it *it)
{
    if (jpull_peek(j) == '[')
        return jpull_open(j, '[', it);
    (void)jpull_skip(j);
    return false;
}

bool jpull_member(struct jpull *j, struct jpull_obj *obj, const char *const *names, size_t n,
                  size_t *ret)
{
    struct str key;
    size_t i = 0;

    CHECK(n <= JPULL_MEMBERS);
    if (!jpull_key(j, &obj->it, &key))
        return false;
    while (i < n && !str_eqc(key, names[i]))
        i++;
    *ret = i;
    if (i == n)
        return true;
    if (obj->seen & (UINT32_C(1) << i))
        return jpull_fault(j, "a name that was there before in this object");
    obj->seen |= UINT32_C(1) << i;
    return true;
}

bool jpull_end(struct jpull *j)
{
    blanks(j);
    return !j->bad && (j->p == j->end || jpull_fault(j, "something behind the document"));
}
