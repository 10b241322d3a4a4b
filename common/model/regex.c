/* SPDX-License-Identifier: Apache-2.0
 *
 * regex.c: PCRE2 behind a gate.
 *
 * Why not RE2: it is C++; PCRE2 with JIT is two to five times faster per match. What PCRE2 lacks is
 * a bound on time and a modest syntax. So three fences stand around it:
 *
 *   gate       one pass over the pattern that accepts RE2's constructs by name and refuses all
 *              others (back references, look-around, recursion, conditions, atomic groups,
 *              possessive quantifiers, verbs, callouts, \K \G \C ...). It is a list of what is
 *              allowed, so a construct PCRE2 learns tomorrow is refused too. It also keeps people's
 *              queries portable: what works here works in RE2 servers.
 *   compile    pattern length, group nesting, repeat counts; PCRE2's own 64 KiB code limit stops
 *              nested repeats from growing.
 *   match      100,000 steps, 1 MiB of heap and of JIT stack. A limit hit is an error answer; an
 *              answer that silently misses series would be a wrong sum.
 *   query      what is dear by value may meet 100,000 values. PCRE2 does not say how many steps a
 *              match took, so matches begin with a limit of 1,000, and those few that need more
 *              start again with more; what those may use is taken from one purse of the query. So
 *              a query costs at most 1,000 steps a value and the purse.
 *
 * One difference in meaning is rewritten by an escape check: \v is vertical tab for RE2 and a class
 * for PCRE2, so the gate refuses it and says to write \x0b.
 */
#include "common/model/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "common/base/hex.h"
#include "common/base/mem.h"

#define REGEX_NEST_MAX        100
#define REGEX_STEPS_FIRST     1000
#define REGEX_STEPS_GROW      10
#define REGEX_MATCH_LIMIT     100000
#define REGEX_HEAP_LIMIT_KIB  1024
#define REGEX_JIT_STACK_BYTES (1024 * 1024)

struct regex {
    pcre2_code *code;             /* owned */
    pcre2_match_data *data;       /* owned */
    pcre2_match_context *context; /* owned */
    pcre2_jit_stack *jit_stack;   /* owned; NULL without JIT */
    uint64_t *steps_left;         /* borrowed; NULL: no limit over all matches */
};

/* ---- the gate ---------------------------------------------------------------------------------*/

struct gate {
    struct str p;
    size_t at;
    struct err *e;
};

static int gate_refuse(const struct gate *g, size_t from, const char *what)
{
    struct str around = str_sub(g->p, from, from + 12);
    return err_set(g->e, ERR_INPUT, "regex \"%.*s\": %s at column %zu (\"%.*s\")",
                   (int)MIN(g->p.len, 120), g->p.ptr, what, from + 1, STR_ARG(around));
}

static int gate_peek(const struct gate *g, size_t ahead)
{
    return g->at + ahead < g->p.len ? (unsigned char)g->p.ptr[g->at + ahead] : -1;
}

static bool is_upper(int c)
{
    return c >= 'A' && c <= 'Z';
}

static bool is_digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool is_alpha(int c)
{
    return (c >= 'a' && c <= 'z') || is_upper(c);
}

static bool is_word(int c)
{
    return is_alpha(c) || is_digit(c) || c == '_';
}

/* \xHH or \x{H...}: PCRE2 alone would also take \x and \xH. `at` stands behind the x. */
static int gate_hex(struct gate *g, size_t from)
{
    if (gate_peek(g, 0) == '{') {
        size_t n = 0;
        for (g->at++; hex_digit(gate_peek(g, 0)) >= 0 && n < 9; n++)
            g->at++;
        if (n == 0 || n > 8 || gate_peek(g, 0) != '}')
            return gate_refuse(g, from, "a malformed \\x{...} escape");
        g->at++;
        return 0;
    }
    if (hex_digit(gate_peek(g, 0)) < 0 || hex_digit(gate_peek(g, 1)) < 0)
        return gate_refuse(g, from, "\\x wants two hex digits or {...}");
    g->at += 2;
    return 0;
}

/* \pL, \p{Greek}, \p{^Greek}. `at` stands behind the p. */
static int gate_property(struct gate *g, size_t from)
{
    if (is_upper(gate_peek(g, 0))) {
        g->at++;
        return 0;
    }
    if (gate_peek(g, 0) == '{') {
        g->at++;
        if (gate_peek(g, 0) == '^')
            g->at++;
        if (is_upper(gate_peek(g, 0))) /* RE2's names are; PCRE2 does not mind */
            while (is_word(gate_peek(g, 0)))
                g->at++;
        if (gate_peek(g, 0) == '}' && is_word((unsigned char)g->p.ptr[g->at - 1])) {
            g->at++;
            return 0;
        }
    }
    return gate_refuse(g, from, "a malformed \\p class");
}

