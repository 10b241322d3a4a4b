/* SPDX-License-Identifier: Apache-2.0
 *
 * selector.c: one hand-written scanner for both dialects, and matching.
 *
 * The dialects share the shape `metric { name op "value" , ... }`; they differ in the characters of
 * the metric, in how strings are written, and in whether a regex is anchored. All text is copied
 * into the caller's arena, so a selector outlives the request line it came from.
 *
 * Prometheus' braces may hold one lone string, which is the metric: {"a:b:c:d:e", x="y"}.
 * No recursion; text, number of matchers and lengths are bounded.
 */
#include "common/model/selector.h"

#include "common/base/buf.h"
#include "common/base/hex.h"
#include "common/base/utf8.h"
#include "common/model/regex.h"

#define SELECTOR_TEXT_MAX  (64 * KIB)
#define SELECTOR_LEN_MAX   64
#define SELECTOR_NAME_MAX  1024
#define SELECTOR_VALUE_MAX REGEX_PATTERN_MAX

struct scan {
    struct str text;
    size_t at;
    enum selector_dialect dialect;
    struct arena *arena;
    struct err *e;
};

static int scan_fail(const struct scan *s, size_t at, const char *what)
{
    struct str near = str_sub(s->text, at, at + 16);
    if (near.len == 0)
        return err_set(s->e, ERR_INPUT, "selector: %s at column %zu, where it ends", what, at + 1);
    return err_set(s->e, ERR_INPUT, "selector: %s at column %zu, at \"%.*s\"", what, at + 1,
                   STR_ARG(near));
}

static int scan_full(const struct scan *s)
{
    return err_set(s->e, ERR_LIMIT, "selector: more memory than a selector may take (%zu bytes)",
                   arena_limit(s->arena));
}

static int scan_peek(const struct scan *s)
{
    return s->at < s->text.len ? (unsigned char)s->text.ptr[s->at] : -1;
}

static void scan_blanks(struct scan *s)
{
    while (s->at < s->text.len && memchr(" \t\r\n", s->text.ptr[s->at], 4))
        s->at++;
}

