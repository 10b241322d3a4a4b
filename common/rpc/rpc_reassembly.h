/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_reassembly.h: the receiving half of a framed transport: frames in, each whole message out
 * exactly once. Remembers per sender (address, epoch and link) which messages came, and keeps
 * chunks until the message is whole, within a budget and until a deadline.
 */
#ifndef COMMON_RPC_RPC_REASSEMBLY_H
#define COMMON_RPC_RPC_REASSEMBLY_H

#include "common/rpc/rpc_wire.h"

#define RPC_WINDOW           16384 /* messages of one sender that may overtake each other */
#define RPC_REASSEMBLY_MAX   4096
#define RPC_SOURCE_PARTS_MAX 256 /* messages of one sender that are not whole yet */

struct rpc_reassembly;

/* message_max: of one message; bytes_max: of all that are not whole yet. */
struct rpc_reassembly *rpc_reassembly_new(size_t message_max, size_t bytes_max);
void rpc_reassembly_free(struct rpc_reassembly *t); /* NULL is fine */
/* Takes a parsed frame. RPC_DROP_NONE and *ret NULL: more frames are needed. RPC_DROP_NONE and *ret
 * set: a whole message, the caller's. Else why the frame was dropped. */
enum rpc_drop rpc_reassembly_add(struct rpc_reassembly *t, const struct rpc_frame *f,
                                 uint64_t now_ns, struct rpc_msg **ret);
/* Forgets incomplete messages past their deadline (returns how many) and silent senders. */
size_t rpc_reassembly_tick(struct rpc_reassembly *t, uint64_t now_ns);
size_t
rpc_reassembly_bytes(const struct rpc_reassembly *t);      /* of messages that are not whole yet */
size_t rpc_reassembly_len(const struct rpc_reassembly *t); /* senders */
/* A message with everything a frame's head says. */
struct rpc_msg *rpc_msg_of_frame(const struct rpc_frame *f, uint64_t now_ns);

#endif