/* `at` stands on the backslash. */
static int gate_escape(struct gate *g, bool in_class)
{
    size_t from = g->at;
    int c = gate_peek(g, 1);

    if (c < 0)
        return gate_refuse(g, from, "a trailing backslash");
    g->at += 2;
    if (c == 'x')
        return gate_hex(g, from);
    if (c == 'p' || c == 'P')
        return gate_property(g, from);
    if (c >= 0x80 || (!is_alpha(c) && !is_digit(c)) || c == '0')
        return c >= 0x80 ? gate_refuse(g, from, "an escaped non-ASCII character") : 0;
    if (is_digit(c) || c == 'g' || c == 'k')
        return gate_refuse(g, from, "a back reference, which is not supported,");
    if (c == 'v')
        return gate_refuse(g, from, "\\v, which is ambiguous (write \\x0b),");
    if (memchr("dDwWsSaftnr", c, 11))
        return 0;
    if (!in_class && memchr("bBAz", c, 4))
        return 0;
    return gate_refuse(g, from, "an escape that is not supported");
}

/* [[:name:]] with one of RE2's names; PCRE2 alone knows [[:<:]] besides. `at` stands on '['. */
static int gate_posix(struct gate *g)
{
    static const char *const names[] = { "alnum", "alpha", "ascii", "blank", "cntrl",
                                         "digit", "graph", "lower", "print", "punct",
                                         "space", "upper", "word",  "xdigit" };
    size_t from = g->at;
    int kind = gate_peek(g, 1);
    struct str rest = str_sub(g->p, g->at + 2, g->p.len);

    if (kind == '.' || kind == '=')
        return gate_refuse(g, from, "a collating class, which is not supported,");
    if (kind != ':') {
        g->at++;
        return 0;
    }
    if (rest.len && rest.ptr[0] == '^')
        rest = str_sub(rest, 1, rest.len);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct str name = str_c(names[i]);
        if (str_starts(rest, name) && str_starts(str_sub(rest, name.len, rest.len), STR(":]"))) {
            g->at = (size_t)(rest.ptr - g->p.ptr) + name.len + 2;
            return 0;
        }
    }
    return gate_refuse(g, from, "an unknown [:class:]");
}

/* `at` stands on '['. */
static int gate_class(struct gate *g)
{
    size_t from = g->at++;

    if (gate_peek(g, 0) == '^')
        g->at++;
    if (gate_peek(g, 0) == ']') /* first: a literal */
        g->at++;
    for (;;) {
        int c = gate_peek(g, 0);
        if (c < 0)
            return gate_refuse(g, from, "a [ without ]");
        if (c == ']') {
            g->at++;
            return 0;
        }
        if (c == '\\') {
            if (gate_escape(g, true))
                return g->e->code;
        } else if (c == '[') {
            if (gate_posix(g))
                return g->e->code;
        } else {
            g->at++;
        }
    }
}

/* `at` stands on '('. Leaves it behind the opening: "(", "(?:", "(?P<name>", "(?is-m:", "(?i)". */
static int gate_group(struct gate *g, uint32_t *depth)
{
    size_t from = g->at++;
    bool off = false;

    if (gate_peek(g, 0) == '*')
        return gate_refuse(g, from, "a (*VERB), which is not supported,");
    if (gate_peek(g, 0) != '?') {
        ++*depth;
        return 0;
    }
    g->at++;
    if (gate_peek(g, 0) == 'P')
        g->at++;
    if (gate_peek(g, 0) == '<' && (is_alpha(gate_peek(g, 1)) || gate_peek(g, 1) == '_')) {
        g->at++;
        while (is_word(gate_peek(g, 0)))
            g->at++;
        if (gate_peek(g, 0) != '>')
            return gate_refuse(g, from, "a malformed group name");
        g->at++;
        ++*depth;
        return 0;
    }
    if (g->p.ptr[g->at - 1] == 'P')
        return gate_refuse(g, from, "a named reference, which is not supported,");
    for (;; g->at++) {
        int c = gate_peek(g, 0);
        if (c == ':' || c == ')') {
            if (g->p.ptr[g->at - 1] == '-' || (c == ')' && g->p.ptr[g->at - 1] == '?'))
                return gate_refuse(g, from, "a malformed flag group");
            g->at++;
            *depth += c == ':';
            return 0;
        }
        if (c == '-' && !off)
            off = true;
        else if (c < 0 || !memchr("imsU", c, 4))
            return gate_refuse(g, from, "a (?...) construct that is not supported");
    }
}

