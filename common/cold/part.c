/* SPDX-License-Identifier: Apache-2.0
 *
 * part: writes parts in memory, reads them by blocks.
 *
 * The writer holds one object: parts end at 32 MiB, so that is what offloading costs. The reader
 * believes nothing: the tail's magic, lengths that must meet exactly, a hash over every byte that
 * is used, order of keys inside a block. So a part that was cut, mixed up or damaged is an error
 * that says so, never a wrong sum.
 */
#include "common/cold/part.h"

#include "common/base/compress/compress.h"
#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/base/wr.h"

#define MAGIC_TEXT "EMBRCOLD"
#define VERSION    1
#define SEED       0
#define SKIP_MAGIC 0x184d2a5eu

struct part_writer {
    struct buf object, block, index;
    char first[PART_KEY_MAX], last[PART_KEY_MAX]; /* of the part */
    size_t first_len, last_len, shared_len;       /* shared_len: bytes of `last` in this block */
    uint64_t rows, block_rows;
    uint32_t blocks;
    bool finished;
    size_t index_at, index_end; /* finished */
};

struct part_writer *part_writer_new(void)
{
    struct part_writer *w = XNEW(struct part_writer);

    buf_init(&w->object, GIB);
    buf_init(&w->block, PART_BLOCK_MAX + PART_BLOCK + KIB);
    buf_init(&w->index, PART_INDEX_MAX);
    return w;
}

void part_writer_free(struct part_writer *w)
{
    if (!w)
        return;
    buf_deinit(&w->object);
    buf_deinit(&w->block);
    buf_deinit(&w->index);
    xfree(w);
}

static void begin(struct part_writer *w)
{
    buf_reset(&w->object);
    buf_reset(&w->block);
    buf_reset(&w->index);
    w->first_len = w->last_len = w->shared_len = 0;
    w->rows = w->block_rows = 0;
    w->blocks = 0;
    w->finished = false;
}

static void end_block(struct part_writer *w)
{
    size_t at = w->object.len, stored;
    struct err e = { 0 };

    if (!w->block_rows)
        return;
    CHECK(zstd_compress(buf_str(&w->block), PART_LEVEL_ZSTD, &w->object, &e) == 0);
    stored = w->object.len - at;
    (void)wr_varint(&w->index, stored);
    (void)wr_varint(&w->index, w->block.len);
    (void)wr_varint(&w->index, w->block_rows);
    (void)wr_u64le(&w->index, hash64(w->object.ptr + at, stored, SEED));
    (void)wr_varint(&w->index, w->last_len);
    (void)buf_add(&w->index, w->last, w->last_len);
    CHECK(buf_ok(&w->index)); /* 32 MiB of blocks have a far smaller index */
    w->blocks++;
    w->block_rows = 0;
    w->shared_len = 0;
    buf_reset(&w->block);
}

int part_add(struct part_writer *w, struct str key, struct str value, struct err *e)
{
    size_t shared = 0;

    if (w->finished)
        begin(w);
    if (key.len == 0 || key.len > PART_KEY_MAX || value.len > PART_BLOCK_MAX)
        return err_set(e, ERR_LIMIT, "a row with %zu bytes of key and %zu of value", key.len,
                       value.len);
    CHECK(!w->rows || str_cmp(str_n(w->last, w->last_len), key) < 0);
    while (shared < w->shared_len && shared < key.len && w->last[shared] == key.ptr[shared])
        shared++;
    (void)wr_varint(&w->block, shared);
    (void)wr_varint(&w->block, key.len - shared);
    (void)buf_add(&w->block, key.ptr + shared, key.len - shared);
    (void)wr_varint(&w->block, value.len);
    (void)buf_add_str(&w->block, value);
    CHECK(buf_ok(&w->block));
    if (!w->rows) {
        memcpy(w->first, key.ptr, key.len);
        w->first_len = key.len;
    }
    memcpy(w->last, key.ptr, key.len);
    w->last_len = w->shared_len = key.len;
    w->rows++;
    w->block_rows++;
    if (w->block.len >= PART_BLOCK)
        end_block(w);
    return 0;
}

uint64_t part_bytes(const struct part_writer *w)
{
    return w->finished ? 0 : w->object.len + w->block.len;
}

/* A skippable frame (RFC 8878, section 3.1.2): decoders pass over it, so that parts with a stamp
 * are read by programs that know of none. */
static void put_stamp(struct part_writer *w, uint64_t stamp)
{
    (void)wr_u32le(&w->object, SKIP_MAGIC);
    (void)wr_u32le(&w->object, sizeof(stamp));
    (void)wr_u64le(&w->object, stamp);
}

