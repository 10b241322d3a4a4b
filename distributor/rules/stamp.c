/* SPDX-License-Identifier: Apache-2.0
 *
 * stamp.c: sets labels on each series of a push.
 *
 * This is done twice. Before the rules of the tenant: they see the labels that will be stored, so
 * that a sender who claims to be another team is not sampled, counted or let through as that team.
 * And after them, before places, write ids and series are made of the labels: a rule that drops or
 * renames such a label, which any editor of the rules could write, does not undo it. The second
 * time nothing changes where no rule touched them.
 *
 * Labels that follow from others follow again: __service_name__ from service_name.
 */
#include "distributor/rules/stamp.h"

#include "distributor/rules/apply.h"

static bool is_service(struct str name)
{
    return str_eqc(name, "service_name");
}

/* *ret_changed: it had another value, or none. */
static int stamp_labels(struct push *p, struct labels *l, const struct labels *set,
                        bool *ret_changed, struct err *e)
{
    for (size_t i = 0; i < set->len; i++) {
        const struct label *s = &set->ptr[i];
        if (str_eq(labels_get(l, s->name), s->value))
            continue;
        *ret_changed = true;
        if (labels_set(l, p->arena, s->name, s->value, e) ||
            (is_service(s->name) && labels_get(l, STR("__service_name__")).ptr &&
             labels_set(l, p->arena, STR("__service_name__"), s->value, e)))
            return e->code == ERR_LIMIT ? push_full(p, e) : e->code;
    }
    return 0;
}

int stamp_push(struct push *p, const struct labels *set, struct err *e)
{
    bool changed = false;

    for (size_t i = 0; i < set->len; i++)
        if (push_label_hidden(set->ptr[i].name))
            return err_set(e, ERR_INPUT,
                           "the key sets the label %.*s, which no series may have; its owner must "
                           "change the key's grant",
                           STR_ARG(set->ptr[i].name));
    if (stamp_labels(p, &p->base, set, &changed, e))
        return e->code;
    for (size_t i = 0; i < p->series_len; i++)
        if (stamp_labels(p, &p->series[i].labels, set, &changed, e))
            return e->code;
    if (changed && !rules_merge(p))
        return push_full(p, e);
    return 0;
}
