/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_seen: the last reports of all nodes on their replicas, by name of the node.
 */
#include <stdio.h>

#include "common/cluster/control/controller_impl.h"

#define KNOWN_MAX (4 * MAP_NODES_MAX)

struct known_node *controller_known(struct controller *c, const char *name)
{
    struct known_node *k = map_str_get(c->known, str_c(name));

    if (k || map_str_len(c->known) >= KNOWN_MAX)
        return k;
    k = XNEW(struct known_node);
    (void)snprintf(k->name, sizeof(k->name), "%s", name);
    (void)map_str_put(c->known, str_c(k->name), k);
    return k;
}

void controller_on_state(void *cookie, const struct coord_kv *kv)
{
    struct controller *c = cookie;
    char name[NODE_NAME_MAX + 1] = { 0 };
    struct str node;
    uint32_t shard;
    struct err e;

    if (key_parse(str_c(c->prefix), kv->key, &shard, &node) != KEY_STATE)
        return;
    memcpy(name, node.ptr, node.len);
    if (kv->deleted)
        reports_forget(c->reports, name);
    else if (reports_take(c->reports, name, kv->value, &e))
        controller_say(c, "%s says something unreadable: %s", name, e.text);
}

void controller_on_states(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct controller *c = cookie;

    (void)rev;
    reports_clear(c->reports);
    for (size_t i = 0; i < n; i++)
        controller_on_state(c, &kvs[i]);
}

void controller_forget_all(struct controller *c)
{
    struct str name;
    void *k;

    for (size_t pos = 0; map_str_next(c->known, &pos, &name, &k);)
        xfree(k);
    map_str_free(c->known);
    c->known = map_str_new();
    reports_clear(c->reports);
}
