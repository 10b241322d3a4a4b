/* SPDX-License-Identifier: Apache-2.0
 *
 * map_edit: copies of a map with one thing changed.
 */
#include "common/cluster/map_edit.h"

#include "common/base/mem.h"

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
        return err_set(e, ERR_CONFLICT, "node %s stands in the map just so", n->name);
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

/* Each earlier size once; the size it has now is none of them. */
static int remember(struct map_tenant *t, uint32_t shards, struct err *e)
{
    uint32_t n = 0, was = t->shards;
    bool seen = false;

    for (uint32_t i = 0; i < t->before_len; i++) {
        seen = seen || t->before[i] == was;
        if (t->before[i] != shards)
            t->before[n++] = t->before[i];
    }
    t->before_len = n;
    if (!seen) {
        if (n == MAP_BEFORE_MAX)
            return err_set(e, ERR_LIMIT,
                           "tenant %.*s had %d sizes before, all of which are still read; take one "
                           "of them again",
                           STR_ARG(t->name), MAP_BEFORE_MAX);
        t->before[t->before_len++] = was;
    }
    t->shards = shards;
    return 0;
}

int map_edit_tenant(const struct map *m, struct str tenant, uint32_t shards, const struct map **ret,
                    struct err *e)
{
    struct map_tenant *all = XNEW_ARRAY(struct map_tenant, m->tenants_len + 1);
    struct map to = *m;
    size_t i = 0;
    int code;

    if (m->tenants_len)
        memcpy(all, m->tenants, m->tenants_len * sizeof(*all));
    while (i < m->tenants_len && !str_eq(all[i].name, tenant))
        i++;
    if (i == m->tenants_len)
        all[i].name = tenant; /* all shards until now */
    if (all[i].shards == shards) {
        code = err_set(e, ERR_CONFLICT, "tenant %.*s has %u shards", STR_ARG(tenant), shards);
    } else {
        code = remember(&all[i], shards, e);
        to.tenants = all;
        to.tenants_len = MAX(m->tenants_len, i + 1);
        if (!code)
            code = finish(m, &to, ret, e);
    }
    xfree(all);
    return code;
}

int map_edit_spread(const struct map *m, struct str tenant, struct str service, uint32_t spread,
                    const struct map **ret, struct err *e)
{
    struct map_service *all = XNEW_ARRAY(struct map_service, m->services_len + 1);
    struct map to = *m;
    size_t i = 0;
    int code;

    if (m->services_len)
        memcpy(all, m->services, m->services_len * sizeof(*all));
    while (i < m->services_len && !(str_eq(all[i].tenant, tenant) && str_eq(all[i].name, service)))
        i++;
    if (i == m->services_len)
        all[i] = (struct map_service){ tenant, service, 1, 1 };
    if (all[i].spread == spread) {
        code = err_set(e, ERR_CONFLICT, "service %.*s is spread over %u shards", STR_ARG(service),
                       spread);
    } else {
        all[i].spread = spread;
        all[i].most = MAX(all[i].most, spread);
        to.services = all;
        to.services_len = MAX(m->services_len, i + 1);
        code = finish(m, &to, ret, e);
    }
    xfree(all);
    return code;
}
