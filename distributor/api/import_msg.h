/* SPDX-License-Identifier: Apache-2.0
 *
 * import_msg.h: one WriteRequest (proto/ingest.proto) of an unknown sender, checked like a push.
 * Its tenant, its shard and its write ids are replaced by those of this cluster, and labels that
 * the identity of the request sets are set.
 */
#ifndef DISTRIBUTOR_API_IMPORT_MSG_H
#define DISTRIBUTOR_API_IMPORT_MSG_H

#include "common/cluster/map/map.h"
#include "common/model/stacks.h"
#include "distributor/base/window.h"
#include "distributor/formats/limits.h"
#include "distributor/send/write_id.h"
#include "proto/ingest.pb-c.h"

struct import_opts {
    struct str tenant;
    const struct write_secret *secret; /* the tenant's */
    const struct limits *limits;
    struct window_accept accept;
    const struct labels *set; /* on every series, over what the message says; NULL: none */
    uint32_t node_slots; /* sums are put at the start of a node this wide; LEAF_SLOTS: not moved */
    uint32_t shards;
    const struct map *map; /* NULL: by shard_of of `shards` */
    uint64_t distributor;  /* ack_audit.h; 0: the acks are not audited */
    uint32_t epoch;
};
struct import_count {
    uint64_t series, profiles, samples;
    uint32_t shard; /* of the first part */
};
struct import_part { /* series with one place */
    uint32_t shard;
    size_t from, len; /* of import_opened.by_place */
};

/* The messages of a body: each a varint of its length and its bytes. ERR_INPUT with the offset. */
struct import_frames {
    struct str *at; /* in the arena */
    size_t len;
    size_t largest;
};
NODISCARD int import_frames(struct str body, struct arena *a, struct import_frames *ret,
                            struct err *e);
/* A message that was let through: checked, with its level applied and its write ids set. */
struct import_opened {
    Embertree__WriteRequest *m; /* as all here, in the arena or in the message's bytes */
    struct str bytes;           /* the message as it came */
    struct stacks_view stacks;
    struct import_count count;
    Embertree__WriteSeries **by_place;
    struct import_part *parts;
    size_t parts_len; /* at least 1 */
};
/* ERR_INPUT says what is wrong with it, ERR_LIMIT which limit it passes. Pure: any thread. */
NODISCARD int import_open(struct str msg, const struct import_opts *o, struct arena *a,
                          struct import_opened *ret, struct err *e);
/* Appends one part of it as that goes to the ingester. ERR_LIMIT. */
NODISCARD int import_pack(const struct import_opened *m, size_t part, struct buf *out,
                          struct err *e);
/* Its i-th write id. */
const uint8_t *import_write_id(const struct import_opened *m, size_t part, size_t i);
/* Both, without a map: there is one part. Everything but *out comes from the arena. Pure: any
 * thread. */
NODISCARD int import_msg(struct str msg, const struct import_opts *o, struct arena *a,
                         struct buf *out, struct import_count *ret, struct err *e);
/* Arena bytes that do for any message of this size. */
size_t import_arena_bytes(size_t len);
/* "10s", "1m", "10m", "1h", "6h", "1d", "8d", "64d", or "" for 10s: slots of a node. */
NODISCARD int import_level(struct str text, uint32_t *ret_slots, struct err *e);

#endif
