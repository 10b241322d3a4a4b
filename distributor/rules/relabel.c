/* SPDX-License-Identifier: Apache-2.0
 *
 * relabel: Prometheus' rules, run one after the other over one sorted set of labels.
 *
 *   value  = the source labels joined by the separator; a missing label is ""
 *   match  = the regex over the whole value (labelmap, labeldrop, labelkeep: over each name)
 *   expand = Go's templates: $1 ${1} $name ${name}, $$ is a dollar; a group that took no part, or
 *            does not exist, is ""; "$1x" is the group named 1x
 *
 * A label set to "" is removed. labelmap reads the labels that it got, in order of their names, and
 * not its own results; where two map to one name the later one stays.
 */
#include "distributor/rules/relabel.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/model/regex.h"
#include "distributor/rules/md5.h"

#define TEXT_MAX ((size_t)1024 * 1024) /* of all rules of a list */

struct rule {
    struct relabel_rule as; /* slices in the arena */
    struct str separator, replacement;
    struct regex *regex; /* owned; NULL: "(.*)", which needs none */
};
struct relabel {
    struct arena *arena; /* owned */
    struct rule *rules;
    size_t len;
};

/* One application. */
struct run {
    struct labels labels; /* the array is ours */
    struct arena *arena;
    struct buf value, text;
    struct err *e;
};

const char *relabel_action_name(enum relabel_action a)
{
    static const char *const names[RELABEL_ACTIONS] = {
        "replace",  "keep",      "drop",      "keepequal", "dropequal", "hashmod",
        "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase",
    };
    return names[a];
}

/* ---- making --------------------------------------------------------------------------------- */

static bool copy(struct arena *a, struct str *s)
{
    if (s->ptr)
        *s = arena_strdup(a, *s);
    return s->len == 0 || s->ptr;
}

static int rule_copy(struct relabel *r, struct rule *to, const struct relabel_rule *from,
                     struct err *e)
{
    struct str *sources = ARENA_ARRAY(r->arena, struct str, from->sources_len + 1);

    to->as = *from;
    to->as.sources = sources;
    bool ok = sources && copy(r->arena, &to->as.separator) && copy(r->arena, &to->as.regex) &&
              copy(r->arena, &to->as.target) && copy(r->arena, &to->as.replacement);
    for (size_t i = 0; ok && i < from->sources_len; i++) {
        sources[i] = from->sources[i];
        ok = copy(r->arena, &sources[i]);
    }
    if (!ok)
        return err_set(e, ERR_CONFIG, "more than %zu bytes of rules", TEXT_MAX);
    to->separator = from->separator.ptr ? to->as.separator : STR(";");
    to->replacement = from->replacement.ptr ? to->as.replacement : STR("$1");
    return 0;
}

/* What the action needs, and what would be without effect and so is an oversight. */
static int rule_check(const struct relabel_rule *r, struct err *e)
{
    const char *name = relabel_action_name(r->action);
    bool equal = r->action == RELABEL_KEEPEQUAL || r->action == RELABEL_DROPEQUAL;
    bool names = r->action == RELABEL_LABELDROP || r->action == RELABEL_LABELKEEP;
    bool target = equal || r->action == RELABEL_REPLACE || r->action == RELABEL_HASHMOD ||
                  r->action == RELABEL_LOWERCASE || r->action == RELABEL_UPPERCASE;

    if (target && !r->target.len)
        return err_set(e, ERR_CONFIG, "action %s wants a target_label", name);
    if (r->action == RELABEL_HASHMOD && !r->modulus)
        return err_set(e, ERR_CONFIG, "action hashmod wants a modulus of at least 1");
    if (r->target.len && !str_utf8_valid(r->target))
        return err_set(e, ERR_CONFIG, "target_label is no UTF-8");
    if (target && r->action != RELABEL_REPLACE && str_find(r->target, '$') >= 0)
        return err_set(e, ERR_CONFIG, "\"%.*s\" is no target_label of action %s",
                       STR_ARG(str_sub(r->target, 0, 100)), name);
    if (equal && (r->regex.ptr || r->modulus || r->separator.ptr || r->replacement.ptr))
        return err_set(e, ERR_CONFIG, "action %s takes source_labels and target_label only", name);
    if (names &&
        (r->sources_len || r->target.len || r->modulus || r->separator.ptr || r->replacement.ptr))
        return err_set(e, ERR_CONFIG, "action %s takes a regex only", name);
    if (r->action == RELABEL_LABELMAP && r->replacement.ptr && !r->replacement.len)
        return err_set(e, ERR_CONFIG, "an empty replacement is no name for labelmap");
    return 0;
}

