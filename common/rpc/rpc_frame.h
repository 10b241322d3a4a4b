/* SPDX-License-Identifier: Apache-2.0
 *
 * rpc_frame.h: the bytes on the wire. A message is cut into frames of at most RPC_FRAME_CHUNK bytes
 * of payload; each frame checks itself and says whose it is, so nothing is left to the transport.
 * Integers are little endian.
 *
 *   offset size field
 *    0      4   magic 45 4d 42 52 ("EMBR")
 *    4      1   version      layout of this frame: 1
 *    5      1   speaks_min   versions the sender can read, both inclusive
 *    6      1   speaks_max
 *    7      1   kind         enum rpc_kind: 1 ping to 8 fin ack
 *    8      2   head         bytes before the payload: 84 + address + what later builds append
 *   10      1   flags        bit 0: the payload, once whole, is one zstd frame; others must be 0
 *   11      1   lane         0 control, 1 bulk
 *   12      2   method       requests: enum rpc_method; others 0
 *   14      2   code         errors: enum err_code; others 0
 *   16      8   epoch        of the sending node: random at its start, never 0
 *   24      8   to_epoch     what answers something: the epoch it answers; a restarted node so
 *                            never takes an answer to its predecessor. Else 0
 *   32      8   seq          rising number of the message; duplicates repeat it
 *   40      8   id           of the call, chosen by the caller; a pong repeats the ping's
 *   48      4   left_ms      time left to the call's deadline when this frame was sent; 0: none
 *   52      4   offset       of this frame's payload in the message: a multiple of RPC_FRAME_CHUNK
 *   56      4   total        bytes of the message's payload as sent
 *   60      4   raw          bytes of it before compression; = total without flag bit 0
 *   64      4   length       bytes of payload in this frame: min(RPC_FRAME_CHUNK, total - offset)
 *   68      2   address      bytes of the sender's address
 *   70      6   zero
 *   76      4   crc32c       of the whole frame with these four bytes 0; 0 in a sealed frame
 *   80      n   address      where the sender takes answers: printable ASCII, "tcp://10.0.0.7:9095"
 *   80 + n  4   link         which of the sender's connections to us: seq counts along one. Builds
 *                            without this field count as link 0
 *   84 + n  4   again        in errors: seconds after which a retry makes sense; else 0
 *   88 + n  8   cluster      of the sender, where it knows it: the first 16 digits of its id
 *                            (common/cluster/coord/keyspace.h), or the number that replaces it in
 *                            a cluster without an id (config_fingerprint.h there). Zero bytes at
 * the end of
 *                            the head are left out
 *   head    length           payload
 *
 * Example, a ping of 8 bytes from ipc:///a (epoch 2, seq 3, id 4, link 1): 100 bytes,
 *   45 4d 42 52 01 01 01 01 5c 00 00 00 00 00 00 00 02 00.. 00.. 03 00.. 04 00.. <left> 00 00 00 00
 *   08 00 00 00 08 00 00 00 08 00 00 00 08 00 00.. <crc> 69 70 63 3a 2f 2f 2f 61 01 00 00 00 ...
 *
 * Versions: a build reads its own version and the previous one. Pings and pongs are always written
 * in version 1, so that any two builds learn what the other reads; everything else is written in
 * the oldest version a build knows until the peer's pong names a newer version which both read. Two
 * builds without a common version refuse each other's calls by name (see rpc_peer.c).
 */
#ifndef COMMON_RPC_RPC_FRAME_H
#define COMMON_RPC_RPC_FRAME_H

#include "common/base/base.h"
#include "common/base/err.h"
#include "common/base/str.h"

#define RPC_FRAME_VERSION_MIN  1
#define RPC_FRAME_VERSION      1
#define RPC_FRAME_VERSION_PING 1
#define RPC_FRAME_FIXED        80
#define RPC_ADDR_MAX           127 /* bytes */
#define RPC_FRAME_LINK         4   /* bytes behind the address */
#define RPC_FRAME_AGAIN        4   /* bytes behind that */
#define RPC_FRAME_CLUSTER      8   /* bytes behind that */
#define RPC_FRAME_HEAD_MAX \
    (RPC_FRAME_FIXED + RPC_ADDR_MAX + RPC_FRAME_LINK + RPC_FRAME_AGAIN + RPC_FRAME_CLUSTER)
