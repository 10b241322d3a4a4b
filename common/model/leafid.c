/* SPDX-License-Identifier: Apache-2.0 */
#include "common/model/leafid.h"

#include "common/base/hash.h"
#include "common/base/wr.h"
#include "common/model/slot.h"

#define TAG_SEED    UINT64_C(0x6c6561662d746167)
#define SERIES_SEED UINT64_C(0x6c6561662d736572)
#define BYTES       16

static uint32_t tag_of(const char *series_and_slot)
{
    return (uint32_t)hash64(series_and_slot, 12, TAG_SEED) | 1;
}

uint64_t leafid_service(struct str tenant, struct str service)
{
    return hash64(service.ptr, service.len, hash64(tenant.ptr, tenant.len, SERIES_SEED));
}

uint64_t leafid_series(uint64_t service, struct str labels)
{
    return hash64(labels.ptr, labels.len, service);
}

void leafid_make(uint64_t series, uint32_t slot, struct exid *ret)
{
    char b[BYTES];

    CHECK(slot % LEAF_SLOTS == 0);
    put_u64be(b, series);
    put_u32be(b + 8, slot);
    put_u32be(b + 12, tag_of(b));
    CHECK(exid_bytes(str_n(b, sizeof(b)), ret));
}

bool leafid_read(struct str packed, uint64_t *ret_series, uint32_t *ret_slot)
{
    const char *b = packed.ptr + 1;

    if (packed.len != 1 + BYTES || (uint8_t)packed.ptr[0] != (EXID_HEX | BYTES) ||
        get_u32be(b + 12) != tag_of(b) || get_u32be(b + 8) % LEAF_SLOTS)
        return false;
    *ret_series = get_u64be(b);
    *ret_slot = get_u32be(b + 8);
    return true;
}