static int rule_make(struct relabel *r, const struct relabel_rule *from, struct err *e)
{
    struct rule *to = &r->rules[r->len];

    if (rule_check(from, e) || rule_copy(r, to, from, e))
        return e->code;
    r->len++;
    if (!from->regex.ptr || str_eqc(from->regex, "(.*)"))
        return 0;
    if (regex_new_groups(to->as.regex, &to->regex, e))
        e->code = ERR_CONFIG;
    return to->regex ? 0 : e->code;
}

int relabel_new(const struct relabel_rule *rules, size_t n, struct relabel **ret, struct err *e)
{
    if (n > RELABEL_RULES_MAX)
        return err_set(e, ERR_CONFIG, "%zu rules, at most %d", n, RELABEL_RULES_MAX);
    struct relabel *r = XNEW(struct relabel);
    r->arena = arena_new(TEXT_MAX);
    r->rules = XNEW_ARRAY(struct rule, n + 1);
    for (size_t i = 0; i < n; i++) {
        if (rule_make(r, &rules[i], e)) {
            relabel_free(r);
            return err_wrap(e, "rule %zu", i + 1);
        }
    }
    *ret = r;
    return 0;
}

void relabel_free(struct relabel *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->len; i++)
        regex_free(r->rules[i].regex);
    xfree(r->rules);
    arena_free(r->arena);
    xfree(r);
}

size_t relabel_len(const struct relabel *r)
{
    return r->len;
}

/* ---- one rule ------------------------------------------------------------------------------- */

static int too_large(const struct run *x)
{
    (void)err_set(x->e, ERR_LIMIT, "relabelling makes a value of more than %zu bytes",
                  RELABEL_VALUE_MAX);
    return -1;
}

static int full(const struct run *x)
{
    (void)err_set(x->e, ERR_LIMIT, "relabelling takes more than %zu bytes of memory",
                  arena_limit(x->arena));
    return -1;
}

/* 1, 0, -1. */
static int match(const struct run *x, const struct rule *r, struct str value)
{
    return r->regex ? regex_match(r->regex, value, x->e) : 1;
}

static struct str group(const struct rule *r, struct str value, struct str name)
{
    bool digits = name.len <= 8 && (name.len == 1 || name.ptr[0] != '0');
    uint64_t n = 0;

