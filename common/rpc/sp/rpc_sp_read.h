/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_sp_read.h: frames out of a byte stream, as the scalability protocols put them there.
 *
 * Both sides first send a hello of 8 bytes: NUL "SP" NUL, the sender's kind of socket in two bytes,
 * two of zero. Then the sending side sends messages: over tcp a length of 8 bytes, big-endian, and
 * the bytes; over ipc a byte 1 before that. Source: "TCP Mapping for Scalability Protocols"
 * (sp-tcp-mapping-01, Sustrik 2014) and what nanomsg 1.1.5 sends over unix sockets.
 *
 * Memory: what came of the frame that is not whole yet, doubled at most. Thread: the loop's.
 */
#ifndef COMMON_RPC_SP_RPC_SP_READ_H
#define COMMON_RPC_SP_RPC_SP_READ_H

#include "common/base/buf.h"
#include "common/base/err.h"

#define RPC_SP_HELLO    8
#define RPC_SP_HEAD_MAX 9
enum rpc_sp_kind { RPC_SP_PUSH = 80, RPC_SP_PULL = 81 };

void rpc_sp_hello(enum rpc_sp_kind self, char ret[RPC_SP_HELLO]);
/* The bytes before a message of len bytes; returns how many. */
size_t rpc_sp_head(bool ipc, size_t len, char ret[RPC_SP_HEAD_MAX]);

struct rpc_sp_reader {
    bool ipc;
    enum rpc_sp_kind other; /* whom we want to hear */
    bool greeted;
    uint8_t head_len; /* bytes of the hello, or of a head, that came */
    char head[RPC_SP_HEAD_MAX];
    size_t want; /* bytes of the frame that is coming; 0: none is */
    struct buf part;
};
void rpc_sp_reader_init(struct rpc_sp_reader *r, bool ipc, enum rpc_sp_kind other);
void rpc_sp_reader_deinit(struct rpc_sp_reader *r);
/* Takes bytes that came. on_frame may be called many times; its bytes are borrowed; false from it
 * ends this with ERR_CANCELED. ERR_INPUT: not what we speak; after either only deinit. */
NODISCARD int rpc_sp_reader_take(struct rpc_sp_reader *r, struct str bytes,
                                 bool (*on_frame)(void *cookie, struct str frame), void *cookie,
                                 struct err *e);

#endif
