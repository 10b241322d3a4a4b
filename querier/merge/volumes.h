/* SPDX-License-Identifier: Apache-2.0
 *
 * volumes.h: the volumes of a space report, each once, however many questions its node got: a
 * question per shard where shards move.
 */
#ifndef QUERIER_MERGE_VOLUMES_H
#define QUERIER_MERGE_VOLUMES_H

#include "common/base/json.h"
#include "common/base/vec.h"
#include "common/store/retain/forecast.h"
#include "proto/space.pb-c.h"

struct volume {
    uint64_t node_id; /* 0: not told, a volume of its own */
    struct str node;  /* borrowed from the reply; may be empty */
    uint64_t shards, free_bytes, reserve_bytes;
    uint32_t replies, summed; /* summed: have what a forecast of several is made of */
    struct forecast_in in;
    bool forecast_known;
    struct forecast forecast;
};
/* Zero is empty. */
struct volumes {
    VEC(struct volume) at;
};
/* Replies outlive it. ERR_CORRUPT. */
NODISCARD int volumes_add(struct volumes *v, const Embertree__SpaceReply *m, struct err *e);
void volumes_deinit(struct volumes *v);
/* An array; a line each. */
void volumes_json(const struct volumes *v, struct json *j);
void volumes_text(const struct volumes *v, struct buf *out);

#endif
