/* SPDX-License-Identifier: Apache-2.0
 *
 * place_step: the next step of one shard towards its wanted places.
 *
 *   a node without the shard ──learn──> learner ──grow──> member ──(lead elsewhere), remove──> none
 *
 * Each step is one record that record_may_follow allows, and none begins before the previous one is
 * established.
 */
#include "common/cluster/place/place.h"

/* ---- the next step --------------------------------------------------------------------------- */

static bool both(const struct place_facts *f, const char *name)
{
    return name_set_has(&f->live, name) && name_set_has(&f->synced, name);
}

/* A member that can lead when `name` is removed: of the wanted ones first, in their order. */
static const char *other_leader(const struct repl_record *now, const struct name_set *wanted,
                                const struct place_facts *f, const char *name)
{
    for (uint32_t i = 0; i < wanted->len; i++)
        if (strcmp(wanted->names[i], name) != 0 && name_set_has(&now->members, wanted->names[i]) &&
            both(f, wanted->names[i]))
            return wanted->names[i];
    for (uint32_t i = 0; i < now->members.len; i++)
        if (strcmp(now->members.names[i], name) != 0 && both(f, now->members.names[i]))
            return now->members.names[i];
    return NULL;
}

/* Sets the learners: wanted nodes that live and are not members yet. */
static bool step_learn(const struct repl_record *now, const struct name_set *wanted,
                       const struct place_facts *f, struct place_step *ret)
{
    struct name_set want = { .len = 0 };

    for (uint32_t i = 0; i < wanted->len; i++) {
        const char *name = wanted->names[i];

        if (!name_set_has(&now->members, name) &&
            (name_set_has(&f->live, name) || name_set_has(&now->learners, name)))
            (void)name_set_add(&want, name);
    }
    if (name_set_eq(&want, &now->learners))
        return false;
    ret->kind = PLACE_LEARN;
    ret->to = *now;
    ret->to.learners = want;
    ret->name = want.len ? wanted->names[0] : now->leader;
    for (uint32_t i = 0; i < wanted->len; i++)
        if (name_set_has(&want, wanted->names[i]) &&
            !name_set_has(&now->learners, wanted->names[i]))
            ret->name = wanted->names[i];
    return true;
}

static bool step_member(const struct repl_record *now, const struct name_set *wanted,
                        const struct place_facts *f, struct place_step *ret)
{
    struct err e;

    /* One more than wanted at a time: a majority of many needs many. */
    if (now->members.len > wanted->len)
        return false;
    for (uint32_t i = 0; i < wanted->len; i++) {
        const char *name = wanted->names[i];

        if (!name_set_has(&now->learners, name) || !both(f, name))
            continue;
        if (record_next_add(now, name, &ret->to, &e))
            return false;
        ret->kind = PLACE_MEMBER;
        ret->name = name;
        return true;
    }
    return false;
}

static uint32_t living_copies(const struct repl_record *now, const struct place_facts *f)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < now->members.len; i++)
        n += name_set_has(&f->live, now->members.names[i]) &&
             !name_set_has(&f->lost, now->members.names[i]);
    return n;
}

static const char *long_dead(const struct repl_record *now, const struct place_facts *f)
{
    for (uint32_t i = 0; i < now->members.len; i++)
        if (name_set_has(&f->gone, now->members.names[i]) &&
            !name_set_has(&f->live, now->members.names[i]))
            return now->members.names[i];
    return NULL;
}

/* Returns the member to remove next, or NULL. The order is: a member that lost its log, a dead
 * member, a living member, and the leader last. A living copy is removed only if `replicas` other
 * members live. Otherwise a member that has been dead for long is removed although it is wanted,
 * since the controller counts dead nodes only when too few live. If no member has been dead for
 * long, nothing is removed until a node joins. */
static const char *to_remove(const struct repl_record *now, const struct name_set *wanted,
                             const struct place_facts *f)
{
    const char *found = NULL;

    for (uint32_t i = 0; i < now->members.len; i++)
        if (name_set_has(&f->lost, now->members.names[i]))
            return now->members.names[i];
    for (uint32_t i = 0; i < now->members.len; i++) {
        const char *name = now->members.names[i];

        if (name_set_has(wanted, name))
            continue;
        if (!name_set_has(&f->live, name))
            return name;
        if (!found || strcmp(found, now->leader) == 0)
            found = name;
    }
    return found && living_copies(now, f) <= f->replicas ? long_dead(now, f) : found;
}

static bool step_remove(const struct repl_record *now, const struct name_set *wanted,
                        const struct place_facts *f, struct place_step *ret)
{
    const char *name = to_remove(now, wanted, f), *leader = now->leader;
    uint32_t able = 0;
    struct err e;

    /* A member without its log is not a copy: its removal leaves as many copies. */
    if (!name ||
        (now->members.len <= MAX(wanted->len, f->replicas) && !name_set_has(&f->lost, name)))
        return false;
    /* A majority of the remaining members must live and have the log. */
    for (uint32_t i = 0; i < now->members.len; i++)
        able += strcmp(now->members.names[i], name) != 0 && both(f, now->members.names[i]);
    if (able <= (now->members.len - 1) / 2)
        return false;
    if (strcmp(name, leader) == 0)
        leader = other_leader(now, wanted, f, name);
    if (!leader || record_next_remove(now, name, leader, &ret->to, &e))
        return false;
    ret->kind = PLACE_REMOVE;
    ret->name = name;
    return true;
}

static bool step_lead(const struct repl_record *now, const struct name_set *wanted,
                      const struct place_facts *f, struct place_step *ret)
{
    const char *name = wanted->len ? wanted->names[0] : now->leader;

    if (strcmp(name, now->leader) == 0 || !name_set_has(&now->members, name) || !both(f, name) ||
        name_set_has(&f->full, name))
        return false;
    record_next_leader(now, name, &ret->to);
    ret->kind = PLACE_LEAD;
    ret->name = name;
    return true;
}

void place_next(const struct repl_record *now, const struct name_set *wanted,
                const struct place_facts *facts, struct place_step *ret)
{
    ret->kind = PLACE_NOTHING;
    ret->name = NULL;
    if (!now->established)
        return;
    if (step_remove(now, wanted, facts, ret) || step_member(now, wanted, facts, ret) ||
        step_learn(now, wanted, facts, ret))
        return;
    /* Leaders move back only when all else is done: every move costs a moment. */
    if (name_set_eq(&now->members, wanted))
        (void)step_lead(now, wanted, facts, ret);
}
