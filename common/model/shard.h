/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.h: which shard a service of a tenant lives on. Final: data on disk depends on it.
 */
#ifndef COMMON_MODEL_SHARD_H
#define COMMON_MODEL_SHARD_H

#include "common/base/hash.h"
#include "common/base/str.h"

#define SHARD_SEED UINT64_C(0x656d626572747265) /* "embertre" */

/* XXH3-64(service, seed = XXH3-64(tenant, SHARD_SEED)) mod shards. */
static inline uint32_t shard_of(struct str tenant, struct str service, uint32_t shards)
{
    uint64_t seed = hash64(tenant.ptr, tenant.len, SHARD_SEED);

    CHECK(shards > 0);
    return (uint32_t)(hash64(service.ptr, service.len, seed) % shards);
}

#endif