static bool is_name_char(int c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

static bool is_metric_char(const struct scan *s, int c, bool first)
{
    if (s->dialect == SELECTOR_FLAMEQL)
        return is_name_char(c, false) || c == '.' || c == '-' || c == '/';
    return is_name_char(c, first) || c == ':';
}

/* ---- strings ----------------------------------------------------------------------------------*/

/* Exactly `digits` digits of `base`; -1 if they are not there. */
static int64_t scan_number(struct scan *s, int digits, int base)
{
    int64_t v = 0;

    for (int i = 0; i < digits; i++) {
        int d = hex_digit(scan_peek(s));
        if (d < 0 || d >= base)
            return -1;
        v = v * base + d;
        s->at++;
    }
    return v;
}

/* Go's escapes. `at` stands behind the backslash; appends to out, which has room for 4 bytes. */
static int scan_escape(struct scan *s, int quote, char *out, size_t *len)
{
    static const char from[] = "abfnrtv\\", to[] = "\a\b\f\n\r\t\v\\";
    size_t begin = s->at - 1;
    int c = scan_peek(s);
    const char *simple = c > 0 ? memchr(from, c, sizeof(from) - 1) : NULL;
    int64_t v;

    if (simple || (c >= 0 && c == quote)) {
        s->at++;
        out[(*len)++] = simple ? to[simple - from] : (char)c;
        return 0;
    }
    if (c >= '0' && c <= '7') {
        v = scan_number(s, 3, 8);
        if (v < 0 || v > 255)
            return scan_fail(s, begin, "an octal escape wants three digits up to \\377");
        out[(*len)++] = (char)v;
        return 0;
    }
    if (c != 'x' && c != 'u' && c != 'U')
        return scan_fail(s, begin, "an unknown escape");
    s->at++;
    v = scan_number(s, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16);
    if (v < 0)
        return scan_fail(s, begin, "too few hex digits in an escape");
    if (c == 'x') {
        out[(*len)++] = (char)v;
        return 0;
    }
    if (v > 0x10ffff || (v >= 0xd800 && v < 0xe000))
        return scan_fail(s, begin, "an escape that is no Unicode character");
    *len += utf8_put(out + *len, (uint32_t)v);
    return 0;
}

/* Bytes between the quote at `at` and its end, escapes as written; an upper bound of the result. */
static size_t scan_string_room(const struct scan *s, int quote)
{
    size_t i = s->at + 1;

    while (i < s->text.len && (unsigned char)s->text.ptr[i] != quote)
        i += s->text.ptr[i] == '\\' && quote != '`' ? 2 : 1;
    return MIN(i, s->text.len) - s->at - 1;
}

/* "..." '...' `...`; `at` stands on the quote. */
static int scan_string(struct scan *s, size_t max, struct str *ret)
{
    size_t begin = s->at, len = 0;
    int quote = scan_peek(s);
    size_t room = scan_string_room(s, quote);

    if (room > max)
        return scan_fail(s, begin, "a string that is too long");
    char *out = arena_alloc(s->arena, room + 4); /* escapes never make text longer */
    if (!out)
        return scan_full(s);
    for (s->at++;;) {
        int c = scan_peek(s);
        if (c < 0 || (c == '\n' && quote != '`'))
            return scan_fail(s, begin, "a string that does not end");
        s->at++;
        if (c == quote)
            break;
        if (c != '\\' || quote == '`')
            out[len++] = (char)c;
        else if (scan_escape(s, quote, out, &len))
            return s->e->code;
    }
    CHECK(len <= room);
    *ret = (struct str){ out, len };
    return 0;
}

/* FlameQL: \" does not end the value, and stays as it stands. */
static int scan_flameql_string(struct scan *s, struct str *ret)
{
    size_t begin = ++s->at;

    for (;; s->at++) {
        int c = scan_peek(s);
        if (c < 0)
            return scan_fail(s, begin - 1, "a string that does not end");
        if (c == '"' && s->text.ptr[s->at - 1] != '\\')
            break;
    }
    struct str raw = str_sub(s->text, begin, s->at++);
    if (raw.len > SELECTOR_VALUE_MAX)
        return scan_fail(s, begin - 1, "a string that is too long");
    *ret = arena_strdup(s->arena, raw);
    return ret->ptr ? 0 : scan_full(s);
}

static bool is_quote(const struct scan *s, int c)
{
    return c == '"' || (s->dialect == SELECTOR_PROMETHEUS && (c == '\'' || c == '`'));
}

/* ---- grammar ----------------------------------------------------------------------------------*/

static int scan_op(struct scan *s, enum match_op *ret)
{
    static const struct {
        const char *text;
        enum match_op op;
    } ops[] = { { "=~", MATCH_RE }, { "!~", MATCH_NRE }, { "!=", MATCH_NE }, { "=", MATCH_EQ } };
    struct str rest = str_sub(s->text, s->at, s->text.len);

    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        struct str op = str_c(ops[i].text);
        if (str_starts(rest, op)) {
            s->at += op.len;
            *ret = ops[i].op;
            return 0;
        }
    }
    return scan_fail(s, s->at, "wanted one of = != =~ !~");
}

/* A plain or quoted name; *ret_quoted tells, because a lone quoted one is the metric. */
static int scan_name(struct scan *s, struct str *ret, bool *ret_quoted)
{
    size_t begin = s->at;

    *ret_quoted = s->dialect == SELECTOR_PROMETHEUS && is_quote(s, scan_peek(s));
    if (*ret_quoted)
        return scan_string(s, SELECTOR_NAME_MAX, ret);
    bool flameql = s->dialect == SELECTOR_FLAMEQL;
    while (is_name_char(scan_peek(s), s->at == begin && !flameql) ||
           (flameql && scan_peek(s) == '.'))
        s->at++;
    if (s->at == begin)
        return scan_fail(s, begin, "wanted a label name");
    if (s->at - begin > SELECTOR_NAME_MAX)
        return scan_fail(s, begin, "a label name over 1024 bytes");
    *ret = arena_strdup(s->arena, str_sub(s->text, begin, s->at));
    return ret->ptr ? 0 : scan_full(s);
}

