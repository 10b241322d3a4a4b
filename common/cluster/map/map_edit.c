/* SPDX-License-Identifier: Apache-2.0
 *
 * map_edit: copies of a map with one thing changed.
 *
 * A function that changes an array edits a copy of it, and has map_new check and copy
 * the whole map. A mistake is therefore an error of map_new and never a map with half a change.
 * The version is raised in one place, finish().
 */
#include "common/cluster/map/map_edit.h"

#include "common/base/mem.h"
#include "common/model/slot.h"

static int finish(const struct map *m, struct map *to, const struct map **ret, struct err *e)
{
    to->version = m->version + 1;
    return map_new(to, ret, e);
}

/* A copy of the nodes with room for one more. */
static struct map_node *copy_nodes(const struct map *m)
{
    struct map_node *all = XNEW_ARRAY(struct map_node, m->nodes_len + 1);

    if (m->nodes_len)
        memcpy(all, m->nodes, m->nodes_len * sizeof(*all));
    return all;
}

static size_t find(const struct map *m, const char *name)
{
    size_t i = 0;

    while (i < m->nodes_len && strcmp(m->nodes[i].name, name) != 0)
        i++;
    return i;
}

int map_edit_node(const struct map *m, const struct map_node *n, const struct map **ret,
                  struct err *e)
{
    size_t i = find(m, n->name);
    struct map to = *m;
    struct map_node *all;
    int code;

    if (i < m->nodes_len && strcmp(m->nodes[i].addr, n->addr) == 0 &&
        strcmp(m->nodes[i].zone, n->zone) == 0)
        return err_set(e, ERR_CONFLICT, "node %s is in the map with the same address and zone",
                       n->name);
    all = copy_nodes(m);
    enum map_state state = i < m->nodes_len ? all[i].state : n->state;
    all[i] = *n;
    all[i].state = state;
    to.nodes = all;
    to.nodes_len = MAX(m->nodes_len, i + 1);
    code = finish(m, &to, ret, e);
    xfree(all);
    return code;
}

int map_edit_state(const struct map *m, const char *name, enum map_state state,
                   const struct map **ret, struct err *e)
{
    size_t i = find(m, name);
    struct map to = *m;
    struct map_node *all;
    int code;

    if (i == m->nodes_len)
        return err_set(e, ERR_NOT_FOUND, "no node of the map is called %s", name);
    if (m->nodes[i].state == state)
        return err_set(e, ERR_CONFLICT, "node %s has that state", name);
    all = copy_nodes(m);
    all[i].state = state;
    to.nodes = all;
    code = finish(m, &to, ret, e);
    xfree(all);
    return code;
}

int map_edit_remove(const struct map *m, const char *name, const struct map **ret, struct err *e)
{
    size_t i = find(m, name);
    struct map to = *m;
    struct map_node *all;
    int code;

    if (i == m->nodes_len)
        return err_set(e, ERR_NOT_FOUND, "no node of the map is called %s", name);
    all = copy_nodes(m);
    memmove(all + i, all + i + 1, (m->nodes_len - i - 1) * sizeof(*all));
    to.nodes = all;
    to.nodes_len--;
    code = finish(m, &to, ret, e);
    xfree(all);
    return code;
}

/* An earlier step that is not valid yet stays in the list: a process may act by it and learn too
 * late of its end. The new step begins behind it. */
static int add_step(struct map_steps *s, uint32_t first, uint32_t n, int64_t from_ms,
                    uint64_t version, struct err *e)
{
    int64_t into = (from_ms - SLOT_EPOCH_MS) % LEAF_MS;

    if (!s->len)
        s->at[s->len++] = (struct map_step){ .n = first };
    if (s->at[s->len - 1].n == n)
        return err_set(e, ERR_CONFLICT, "it is %u shards already", n);
    if (s->len == MAP_STEPS_MAX)
        return err_set(e, ERR_LIMIT, "it has changed %u times, all of which are still read",
                       s->len - 1);
    from_ms += into ? LEAF_MS - into : 0;
    s->at[s->len] =
        (struct map_step){ MAX(from_ms, s->at[s->len - 1].from_ms + LEAF_MS), version, n };
    s->len++;
    s->next = (struct map_pending){ .version = 0 };
    return 0;
}

int map_edit_tenant(const struct map *m, struct str tenant, uint32_t shards, int64_t from_ms,
                    const struct map **ret, struct err *e)
{
    struct map_tenant *all = XNEW_ARRAY(struct map_tenant, m->tenants_len + 1);
    struct map to = *m;
    size_t i = 0;
    int code;

    if (m->tenants_len)
        memcpy(all, m->tenants, m->tenants_len * sizeof(*all));
    while (i < m->tenants_len && !str_eq(all[i].name, tenant))
        i++;
    if (i == m->tenants_len) {
        all[i] = (struct map_tenant){ tenant, m->tenant_steps };
        all[i].steps.next = (struct map_pending){ .version = 0 };
    }
    code = add_step(&all[i].steps, 0, shards, from_ms, m->version + 1, e);
    to.tenants = all;
    to.tenants_len = MAX(m->tenants_len, i + 1);
    code =
        code ? err_wrap(e, "tenant %.*s", STR_ARG(str_sub(tenant, 0, 64))) : finish(m, &to, ret, e);
    xfree(all);
    return code;
}

int map_edit_spread(const struct map *m, const struct map_whose *w, uint32_t spread,
                    int64_t from_ms, const struct map **ret, struct err *e)
{
    struct map_service *all = XNEW_ARRAY(struct map_service, m->services_len + 1);
    struct map to = *m;
    size_t i = 0;
    int code;

    if (m->services_len)
        memcpy(all, m->services, m->services_len * sizeof(*all));
    while (i < m->services_len &&
           !(str_eq(all[i].tenant, w->tenant) && str_eq(all[i].name, w->service)))
        i++;
    all[i].tenant = w->tenant;
    all[i].name = w->service;
    code = add_step(&all[i].steps, 1, spread, from_ms, m->version + 1, e);
    to.services = all;
    to.services_len = MAX(m->services_len, i + 1);
    code = code ? err_wrap(e, "service %.*s", STR_ARG(str_sub(w->service, 0, 64)))
                : finish(m, &to, ret, e);
    xfree(all);
    return code;
}

int map_edit_tenants(const struct map *m, uint32_t shards, int64_t from_ms, const struct map **ret,
                     struct err *e)
{
    struct map to = *m;
    int code = add_step(&to.tenant_steps, 0, shards, from_ms, m->version + 1, e);

    return code ? err_wrap(e, "tenants") : finish(m, &to, ret, e);
}

int map_edit_moves(const struct map *m, uint32_t moves, const struct map **ret, struct err *e)
{
    struct map to = *m;

    if (m->moves == moves)
        return err_set(e, ERR_CONFLICT, "%u shards may be on their way at once already", moves);
    to.moves = moves;
    return finish(m, &to, ret, e);
}
