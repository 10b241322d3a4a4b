/* SPDX-License-Identifier: Apache-2.0
 *
 * snapshot_msg: the parts of a snapshot and their answers, as protocol buffers.
 *
 * The rows of a part are the operations of a kv batch, so a reader checks them like those of an
 * entry. The checksum covers the rows, and is seeded with the snapshot's id and the part's number,
 * so rows of another part fail it.
 */
#include "common/repl/snapshot_msg.h"

#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/wr.h"
#include "common/repl/log/entry.h"

/* Numbers of the fields of proto/repl.proto. */
enum {
    F_SHARD = 1,
    F_TERM = 2,
    F_INDEX = 3,
    F_INDEX_TERM = 4,
    F_ID = 5,
    F_PART = 6,
    F_LAST = 7,
    F_SUM = 8,
    F_ROWS = 9,
};

static void put_num(struct buf *out, unsigned f, uint64_t v)
{
    wr_varint(out, (uint64_t)f << 3);
    wr_varint(out, v);
}

static uint64_t sum_of(const struct snapshot_part *p)
{
    return hash64(p->rows.len ? p->rows.ptr : "", p->rows.len, p->id + p->part);
}

void snapshot_part_write(const struct snapshot_part *p, struct buf *out)
{
    put_num(out, F_SHARD, p->shard);
    put_num(out, F_TERM, p->term);
    put_num(out, F_INDEX, p->index);
    put_num(out, F_INDEX_TERM, p->index_term);
    put_num(out, F_ID, p->id);
    put_num(out, F_PART, p->part);
    put_num(out, F_LAST, p->last);
    put_num(out, F_SUM, sum_of(p));
    wr_varint(out, F_ROWS << 3 | 2);
    wr_varint(out, p->rows.len);
    buf_add_str(out, p->rows);
}

int snapshot_part_read(struct str bytes, struct snapshot_part *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    uint64_t sum = 0;
    int got;

    *ret = (struct snapshot_part){ 0 };
    while ((got = rd_pb(&r, &f)) > 0) {
        if ((f.number == F_ROWS) != (f.wire == 2) && f.number <= F_ROWS)
            return err_set(e, ERR_INPUT, "field %" PRIu32 " of a part of a snapshot is odd",
                           f.number);
        switch (f.number) {
        case F_SHARD:
            ret->shard = (uint32_t)f.u64;
            break;
        case F_TERM:
            ret->term = f.u64;
            break;
        case F_INDEX:
            ret->index = f.u64;
            break;
        case F_INDEX_TERM:
            ret->index_term = f.u64;
            break;
        case F_ID:
            ret->id = f.u64;
            break;
        case F_PART:
            ret->part = f.u64;
            break;
        case F_LAST:
            ret->last = f.u64 != 0;
            break;
        case F_SUM:
            sum = f.u64;
            break;
        case F_ROWS:
            ret->rows = f.bytes;
            break;
        default: /* of a newer version */
            break;
        }
    }
    if (got < 0 || ret->index == 0 || ret->index >= UINT64_MAX / 2)
        return err_set(e, ERR_INPUT, "a part of a snapshot is invalid");
    if (sum != sum_of(ret))
        return err_set(e, ERR_CORRUPT, "the checksum of part %" PRIu64 " of a snapshot is wrong",
                       ret->part);
    if (!entry_check(REPL_BATCH, ret->rows))
        return err_set(e, ERR_CORRUPT, "part %" PRIu64 " of a snapshot holds no rows", ret->part);
    return 0;
}

void snapshot_reply_write(bool ok, struct buf *out)
{
    put_num(out, 1, ok);
}

int snapshot_reply_read(struct str bytes, bool *ret_ok, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int got;

    *ret_ok = false;
    while ((got = rd_pb(&r, &f)) > 0)
        if (f.number == 1)
            *ret_ok = f.u64 != 0;
    return got < 0 ? err_set(e, ERR_INPUT, "the answer to a part of a snapshot is invalid") : 0;
}
