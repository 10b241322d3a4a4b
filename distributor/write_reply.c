/* SPDX-License-Identifier: Apache-2.0 */
#include "distributor/write_reply.h"

#include "common/base/rd.h"

enum { STORED = 1, DUPLICATES = 2, LEARNT = 5 };

int write_reply_read(struct str bytes, struct write_reply *ret, struct err *e)
{
    struct rd r = rd_of(bytes);
    struct pb_field f;
    int more;

    *ret = (struct write_reply){ 0 };
    while ((more = rd_pb(&r, &f)) > 0) {
        bool ours = f.number == STORED || f.number == DUPLICATES || f.number == LEARNT;
        if (ours && (f.wire != 0 || f.u64 > UINT32_MAX)) {
            more = -1;
            break;
        }
        if (f.number == STORED)
            ret->stored = (uint32_t)f.u64;
        else if (f.number == DUPLICATES)
            ret->duplicates = (uint32_t)f.u64;
        else if (f.number == LEARNT)
            ret->learnt = f.u64 != 0;
    }
    return more ? err_set(e, ERR_INTERNAL, "the ingester's answer cannot be decoded") : 0;
}
