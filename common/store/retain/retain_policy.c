/* SPDX-License-Identifier: Apache-2.0
 *
 * retain_policy: parses a policy (defaults and lines of text), and computes floors from it.
 */
#include <stdatomic.h>

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/model/slot.h"
#include "common/model/tenant_id.h"
#include "common/store/retain/retain.h"

#define DAY_MS      UINT64_C(86400000)
#define KEEP_MIN_MS UINT64_C(60000)
#define KEEP_MAX_MS (UINT64_C(200) * 365 * DAY_MS)
#define SHOWN_MAX   64 /* of a word in an error text */

struct rule {
    struct str tenant, service, type; /* patterns; NULL ptr: any */
    uint64_t keep_ms[KEY_LEVELS];     /* 0: not said */
};
struct retain_policy {
    _Atomic uint32_t refs;
    struct retain_keep keep;
    uint64_t interval_ms;
    char *text; /* owned; rules point into it */
    VEC(struct rule) rules;
};

static const char *const level_names[KEY_LEVELS] = { "10s", "1m", "10m", "1h",
                                                     "6h",  "1d", "8d",  "64d" };

const char *retain_level_name(uint32_t level)
{
    CHECK(level < KEY_LEVELS);
    return level_names[level];
}

struct retain_keep retain_keep_default(void)
{
    struct retain_keep k;

    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        k.ms[l] = 400 * DAY_MS;
    k.ms[0] = 7 * DAY_MS;
    k.ms[1] = 30 * DAY_MS;
    k.ms[2] = 90 * DAY_MS;
    return k;
}

/* ---- text ---- */

static bool next_word(struct str *line, struct str *ret)
{
    size_t n = 0;

    *line = str_trim(*line);
    while (n < line->len && line->ptr[n] != ' ' && line->ptr[n] != '\t')
        n++;
    *ret = str_sub(*line, 0, n);
    *line = str_sub(*line, n, line->len);
    return n > 0;
}

static int shown(struct str s)
{
    return (int)MIN(s.len, (size_t)SHOWN_MAX);
}

static int take_level(struct rule *r, struct str name, struct str value, struct err *e)
{
    uint64_t ms;

    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        if (!str_eqc(name, level_names[l]))
            continue;
        if (r->keep_ms[l])
            return err_set(e, ERR_CONFIG, "%s is given twice", level_names[l]);
        if (!str_duration_ms(value, &ms))
            return err_set(e, ERR_CONFIG, "%s=%.*s is not a duration such as 12h or 30d",
                           level_names[l], shown(value), value.ptr);
        if (ms < KEEP_MIN_MS || ms > KEEP_MAX_MS)
            return err_set(e, ERR_CONFIG, "%s=%.*s is not between 1m and 73000d", level_names[l],
                           shown(value), value.ptr);
        r->keep_ms[l] = ms;
        return 0;
    }
    return err_set(e, ERR_CONFIG,
                   "\"%.*s\" is neither tenant, service, type nor a level "
                   "(10s 1m 10m 1h 6h 1d 8d 64d)",
                   shown(name), name.ptr);
}

static int take_word(struct rule *r, struct str word, struct err *e)
{
    ptrdiff_t eq = str_find(word, '=');
    struct str name, value, *pattern = NULL;
    struct err why;

    if (eq < 0)
        return err_set(e, ERR_CONFIG, "\"%.*s\" has no =", shown(word), word.ptr);
    name = str_sub(word, 0, (size_t)eq);
    value = str_sub(word, (size_t)eq + 1, word.len);
    if (!value.len)
        return err_set(e, ERR_CONFIG, "nothing stands behind \"%.*s\"", shown(word), word.ptr);
    if (str_eqc(name, "tenant"))
        pattern = &r->tenant;
    else if (str_eqc(name, "service"))
        pattern = &r->service;
    else if (str_eqc(name, "type"))
        pattern = &r->type;
    if (!pattern)
        return take_level(r, name, value, e);
    if (pattern->ptr)
        return err_set(e, ERR_CONFIG, "%.*s is given twice", shown(name), name.ptr);
    /* A star may stand in a name, so a pattern is held against the same rule. */
    if (pattern == &r->tenant && tenant_id_check(value, &why)) /* would never be found */
        return err_set(e, ERR_CONFIG, "tenant=%.*s: %s", shown(value), value.ptr, why.text);
    *pattern = value;
    return 0;
}

static int take_line(struct retain_policy *p, struct str line, struct err *e)
{
    ptrdiff_t comment = str_find(line, '#');
    struct rule r = { 0 };
    bool any = false, level = false;
    struct str word;

    if (comment >= 0)
        line = str_sub(line, 0, (size_t)comment);
    while (next_word(&line, &word)) {
        if (take_word(&r, word, e))
            return e->code;
        any = true;
    }
    for (uint32_t l = 0; l < KEY_LEVELS; l++)
        level = level || r.keep_ms[l];
    if (any && !level)
        return err_set(e, ERR_CONFIG, "no level is given, so nothing would be different");
    if (any && p->rules.len >= RETAIN_RULES_MAX)
        return err_set(e, ERR_CONFIG, "more than %d rules", RETAIN_RULES_MAX);
    if (any)
        vec_push(&p->rules, r);
    return 0;
}

