/* SPDX-License-Identifier: Apache-2.0
 *
 * normalize: one table of rules, each of which cuts a piece out of a name.
 *
 * Why before interning: a JVM gives its lambdas, proxies and hidden classes other numbers in every
 * process, and a Go compiler writes the shape of type arguments into names. Left in, every restart
 * would bring new frames for old code, and comparing two versions would show false differences.
 *
 * A rule is (needle, what to cut behind it, what to put there). Nearly all names match no needle,
 * so one look at sixteen bytes at a time asks for what some needle starts with; over all names of a
 * profile at once where they stand side by side (normalize_look).
 * A cut never makes a name longer, hence editing is in place. Applying the table twice changes
 * nothing more.
 */
#include "distributor/formats/normalize.h"

#include "common/base/mem.h"

#define HEX_LEAST 8 /* digits of an address; shorter ones may be part of an honest name */

enum cut {
    CUT_BRACKETS, /* the needle starts with '[': up to the ']' that closes it */
    CUT_DIGITS,   /* [0-9]+ */
    CUT_HASH,     /* "$$" [0-9a-f]+ */
    CUT_LAMBDA,   /* ("$" [0-9]+)? ([/.+] ("0x" hex+ | [0-9]+))? */
    CUT_HIDDEN,   /* the needle is "0x": hex+, and the one of [/.+] before it, behind a '$' name */
    CUT_TO_SO,    /* up to ".so"; only at the start of a name or path element */
    CUT_TAIL, /* "::h" and 16 hex digits, or 16 hex digits in '<' '>', where they end the name */
    CUT_PERF, /* [0-9]+, before ".map"; only at the start of a name or path element */
};
enum gate { GATE_DOLLAR = 1, GATE_BRACKET = 2, GATE_G = 4, GATE_LIB = 8, GATE_TAIL = 16 };