/* Consumes a quantifier and returns 1. 0: the text is not at a quantifier. -1: refused. */
static int gate_quantifier(struct gate *g)
{
    size_t from = g->at;
    int c = gate_peek(g, 0);
    uint64_t low, high;

    if (c == '*' || c == '+' || c == '?') {
        g->at++;
        return 1;
    }
    if (c != '{' || !is_digit(gate_peek(g, 1)))
        return 0;
    size_t i = g->at + 1, comma = 0;
    while (i < g->p.len &&
           (is_digit((unsigned char)g->p.ptr[i]) || (g->p.ptr[i] == ',' && !comma))) {
        if (g->p.ptr[i] == ',')
            comma = i;
        i++;
    }
    if (i >= g->p.len || g->p.ptr[i] != '}')
        return 0; /* "{1x": literal text in both dialects */
    if (!str_u64(str_sub(g->p, from + 1, comma ? comma : i), &low))
        low = UINT64_MAX;
    high = low;
    if (comma && comma + 1 < i && !str_u64(str_sub(g->p, comma + 1, i), &high))
        high = UINT64_MAX;
    if (low > REGEX_REPEAT_MAX || high > REGEX_REPEAT_MAX || high < low) {
        (void)gate_refuse(g, from, "a repeat count over 1000 or in the wrong order");
        return -1;
    }
    g->at = i + 1;
    return 1;
}

/* Behind an atom: one quantifier, perhaps lazy, and no second one (a++ is possessive, a** an
 * error for RE2). */
static int gate_repeat(struct gate *g)
{
    size_t from = g->at;
    int q = gate_quantifier(g);

    if (q < 0)
        return g->e->code;
    if (q == 0)
        return 0;
    if (gate_peek(g, 0) == '?')
        g->at++;
    size_t second = g->at;
    q = gate_quantifier(g);
    if (q < 0)
        return g->e->code;
    if (q) {
        g->at = second;
        return gate_refuse(g, from, "a possessive or doubled quantifier");
    }
    return 0;
}

/* \Q...\E: text. `at` stands on the backslash. */
static void gate_quoted(struct gate *g)
{
    g->at += 2;
    while (g->at < g->p.len && !(g->p.ptr[g->at] == '\\' && gate_peek(g, 1) == 'E'))
        g->at++;
    g->at = MIN(g->at + 2, g->p.len);
}

NODISCARD int regex_gate(struct str pattern, struct err *e)
{
    struct gate g = { .p = pattern, .e = e };
    uint32_t depth = 0;

    if (pattern.len > REGEX_PATTERN_MAX)
        return err_set(e, ERR_INPUT, "regex of %zu bytes: the limit is %zu", pattern.len,
                       (size_t)REGEX_PATTERN_MAX);
    while (g.at < pattern.len) {
        int c = gate_peek(&g, 0), bad = 0;
        if (c == '(') {
            bad = gate_group(&g, &depth);
            if (!bad && depth > REGEX_NEST_MAX)
                bad = gate_refuse(&g, g.at - 1, "more than 100 nested groups");
            if (bad)
                return bad;
            continue; /* no atom yet; a quantifier here is PCRE2's to refuse */
        }
        if (c == '\\' && gate_peek(&g, 1) == 'Q')
            gate_quoted(&g);
        else if (c == '\\')
            bad = gate_escape(&g, false);
        else if (c == '[')
            bad = gate_class(&g);
        else if (c == ')' && depth == 0)
            bad = gate_refuse(&g, g.at, "a ) without (");
        else
            g.at++;
        if (!bad && c == ')')
            depth--;
        if (bad || gate_repeat(&g))
            return e->code;
    }
    return depth ? err_set(e, ERR_INPUT, "regex \"%.*s\": a ( without )",
                           (int)MIN(pattern.len, 120), pattern.ptr)
                 : 0;
}

/* ---- compile and match ------------------------------------------------------------------------*/

void regex_free(struct regex *r)
{
    if (!r)
        return;
    pcre2_jit_stack_free(r->jit_stack);
    pcre2_match_context_free(r->context);
    pcre2_match_data_free(r->data);
    pcre2_code_free(r->code);
    xfree(r);
}