void part_stamp(struct part_writer *w, uint64_t stamp, struct part_info *ret,
                struct str *ret_object)
{
    uint64_t at = w->index_at;

    CHECK(w->finished);
    w->object.len = w->index_end;
    if (stamp)
        put_stamp(w, stamp);
    size_t stored = w->object.len - at;
    uint64_t hash = hash64(w->object.ptr + at, stored, SEED);
    (void)wr_u64le(&w->object, at);
    (void)wr_u32le(&w->object, (uint32_t)stored);
    (void)wr_u32le(&w->object, (uint32_t)w->index.len);
    (void)wr_u32le(&w->object, w->blocks);
    (void)wr_u64le(&w->object, w->rows);
    (void)wr_u64le(&w->object, hash);
    (void)wr_u32le(&w->object, VERSION);
    (void)buf_add(&w->object, MAGIC_TEXT, 8);
    CHECK(buf_ok(&w->object));
    *ret = (struct part_info){
        .hash = hash128(w->object.ptr, w->object.len, SEED),
        .size = w->object.len,
        .rows = w->rows,
        .first = str_n(w->first, w->first_len),
        .last = str_n(w->last, w->last_len),
    };
    *ret_object = buf_str(&w->object);
}

void part_finish(struct part_writer *w, struct part_info *ret, struct str *ret_object)
{
    struct err e = { 0 };

    CHECK(w->rows && !w->finished);
    end_block(w);
    w->index_at = w->object.len;
    CHECK(zstd_compress(buf_str(&w->index), PART_LEVEL_ZSTD, &w->object, &e) == 0);
    w->index_end = w->object.len;
    w->finished = true;
    part_stamp(w, 0, ret, ret_object);
}

/* ---- reading -------------------------------------------------------------------------------- */

struct block {
    uint64_t at, rows, hash;
    uint32_t stored, plain;
    uint32_t key_at, key_len; /* the last key, in keys */
};
struct part_index {
    VEC(struct block) blocks;
    struct buf keys;
    uint64_t rows;
};

static int broken(struct err *e, const char *what)
{
    return err_set(e, ERR_CORRUPT, "the part is damaged: %s", what);
}

struct tail {
    uint64_t at, rows, hash;
    uint32_t stored, plain, blocks;
};

static int read_tail(struct str s, uint64_t size, struct tail *ret, struct err *e)
{
    struct rd r = rd_of(s);
    uint32_t version;
    struct str magic;

    if (!rd_u64le(&r, &ret->at) || !rd_u32le(&r, &ret->stored) || !rd_u32le(&r, &ret->plain) ||
        !rd_u32le(&r, &ret->blocks) || !rd_u64le(&r, &ret->rows) || !rd_u64le(&r, &ret->hash) ||
        !rd_u32le(&r, &version) || !rd_bytes(&r, 8, &magic) || rd_left(&r) ||
        !str_eqc(magic, MAGIC_TEXT))
        return broken(e, "it does not end as one");
    if (version != VERSION)
        return err_set(e, ERR_CONFIG, "the part is of version %" PRIu32 ", this program knows %d",
                       version, VERSION);
    if (ret->plain > PART_INDEX_MAX || ret->stored > size || ret->at > size ||
        ret->at + ret->stored + PART_TAIL_LEN != size)
        return broken(e, "its index is not where it should be");
    return 0;
}

static bool read_block(struct part_index *x, struct rd *r, uint64_t *at)
{
    struct block b = { .at = *at };
    uint64_t stored, plain, key_len;
    struct str key, before = STR_NULL;

    if (!rd_varint(r, &stored) || !rd_varint(r, &plain) || !rd_varint(r, &b.rows) ||
        !rd_u64le(r, &b.hash) || !rd_varint(r, &key_len) || key_len == 0 ||
        key_len > PART_KEY_MAX || !rd_bytes(r, (size_t)key_len, &key))
        return false;
    if (x->blocks.len) {
        const struct block *l = &x->blocks.ptr[x->blocks.len - 1];
        before = str_n(x->keys.ptr + l->key_at, l->key_len);
    }
    if (stored == 0 || stored > GIB || plain == 0 || plain > PART_BLOCK_MAX + PART_BLOCK + KIB ||
        b.rows == 0 || (before.len && str_cmp(before, key) >= 0))
        return false;
    b.stored = (uint32_t)stored;
    b.plain = (uint32_t)plain;
    b.key_at = (uint32_t)x->keys.len;
    b.key_len = (uint32_t)key_len;
    if (!buf_add_str(&x->keys, key))
        return false;
    vec_push(&x->blocks, b);
    *at += stored;
    x->rows += b.rows;
    return true;
}

