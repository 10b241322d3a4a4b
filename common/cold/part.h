/* SPDX-License-Identifier: Apache-2.0
 *
 * part.h: rows of one column family as an immutable object: sorted, in compressed blocks, with an
 * index behind them. What a block is, is known by its hash, so that a part is checked as it is
 * read.
 *
 *   blocks  each: zstd of rows, in order:
 *             shared varint | rest varint | rest bytes of the key | value bytes varint | value
 *           `shared` bytes are those the key has in common with the one before it in the block
 *   index   zstd of one entry per block:
 *             stored bytes varint | plain bytes varint | rows varint | XXH3-64 of the stored bytes
 *             u64 LE | key bytes varint | last key
 *           Behind it, where the part has a stamp: a skippable frame of zstd with that, u64 LE
 *           (generation.h: the same rows under another stamp are another object)
 *   tail    index at u64 | index stored bytes u32 | plain bytes u32 | blocks u32 | rows u64 |
 *           XXH3-64 of the stored index u64 | version u32 = 1 | "EMBRCOLD"       48 bytes, LE
 *
 * The name of a part ends in the hex of XXH3-128 of all of it (object.h: a name keeps its bytes).
 */
#ifndef COMMON_COLD_PART_H
#define COMMON_COLD_PART_H

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/base/hash.h"
#include "common/base/rd.h"
#include "common/base/size.h"

#define PART_TAIL_LEN   48
#define PART_BLOCK      (64 * KIB) /* plain bytes after which a block ends */
#define PART_BLOCK_MAX  (64 * MIB) /* of a block with a long value */
#define PART_BYTES      (32 * MIB) /* stored bytes after which a part should end */
#define PART_INDEX_MAX  (64 * MIB)
#define PART_KEY_MAX    1024
#define PART_LEVEL_ZSTD 3

/* Identity and contents of a part. Keys are borrowed. */
struct part_info {
    struct hash128 hash; /* of the object */
    uint64_t size, rows;
    struct str first, last; /* keys, inclusive */
};

struct part_writer;
struct part_writer *part_writer_new(void);
void part_writer_free(struct part_writer *w); /* NULL is fine */
/* Keys strictly ascending, CHECKed. ERR_LIMIT: a key or value that is too long for a part. */
NODISCARD int part_add(struct part_writer *w, struct str key, struct str value, struct err *e);
uint64_t part_bytes(const struct part_writer *w); /* stored so far; 0: nothing was added */
/* Ends it: *ret_object is the object, valid with *ret until the next call, which begins a new
 * one. */
void part_finish(struct part_writer *w, struct part_info *ret, struct str *ret_object);

/* After part_finish, any number of times: the same rows with another stamp (0: none). */
void part_stamp(struct part_writer *w, uint64_t stamp, struct part_info *ret,
                struct str *ret_object);

/* Bytes of the object to *out (replaced), exactly. */
typedef int (*part_fetch_fn)(void *cookie, uint64_t at, size_t len, struct buf *out, struct err *e);
struct part_index;
/* Reads and checks tail and index. ERR_CORRUPT, or what fetch says. Immutable: any thread. */
NODISCARD int part_index_read(uint64_t size, part_fetch_fn fetch, void *cookie,
                              struct part_index **ret, struct err *e);
void part_index_free(struct part_index *x); /* NULL is fine */
size_t part_index_bytes(const struct part_index *x);
uint64_t part_index_rows(const struct part_index *x);
size_t part_blocks(const struct part_index *x);
/* The first block whose last key is >= key; part_blocks() if no block has such a key. */
size_t part_block_of(const struct part_index *x, struct str key);
/* Fetches, checks and decodes block i into *out (replaced). */
NODISCARD int part_block_read(const struct part_index *x, size_t i, part_fetch_fn fetch,
                              void *cookie, struct buf *out, struct err *e);

/* Rows of a decoded block, in order. */
struct part_row {
    struct rd left;
    size_t key_len;
    char key[PART_KEY_MAX];
    struct str value; /* borrowed from the block */
};
void part_row_begin(struct part_row *r, struct str block);
/* 1: a row, 0: the end, -1: broken. */
int part_row_next(struct part_row *r);
static inline struct str part_row_key(const struct part_row *r)
{
    return (struct str){ r->key, r->key_len };
}

#endif
