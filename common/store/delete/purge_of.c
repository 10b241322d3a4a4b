/* SPDX-License-Identifier: Apache-2.0
 *
 * purge_of: which groups a deleted series was in, by the rules that held at a time. Read once for
 * each series of a mask.
 */
#include "common/store/delete/purge.h"
#include "common/store/state/store_impl.h"

void fix_rule(const struct fix *f, size_t i, uint32_t *ret_from, uint32_t *ret_to)
{
    *ret_from = f->begins.ptr[i];
    *ret_to = UINT32_MAX;
    /* Of the rules that have begun the last holds; a later one may begin earlier, after deletes. */
    for (size_t j = i + 1; j < f->begins.len; j++)
        *ret_to = MIN(*ret_to, f->begins.ptr[j]);
    *ret_to = MAX(*ret_to, *ret_from);
}

uint64_t fix_group_by(const struct group_of *of, size_t n, uint32_t rule)
{
    for (size_t i = 0; i < n; i++)
        if (of[i].rule == rule)
            return GID(GROUP_BASE, of[i].ordinal);
    return 0;
}

static int load_of(struct fix *f, uint32_t index, struct err *e)
{
    struct group_of at[GROUP_RULES_MAX];
    struct fix_of *of = &f->of.ptr[index];
    struct key k;
    size_t n = 0;

    key_group_of(&k, f->x->t->tenant, f->m->scope, f->m->series[index]);
    int rc = kv_get(f->x->s->kv, NULL, KV_META, key_str(&k), &f->row, e);
    if (!rc)
        rc = group_of_read(buf_str(&f->row), at, &n, e);
    if (rc && rc != ERR_NOT_FOUND)
        return rc;
    *of = (struct fix_of){ true, (uint32_t)f->groups.len, (uint32_t)n };
    for (size_t i = 0; i < n; i++)
        vec_push(&f->groups, at[i]);
    return 0;
}

int fix_groups(struct fix *f, uint32_t index, uint32_t from, uint32_t to, struct fix_gids *ret,
               struct err *e)
{
    const struct fix_of *of = &f->of.ptr[index];
    uint32_t begin, end;

    ret->len = 0;
    if (!of->known && load_of(f, index, e))
        return e->code;
    for (size_t i = 0; i < f->begins.len; i++) {
        fix_rule(f, i, &begin, &end);
        if (begin >= end || begin >= to || end <= from)
            continue;
        uint64_t gid = fix_group_by(f->groups.ptr + of->first, of->len, (uint32_t)i + 1);
        if (gid)
            ret->at[ret->len++] = gid;
    }
    return 0;
}
