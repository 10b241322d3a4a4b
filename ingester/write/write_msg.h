/* SPDX-License-Identifier: Apache-2.0
 *
 * write_msg.h: a WriteRequest (proto/ingest.proto) as the engine wants it.
 */
#ifndef INGESTER_WRITE_WRITE_MSG_H
#define INGESTER_WRITE_WRITE_MSG_H

#include "common/base/arena.h"
#include "common/store/dict/dict_known.h"
#include "common/store/store.h"

struct write_msg {
    uint32_t shard;
    uint64_t map_version; /* of the map it was placed by; 0: not said */
    struct stacks_view stacks;
    struct dict_told told;
    struct store_write write; /* points into this struct, the arena and the payload */
};

/* `told`: by RPC_WRITE_TOLD. Borrows the payload: it stays as long as *ret and the arena are used.
 * The shape is checked and the stacks are; what series say is not yet (store_write_check, which
 * store_stage begins with). ERR_INPUT names what is wrong; ERR_LIMIT if the arena is too small.
 * Any thread. */
NODISCARD int write_msg_decode(struct str payload, bool told, struct arena *a,
                               struct write_msg *ret, struct err *e);
/* Arena bytes that decode any payload of this size, short of absurdly many absurdly small parts.
 * A cap: one with ordinary parts takes about its size. */
size_t write_msg_arena_bytes(size_t payload_len);
/* The tenant of a message, without decoding it; empty where it does not begin with one. */
struct str write_msg_tenant(struct str payload);
/* Packs a WriteReply. */
void write_reply_pack(const struct store_result *r, struct buf *out);

#endif
