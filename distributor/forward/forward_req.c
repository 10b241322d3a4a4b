/* SPDX-License-Identifier: Apache-2.0
 *
 * forward_req: a version, the hops, then each part behind its length; the body is the rest.
 */
#include "distributor/forward/forward_req.h"

#include "common/base/rd.h"
#include "common/base/wr.h"

#define VERSION   1
#define PARTS     4
#define PART_MOST (64 * KIB)

void forward_req_write(const struct forward_req *r, struct buf *out)
{
    const struct str parts[PARTS] = { r->tenant, r->key, r->path, r->content_type };

    wr_u8(out, VERSION);
    wr_u8(out, (uint8_t)MIN(r->hops, 255u));
    for (size_t i = 0; i < PARTS; i++) {
        wr_varint(out, parts[i].len);
        buf_add_str(out, parts[i]);
    }
    buf_add_str(out, r->body);
}

static bool printable(struct str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] < ' ' || s.ptr[i] > '~')
            return false;
    return true;
}

int forward_req_read(struct str record, struct forward_req *ret, struct err *e)
{
    struct str *const parts[PARTS] = { &ret->tenant, &ret->key, &ret->path, &ret->content_type };
    struct rd r = rd_of(record);
    uint8_t version, hops;
    uint64_t len;

    if (!rd_u8(&r, &version) || version != VERSION)
        return err_set(e, ERR_CORRUPT, "the record is of no known version");
    if (!rd_u8(&r, &hops))
        return err_set(e, ERR_CORRUPT, "the record is cut");
    ret->hops = hops;
    for (size_t i = 0; i < PARTS; i++)
        if (!rd_varint(&r, &len) || len > PART_MOST || !rd_bytes(&r, (size_t)len, parts[i]) ||
            !printable(*parts[i]))
            return err_set(e, ERR_CORRUPT, "part %zu of the record is damaged", i);
    if (!str_starts(ret->path, STR("/")))
        return err_set(e, ERR_CORRUPT, "the path of the record is damaged");
    (void)rd_bytes(&r, rd_left(&r), &ret->body);
    return 0;
}