static pcre2_code *regex_compile(struct str pattern, bool anchored, bool groups, struct err *e)
{
    uint32_t options = PCRE2_UTF | PCRE2_MATCH_INVALID_UTF | PCRE2_DOTALL | PCRE2_DOLLAR_ENDONLY |
                       PCRE2_NEVER_BACKSLASH_C | (groups ? 0 : PCRE2_NO_AUTO_CAPTURE);
    int code = 0;
    PCRE2_SIZE at = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);

    CHECK(context);
    pcre2_set_parens_nest_limit(context, REGEX_NEST_MAX);
    if (anchored)
        options |= PCRE2_ANCHORED | PCRE2_ENDANCHORED;
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)(pattern.ptr ? pattern.ptr : ""), pattern.len,
                                   options, &code, &at, context);
    pcre2_compile_context_free(context);
    if (!re) {
        PCRE2_UCHAR text[160] = { 0 };
        pcre2_get_error_message(code, text, sizeof(text));
        err_set(e, ERR_INPUT, "regex \"%.*s\": %s at column %zu", (int)MIN(pattern.len, 120),
                pattern.ptr ? pattern.ptr : "", (const char *)text, at + 1);
    }
    return re;
}

static int regex_make(struct str pattern, bool anchored, bool groups, struct regex **ret,
                      struct err *e)
{
    if (regex_gate(pattern, e))
        return e->code;
    pcre2_code *code = regex_compile(pattern, anchored, groups, e);
    if (!code)
        return e->code;
    struct regex *r = XNEW(struct regex);
    r->code = code;
    r->data = groups ? pcre2_match_data_create_from_pattern(code, NULL)
                     : pcre2_match_data_create(1, NULL);
    r->context = pcre2_match_context_create(NULL);
    CHECK(r->data && r->context);
    pcre2_set_heap_limit(r->context, REGEX_HEAP_LIMIT_KIB);
    /* Without JIT (a kernel that forbids writable code) the interpreter answers the same. */
    if (pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0) {
        r->jit_stack = pcre2_jit_stack_create(32 * KIB, REGEX_JIT_STACK_BYTES, NULL);
        CHECK(r->jit_stack);
        pcre2_jit_stack_assign(r->context, NULL, r->jit_stack);
    }
    *ret = r;
    return 0;
}

int regex_new(struct str pattern, bool anchored, struct regex **ret, struct err *e)
{
    return regex_make(pattern, anchored, false, ret, e);
}

int regex_new_groups(struct str pattern, struct regex **ret, struct err *e)
{
    return regex_make(pattern, true, true, ret, e);
}

struct str regex_group(const struct regex *r, struct str value, uint32_t n)
{
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(r->data);

    if (n >= pcre2_get_ovector_count(r->data) || at[2 * n] == PCRE2_UNSET)
        return STR_NULL;
    return str_sub(value, at[2 * n], at[2 * n + 1]);
}

int regex_group_named(const struct regex *r, struct str name)
{
    char text[128];

    if (name.len >= sizeof(text) || memchr(name.ptr, 0, name.len))
        return -1;
    memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    int n = pcre2_substring_number_from_name(r->code, (PCRE2_SPTR)text);
    return n > 0 ? n : -1;
}

void regex_limit(struct regex *r, uint64_t *steps_left)
{
    r->steps_left = steps_left;
}

/* Takes the steps of one more try out of the purse. */
static bool pay(const struct regex *r, uint64_t steps)
{
    if (!r->steps_left)
        return true;
    if (*r->steps_left < steps)
        return false;
    *r->steps_left -= steps;
    return true;
}

int regex_match(const struct regex *r, struct str value, struct err *e)
{
    uint32_t limit = REGEX_STEPS_FIRST;
    int n;

    for (;; limit = MIN(limit * REGEX_STEPS_GROW, REGEX_MATCH_LIMIT)) {
        if (limit > REGEX_STEPS_FIRST && !pay(r, limit)) {
            (void)err_set(e, ERR_LIMIT,
                          "regexes of this query took over %" PRIu64
                          " steps on values that are hard to match; use simpler patterns",
                          REGEX_QUERY_STEPS);
            return -1;
        }
        pcre2_set_match_limit(r->context, limit);
        n = pcre2_match(r->code, (PCRE2_SPTR)(value.ptr ? value.ptr : ""), value.len, 0, 0, r->data,
                        r->context);
        if (n != PCRE2_ERROR_MATCHLIMIT || limit >= REGEX_MATCH_LIMIT)
            break;
    }
    if (n >= 0)
        return 1;
    if (n == PCRE2_ERROR_NOMATCH)
        return 0;
    PCRE2_UCHAR text[160] = { 0 };
    pcre2_get_error_message(n, text, sizeof(text));
    err_set(e, ERR_LIMIT, "regex gave up on a value of %zu bytes: %s; use a simpler pattern",
            value.len, (const char *)text);
    return -1;
}
