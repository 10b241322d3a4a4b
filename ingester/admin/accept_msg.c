/* SPDX-License-Identifier: Apache-2.0 */
#include "ingester/admin/accept_msg.h"

#include "common/base/size.h"
#include "common/store/ledger/ledger.h"
#include "ingester/base/unpack.h"
#include "ingester/shard/shards.h"
#include "proto/ledger.pb-c.h"

size_t accept_msg_arena_bytes(size_t payload_len)
{
    return 64 * KIB + 24 * payload_len;
}

int accept_msg_decode(struct str payload, struct arena *a, struct accept_msg *ret, struct err *e)
{
    ProtobufCAllocator alloc = unpack_allocator(a);
    const Embertree__LedgerAcceptRequest *m = embertree__ledger_accept_request__unpack(
        &alloc, payload.len, (const uint8_t *)(const void *)payload.ptr);

    if (!m)
        return unpack_failed("LedgerAcceptRequest", payload, a, e);
    *ret = (struct accept_msg){ .tenant = unpack_str(m->tenant),
                                .who = unpack_str(m->who),
                                .reason = unpack_str(m->reason),
                                .shards = m->shards,
                                .shards_len = m->n_shards };
    if (!ret->tenant.len)
        return err_set(e, ERR_INPUT, "no tenant");
    if (!ret->who.len || ret->who.len > LEDGER_WHO_MAX)
        return err_set(e, ERR_INPUT, "who accepts it? 1 to %d bytes, not %zu", LEDGER_WHO_MAX,
                       ret->who.len);
    if (!ret->reason.len || ret->reason.len > LEDGER_REASON_MAX)
        return err_set(e, ERR_INPUT, "why is it accepted? 1 to %d bytes, not %zu",
                       LEDGER_REASON_MAX, ret->reason.len);
    if (ret->shards_len > SHARDS_MAX)
        return err_set(e, ERR_INPUT, "%zu shards named, an ingester has at most %d",
                       ret->shards_len, SHARDS_MAX);
    return 0;
}
