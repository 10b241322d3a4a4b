/* SPDX-License-Identifier: Apache-2.0
 *
 * apply: usage groups, sampling, drop, relabel; then what must hold of labels holds again.
 *
 * Usage groups, sampling and drop see the labels as the sender has them. Relabelling sees them,
 * too, with those from inside: __name__, __type__, __unit__, __period_type__, __period_unit__ may
 * be changed and make another profile type; __profile_type__ and __service_name__ follow from the
 * others. Other names that start with __ are scratch of the rules, and ids of spans and the like
 * never name a series (push.h): both are removed afterwards.
 *
 * Sampling: a number from the labels (without those of the profile type, so that all types of a
 * profile go the same way) and the leaf of the push is compared with the probability. It is the
 * same at every retry and on every distributor.
 */
#include "distributor/rules/apply.h"

#include "common/base/hash.h"
#include "common/model/slot.h"

#define SAMPLE_SEED UINT64_C(0x656d626572747265)

static const char *const type_labels[] = { "__name__", "__type__", "__unit__", "__period_type__",
                                           "__period_unit__" };

struct str rules_service(const struct push_series *s)
{
    return labels_get(&s->labels, STR("service_name"));
}

static bool is_inside(struct str name)
{
    for (size_t i = 0; i < ARRAY_LEN(type_labels); i++)
        if (str_eqc(name, type_labels[i]))
            return true;
    return str_eqc(name, "__profile_type__") || str_eqc(name, "__service_name__");
}

/* ---- sampling ------------------------------------------------------------------------------- */

/* In [0, 1), 53 bits. */
static double number_of(const struct labels *l, uint32_t slot)
{
    struct label few[64];
    struct labels own = { few, 0 };
    uint64_t words[2] = { 0, slot };

    for (size_t i = 0; i < l->len; i++) {
        if (is_inside(l->ptr[i].name))
            continue;
        if (own.len == ARRAY_LEN(few)) { /* of more, what came so far goes in as a number */
            words[0] ^= labels_hash(&own, SAMPLE_SEED + i);
            own.len = 0;
        }
        few[own.len++] = l->ptr[i];
    }
    words[0] ^= labels_hash(&own, SAMPLE_SEED);
    return (double)(hash64(words, sizeof(words), SAMPLE_SEED) >> 11) * 0x1p-53;
}

/* 1 keep, 0 not, -1. */
static int sample(const struct rule_set *r, const struct labels *l, uint32_t slot, struct err *e)
{
    for (size_t i = 0; i < r->samples_len; i++) {
        int m = selector_match(&r->samples[i].match, l, e);
        if (m < 0)
            return -1;
        if (m)
            return number_of(l, slot) < r->samples[i].probability;
    }
    return 1;
}

/* ---- relabelling ---------------------------------------------------------------------------- */

static struct ptype type_of(const struct labels *l)
{
    return (struct ptype){ .name = labels_get(l, STR("__name__")),
                           .sample_type = labels_get(l, STR("__type__")),
                           .sample_unit = labels_get(l, STR("__unit__")),
                           .period_type = labels_get(l, STR("__period_type__")),
                           .period_unit = labels_get(l, STR("__period_unit__")) };
}

static bool same_type(const struct ptype *a, const struct ptype *b)
{
    return str_eq(a->name, b->name) && str_eq(a->sample_type, b->sample_type) &&
           str_eq(a->sample_unit, b->sample_unit) && str_eq(a->period_type, b->period_type) &&
           str_eq(a->period_unit, b->period_unit);
}

/* Rules changed the profile type. */
static int new_type(struct push *p, struct push_series *s, const struct ptype *t, struct err *e)
{
    struct ptype parsed;
    struct buf id;
    int rc;

    buf_init(&id, 8 * KIB);
    ptype_format(t, &id);
    s->profile_type = arena_strdup(p->arena, buf_str(&id));
    if (!buf_ok(&id))
        rc = err_set(e, ERR_INPUT, "invalid_labels: relabelling makes too long a profile type");
    else if (!s->profile_type.ptr)
        rc = push_full(p, e);
    else if ((rc = ptype_parse(s->profile_type, &parsed, e)))
        rc = err_wrap(e, "invalid_labels: relabelling makes an invalid profile type");
    else
        s->gauge = ptype_is_gauge(t);
    buf_deinit(&id);
    return rc;
}