static int read_blocks(struct part_index *x, const struct tail *t, struct str plain, struct err *e)
{
    struct rd r = rd_of(plain);
    uint64_t at = 0;

    for (uint32_t i = 0; i < t->blocks; i++)
        if (!read_block(x, &r, &at))
            return broken(e, "its index cannot be read");
    if (rd_left(&r) || at != t->at || x->rows != t->rows || !t->blocks)
        return broken(e, "its index does not add up");
    return 0;
}

int part_index_read(uint64_t size, part_fetch_fn fetch, void *cookie, struct part_index **ret,
                    struct err *e)
{
    struct part_index *x;
    struct buf stored, plain;
    struct tail t;
    int rc;

    if (size < PART_TAIL_LEN)
        return broken(e, "it is too short");
    x = XNEW(struct part_index);
    buf_init(&x->keys, PART_INDEX_MAX);
    buf_init(&stored, PART_INDEX_MAX * 2);
    buf_init(&plain, PART_INDEX_MAX);
    rc = fetch(cookie, size - PART_TAIL_LEN, PART_TAIL_LEN, &stored, e);
    if (!rc)
        rc = read_tail(buf_str(&stored), size, &t, e);
    if (!rc)
        rc = fetch(cookie, t.at, t.stored, &stored, e);
    if (!rc && hash64(stored.ptr, stored.len, SEED) != t.hash)
        rc = broken(e, "the hash of its index is another");
    if (!rc)
        rc = zstd_decompress(buf_str(&stored), t.plain, &plain, e) ? broken(e, "its index") : 0;
    if (!rc)
        rc = read_blocks(x, &t, buf_str(&plain), e);
    buf_deinit(&plain);
    buf_deinit(&stored);
    if (rc) {
        part_index_free(x);
        return rc;
    }
    *ret = x;
    return 0;
}

void part_index_free(struct part_index *x)
{
    if (!x)
        return;
    vec_free(&x->blocks);
    buf_deinit(&x->keys);
    xfree(x);
}

size_t part_index_bytes(const struct part_index *x)
{
    return sizeof(*x) + x->blocks.cap * sizeof(*x->blocks.ptr) + x->keys.cap;
}

uint64_t part_index_rows(const struct part_index *x)
{
    return x->rows;
}

size_t part_blocks(const struct part_index *x)
{
    return x->blocks.len;
}

size_t part_block_of(const struct part_index *x, struct str key)
{
    size_t low = 0, high = x->blocks.len;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        const struct block *b = &x->blocks.ptr[mid];

        if (str_cmp(str_n(x->keys.ptr + b->key_at, b->key_len), key) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

int part_block_read(const struct part_index *x, size_t i, part_fetch_fn fetch, void *cookie,
                    struct buf *out, struct err *e)
{
    const struct block *b = &x->blocks.ptr[i];
    struct buf stored;
    int rc;

    CHECK(i < x->blocks.len);
    buf_init(&stored, b->stored);
    buf_reset(out);
    rc = fetch(cookie, b->at, b->stored, &stored, e);
    if (!rc && (stored.len != b->stored || hash64(stored.ptr, stored.len, SEED) != b->hash))
        rc = broken(e, "the hash of a block is another");
    if (!rc && (zstd_decompress(buf_str(&stored), b->plain, out, e) || out->len != b->plain))
        rc = broken(e, "a block cannot be decompressed");
    buf_deinit(&stored);
    return rc;
}

/* ---- rows ----------------------------------------------------------------------------------- */

void part_row_begin(struct part_row *r, struct str block)
{
    r->left = rd_of(block);
    r->key_len = 0;
    r->value = STR_NULL;
}

int part_row_next(struct part_row *r)
{
    uint64_t shared, rest, len;
    struct str bytes;

    if (!rd_left(&r->left))
        return 0;
    if (!rd_varint(&r->left, &shared) || !rd_varint(&r->left, &rest) || shared > r->key_len ||
        rest == 0 || rest > PART_KEY_MAX - shared || !rd_bytes(&r->left, (size_t)rest, &bytes))
        return -1;
    /* Ascending: the first byte that differs is larger, or the old key ended. */
    if (shared < r->key_len && (uint8_t)bytes.ptr[0] <= (uint8_t)r->key[shared])
        return -1;
    memcpy(r->key + shared, bytes.ptr, (size_t)rest);
    r->key_len = (size_t)(shared + rest);
    if (!rd_varint(&r->left, &len) || len > rd_left(&r->left) ||
        !rd_bytes(&r->left, (size_t)len, &r->value))
        return -1;
    return 1;
}
