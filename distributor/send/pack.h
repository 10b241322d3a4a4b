/* SPDX-License-Identifier: Apache-2.0
 *
 * pack.h: a decoded push as the WriteRequest that goes to the ingester, and its
 * WriteReply (proto/ingest.proto).
 */
#ifndef DISTRIBUTOR_SEND_PACK_H
#define DISTRIBUTOR_SEND_PACK_H

#include "common/store/ledger/acks.h"
#include "distributor/base/window.h"
#include "distributor/send/write_id.h"

struct packing {
    struct str tenant;
    uint32_t shard;
    uint64_t map_version;
    int64_t received_ms;
    const struct push *push;
    const struct leaves *leaves;
    const struct write_secret *secret; /* the tenant's */
    const struct write_base *write_base;
    uint64_t distributor; /* ack_audit.h; 0: the acks are not audited */
    uint32_t epoch;
    struct acks *acks; /* set: of all its series */
};

/* Appends the message, with `told` if the push has its stacks by number: only while it has them
 * taken. Otherwise the same bytes each time. Scratch comes from push->arena and is given back.
 * ERR_LIMIT if the arena or out->max is too small. */
NODISCARD int pack_write(const struct packing *in, struct buf *out, struct err *e);

/* What the ingester answers (WriteReply), read off its bytes: there is one for each push. */
struct write_reply {
    uint32_t stored, duplicates; /* series */
    bool learnt;                 /* the shard has the symbol session up to this write */
};
/* ERR_INTERNAL: not a reply to a write. */
NODISCARD int pack_reply_read(struct str bytes, struct write_reply *ret, struct err *e);

#endif
