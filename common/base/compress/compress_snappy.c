/* SPDX-License-Identifier: Apache-2.0
 *
 * snappy_inflate: Snappy, in both shapes that senders give this name: one block (its length, then
 * elements), or frames (a stream identifier, then chunks of at most 64 KiB with a checksum each).
 * The identifier tells them apart: as a block it would be a length that its bytes cannot fill.
 *
 * A block says its length first. It is compared with the limits before anything is reserved, so a
 * forged length costs nothing.
 */
#include <snappy-c.h>

#include "common/base/compress/compress.h"
#include "common/base/hash.h"

#define IDENTIFIER  STR("\xff\x06\x00\x00sNaPpY")
#define CHUNK_MAX   65536 /* bytes of one chunk, plain */
#define CHUNK_HEAD  4
#define CHUNK_CRC   4
#define MASK_DELTA  0xa282ead8u
#define CHUNK_BLOCK 0x00
#define CHUNK_PLAIN 0x01
#define CHUNK_SKIP  0x80 /* from here on: may be skipped */
#define CHUNK_IDENT 0xff

static int damaged(struct err *e, const char *why)
{
    return err_set(e, ERR_INPUT, "the snappy data is damaged: %s", why);
}

/* Appends one block of at most `most` bytes. */
static int add_block(struct str in, size_t most, struct buf *out, struct err *e)
{
    size_t len = 0;
    char *to;

    if (snappy_uncompressed_length(in.ptr, in.len, &len) != SNAPPY_OK)
        return damaged(e, "it has no length");
    if (len > most)
        return err_set(e, ERR_LIMIT, "the snappy data expands to %zu bytes, at most %zu are taken",
                       len, most);
    to = buf_room(out, MAX(len, (size_t)1));
    if (!to)
        return err_set(e, ERR_LIMIT, "decompressed data would pass %zu bytes", out->max);
    if (snappy_uncompress(in.ptr, in.len, to, &len) != SNAPPY_OK)
        return damaged(e, "a block cannot be read");
    out->len += len;
    return 0;
}

static uint32_t le(const char *p, size_t n)
{
    uint32_t v = 0;

    for (size_t i = n; i-- > 0;)
        v = v << 8 | (uint8_t)p[i];
    return v;
}

/* One chunk of data: its checksum, and a block or plain bytes. */
static int add_chunk(uint8_t type, struct str body, size_t most, struct buf *out, struct err *e)
{
    size_t before = out->len;
    uint32_t want, crc;
    int rc = 0;

    if (body.len < CHUNK_CRC)
        return damaged(e, "a chunk without a checksum");
    want = le(body.ptr, CHUNK_CRC);
    body = str_sub(body, CHUNK_CRC, body.len);
    if (type == CHUNK_BLOCK)
        rc = add_block(body, MIN(most, (size_t)CHUNK_MAX), out, e);
    else if (body.len > MIN(most, (size_t)CHUNK_MAX) || !buf_add_str(out, body))
        rc = err_set(e, ERR_LIMIT, "the snappy data expands to more than is taken");
    if (rc)
        return rc;
    crc = crc32c(0, out->ptr + before, out->len - before);
    crc = ((crc >> 15) | (crc << 17)) + MASK_DELTA;
    return crc == want ? 0 : damaged(e, "a checksum is wrong");
}

static int add_frames(struct str in, size_t most, struct buf *out, struct err *e)
{
    size_t start = out->len;

    while (in.len) {
        uint8_t type = (uint8_t)in.ptr[0];
        size_t len = in.len < CHUNK_HEAD ? 0 : le(in.ptr + 1, 3);
        int rc = 0;

        if (in.len < CHUNK_HEAD || len > in.len - CHUNK_HEAD)
            return damaged(e, "it ends inside a chunk");
        struct str body = str_sub(in, CHUNK_HEAD, CHUNK_HEAD + len);
        if (type == CHUNK_IDENT && !str_eqc(body, "sNaPpY"))
            return damaged(e, "a wrong stream identifier");
        if (type == CHUNK_BLOCK || type == CHUNK_PLAIN)
            rc = add_chunk(type, body, most - (out->len - start), out, e);
        else if (type < CHUNK_SKIP)
            return damaged(e, "a chunk of an unknown type");
        if (rc)
            return rc;
        in = str_sub(in, CHUNK_HEAD + len, in.len);
    }
    return 0;
}

int snappy_inflate(struct str in, const struct inflate_limits *l, struct buf *out, struct err *e)
{
    size_t most = inflate_output_max(l, in.len);

    return str_starts(in, IDENTIFIER) ? add_frames(in, most, out, e) : add_block(in, most, out, e);
}
