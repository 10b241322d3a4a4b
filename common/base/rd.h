/* SPDX-License-Identifier: Apache-2.0
 *
 * rd.h: a cursor over borrowed bytes. Every read says whether it fit; a failed read leaves the
 * cursor where it was. Fixed-width integers in both orders, LEB128 varints (at most 10 bytes, the
 * tenth 0 or 1), and protobuf fields (protobuf encoding spec; groups are refused).
 */
#ifndef COMMON_BASE_RD_H
#define COMMON_BASE_RD_H

#include "common/base/base.h"
#include "common/base/str.h"

struct rd {
    const uint8_t *p;
    const uint8_t *end;
};

static inline struct rd rd_of(struct str s)
{
    const uint8_t *p = (const uint8_t *)(const void *)s.ptr;
    return (struct rd){ p, s.ptr ? p + s.len : p };
}
static inline size_t rd_left(const struct rd *r)
{
    return (size_t)(r->end - r->p);
}
static inline bool rd_u8(struct rd *r, uint8_t *ret)
{
    if (r->p == r->end)
        return false;
    *ret = *r->p++;
    return true;
}
bool rd_u16be(struct rd *r, uint16_t *ret);
bool rd_u32be(struct rd *r, uint32_t *ret);
bool rd_u64be(struct rd *r, uint64_t *ret);
bool rd_u16le(struct rd *r, uint16_t *ret);
bool rd_u32le(struct rd *r, uint32_t *ret);
bool rd_u64le(struct rd *r, uint64_t *ret);
bool rd_varint_slow(struct rd *r, uint64_t *ret);
static inline bool rd_varint(struct rd *r, uint64_t *ret)
{
    if (LIKELY(r->p != r->end && *r->p < 0x80)) {
        *ret = *r->p++;
        return true;
    }
    return rd_varint_slow(r, ret);
}
bool rd_bytes(struct rd *r, size_t n, struct str *ret);
bool rd_skip(struct rd *r, size_t n);

/* One protobuf field. `wire` is 0 (varint in u64), 1 (8 bytes in u64), 2 (bytes), 5 (4 in u64). */
struct pb_field {
    uint32_t number;
    uint8_t wire;
    uint64_t u64;
    struct str bytes;
};
/* 1 = a field was read, 0 = clean end, -1 = malformed (bad tag, group, length past the end). */
int rd_pb(struct rd *r, struct pb_field *ret);

#endif
