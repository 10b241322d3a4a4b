/* SPDX-License-Identifier: Apache-2.0 */
#include "common/base/wr.h"

bool wr_u8(struct buf *b, uint8_t v)
{
    return buf_add(b, &v, 1);
}

bool wr_u16be(struct buf *b, uint16_t v)
{
    v = __builtin_bswap16(v);
    return buf_add(b, &v, sizeof(v));
}

bool wr_u32be(struct buf *b, uint32_t v)
{
    v = __builtin_bswap32(v);
    return buf_add(b, &v, sizeof(v));
}

bool wr_u64be(struct buf *b, uint64_t v)
{
    v = __builtin_bswap64(v);
    return buf_add(b, &v, sizeof(v));
}

bool wr_u32le(struct buf *b, uint32_t v)
{
    return buf_add(b, &v, sizeof(v));
}

bool wr_u64le(struct buf *b, uint64_t v)
{
    return buf_add(b, &v, sizeof(v));
}

size_t varint_put(uint8_t *p, uint64_t v)
{
    size_t n = 0;

    while (v >= 0x80) {
        p[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    p[n++] = (uint8_t)v;
    return n;
}

size_t varint_len(uint64_t v)
{
    return v ? (size_t)(64 - __builtin_clzll(v) + 6) / 7 : 1;
}

bool wr_varint(struct buf *b, uint64_t v)
{
    uint8_t tmp[10];

    return buf_add(b, tmp, varint_put(tmp, v));
}