    digits = digits && str_u64(name, &n);
    if (!r->regex)
        return digits && n <= 1 ? value : STR_NULL;
    if (!digits) {
        int at = regex_group_named(r->regex, name);
        if (at < 0)
            return STR_NULL;
        n = (uint64_t)at;
    }
    return regex_group(r->regex, value, (uint32_t)n);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The name behind a dollar; false: no name follows, and the dollar is text. */
static bool reference(struct str rest, struct str *ret_name, size_t *ret_len)
{
    bool brace = rest.len && rest.ptr[0] == '{';
    size_t from = brace, to = from;

    while (to < rest.len && is_word(rest.ptr[to]))
        to++;
    if (to == from || (brace && (to == rest.len || rest.ptr[to] != '}')))
        return false;
    *ret_name = str_sub(rest, from, to);
    *ret_len = to + brace;
    return true;
}

/* Into *out, after a match over value. */
static bool expand(const struct rule *r, struct str template, struct str value, struct buf *out)
{
    buf_reset(out);
    for (size_t i = 0; i < template.len; i++) {
        struct str rest = str_sub(template, i + 1, template.len), name;
        size_t len;

        if (template.ptr[i] != '$') {
            buf_add_c(out, template.ptr[i]);
        } else if (rest.len && rest.ptr[0] == '$') {
            buf_add_c(out, '$');
            i++;
        } else if (reference(rest, &name, &len)) {
            buf_add_str(out, group(r, value, name));
            i += len;
        } else {
            buf_add_c(out, '$');
        }
    }
    return buf_ok(out);
}

/* The name and value are copied; "" removes. 0 or -1. */
static int set(struct run *x, struct str name, struct str value)
{
    if (!value.len) {
        labels_del(&x->labels, name);
        return 0;
    }
    struct str n = arena_strdup(x->arena, name), v = arena_strdup(x->arena, value);
    if (!n.ptr || !v.ptr)
        return full(x);
    if (labels_set(&x->labels, x->arena, n, v, x->e))
        return -1;
    if (x->labels.len <= RELABEL_LABELS_MAX)
        return 0;
    (void)err_set(x->e, ERR_LIMIT, "relabelling makes more than %d labels", RELABEL_LABELS_MAX);
    return -1;
}

static int replace(struct run *x, const struct rule *r, struct str value)
{
    int m = match(x, r, value);
    struct str target;

    if (m <= 0)
        return m < 0 ? -1 : 1;
    if (!expand(r, r->as.target, value, &x->text))
        return too_large(x);
    target = arena_strdup(x->arena, buf_str(&x->text));
    if (!target.len || !str_utf8_valid(target))
        return 1; /* it names no label: nothing happens */
    if (!expand(r, r->replacement, value, &x->text))
        return too_large(x);
    return set(x, target, buf_str(&x->text)) ? -1 : 1;
}

static int hashmod(struct run *x, const struct rule *r, struct str value)
{
    uint8_t digest[MD5_BYTES];

    md5(value, digest);
    buf_reset(&x->text);
    buf_add_u64(&x->text, get_u64be(digest + 8) % r->as.modulus);
    return set(x, r->as.target, buf_str(&x->text)) ? -1 : 1;
}

static int change_case(struct run *x, const struct rule *r, struct str value)
{
    char first = r->as.action == RELABEL_LOWERCASE ? 'A' : 'a';

    buf_reset(&x->text);
    buf_add_str(&x->text, value);
    for (size_t i = 0; i < x->text.len; i++) {
        char *c = &x->text.ptr[i];
        if (*c >= first && *c < first + 26)
            *c = (char)(*c ^ 0x20);
    }
    return set(x, r->as.target, buf_str(&x->text)) ? -1 : 1;
}

static int labelmap(struct run *x, const struct rule *r)
{
    struct labels before = { ARENA_ARRAY(x->arena, struct label, x->labels.len + 1),
                             x->labels.len };

    if (!before.ptr)
        return full(x);
    if (before.len)
        memcpy(before.ptr, x->labels.ptr, before.len * sizeof(*before.ptr));
    for (size_t i = 0; i < before.len; i++) {
        struct str name = before.ptr[i].name;
        int m = match(x, r, name);
        if (m < 0)
            return -1;
        if (m == 0)
            continue;
        if (!expand(r, r->replacement, name, &x->text))
            return too_large(x);
        if (x->text.len && str_utf8_valid(buf_str(&x->text)) &&
            set(x, buf_str(&x->text), before.ptr[i].value))
            return -1;
    }
    return 1;
}

static int filter_names(struct run *x, const struct rule *r)
{
    size_t kept = 0;

    for (size_t i = 0; i < x->labels.len; i++) {
        int m = match(x, r, x->labels.ptr[i].name);
        if (m < 0)
            return -1;
        if ((m == 1) == (r->as.action == RELABEL_LABELKEEP))
            x->labels.ptr[kept++] = x->labels.ptr[i];
    }
    x->labels.len = kept;
    return 1;
}

/* 1: continue with the next rule; 0: drop the labels; -1: error. */
static int run_rule(struct run *x, const struct rule *r)
{
    int m;

    buf_reset(&x->value);
    for (size_t i = 0; i < r->as.sources_len; i++) {
        buf_add_str(&x->value, i ? r->separator : STR(""));
        buf_add_str(&x->value, labels_get(&x->labels, r->as.sources[i]));
    }
    if (!buf_ok(&x->value))
        return too_large(x);
    struct str value = buf_str(&x->value);
    switch (r->as.action) {
    case RELABEL_REPLACE:
        return replace(x, r, value);
    case RELABEL_KEEP:
        return match(x, r, value);
    case RELABEL_DROP:
        m = match(x, r, value);
        return m < 0 ? -1 : !m;
    case RELABEL_KEEPEQUAL:
        return str_eq(labels_get(&x->labels, r->as.target), value);
    case RELABEL_DROPEQUAL:
        return !str_eq(labels_get(&x->labels, r->as.target), value);
    case RELABEL_HASHMOD:
        return hashmod(x, r, value);
    case RELABEL_LOWERCASE:
    case RELABEL_UPPERCASE:
        return change_case(x, r, value);
    case RELABEL_LABELMAP:
        return labelmap(x, r);
    case RELABEL_LABELDROP:
    case RELABEL_LABELKEEP:
        return filter_names(x, r);
    case RELABEL_ACTIONS:
        break;
    }
    CHECK(r->as.action < RELABEL_ACTIONS); /* an action without its function */
    return -1;
}

int relabel_apply(const struct relabel *r, struct labels *l, struct arena *a, struct err *e)
{
    struct run x = { .labels = { ARENA_ARRAY(a, struct label, l->len + 1), l->len },
                     .arena = a,
                     .e = e };
    int rc = 1;

    if (!r->len)
        return 1;
    if (!x.labels.ptr)
        return full(&x);
    if (l->len)
        memcpy(x.labels.ptr, l->ptr, l->len * sizeof(*l->ptr));
    buf_init(&x.value, RELABEL_VALUE_MAX);
    buf_init(&x.text, RELABEL_VALUE_MAX);
    for (size_t i = 0; rc == 1 && i < r->len; i++)
        rc = run_rule(&x, &r->rules[i]);
    buf_deinit(&x.value);
    buf_deinit(&x.text);
    if (rc == 1)
        *l = x.labels;
    return rc;
}

/* ---- text ----------------------------------------------------------------------------------- */

/* Single quotes: YAML knows no escapes there but the doubled quote. Lines are folded by YAML, so a
 * text with control characters goes into double quotes with escapes. */
static void format_scalar(struct str s, struct buf *out)
{
    bool odd = false;

    for (size_t i = 0; i < s.len; i++)
        odd = odd || (unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f;
    buf_add_c(out, odd ? '"' : '\'');
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (odd && ((unsigned char)c < 0x20 || c == 0x7f))
            buf_addf(out, "\\x%02x", (unsigned)(unsigned char)c);
        else if (odd ? (c == '"' || c == '\\') : c == '\'')
            buf_addf(out, "%c%c", odd ? '\\' : '\'', c);
        else
            buf_add_c(out, c);
    }
    buf_add_c(out, odd ? '"' : '\'');
}

static void format_key(size_t indent, const char *key, struct str s, struct buf *out)
{
    if (!s.ptr)
        return;
    buf_addf(out, "%*s  %s: ", (int)indent, "", key);
    format_scalar(s, out);
    buf_add_c(out, '\n');
}

void relabel_format(const struct relabel *r, size_t indent, struct buf *out)
{
    for (size_t i = 0; i < r->len; i++) {
        const struct relabel_rule *rule = &r->rules[i].as;
        buf_addf(out, "%*s- action: %s\n", (int)indent, "", relabel_action_name(rule->action));
        if (rule->sources_len)
            buf_addf(out, "%*s  source_labels: [", (int)indent, "");
        for (size_t k = 0; k < rule->sources_len; k++) {
            buf_add_str(out, k ? STR(", ") : STR(""));
            format_scalar(rule->sources[k], out);
        }
        if (rule->sources_len)
            buf_add_str(out, STR("]\n"));
        format_key(indent, "separator", rule->separator, out);
        format_key(indent, "regex", rule->regex, out);
        if (rule->modulus)
            buf_addf(out, "%*s  modulus: %" PRIu64 "\n", (int)indent, "", rule->modulus);
        format_key(indent, "target_label", rule->target, out);
        format_key(indent, "replacement", rule->replacement, out);
    }
}