static int scan_value(struct scan *s, struct matcher *m)
{
    size_t begin = s->at;

    m->column = begin + 1;
    if (!is_quote(s, scan_peek(s)))
        return scan_fail(s, s->at, "wanted a quoted value");
    if (s->dialect == SELECTOR_PROMETHEUS)
        return scan_string(s, SELECTOR_VALUE_MAX, &m->value);
    m->unanchored = m->op == MATCH_RE || m->op == MATCH_NRE;
    if (scan_flameql_string(s, &m->value))
        return s->e->code;
    if (m->op == MATCH_EQ && m->value.len == 0)
        return scan_fail(s, begin, "an empty value");
    if (str_eqc(m->name, "__name__"))
        return scan_fail(s, begin, "the reserved name __name__");
    return 0;
}

/* One entry between commas: a matcher, or the quoted metric. */
static int scan_entry(struct scan *s, struct selector *sel)
{
    size_t begin = s->at;
    struct matcher m = { .op = MATCH_EQ };
    bool quoted;

    if (scan_name(s, &m.name, &quoted))
        return s->e->code;
    scan_blanks(s);
    int c = scan_peek(s);
    if (quoted && (c == ',' || c == '}')) {
        if (sel->metric.len)
            return scan_fail(s, begin, "a second metric");
        if (m.name.len == 0)
            return scan_fail(s, begin, "an empty metric");
        sel->metric = m.name;
        return 0;
    }
    if (m.name.len == 0)
        return scan_fail(s, begin, "an empty label name");
    if (scan_op(s, &m.op))
        return s->e->code;
    scan_blanks(s);
    if (scan_value(s, &m))
        return s->e->code;
    if (sel->len == SELECTOR_LEN_MAX)
        return scan_fail(s, begin, "more than 64 matchers");
    sel->matchers[sel->len++] = m;
    return 0;
}

/* `at` stands behind the '{'. */
static int scan_braces(struct scan *s, struct selector *sel)
{
    for (;;) {
        scan_blanks(s);
        if (scan_peek(s) == '}')
            break;
        if (scan_entry(s, sel))
            return s->e->code;
        scan_blanks(s);
        if (scan_peek(s) == ',')
            s->at++;
        else if (scan_peek(s) != '}')
            return scan_fail(s, s->at, "wanted , or }");
    }
    s->at++;
    return 0;
}

static int scan_metric(struct scan *s, struct selector *sel)
{
    size_t begin = s->at;

    while (is_metric_char(s, scan_peek(s), s->at == begin))
        s->at++;
    if (s->at == begin)
        return 0;
    sel->metric = arena_strdup(s->arena, str_sub(s->text, begin, s->at));
    return sel->metric.ptr ? 0 : scan_full(s);
}

NODISCARD int selector_parse(struct str text, enum selector_dialect d, struct arena *a,
                             struct selector *ret, struct err *e)
{
    struct scan s = { .text = text, .dialect = d, .arena = a, .e = e };
    struct selector sel = { 0 };

    if (text.len > SELECTOR_TEXT_MAX)
        return err_set(e, ERR_INPUT, "selector of %zu bytes: the limit is %zu", text.len,
                       (size_t)SELECTOR_TEXT_MAX);
    sel.matchers = ARENA_ARRAY(a, struct matcher, SELECTOR_LEN_MAX);
    if (!sel.matchers)
        return scan_full(&s);
    scan_blanks(&s);
    if (s.at == text.len)
        return err_set(e, ERR_INPUT, "selector: empty; {} matches everything");
    if (scan_metric(&s, &sel))
        return e->code;
    scan_blanks(&s);
    if (d == SELECTOR_FLAMEQL && sel.metric.len == 0)
        return scan_fail(&s, s.at, "wanted an application name");
    if (scan_peek(&s) == '{') {
        s.at++;
        if (scan_braces(&s, &sel))
            return e->code;
        scan_blanks(&s);
    }
    if (s.at < text.len)
        return scan_fail(&s, s.at, "wanted the end");
    *ret = sel;
    return 0;
}

