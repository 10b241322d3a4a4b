/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_pack.h: zstd for the bodies of messages, on the pool when they are large.
 */
#ifndef COMMON_RPC_RPC_PACK_H
#define COMMON_RPC_RPC_PACK_H

#include "common/rpc/rpc_wire.h"

#define RPC_PACK_LEAST  KIB        /* smaller bodies are not compressed */
#define RPC_PACK_INLINE (32 * KIB) /* up to here the loop does it itself */

struct rpc_pack;
/* `tag` is what rpc_pack_out was given. ok false: the bytes are not zstd of this size, or the
 * message was canceled meanwhile. The message is moved. Called inside rpc_pack_in / _out, or later
 * on the loop. */
typedef void (*rpc_pack_fn)(void *cookie, void *tag, struct rpc_msg *m, bool ok);

/* pool may be NULL: everything at once. */
struct rpc_pack *rpc_pack_new(struct loop *loop, struct pool *pool, rpc_pack_fn done, void *cookie);
void rpc_pack_free(struct rpc_pack *p); /* what runs is dropped when it ends; NULL is fine */
/* Compresses the body if that saves an eighth. tag is not NULL. Moves m. */
void rpc_pack_out(struct rpc_pack *p, struct rpc_msg *m, void *tag);
/* Decompresses the body if it is compressed. Moves m. */
void rpc_pack_in(struct rpc_pack *p, struct rpc_msg *m);
size_t rpc_pack_running(const struct rpc_pack *p);
/* The tag goes away: its messages are freed, done is not called for them. */
void rpc_pack_forget(struct rpc_pack *p, void *tag);
/* Requests of this id end with ok false. */
void rpc_pack_forget_id(struct rpc_pack *p, void *tag, uint64_t id);

#endif