static int take_text(struct retain_policy *p, struct str text, const char *file, struct err *e)
{
    struct str rest, line;
    bool more = true;

    if (text.len > RETAIN_TEXT_MAX)
        return err_set(e, ERR_CONFIG, "%s has %zu bytes, at most %zu are read", file, text.len,
                       (size_t)RETAIN_TEXT_MAX);
    p->text = xmemdup(text.len ? text.ptr : "", text.len);
    rest = str_n(p->text, text.len);
    if (!str_utf8_valid(rest))
        return err_set(e, ERR_CONFIG, "%s is not UTF-8 text", file);
    for (size_t number = 1; more && str_next(&rest, '\n', &more, &line); number++) {
        if (take_line(p, line, e))
            return err_wrap(e, "%s line %zu", file, number);
    }
    return 0;
}

/* ---- life ---- */

int retain_policy_new(const struct retain_policy_opts *o, struct retain_policy **ret, struct err *e)
{
    struct retain_policy *p = XNEW(struct retain_policy);

    atomic_init(&p->refs, 1);
    p->keep = o->keep;
    p->interval_ms = o->interval_ms;
    if (o->rules.len && take_text(p, o->rules, o->file ? o->file : "rules", e)) {
        retain_policy_unref(p);
        return e->code;
    }
    *ret = p;
    return 0;
}

struct retain_policy *retain_policy_ref(struct retain_policy *p)
{
    if (p)
        atomic_fetch_add(&p->refs, 1);
    return p;
}

void retain_policy_unref(struct retain_policy *p)
{
    if (!p || atomic_fetch_sub(&p->refs, 1) > 1)
        return;
    vec_free(&p->rules);
    xfree(p->text);
    xfree(p);
}

size_t retain_policy_rules(const struct retain_policy *p)
{
    return p->rules.len;
}

struct retain_keep retain_policy_default(const struct retain_policy *p)
{
    return p->keep;
}

uint64_t retain_policy_interval_ms(const struct retain_policy *p)
{
    return p->interval_ms;
}

/* ---- use ---- */

/* * in the pattern stands for any text. Goes back to the last * only, so the work is bounded by the
 * product of the lengths. */
static bool fits(struct str pattern, struct str s)
{
    size_t p = 0, i = 0, star = SIZE_MAX, from = 0;

    if (!pattern.ptr)
        return true;
    while (i < s.len) {
        if (p < pattern.len && pattern.ptr[p] == '*') {
            star = p++;
            from = i;
        } else if (p < pattern.len && pattern.ptr[p] == s.ptr[i]) {
            p++;
            i++;
        } else if (star != SIZE_MAX) {
            p = star + 1;
            i = ++from;
        } else {
            return false;
        }
    }
    while (p < pattern.len && pattern.ptr[p] == '*')
        p++;
    return p == pattern.len;
}

struct retain_keep retain_policy_keep(const struct retain_policy *p, struct str tenant,
                                      struct str service, struct str type)
{
    struct retain_keep k = p->keep;

    vec_for (i, &p->rules) {
        const struct rule *r = &p->rules.ptr[i];

        if (!fits(r->tenant, tenant) || !fits(r->service, service) || !fits(r->type, type))
            continue;
        for (uint32_t l = 0; l < KEY_LEVELS; l++)
            if (r->keep_ms[l])
                k.ms[l] = r->keep_ms[l];
    }
    for (uint32_t l = 1; l < KEY_LEVELS; l++)
        k.ms[l] = MAX(k.ms[l], k.ms[l - 1]);
    return k;
}

/* Floors of a level move in multiples of this. */
static uint32_t stride(uint32_t level, uint64_t keep_ms)
{
    uint64_t keep = keep_ms / SLOT_MS;
    uint32_t node = LEVELS[level == 0 ? 2 : MIN(level + 1, KEY_LEVELS - 1)].node;
    uint64_t n = keep / 16 / node;

    if (LEVELS[level].bucket <= keep / 4)
        return LEVELS[level].bucket;
    return (uint32_t)(MAX(n, 1) * node);
}

void retain_floors(const struct retain_keep *keep, int64_t engine_ms, struct floors *ret)
{
    ret->end = 0;
    for (uint32_t l = 0; l < KEY_LEVELS; l++) {
        int64_t keep_ms = (int64_t)MIN(keep->ms[l], KEEP_MAX_MS);
        uint32_t cut = slot_of_ms(engine_ms - keep_ms);

        ret->at[l] = cut - cut % stride(l, keep->ms[l]);
    }
    floors_align(ret);
}

uint32_t retain_end(const struct retain_keep *keep, int64_t engine_ms)
{
    uint64_t keep_ms = MIN(keep->ms[KEY_LEVELS - 1], KEEP_MAX_MS);
    uint32_t cut = slot_of_ms(engine_ms - (int64_t)keep_ms), finest = 0;
    uint32_t stride = slot_leaf((uint32_t)(keep_ms / SLOT_MS / 64));
    struct floors f;

    while (keep->ms[finest] < keep->ms[KEY_LEVELS - 1])
        finest++;
    retain_floors(keep, engine_ms, &f);
    return MAX(cut - cut % MAX(stride, LEAF_SLOTS), f.at[finest]);
}
