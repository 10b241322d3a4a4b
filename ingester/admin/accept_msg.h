/* SPDX-License-Identifier: Apache-2.0
 *
 * accept_msg.h: the request of RPC_LEDGER_ACCEPT, checked.
 */
#ifndef INGESTER_ADMIN_ACCEPT_MSG_H
#define INGESTER_ADMIN_ACCEPT_MSG_H

#include "common/base/arena.h"
#include "common/base/err.h"

struct accept_msg {
    struct str tenant, who, reason;
    const uint32_t *shards; /* none: all */
    size_t shards_len;
};
/* An arena that is large enough for any payload of that length. */
size_t accept_msg_arena_bytes(size_t payload_len);
/* In the arena. ERR_INPUT names what is wrong. Any thread. */
NODISCARD int accept_msg_decode(struct str payload, struct arena *a, struct accept_msg *ret,
                                struct err *e);

#endif
