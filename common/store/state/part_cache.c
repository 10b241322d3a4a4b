/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/state/part_cache.h"

#include "common/base/hash.h"
#include "common/base/mem.h"

#define PARTS 2048

struct part_cache {
    struct part at[PARTS];
};

struct part_cache *part_cache_new(void)
{
    return XNEW(struct part_cache);
}

void part_cache_free(struct part_cache *p)
{
    xfree(p);
}

struct part *part_cache_get(struct part_cache *p, const struct member *m)
{
    uint32_t id[3] = { m->tenant, m->scope, m->ptype };
    struct part *at = &p->at[hash64(id, sizeof(id), 0) % PARTS];

    if (!at->used || at->tenant != m->tenant || at->scope != m->scope || at->ptype != m->ptype)
        *at = (struct part){
            .used = true,
            .tenant = m->tenant,
            .scope = m->scope,
            .ptype = m->ptype,
        };
    return at;
}

void part_cache_clear(struct part_cache *p)
{
    for (size_t i = 0; i < PARTS; i++)
        p->at[i].used = false;
}