static const struct rule {
    const char *what;
    enum gate gate;
    const char *needle;
    enum cut cut;
    const char *put;
} rules[] = {
    { "Go: type arguments as shapes", GATE_BRACKET, "[go.shape.", CUT_BRACKETS, "" },
    { "JVM: lambda classes", GATE_DOLLAR, "$$Lambda", CUT_LAMBDA, "_" },
    { "JVM: hidden classes", GATE_DOLLAR, "0x", CUT_HIDDEN, "_" },
    { "JVM: dynamic proxies", GATE_DOLLAR, "$Proxy", CUT_DIGITS, "" },
    { "JVM: modules of dynamic proxies", GATE_DOLLAR, "jdk.proxy", CUT_DIGITS, "" },
    { "JVM: modules of dynamic proxies", GATE_DOLLAR, "jdk/proxy", CUT_DIGITS, "" },
    { "JVM: classes made by CGLIB", GATE_DOLLAR, "CGLIB", CUT_HASH, "" },
    { "JVM: accessors", GATE_G, "GeneratedMethodAccessor", CUT_DIGITS, "_" },
    { "JVM: accessors", GATE_G, "GeneratedConstructorAccessor", CUT_DIGITS, "_" },
    { "JVM: accessors", GATE_G, "GeneratedSerializationConstructorAccessor", CUT_DIGITS, "_" },
    { "libraries unpacked to a temporary file", GATE_LIB, "libzstd-jni", CUT_TO_SO, "_" },
    { "libraries unpacked to a temporary file", GATE_LIB, "liblz4-java", CUT_TO_SO, "_" },
    { "libraries unpacked to a temporary file", GATE_LIB, "libsnappyjava", CUT_TO_SO, "_" },
    { "libraries unpacked to a temporary file", GATE_LIB, "libasyncProfiler", CUT_TO_SO, "_" },
    { "libraries unpacked to a temporary file", GATE_LIB, "libamazonCorrettoCryptoProvider",
      CUT_TO_SO, "_" },
    { "Rust: the hash behind a symbol, new in each build", GATE_TAIL, "::h", CUT_TAIL, "" },
    { "pprof --collapsed: where a symbol lies in its file", GATE_TAIL, "<", CUT_TAIL, "" },
    { "Linux perf: code made at run time, by process", GATE_TAIL, "perf-", CUT_PERF, "_" },
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_hex(char c)
{
    return is_digit(c) || (c >= 'a' && c <= 'f');
}

static size_t run(struct str s, size_t at, bool (*is)(char c))
{
    size_t n = 0;

    while (at + n < s.len && is(s.ptr[at + n]))
        n++;
    return n;
}

static bool separator(struct str s, size_t at)
{
    return at < s.len && (s.ptr[at] == '/' || s.ptr[at] == '.' || s.ptr[at] == '+');
}

static bool hex_number(struct str s, size_t at)
{
    return at + 2 < s.len && s.ptr[at] == '0' && s.ptr[at + 1] == 'x';
}

static size_t cut_lambda(struct str s, size_t at)
{
    size_t n = 0, digits;

    if (at < s.len && s.ptr[at] == '$' && (digits = run(s, at + 1, is_digit)) > 0)
        n = 1 + digits;
    if (!separator(s, at + n))
        return n;
    size_t id = at + n + 1;
    if (hex_number(s, id) && (digits = run(s, id + 2, is_hex)) > 0)
        return n + 3 + digits;
    digits = run(s, id, is_digit);
    return digits ? n + 1 + digits : n;
}

/* ---- one rule over one name ------------------------------------------------------------------
 *
 * The name is read from `in` on and written up to `out`, in place. What a needle finds out about
 * the rest of the name is kept, since it may stand there thousands of times: of 64 KiB one look at
 * the whole rest is nothing, one for each needle is a second.
 */
struct edit {
    char *p;
    size_t out, in, end;
    size_t class_end;  /* out up to here ends in a word that has a '$' */
    bool no_so;        /* there is no ".so" behind `in` */
    size_t tail_bad;   /* needles before it do not end the name */
    uint8_t *unclosed; /* owned; a bit for each character: a '[' that nothing closes */
};

static struct str behind(const struct edit *x, size_t needle)
{
    return str_n(x->p + x->in + needle, x->end - x->in - needle);
}

/* Does an element of a path, or the name, begin at the needle? */
static bool begins(const struct edit *x, const char *after)
{
    return x->out == 0 || str_find(str_c(after), x->p[x->out - 1]) >= 0;
}

/* Name$Inner/0x0000000800c04400: is what stands before the separator a name with a '$'? */
static bool class_before(const struct edit *x)
{
    for (size_t i = x->out - 1; i > x->class_end; i--) {
        char c = x->p[i - 1];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_';
        if (c == '$')
            return true;
        if (!word)
            return false;
    }
    return x->class_end > 0;
}

static bool unclosed(const struct edit *x, size_t at)
{
    return x->unclosed && x->unclosed[at / 8] >> at % 8 & 1;
}

static void find_unclosed(struct edit *x)
{
    size_t closing = 0;

    x->unclosed = xcalloc(x->end / 8 + 1, 1);
    for (size_t i = x->end; i > x->in; i--) {
        closing += x->p[i - 1] == ']';
        if (x->p[i - 1] != '[')
            continue;
        if (closing)
            closing--;
        else
            x->unclosed[(i - 1) / 8] |= (uint8_t)(1u << (i - 1) % 8);
    }
}

static size_t cut_brackets(struct edit *x)
{
    size_t depth = 0;

    if (unclosed(x, x->in))
        return 0; /* cut off by the agent, leave it */
    for (size_t i = x->in; i < x->end; i++) {
        depth += x->p[i] == '[';
        depth -= x->p[i] == ']';
        if (depth == 0)
            return i + 1 - x->in;
    }
    find_unclosed(x);
    return 0;
}

static size_t cut_to_so(struct edit *x, struct str rest)
{
    const char *so = NULL;

    if (x->no_so || !begins(x, "/"))
        return 0;
    if (rest.len)
        so = memmem(rest.ptr, rest.len, ".so", 3);
    x->no_so = !so;
    size_t n = so ? (size_t)(so - rest.ptr) : 0;
    return n == 1 && rest.ptr[0] == '_' ? 0 : n;
}

/* One of them or several, up to the end. */
static size_t cut_tail(struct edit *x)
{
    const struct str s = str_n(x->p, x->end);
    size_t at = x->in;

    if (x->out == 0 || at < x->tail_bad)
        return 0;
    for (;;) {
        struct str rest = str_sub(s, at, s.len);
        if (str_starts(rest, STR("::h")) && run(rest, 3, is_hex) == 16)
            at += 19;
        else if (rest.len >= 18 && rest.ptr[0] == '<' && run(rest, 1, is_hex) == 16 &&
                 rest.ptr[17] == '>')
            at += 18;
        else
            break;
    }
    if (at == s.len)
        return s.len - x->in;
    x->tail_bad = at + 1; /* those between are in the same row */
    return 0;
}

static size_t cut_perf(const struct edit *x, struct str rest)
{
    size_t n = run(rest, 0, is_digit);

    return begins(x, "/[") && str_starts(str_sub(rest, n, rest.len), STR(".map")) ? n : 0;
}

static size_t cut_hidden(struct edit *x, struct str rest)
{
    size_t n = run(rest, 0, is_hex);

    return n >= HEX_LEAST && x->out && separator(str_n(x->p, x->out), x->out - 1) && class_before(x)
               ? n
               : 0;
}

static size_t cut_hash(struct str rest)
{
    if (rest.len < 3 || rest.ptr[0] != '$' || rest.ptr[1] != '$')
        return 0;
    size_t n = run(rest, 2, is_hex);
    return n >= HEX_LEAST - 2 ? n + 2 : 0;
}

/* How much to cut for the needle at x->in, 0 for nothing: from the needle on, or behind it. */
static size_t piece(const struct rule *r, struct edit *x)
{
    struct str rest = behind(x, strlen(r->needle));

    switch (r->cut) {
    case CUT_BRACKETS:
        return cut_brackets(x);
    case CUT_DIGITS:
        return run(rest, 0, is_digit);
    case CUT_HASH:
        return cut_hash(rest);
    case CUT_LAMBDA:
        return cut_lambda(rest, 0);
    case CUT_HIDDEN:
        return cut_hidden(x, rest);
    case CUT_TO_SO:
        return cut_to_so(x, rest);
    case CUT_TAIL:
        return cut_tail(x);
    case CUT_PERF:
        return cut_perf(x, rest);
    }
    return 0;
}

static void copy(struct edit *x, size_t n)
{
    memmove(x->p + x->out, x->p + x->in, n);
    x->out += n;
    x->in += n;
}

/* Cuts n characters; returns where to look for the next needle, after the replacement. */
static size_t cut(const struct rule *r, struct edit *x, size_t n)
{
    const bool itself = r->cut == CUT_BRACKETS || r->cut == CUT_TAIL;
    const size_t put = strlen(r->put), needle = strlen(r->needle);

    if (itself) {
        x->in += n;
    } else if (r->cut == CUT_HIDDEN) { /* and the separator */
        x->out--;
        x->in += needle + n;
    } else {
        copy(x, needle);
        x->in += n;
    }
    memcpy(x->p + x->out, r->put, put);
    x->out += put;
    x->class_end = x->out;
    return x->in + (itself || r->cut == CUT_HIDDEN);
}

static bool rule_apply(const struct rule *r, char *p, size_t *len)
{
    struct edit x = { .p = p, .end = *len };
    bool changed = false;

    for (size_t look = 0; look < x.end;) {
        const char *hit = memmem(p + look, x.end - look, r->needle, strlen(r->needle));
        if (!hit)
            break;
        copy(&x, (size_t)(hit - p) - x.in);
        size_t n = piece(r, &x);
        look = n ? cut(r, &x, n) : x.in + 1;
        changed |= n > 0;
    }
    copy(&x, x.end - x.in);
    *len = x.out;
    xfree(x.unclosed);
    return changed;
}

/* Sixteen characters at once. */
typedef uint8_t look16 VECTOR(16);
#define AHEAD 2 /* characters that are seen together with one */

static inline look16 load16(const char *p)
{
    look16 v;

    memcpy(&v, p, sizeof(v));
    return v;
}

/* Adds to *found what needles begin with: '$', '[', "Gen", and "lib" at the start of an element of
 * a path. Looks at 16 + AHEAD bytes. */
static inline void look(const char *p, look16 *found)
{
    look16 a = load16(p), b = load16(p + 1), c = load16(p + 2);

    *found |= ((look16)(a == '$') & GATE_DOLLAR) | ((look16)(a == '[') & GATE_BRACKET) |
              ((look16)((a == 'G') & (b == 'e') & (c == 'n')) & GATE_G) |
              ((look16)((a == '/') & (b == 'l') & (c == 'i')) & GATE_LIB);
}

/* What only stands at the end is seen by its last bytes. */
static bool tail(struct str s)
{
    if (s.len >= 5 && (s.ptr[s.len - 1] == 'p' || s.ptr[s.len - 1] == ']') &&
        (str_ends(s, STR(".map")) || str_ends(s, STR(".map]"))))
        return true;
    if (s.len > 18 && s.ptr[s.len - 18] == '<' && s.ptr[s.len - 1] == '>')
        return true;
    return s.len > 19 && s.ptr[s.len - 19] == ':' && memcmp(s.ptr + s.len - 19, "::h", 3) == 0;
}

static unsigned gates(struct str s)
{
    look16 found = { 0 };
    char text[16 + AHEAD + 16] = { 0 };
    uint64_t words[2];

    if (s.len < 16 + AHEAD) {
        memcpy(text, s.ptr, s.len);
        look(text, &found);
        look(text + AHEAD, &found);
    } else {
        size_t last = s.len - 16 - AHEAD;
        for (size_t i = 0; i < last; i += 16)
            look(s.ptr + i, &found);
        look(s.ptr + last, &found);
        memcpy(text, s.ptr + s.len - AHEAD, AHEAD); /* the last ones begin something, too */
        look(text, &found);
    }
    memcpy(words, &found, sizeof(words));
    words[0] |= words[1];
    words[0] |= words[0] >> 32;
    words[0] |= words[0] >> 16;
    words[0] |= words[0] >> 8;
    unsigned gate = words[0] & 0xff;
    if (s.ptr[0] != '/')
        gate &= ~(unsigned)GATE_LIB;
    if (s.len > 3 && s.ptr[0] == 'l' && memcmp(s.ptr, "lib", 3) == 0)
        gate |= GATE_LIB;
    return tail(s) ? gate | GATE_TAIL : gate;
}

struct str normalize_name(struct str name, struct buf *tmp)
{
    unsigned gate = name.len ? gates(name) : 0;
    size_t len = name.len;
    bool changed = false;

    if (LIKELY(!gate))
        return name;
    buf_reset(tmp);
    char *p = buf_room(tmp, name.len);
    if (!p)
        return name; /* tmp too small: the caller's limits are wrong, the name is still right */
    memcpy(p, name.ptr, name.len);
    for (size_t i = 0; i < ARRAY_LEN(rules); i++)
        if (gate & rules[i].gate)
            changed |= rule_apply(&rules[i], p, &len);
    tmp->len = len;
    return changed ? str_n(p, len) : name;
}

bool normalize_look(struct normalize_look *l, struct str text, struct arena *a)
{
    size_t n = text.len, whole = n < AHEAD ? 0 : (n - AHEAD) / NORMALIZE_BLOCK;

    *l = (struct normalize_look){ text, arena_alloc(a, n / NORMALIZE_BLOCK + 1) };
    if (!l->blocks)
        return false;
    for (size_t b = 0; b <= n / NORMALIZE_BLOCK; b++) {
        char padded[NORMALIZE_BLOCK + AHEAD] = { 0 };
        const char *p = text.ptr + b * NORMALIZE_BLOCK;
        look16 found = { 0 };
        uint64_t words[2];
        if (b >= whole) {
            memcpy(padded, p, MIN(n - b * NORMALIZE_BLOCK, sizeof(padded)));
            p = padded;
        }
        for (size_t i = 0; i < NORMALIZE_BLOCK; i += 16)
            look(p + i, &found);
        memcpy(words, &found, sizeof(words));
        l->blocks[b] = (words[0] | words[1]) != 0;
    }
    return true;
}
