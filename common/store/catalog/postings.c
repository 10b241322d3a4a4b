/* SPDX-License-Identifier: Apache-2.0
 *
 * postings: sets of ordinals, a chunk of 65,536 ordinals at a time.
 *
 * A new series costs one small key per label (a "tail"); about every 64th ordinal a pair gets, the
 * tails of that chunk that are committed join its Roaring bitmap. So adding never rewrites a long
 * list, and a read meets few tails. Which ordinal triggers it is a function of numbers alone.
 *
 * Why batches in flight do no harm: the bitmap written is what is committed at staging, and only
 * tails found there are deleted. Batches commit in the order of staging, so a later bitmap holds
 * everything an earlier one does; the ordinal being added always stays a tail of its own.
 */
#include "common/store/catalog/postings.h"

#include "common/base/mem.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"

#define JOIN_MASK 63 /* one of 64 additions looks */
#define JOIN_MIN  16 /* tails */

static int read_chunk(struct str key, struct str value, roaring_bitmap_t *to, struct err *e)
{
    uint32_t chunk = get_u16be(key.ptr + KEY_POST_LEN - 2);
    bool whole = roaring_bitmap_portable_deserialize_size(value.ptr, value.len) == value.len;
    roaring_bitmap_t *r =
        whole ? roaring_bitmap_portable_deserialize_safe(value.ptr, value.len) : NULL;

    if (!r || roaring_bitmap_is_empty(r) || roaring_bitmap_minimum(r) >> POST_CHUNK_BITS != chunk ||
        roaring_bitmap_maximum(r) >> POST_CHUNK_BITS != chunk) {
        if (r)
            roaring_bitmap_free(r);
        return err_set(e, ERR_CORRUPT, "postings of %zu bytes are no set of chunk %u", value.len,
                       chunk);
    }
    roaring_bitmap_or_inplace(to, r);
    roaring_bitmap_free(r);
    return 0;
}

/* Rows from..to into *bits; tails also into *tails, if given. */
static int read_rows(const struct kv_view *v, const struct key *from, const struct key *to,
                     roaring_bitmap_t *bits, roaring_bitmap_t *tails, struct err *e)
{
    struct kv_iter *it = kv_iter_new(v->kv, v->snap, KV_META, key_str(from), key_str(to));
    int rc = 0;

    for (; !rc && kv_iter_valid(it); kv_iter_next(it)) {
        struct str key = kv_iter_key(it);
        if (key.len == KEY_POST_LEN) {
            rc = read_chunk(key, kv_iter_value(it), bits, e);
        } else if (key.len == KEY_POST_TAIL_LEN) {
            uint32_t ordinal = get_u32be(key.ptr + KEY_POST_TAIL_LEN - 4);
            roaring_bitmap_add(bits, ordinal);
            if (tails)
                roaring_bitmap_add(tails, ordinal);
        } else {
            rc = err_set(e, ERR_CORRUPT, "postings key of %zu bytes", key.len);
        }
    }
    if (!rc)
        rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int postings_read(struct kv *kv, const struct kv_snap *snap, uint32_t tenant, uint32_t pair,
                  roaring_bitmap_t *to, struct err *e)
{
    struct key from, end;

    key_post_pair(&from, tenant, pair);
    end = from;
    key_end(&end);
    return read_rows(&(struct kv_view){ kv, snap }, &from, &end, to, NULL, e);
}

static void put_joined(uint32_t tenant, uint32_t pair, const struct key *key,
                       const roaring_bitmap_t *bits, const roaring_bitmap_t *tails,
                       struct kv_batch *b)
{
    size_t n = roaring_bitmap_portable_size_in_bytes(bits);
    char *row = xmalloc(n);
    struct key k;

    CHECK(roaring_bitmap_portable_serialize(bits, row) == n);
    kv_batch_put(b, KV_META, key_str(key), str_n(row, n));
    xfree(row);
    roaring_uint32_iterator_t *it = roaring_create_iterator(tails);
    for (; it->has_value; roaring_advance_uint32_iterator(it)) {
        key_post_tail(&k, tenant, pair, it->current_value);
        kv_batch_del(b, KV_META, key_str(&k));
    }
    roaring_free_uint32_iterator(it);
}

/* Reads the stored bitmap of a chunk into *bits, and sets *ret_next to the first ordinal behind it.
 * Tails that were joined are deleted keys, thousands of them until the memtable is flushed, and a
 * scan for tails that began at the first of them would pass them all. So it begins at *ret_next.
 * Ordinals only rise, so there is no live tail among the deleted keys; if there were one, it would
 * stay a tail. */
static int read_joined(struct kv *kv, const struct key *chunk, roaring_bitmap_t *bits,
                       uint32_t *ret_next, struct err *e)
{
    struct buf row;

    buf_init(&row, MIB);
    int rc = kv_get(kv, NULL, KV_META, key_str(chunk), &row, e);
    if (!rc)
        rc = read_chunk(key_str(chunk), buf_str(&row), bits, e);
    if (!rc)
        *ret_next = roaring_bitmap_maximum(bits) + 1;
    buf_deinit(&row);
    return rc == ERR_NOT_FOUND ? 0 : rc;
}

static void join(struct kv *kv, uint32_t tenant, uint32_t pair, uint32_t ordinal,
                 struct kv_batch *b)
{
    roaring_bitmap_t *bits = roaring_bitmap_create(), *tails = roaring_bitmap_create();
    uint32_t next = ordinal >> POST_CHUNK_BITS << POST_CHUNK_BITS;
    struct kv_view now = { .kv = kv };
    struct key chunk, from, end;
    struct err e;

    key_post(&chunk, tenant, pair, ordinal >> POST_CHUNK_BITS);
    end = chunk;
    key_end(&end);
    int rc = read_joined(kv, &chunk, bits, &next, &e);
    key_post_tail(&from, tenant, pair, next);
    if (!rc && next <= ordinal && !read_rows(&now, &from, &end, bits, tails, &e) &&
        roaring_bitmap_get_cardinality(tails) >= JOIN_MIN)
        put_joined(tenant, pair, &chunk, bits, tails, b);
    roaring_bitmap_free(bits);
    roaring_bitmap_free(tails);
}

void postings_add(struct kv *kv, uint32_t tenant, uint32_t pair, uint32_t ordinal,
                  struct kv_batch *b)
{
    struct key k;

    key_post_tail(&k, tenant, pair, ordinal);
    kv_batch_put(b, KV_META, key_str(&k), STR(""));
    if (((ordinal ^ pair) & JOIN_MASK) == 0)
        join(kv, tenant, pair, ordinal, b);
}
