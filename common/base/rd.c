/* SPDX-License-Identifier: Apache-2.0
 *
 * rd: the parts of the cursor that are too long to be inline: fixed-width integers, long varints,
 * protobuf fields.
 *
 * Most protobuf fields have a tag of one byte and a value or a length below 128. rd_pb reads those
 * without a loop and leaves all others to pb_any, which checks each step. Both move the cursor only
 * after the whole field was found to fit.
 * Invariant: p <= end, also after a failed read.  Thread: one at a time per cursor.
 */
#include "common/base/rd.h"

#define RD_FIXED(name, type, swap)     \
    bool name(struct rd *r, type *ret) \
    {                                  \
        type v;                        \
        if (rd_left(r) < sizeof(v))    \
            return false;              \
        memcpy(&v, r->p, sizeof(v));   \
        r->p += sizeof(v);             \
        *ret = swap(v);                \
        return true;                   \
    }
#define SAME(v) (v)
RD_FIXED(rd_u16be, uint16_t, __builtin_bswap16)
RD_FIXED(rd_u32be, uint32_t, __builtin_bswap32)
RD_FIXED(rd_u64be, uint64_t, __builtin_bswap64)
RD_FIXED(rd_u16le, uint16_t, SAME)
RD_FIXED(rd_u32le, uint32_t, SAME)
RD_FIXED(rd_u64le, uint64_t, SAME)

bool rd_varint_slow(struct rd *r, uint64_t *ret)
{
    const uint8_t *p = r->p;
    uint64_t v = 0;

    for (unsigned shift = 0; shift < 70; shift += 7) {
        if (p == r->end)
            return false;
        uint8_t c = *p++;
        if (shift == 63 && c > 1)
            return false;
        v |= (uint64_t)(c & 0x7f) << shift;
        if (c < 0x80) {
            r->p = p;
            *ret = v;
            return true;
        }
    }
    return false;
}

bool rd_bytes(struct rd *r, size_t n, struct str *ret)
{
    if (rd_left(r) < n)
        return false;
    *ret = (struct str){ (const char *)r->p, n };
    r->p += n;
    return true;
}

bool rd_skip(struct rd *r, size_t n)
{
    if (rd_left(r) < n)
        return false;
    r->p += n;
    return true;
}

static bool pb_value(struct rd *r, struct pb_field *f)
{
    uint32_t u32;

    switch (f->wire) {
    case 0:
        return rd_varint(r, &f->u64);
    case 1:
        return rd_u64le(r, &f->u64);
    case 2:
        return rd_varint(r, &f->u64) && f->u64 <= rd_left(r) &&
               rd_bytes(r, (size_t)f->u64, &f->bytes);
    case 5:
        if (!rd_u32le(r, &u32))
            return false;
        f->u64 = u32;
        return true;
    default: /* 3, 4: groups, refused; 6, 7: invalid */
        return false;
    }
}

static int pb_any(struct rd *r, struct pb_field *ret)
{
    struct rd at = *r;
    uint64_t tag;

    if (!rd_varint(&at, &tag) || tag >> 3 == 0 || tag >> 3 > (1u << 29) - 1)
        return -1;
    struct pb_field f = { .number = (uint32_t)(tag >> 3), .wire = tag & 7 };
    if (!pb_value(&at, &f))
        return -1;
    *r = at;
    *ret = f;
    return 1;
}

/* Most fields have a tag of one byte, and a number or a length of one byte behind it. */
int rd_pb(struct rd *r, struct pb_field *ret)
{
    const uint8_t *p = r->p;
    size_t left = rd_left(r);

    if (left == 0)
        return 0;
    if (UNLIKELY(left < 2 || p[0] < 8 || p[0] >= 0x80 || p[1] >= 0x80))
        return pb_any(r, ret);
    unsigned wire = p[0] & 7;
    size_t n = wire == 2 ? p[1] : 0;
    if (UNLIKELY((wire != 0 && wire != 2) || n > left - 2))
        return pb_any(r, ret);
    ret->number = p[0] >> 3;
    ret->wire = (uint8_t)wire;
    ret->u64 = p[1];
    ret->bytes = wire == 2 ? (struct str){ (const char *)p + 2, n } : STR_NULL;
    r->p = p + 2 + n;
    return 1;
}