static int check_label(const struct label *l, const struct limits *limits, struct err *e)
{
    if (l->name.len > limits->label_name_bytes)
        return err_set(e, ERR_LIMIT,
                       "label_name_too_long: %zu bytes after relabelling, at most "
                       "%" PRIu64,
                       l->name.len, limits->label_name_bytes);
    if (l->value.len > limits->label_value_bytes && !str_starts(l->name, STR("__")))
        return err_set(e, ERR_LIMIT,
                       "label_value_too_long: %zu bytes of %.*s after relabelling, at most "
                       "%" PRIu64,
                       l->value.len, STR_ARG(l->name), limits->label_value_bytes);
    if (!str_utf8_valid(l->name) || !str_utf8_valid(l->value))
        return err_set(e, ERR_INPUT, "invalid_labels: no UTF-8 after relabelling");
    return 0;
}

/* What must hold of a series again. `had`: labels before. */
static int settle(struct push *p, struct push_series *s, const struct policy *policy, size_t had,
                  struct err *e)
{
    struct labels *l = &s->labels;
    struct str service = rules_service(s);
    size_t kept = 0, outside = 0;

    if (!service.len)
        return err_set(e, ERR_INPUT, "missing_labels: relabelling leaves no service_name");
    for (size_t i = 0; i < l->len; i++) {
        bool inside = is_inside(l->ptr[i].name);
        if (!inside && push_label_hidden(l->ptr[i].name))
            continue;
        if (check_label(&l->ptr[i], &policy->limits, e))
            return e->code;
        outside += !inside;
        l->ptr[kept++] = l->ptr[i];
    }
    l->len = kept;
    /* Labels of samples may be more than a name may have: rules may leave, not make that. */
    if (outside > policy->limits.label_names && l->len > had)
        return err_set(e, ERR_LIMIT,
                       "max_label_names_per_series: %zu labels after relabelling, at most %" PRIu64,
                       outside, policy->limits.label_names);
    if (labels_set(l, p->arena, STR("__service_name__"), service, e) ||
        labels_set(l, p->arena, STR("__profile_type__"), s->profile_type, e))
        return e->code;
    return 0;
}

/* 1 keep, 0 dropped, -1. */
static int relabel(struct push *p, struct push_series *s, const struct policy *policy,
                   struct err *e)
{
    struct ptype before = type_of(&s->labels), after;
    size_t had = s->labels.len;
    int rc = relabel_apply(policy->rules->relabel, &s->labels, p->arena, e);

    if (rc <= 0)
        return rc;
    after = type_of(&s->labels);
    if (!same_type(&before, &after) && new_type(p, s, &after, e))
        return -1;
    return settle(p, s, policy, had, e) ? -1 : 1;
}

/* ---- a push --------------------------------------------------------------------------------- */

static int find_groups(const struct rule_set *r, const struct push_series *s, uint32_t *groups,
                       struct err *e)
{
    for (size_t i = 0; i < r->groups_len; i++) {
        uint32_t bit = UINT32_C(1) << i;
        if (*groups & bit)
            continue;
        int m = selector_match(&r->groups[i].match, &s->labels, e);
        if (m < 0)
            return e->code;
        *groups |= m ? bit : 0;
    }
    return 0;
}

/* 1 keep, 0 left out and counted, -1. */
static int judge(const struct policy *policy, struct push *p, struct push_series *s, uint32_t slot,
                 struct applied *ret, struct err *e)
{
    const struct rule_set *r = policy->rules;

    if (find_groups(r, s, &ret->groups, e))
        return -1;
    int keep = sample(r, &s->labels, slot, e);
    ret->sampled += keep == 0;
    if (keep != 1)
        return keep;
    for (size_t i = 0; i < r->drops_len; i++) {
        int m = selector_match(&r->drops[i].match, &s->labels, e);
        ret->dropped += m > 0;
        if (m)
            return m < 0 ? -1 : 0;
    }
    if (!relabel_len(r->relabel))
        return 1;
    keep = relabel(p, s, policy, e);
    ret->dropped += keep == 0;
    return keep;
}

int rules_apply(const struct policy *policy, struct push *p, const struct window *w,
                struct applied *ret, struct err *e)
{
    struct rule_set *r = policy->rules;
    uint32_t slot = slot_leaf(slot_of_ms(w->start_ms));
    size_t kept = 0;
    int keep = 1;

    *ret = (struct applied){ 0 };
    if (!r->groups_len && !r->samples_len && !r->drops_len && !relabel_len(r->relabel))
        return 0;
    mutex_lock(&r->lock);
    for (size_t i = 0; i < p->series_len && keep >= 0; i++) {
        struct push_series s = p->series[i];
        keep = judge(policy, p, &s, slot, ret, e);
        if (keep == 1)
            p->series[kept++] = s;
    }
    mutex_unlock(&r->lock);
    if (keep < 0)
        return e->code;
    p->series_len = kept;
    if (relabel_len(r->relabel) && !rules_merge(p))
        return push_full(p, e);
    return 0;
}
