/* SPDX-License-Identifier: Apache-2.0
 *
 * controller_seen: what nodes tell of their replicas, by name of the node.
 */
#include <stdio.h>

#include "common/cluster/controller_impl.h"

#define ARENA_MAX (64 * MIB)
#define KNOWN_MAX (4 * MAP_NODES_MAX)

struct known *controller_known(struct controller *c, const char *name)
{
    struct known *k = map_str_get(c->known, str_c(name));

    if (k || map_str_len(c->known) >= KNOWN_MAX)
        return k;
    k = XNEW(struct known);
    (void)snprintf(k->name, sizeof(k->name), "%s", name);
    (void)map_str_put(c->known, str_c(k->name), k);
    return k;
}

struct known *controller_known_next(const struct controller *c, size_t *pos)
{
    struct str name;
    void *k;

    return map_str_next(c->known, pos, &name, &k) ? k : NULL;
}

void controller_forget(struct known *k)
{
    arena_free(k->arena);
    k->arena = NULL;
    k->progress = (struct progress){ 0 };
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
    struct known *k = controller_known(c, name);
    if (!k)
        return;
    controller_forget(k);
    if (kv->deleted)
        return;
    k->arena = arena_new(ARENA_MAX);
    if (progress_parse(kv->value, k->arena, &k->progress, &e)) {
        controller_say(c, "%s says something unreadable: %s", name, e.text);
        controller_forget(k);
    }
}

void controller_on_states(void *cookie, const struct coord_kv *kvs, size_t n, int64_t rev)
{
    struct controller *c = cookie;

    struct known *k;

    (void)rev;
    for (size_t pos = 0; (k = controller_known_next(c, &pos));)
        controller_forget(k);
    for (size_t i = 0; i < n; i++)
        controller_on_state(c, &kvs[i]);
}

const struct progress_shard *controller_progress(const struct controller *c, const char *name,
                                                 uint32_t shard)
{
    const struct known *k = map_str_get(c->known, str_c(name));

    for (size_t i = 0; k && i < k->progress.shards_len; i++)
        if (k->progress.shards[i].shard == shard)
            return &k->progress.shards[i];
    return NULL;
}

void controller_forget_all(struct controller *c)
{
    struct known *k;

    for (size_t pos = 0; (k = controller_known_next(c, &pos));) {
        controller_forget(k);
        xfree(k);
    }
    map_str_free(c->known);
    c->known = map_str_new();
}