#define RPC_FRAME_CHUNK     (256 * KIB)
#define RPC_FRAME_MAX       (512 + RPC_FRAME_CHUNK) /* any frame; leaves room for longer heads */
#define RPC_FRAME_SMALL_MAX 64                      /* payload of pings, cancels, fins */
#define RPC_FLAG_ZSTD       1

enum rpc_kind {
    RPC_PING = 1,
    RPC_PONG = 2,
    RPC_REQUEST = 3,
    RPC_REPLY = 4,
    RPC_ERROR = 5,
    RPC_CANCEL = 6,
    RPC_FIN = 7,
    RPC_FINACK = 8,
};

enum rpc_lane { RPC_LANE_CONTROL, RPC_LANE_BULK, RPC_LANES };

/* Why a frame or message was dropped: label `reason` of embertree_rpc_dropped_total. */
enum rpc_drop {
    RPC_DROP_NONE,
    RPC_DROP_SHORT,   /* cut off, or longer than it says */
    RPC_DROP_MAGIC,   /* not a frame of Embertree */
    RPC_DROP_VERSION, /* a version this build does not read */
    RPC_DROP_CHECKSUM,
    RPC_DROP_HEADER,     /* fields that contradict each other */
    RPC_DROP_DUPLICATE,  /* seen before, or too old to tell */
    RPC_DROP_EPOCH,      /* meant for this address before it restarted */
    RPC_DROP_OVERSIZE,   /* message over message_max */
    RPC_DROP_BUDGET,     /* no room to put chunks together */
    RPC_DROP_SOURCES,    /* more senders than may be remembered */
    RPC_DROP_INCOMPLETE, /* chunks missing at the deadline */
    RPC_DROP_UNPACK,     /* zstd refused it */
    RPC_DROP_ROUTE,      /* no way to answer its sender */
    RPC_DROP_EXPIRED,    /* outgoing: its deadline passed in the queue */
    RPC_DROP_QUEUE,      /* outgoing: the queue to the peer is full */
    RPC_DROP_UNSEALED,   /* not sealed, and there is a cluster key */
    RPC_DROP_KEY,        /* sealed with an unknown key */
    RPC_DROP_FORGED,     /* sealed wrongly: damaged, or by a peer without the key */
    RPC_DROP_REPLAYED,   /* sealed, and came before, or too old to tell */
    RPC_DROP_TICKET,     /* sealed for this address before it restarted, or by a dead process */
    RPC_DROP_CLUSTER,    /* from another cluster, or by settings that do not go with ours */
    RPC_DROPS,
};
const char *rpc_drop_name(enum rpc_drop d);

struct rpc_frame {
    uint8_t version, speaks_min, speaks_max;
    uint8_t kind, flags, lane;
    uint16_t method, code;
    uint64_t epoch, to_epoch, seq, id;
    uint32_t left_ms, offset, total, raw;
    uint32_t link, again_s;
    uint64_t cluster;      /* 0: not said */
    struct str addr, body; /* borrowed */
};

/* Writes the head of f into `out`, checksum over head and body included; returns its length. */
size_t rpc_frame_head(const struct rpc_frame *f, uint8_t out[RPC_FRAME_HEAD_MAX]);
/* The same without a checksum, for a frame that is going to be sealed (rpc_seal.h). */
size_t rpc_frame_head_bare(const struct rpc_frame *f, uint8_t out[RPC_FRAME_HEAD_MAX]);
/* Takes one frame apart; *ret borrows from `in`. Versions speaks_min..speaks_max are read. On error
 * returns ERR_CORRUPT (RPC_DROP_VERSION: ERR_UNAVAILABLE) and says why. Any bytes are safe. */
NODISCARD int rpc_frame_parse(struct str in, uint8_t speaks_min, uint8_t speaks_max,
                              struct rpc_frame *ret, enum rpc_drop *ret_why, struct err *e);
/* The same for a sealed frame: its checksum must be 0. */
NODISCARD int rpc_frame_parse_bare(struct str in, uint8_t speaks_min, uint8_t speaks_max,
                                   struct rpc_frame *ret, enum rpc_drop *ret_why, struct err *e);
/* "request" and so on; "?" for others. */
const char *rpc_kind_name(uint8_t kind);

#endif
