/* SPDX-License-Identifier: Apache-2.0
 *
 * wr.h: the writing side of rd.h, on top of buf (limits and failure are buf's).
 */
#ifndef COMMON_BASE_WR_H
#define COMMON_BASE_WR_H

#include "common/base/buf.h"

bool wr_u8(struct buf *b, uint8_t v);
bool wr_u16be(struct buf *b, uint16_t v);
bool wr_u32be(struct buf *b, uint32_t v);
bool wr_u64be(struct buf *b, uint64_t v);
bool wr_u32le(struct buf *b, uint32_t v);
bool wr_u64le(struct buf *b, uint64_t v);
bool wr_varint(struct buf *b, uint64_t v);
/* Encodes into p (room for 10 bytes), returns the length. */
size_t varint_put(uint8_t *p, uint64_t v);
size_t varint_len(uint64_t v);

/* Fixed-width stores and loads at an address, for keys and packed rows. */
static inline void put_u16be(void *p, uint16_t v)
{
    v = __builtin_bswap16(v);
    memcpy(p, &v, 2);
}
static inline void put_u32be(void *p, uint32_t v)
{
    v = __builtin_bswap32(v);
    memcpy(p, &v, 4);
}
static inline void put_u64be(void *p, uint64_t v)
{
    v = __builtin_bswap64(v);
    memcpy(p, &v, 8);
}
static inline uint16_t get_u16be(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return __builtin_bswap16(v);
}
static inline uint32_t get_u32be(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}
static inline uint64_t get_u64be(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}
static inline void put_u32le(void *p, uint32_t v)
{
    memcpy(p, &v, 4);
}
static inline uint32_t get_u32le(const void *p)
{
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline void put_u64le(void *p, uint64_t v)
{
    memcpy(p, &v, 8);
}
static inline uint16_t get_u16le(const void *p)
{
    uint16_t v;
    memcpy(&v, p, 2);
    return v;
}
static inline uint64_t get_u64le(const void *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fixed-width codecs assume little endian");

#endif
