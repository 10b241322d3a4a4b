/* SPDX-License-Identifier: Apache-2.0
 *
 * node_state: what may become of a node.
 *
 * A drain that would leave fewer active nodes than there are copies is refused: it could never come
 * to its end, since no shard gives a copy up before another node has it.
 */
#include "common/cluster/view/node_state.h"

#include <stdio.h>

#include "common/base/mem.h"
#include "common/cluster/map/map_edit.h"
#include "common/cluster/view/map_change.h"

struct change {
    char name[NODE_NAME_MAX + 1];
    enum map_state state;
    node_state_fn done;
    void *cookie;
};

int node_state_edit(const struct map *m, const char *name, enum map_state state,
                    const struct map **ret, struct err *e)
{
    const struct map_node *n = map_node(m, name);
    size_t active = 0;

    *ret = NULL;
    if (!n)
        return err_set(e, ERR_NOT_FOUND, "no node of the cluster is called %.63s%s", name,
                       state == MAP_ACTIVE ? "; a node that was drained and stopped is forgotten "
                                             "until it is started again, and then still drained"
                                           : "");
    if (n->state == state || (state == MAP_DRAINING && n->state == MAP_LEFT))
        return 0;
    for (size_t i = 0; i < m->nodes_len; i++)
        active += m->nodes[i].state == MAP_ACTIVE;
    if (state == MAP_DRAINING && active - 1 < m->replicas)
        return err_set(e, ERR_CONFLICT,
                       "%u copies need as many active nodes, and without %.63s there would be %zu; "
                       "let another node join first",
                       m->replicas, name, active - 1);
    return map_edit_state(m, name, state, ret, e);
}

static int on_edit(void *cookie, const struct map *m, const struct map **ret, struct err *e)
{
    const struct change *c = cookie;

    return node_state_edit(m, c->name, c->state, ret, e);
}

static void on_done(void *cookie, const struct err *e)
{
    struct change *c = cookie;

    c->done(c->cookie, e);
    xfree(c);
}

void node_state_set(struct coord *coord, const char *prefix, const char *name, enum map_state state,
                    node_state_fn done, void *cookie)
{
    struct change *c = XNEW(struct change);

    *c = (struct change){ .state = state, .done = done, .cookie = cookie };
    (void)snprintf(c->name, sizeof(c->name), "%s", name);
    map_change(&(struct map_change_opts){
        .coord = coord, .prefix = prefix, .edit = on_edit, .done = on_done, .cookie = c });
}
