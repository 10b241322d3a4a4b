/* SPDX-License-Identifier: Apache-2.0
 *
 * dict_cap: counters of a day. Of the tenant's cap the last SPARE is only for services that are
 * small: without it one noisy service would take the names of every other one, a new one's first
 * of all.
 */
#include "common/store/dict/dict_cap.h"

#define DAY_MS INT64_C(86400000)
/* Parts of the tenant's cap. */
#define SPARE(cap) ((cap) / 4)
#define SMALL(cap) (((cap) + 99) / 100)

void dict_cap_init(struct dict_cap *c, const struct dict_cap_opts *o)
{
    *c = (struct dict_cap){ .o = *o, .day = -1 };
    map_u64_init(&c->at);
}

void dict_cap_deinit(struct dict_cap *c)
{
    map_u64_deinit(&c->at);
    vec_free(&c->used);
}

static uint64_t *used(struct dict_cap *c, uint32_t tenant, uint64_t scope)
{
    uint32_t i = map_u64_put(&c->at, (uint64_t)tenant << 32 | scope, (uint32_t)c->used.len);

    if (i == MAP_U64_EMPTY) {
        i = (uint32_t)c->used.len;
        vec_push(&c->used, 0);
    }
    return &c->used.ptr[i];
}

static uint64_t left(uint64_t cap, uint64_t used_today)
{
    return cap - MIN(cap, used_today);
}

static uint64_t tenant_left(uint64_t cap, uint64_t of_tenant, uint64_t of_service)
{
    uint64_t common = left(cap - SPARE(cap), of_tenant);
    uint64_t small = MIN(left(SMALL(cap), of_service), left(cap, of_tenant));

    return MAX(common, small);
}

uint32_t dict_cap_left(struct dict_cap *c, uint32_t tenant, uint32_t scope, int64_t engine_ms)
{
    if (engine_ms / DAY_MS != c->day) {
        c->day = engine_ms / DAY_MS;
        map_u64_reset(&c->at);
        c->used.len = 0;
    }
    uint64_t of_service = *used(c, tenant, (uint64_t)scope + 1), n = UINT32_MAX;
    if (c->o.service_nodes)
        n = MIN(n, left(c->o.service_nodes, of_service));
    if (c->o.tenant_nodes)
        n = MIN(n, tenant_left(c->o.tenant_nodes, *used(c, tenant, 0), of_service));
    return (uint32_t)n;
}

void dict_cap_take(struct dict_cap *c, uint32_t tenant, uint32_t scope, uint64_t nodes)
{
    *used(c, tenant, 0) += nodes;
    *used(c, tenant, (uint64_t)scope + 1) += nodes;
}

void dict_cap_again(struct dict_cap *c, uint32_t tenant, uint32_t scope)
{
    *used(c, tenant, (uint64_t)scope + 1) = 0;
}