/* ---- compile, match, print --------------------------------------------------------------------*/

NODISCARD int selector_compile(struct selector *s, struct err *e)
{
    for (size_t i = 0; i < s->len; i++) {
        struct matcher *m = &s->matchers[i];
        if ((m->op != MATCH_RE && m->op != MATCH_NRE) || m->regex)
            continue;
        if (!regex_new(m->value, !m->unanchored, &m->regex, e))
            continue;
        return m->column
                   ? err_wrap(e, "matcher %.*s, value at column %zu", STR_ARG(m->name), m->column)
                   : err_wrap(e, "matcher %.*s", STR_ARG(m->name));
    }
    return 0;
}

void selector_limit(struct selector *s, uint64_t *steps_left)
{
    for (size_t i = 0; i < s->len; i++)
        if (s->matchers[i].regex)
            regex_limit(s->matchers[i].regex, steps_left);
}

void selector_deinit(struct selector *s)
{
    for (size_t i = 0; i < s->len; i++) {
        regex_free(s->matchers[i].regex);
        s->matchers[i].regex = NULL;
    }
}

int matcher_match(const struct matcher *m, struct str value, struct err *e)
{
    int hit;

    switch (m->op) {
    case MATCH_EQ:
        return str_eq(m->value, value);
    case MATCH_NE:
        return !str_eq(m->value, value);
    case MATCH_RE:
    case MATCH_NRE:
        CHECK(m->regex);
        hit = regex_match(m->regex, value, e);
        if (hit < 0) {
            (void)err_wrap(e, "matcher %.*s", STR_ARG(m->name));
            return -1;
        }
        return m->op == MATCH_RE ? hit : !hit;
    }
    return 0;
}

int selector_match(const struct selector *s, const struct labels *l, struct err *e)
{
    for (size_t i = 0; i < s->len; i++) {
        int hit = matcher_match(&s->matchers[i], labels_get(l, s->matchers[i].name), e);
        if (hit <= 0)
            return hit;
    }
    return 1;
}

static void format_quoted(struct str v, struct buf *out)
{
    buf_add_c(out, '"');
    for (size_t i = 0; i < v.len; i++) {
        unsigned char c = (unsigned char)v.ptr[i];
        if (c == '"' || c == '\\')
            buf_add_c(out, '\\');
        if (c == '\n')
            buf_add_str(out, STR("\\n"));
        else if (c < 0x20 || c == 0x7f)
            buf_addf(out, "\\x%02x", c);
        else
            buf_add_c(out, (char)c);
    }
    buf_add_c(out, '"');
}

void selector_format(const struct selector *s, struct buf *out)
{
    static const char *const ops[] = { "=", "!=", "=~", "!~" };
    bool plain = true, comma = false;

    for (size_t i = 0; i < s->metric.len; i++)
        plain = plain &&
                (is_name_char((unsigned char)s->metric.ptr[i], i == 0) || s->metric.ptr[i] == ':');
    if (plain)
        buf_add_str(out, s->metric);
    buf_add_c(out, '{');
    if (!plain) {
        format_quoted(s->metric, out);
        comma = true;
    }
    for (size_t i = 0; i < s->len; i++) {
        const struct matcher *m = &s->matchers[i];
        if (comma)
            buf_add_c(out, ',');
        comma = true;
        if (label_name_plain(m->name))
            buf_add_str(out, m->name);
        else
            format_quoted(m->name, out);
        buf_add_str(out, str_c(ops[m->op]));
        format_quoted(m->value, out);
    }
    buf_add_c(out, '}');
}
