/* SPDX-License-Identifier: Apache-2.0
 *
 * map_next: pending changes of a tenant's or a service's places: recorded, changed, made a step.
 *
 * A version that was replaced never returns: a process that confirmed an announcement confirmed
 * its time, so another time is another announcement, with a version of its own.
 */
#include "common/cluster/map/map_pending.h"

#include "common/base/mem.h"
#include "common/cluster/map/map_edit.h"
#include "common/model/slot.h"

const struct map_steps *map_whose_steps(const struct map *m, const struct map_whose *w)
{
    const struct map_service *s;

    if (!w->tenant.len)
        return &m->tenant_steps;
    if (!w->service.len)
        return map_tenant_steps(m, w->tenant);
    s = map_service(m, w->tenant, w->service);
    return s ? &s->steps : NULL;
}

uint32_t map_whose_last(const struct map *m, const struct map_whose *w)
{
    const struct map_steps *s = map_whose_steps(m, w);

    return s ? map_step_at(s, INT64_MAX, map_whose_none(w)) : map_whose_none(w);
}

bool map_pending_announced(const struct map *m, struct map_whose *ret)
{
    const struct map_steps *s;

    for (size_t pos = 0; map_pending_each(m, &pos, ret);) {
        s = map_whose_steps(m, ret);
        if (s && s->next.from_ms)
            return true;
    }
    return false;
}

bool map_pending_each(const struct map *m, size_t *pos, struct map_whose *ret)
{
    size_t i;

    while ((i = (*pos)++) <= m->tenants_len + m->services_len) {
        const struct map_steps *s = &m->tenant_steps;

        *ret = (struct map_whose){ { NULL, 0 }, { NULL, 0 } };
        if (i > m->tenants_len) {
            const struct map_service *v = &m->services[i - 1 - m->tenants_len];

            *ret = (struct map_whose){ v->tenant, v->name };
            s = &v->steps;
        } else if (i > 0) {
            ret->tenant = m->tenants[i - 1].name;
            s = &m->tenants[i - 1].steps;
        }
        if (s->next.version)
            return true;
    }
    return false;
}

static bool keeps(const struct map *later, const struct map_steps *s, const struct map_whose *w)
{
    const struct map_steps *t = map_whose_steps(later, w);

    if (!s->len)
        return true;
    if (!t || t->len < s->len)
        return false;
    for (uint32_t i = 0; i < s->len; i++)
        if (t->at[i].n != s->at[i].n || (i && t->at[i].from_ms != s->at[i].from_ms))
            return false;
    return true;
}

bool map_keeps_steps(const struct map *later, const struct map *m, struct map_whose *ret)
{
    *ret = (struct map_whose){ STR_NULL, STR_NULL };
    if (!keeps(later, &m->tenant_steps, ret))
        return false;
    for (size_t i = 0; i < m->tenants_len; i++) {
        ret->tenant = m->tenants[i].name;
        if (!map_tenant(later, ret->tenant) || !keeps(later, &m->tenants[i].steps, ret))
            return false;
    }
    for (size_t i = 0; i < m->services_len; i++) {
        *ret = (struct map_whose){ m->services[i].tenant, m->services[i].name };
        if (!keeps(later, &m->services[i].steps, ret))
            return false;
    }
    return true;
}

/* ---- the next version ------------------------------------------------------------------------ */

static int put_tenant(const struct map *m, struct map *to, struct str tenant,
                      const struct map_pending *next, const struct map **ret, struct err *e)
{
    struct map_tenant *all = XNEW_ARRAY(struct map_tenant, m->tenants_len + 1);
    size_t i = 0;
    int code;

    if (m->tenants_len)
        memcpy(all, m->tenants, m->tenants_len * sizeof(*all));
    while (i < m->tenants_len && !str_eq(all[i].name, tenant))
        i++;
    if (i == m->tenants_len)
        all[i] = (struct map_tenant){ tenant, m->tenant_steps };
    all[i].steps.next = *next;
    to->tenants = all;
    to->tenants_len = MAX(m->tenants_len, i + 1);
    code = map_new(to, ret, e);
    xfree(all);
    return code;
}

