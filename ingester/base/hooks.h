/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks.h: parts of the ingester that keep something by shard learn here that it is not valid any
 * more, without being known to the part that closes shards (replicas/). Thread: the loop's.
 */
#ifndef INGESTER_BASE_HOOKS_H
#define INGESTER_BASE_HOOKS_H

#include <stdint.h>

#include "common/base/list.h"

/* Registered by its owner with list_add_tail(&in->hooks, &h->link), and removed with list_del
 * before it is freed. A function may be NULL. */
struct shard_hook {
    struct list link;
    /* The shard is not served here any more: its database is closed. */
    void (*closed)(void *cookie, uint32_t shard);
    /* The coordination service has another store: numbers it gives may be lower than before. */
    void (*coord_replaced)(void *cookie);
    void *cookie;
};

static inline void hooks_closed(const struct list *hooks, uint32_t shard)
{
    list_for (i, hooks) {
        const struct shard_hook *h = container_of(i, struct shard_hook, link);

        if (h->closed)
            h->closed(h->cookie, shard);
    }
}

static inline void hooks_coord_replaced(const struct list *hooks)
{
    list_for (i, hooks) {
        const struct shard_hook *h = container_of(i, struct shard_hook, link);

        if (h->coord_replaced)
            h->coord_replaced(h->cookie);
    }
}

#endif
