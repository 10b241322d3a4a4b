/* SPDX-License-Identifier: Apache-2.0 */
#include "common/store/dict_cap.h"

#define DAY_MS INT64_C(86400000)

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

static uint32_t left(uint64_t cap, uint64_t used_today)
{
    return !cap ? UINT32_MAX : (uint32_t)MIN(cap - MIN(cap, used_today), UINT32_MAX);
}

uint32_t dict_cap_left(struct dict_cap *c, uint32_t tenant, uint32_t scope, int64_t engine_ms)
{
    if (engine_ms / DAY_MS != c->day) {
        c->day = engine_ms / DAY_MS;
        map_u64_reset(&c->at);
        c->used.len = 0;
    }
    uint32_t of_tenant = left(c->o.tenant_nodes, *used(c, tenant, 0));
    uint32_t of_service = left(c->o.service_nodes, *used(c, tenant, (uint64_t)scope + 1));
    return MIN(of_tenant, of_service);
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
