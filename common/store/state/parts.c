/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/state/parts.h"

#include "common/base/hash.h"
#include "common/base/mem.h"

#define PARTS 2048

struct parts {
    struct part at[PARTS];
};

struct parts *parts_new(void)
{
    return XNEW(struct parts);
}

void parts_free(struct parts *p)
{
    xfree(p);
}

struct part *parts_get(struct parts *p, const struct member *m)
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

void parts_clear(struct parts *p)
{
    for (size_t i = 0; i < PARTS; i++)
        p->at[i].used = false;
}
