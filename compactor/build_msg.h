/* SPDX-License-Identifier: Apache-2.0
 *
 * build_msg.h: proto/build.proto as the merge wants it, checked. Any thread.
 */
#ifndef COMPACTOR_BUILD_MSG_H
#define COMPACTOR_BUILD_MSG_H

#include "common/store/build/build.h"

#define BUILD_MSG_VERSION 1

struct build_next {
    uint32_t shard;
    uint64_t bytes_max, compactor, fence;
};
void build_next_pack(const struct build_next *n, struct buf *out);

struct build_given {
    uint64_t id; /* 0: nothing is due; then only what is not of a job is set */
    struct build_job job;
    uint32_t part;
    uint64_t bytes; /* of its rows */
    uint64_t due, oldest_ms, wait_ms, timeout_ms;
};
/* Rows point into the arena. ERR_CORRUPT: not such a message, or rows out of order; ERR_LIMIT: the
 * arena. build_given_deinit in any case. */
NODISCARD int build_given_unpack(struct str reply, struct arena *a, struct build_given *ret,
                                 struct err *e);
void build_given_deinit(struct build_given *g);

struct build_sent {
    uint32_t shard;
    uint64_t job, fence;
};
/* ERR_LIMIT: over out->max, or the arena. *ret_bytes: of the rows. */
NODISCARD int build_apply_pack(const struct build_sent *s, const struct build_result *res,
                               struct arena *a, struct buf *out, uint64_t *ret_bytes,
                               struct err *e);

struct build_applied {
    uint64_t rows, bytes;
    bool node_done;
};
NODISCARD int build_applied_unpack(struct str reply, struct build_applied *ret, struct err *e);

#endif
