/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_seal.h: the bytes of a sealed frame. With a cluster key each frame of rpc_frame.h (its crc32c
 * left 0: the tag is stronger) is encrypted whole and travels in an envelope. Integers are little
 * endian.
 *
 *   offset size field
 *      0    4   magic 45 4d 42 53 ("EMBS")
 *      4    1   version      of this envelope: 1
 *      5    1   class        1 greeting (ping, pong), 2 bound (everything else)
 *      6    1   lane         of the frame: 0 control, 1 bulk
 *      7    1   zero
 *      8    8   key          mark of the cluster key: HKDF(key, no salt, "embertree rpc mark 1")
 *     16   16   salt         random: of this frame (greeting), of this run of frames (bound)
 *     32    8   epoch        of the sending node, as in the frame
 *     40    8   ticket       pong: the ticket it gives away; bound: the one it uses; ping: 0
 *     48    8   counter      bound: number of the frame in its run and lane, from 1; greeting: 0
 *     56    4   length       of the frame = all bytes - 80
 *     60    4   zero
 *     64    n   the frame, encrypted by AES-256-GCM
 *     64+n 16   tag; also authenticated: bytes 0 to 63
 *
 * Key of a frame: HKDF-SHA256(cluster key, salt, info), 32 bytes, where info is
 *   greeting  "embertree rpc greeting 1", epoch
 *   bound     "embertree rpc bound 1", epoch, epoch of the receiver, ticket,
 *             length (2 bytes) and bytes of the sender's address, the same of the receiver's
 * Nonce: lane (1 byte), three zero bytes, counter. So a nonce comes twice under one key only if a
 * salt does: 16 random bytes, new for every greeting and for every run. A run ends after 2^32 - 1
 * frames of a lane, with the process, with the peer's process, and with the key.
 *
 * Example: a ping of epoch 2 from ipc:///a as in rpc_frame.h (its left_ms 0), salt 10 11 .. 1f,
 * body 01 .. 08, under the key 00 01 .. 1f: 64 + 100 + 16 bytes (checked by test_rpc_seal.c),
 *   45 4d 42 53 01 01 00 00 92 21 e3 b0 4f a9 b2 3e 10 11 12 13 14 15 16 17
 *   18 19 1a 1b 1c 1d 1e 1f 02 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00
 *   00 00 00 00 00 00 00 00 64 00 00 00 00 00 00 00 d9 43 ec 3a ce 93 e3 be
 *   d5 87 9e 31 3e be 9f 09 03 75 85 e5 a7 cd d1 8a a4 5a b4 46 87 1e db c0
 *   5c 24 a7 72 ca d3 2e 4e 6f bf e7 e6 3b 8c fe bc 64 40 9d 2d a4 c9 f5 53
 *   5e ec 3c 43 44 93 c6 50 6f a3 a5 44 31 d7 b8 03 a7 22 61 55 e2 d0 c5 ee
 *   5c 88 e4 b5 93 68 38 a3 80 c8 30 aa 43 6d 05 f9 cb bb 64 05 25 39 4c b5
 *   19 69 c1 d9 25 2f be 4d 68 c3 07 95
 *
 * Versions: a later envelope has another version byte; greetings stay in this one, like pings in
 * version 1 of rpc_frame.h, so that two builds learn what the other one reads.
 */
#ifndef COMMON_RPC_RPC_SEAL_H
#define COMMON_RPC_RPC_SEAL_H

#include "common/rpc/rpc_crypto.h"
#include "common/rpc/rpc_frame.h"
#include "common/rpc/rpc_keys.h"

#define RPC_SEAL_VERSION      1
#define RPC_SEAL_HEAD         64
#define RPC_SEAL_MORE         (RPC_SEAL_HEAD + RPC_TAG_BYTES) /* bytes a frame grows by */
#define RPC_SEAL_SALT         16
#define RPC_SEAL_GREETING_MAX 512 /* bytes, envelope and all */

enum rpc_seal_class { RPC_SEAL_GREETING = 1, RPC_SEAL_BOUND = 2 };

struct rpc_seal {
    uint8_t cls, lane; /* enum rpc_seal_class, enum rpc_lane */
    uint8_t key[RPC_KEY_MARK];
    uint8_t salt[RPC_SEAL_SALT];
    uint64_t epoch, ticket, counter;
    uint32_t length;
};

/* True if it begins like one. */
bool rpc_seal_is(struct str in);
/* Writes the envelope's head. */
void rpc_seal_put(const struct rpc_seal *s, uint8_t out[RPC_SEAL_HEAD]);
/* Reads it. Nothing in it is true until the tag says so; lengths are exact. Any bytes are safe. */
enum rpc_drop rpc_seal_parse(struct str in, struct rpc_seal *ret);
void rpc_seal_nonce(const struct rpc_seal *s, uint8_t ret[RPC_NONCE_BYTES]);
/* Key of greetings with this salt and epoch. */
void rpc_seal_greeting_key(const uint8_t secret[RPC_KEY_BYTES], const struct rpc_seal *s,
                           uint8_t ret[RPC_KEY_BYTES]);
/* Key of a run: salt, epoch, ticket of s. */
void rpc_seal_bound_key(const uint8_t secret[RPC_KEY_BYTES], const struct rpc_seal *s,
                        uint64_t to_epoch, struct str from, struct str to,
                        uint8_t ret[RPC_KEY_BYTES]);

#endif
