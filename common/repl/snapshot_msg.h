/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot_msg.h: one part of a snapshot on the wire (proto/repl.proto).
 */
#ifndef COMMON_REPL_SNAPSHOT_MSG_H
#define COMMON_REPL_SNAPSHOT_MSG_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/cluster/map/record.h"

#define SNAPSHOT_PART_BYTES     (512 * KIB) /* rows in a part that we send, about */
#define SNAPSHOT_PART_BYTES_MAX (56 * MIB)  /* one row may be large */

struct snapshot_part {
    uint32_t shard;
    uint64_t term;              /* of the leader */
    uint64_t index, index_term; /* the database is as of here */
    uint64_t id;                /* of this transfer */
    uint64_t part;              /* from 0 */
    bool last;
    struct str rows; /* puts, as in a kv batch; borrowed */
};
void snapshot_part_write(const struct snapshot_part *p, struct buf *out);
/* Checked: rows are puts, and have the sum the sender gave them. ERR_INPUT, ERR_CORRUPT. */
NODISCARD int snapshot_part_read(struct str bytes, struct snapshot_part *ret, struct err *e);

/* The answer: is it wanted? */
void snapshot_reply_write(bool ok, struct buf *out);
NODISCARD int snapshot_reply_read(struct str bytes, bool *ret_ok, struct err *e);

#endif