static int put_service(const struct map *m, struct map *to, const struct map_whose *w,
                       const struct map_pending *next, const struct map **ret, struct err *e)
{
    struct map_service *all = XNEW_ARRAY(struct map_service, m->services_len + 1);
    size_t i = 0;
    int code;

    if (m->services_len)
        memcpy(all, m->services, m->services_len * sizeof(*all));
    while (i < m->services_len &&
           !(str_eq(all[i].tenant, w->tenant) && str_eq(all[i].name, w->service)))
        i++;
    all[i].tenant = w->tenant;
    all[i].name = w->service;
    all[i].steps.next = *next;
    to->services = all;
    to->services_len = MAX(m->services_len, i + 1);
    code = map_new(to, ret, e);
    xfree(all);
    return code;
}

static int put_in(const struct map *m, uint64_t version, const struct map_whose *w,
                  const struct map_pending *next, const struct map **ret, struct err *e)
{
    struct map to = *m;

    to.version = version;
    if (w->service.len)
        return put_service(m, &to, w, next, ret, e);
    if (w->tenant.len)
        return put_tenant(m, &to, w->tenant, next, ret, e);
    to.tenant_steps.next = *next;
    return map_new(&to, ret, e);
}

static int put(const struct map *m, const struct map_whose *w, const struct map_pending *next,
               const struct map **ret, struct err *e)
{
    return put_in(m, m->version + 1, w, next, ret, e);
}

/* The pending change of just this one: a tenant that is not named has none of its own. */
static struct map_pending next_of(const struct map *m, const struct map_whose *w)
{
    const struct map_steps *s = map_whose_steps(m, w);
    bool own = s && (w->service.len || !w->tenant.len || map_tenant(m, w->tenant));

    return own ? s->next : (struct map_pending){ .version = 0 };
}

int map_pending_request(const struct map *m, const struct map_whose *w, uint32_t n,
                        const struct map **ret, struct err *e)
{
    const struct map_steps *s = map_whose_steps(m, w);
    struct map_pending had = next_of(m, w), next = { .version = m->version + 1, .n = n };

    if (had.version && had.n == n)
        return err_set(e, ERR_CONFLICT, "%u shards are wanted already", n);
    if (map_whose_last(m, w) == n) {
        if (!had.version)
            return err_set(e, ERR_CONFLICT, "it is %u shards already", n);
        next.version = 0;
        next.n = 0;
    } else if (s && s->len == MAP_STEPS_MAX) {
        return err_set(e, ERR_LIMIT, "it has changed %u times, all of which are still read",
                       s->len - 1);
    }
    return put(m, w, &next, ret, e);
}

static int nothing_wanted(struct err *e)
{
    return err_set(e, ERR_NOT_FOUND, "no change of its places is wanted");
}

int map_pending_announce(const struct map *m, const struct map_whose *w, int64_t from_ms,
                         struct str by, const struct map **ret, struct err *e)
{
    const struct map_steps *s = map_whose_steps(m, w);
    struct map_pending next = next_of(m, w);
    int64_t into = (from_ms - SLOT_EPOCH_MS) % LEAF_MS;

    if (!next.version)
        return nothing_wanted(e);
    from_ms += into > 0 ? LEAF_MS - into : 0;
    if (s->len)
        from_ms = MAX(from_ms, s->at[s->len - 1].from_ms + LEAF_MS);
    next.version = m->version + 1;
    next.from_ms = MAX(from_ms, INT64_C(1));
    next.by = by;
    return put(m, w, &next, ret, e);
}

int map_pending_retreat(const struct map *m, const struct map_whose *w, const struct map **ret,
                        struct err *e)
{
    struct map_pending next = next_of(m, w);

    if (!next.version)
        return nothing_wanted(e);
    next.version = m->version + 1;
    next.from_ms = 0;
    next.by = STR_NULL;
    return put(m, w, &next, ret, e);
}

int map_pending_ignore(const struct map *m, const struct map_whose *w, const struct map **ret,
                       struct err *e)
{
    struct map_pending next = next_of(m, w);

    if (!next.version || !next.from_ms)
        return nothing_wanted(e);
    next.from_ms = 0;
    return put_in(m, m->version, w, &next, ret, e);
}

int map_pending_commit(const struct map *m, const struct map_whose *w, const struct map **ret,
                       struct err *e)
{
    struct map_pending next = next_of(m, w);

    if (!next.version || !next.from_ms)
        return nothing_wanted(e);
    if (w->service.len)
        return map_edit_spread(m, w, next.n, next.from_ms, ret, e);
    if (w->tenant.len)
        return map_edit_tenant(m, w->tenant, next.n, next.from_ms, ret, e);
    return map_edit_tenants(m, next.n, next.from_ms, ret, e);
}
