/* SPDX-License-Identifier: Apache-2.0
 *
 * kv: batches, and the checks that hold for every implementation.
 *
 * A batch is encoded at once into one run of bytes that belongs to no implementation: it can be
 * built before it is known where it goes, joined with others by one copy (group commit), kept by
 * the in-memory store as its log, and replayed into RocksDB's own batch at the end.
 */
#include "common/store/kv/kv.h"

#include "common/base/mem.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_impl.h"

#define DROP_TAIL 64 /* longer than what keys of CFs with ranges have behind a prefix */

/* ---- batches ---- */

struct kv_batch *kv_batch_new(void)
{
    struct kv_batch *b = XNEW(struct kv_batch);

    buf_init(&b->ops, KV_BATCH_BYTES_MAX);
    return b;
}

void kv_batch_free(struct kv_batch *b)
{
    if (!b)
        return;
    buf_deinit(&b->ops);
    xfree(b);
}

void kv_batch_clear(struct kv_batch *b)
{
    buf_reset(&b->ops);
    b->count = 0;
}

static void batch_add(struct kv_batch *b, enum kv_op op, enum kv_cf cf, struct str key,
                      const struct str *value)
{
    CHECK((unsigned)cf < KV_CFS && key.len <= KV_KEY_BYTES_MAX);
    /* Room first: an operation is in the batch whole or not at all. */
    if (!buf_room(&b->ops, key.len + (value ? value->len : 0) + 24))
        return;
    wr_u8(&b->ops, (uint8_t)(op << 4 | cf));
    wr_varint(&b->ops, key.len);
    buf_add_str(&b->ops, key);
    if (value) {
        wr_varint(&b->ops, value->len);
        buf_add_str(&b->ops, *value);
    }
    CHECK(buf_ok(&b->ops));
    b->count++;
}

void kv_batch_put(struct kv_batch *b, enum kv_cf cf, struct str key, struct str value)
{
    batch_add(b, KV_PUT, cf, key, &value);
}

void kv_batch_del(struct kv_batch *b, enum kv_cf cf, struct str key)
{
    batch_add(b, KV_DEL, cf, key, NULL);
}

void kv_batch_del_range(struct kv_batch *b, enum kv_cf cf, struct str from, struct str to)
{
    CHECK(to.len && to.len <= KV_KEY_BYTES_MAX);
    if (str_cmp(from, to) < 0) /* RocksDB would refuse the whole batch otherwise */
        batch_add(b, KV_DEL_RANGE, cf, from, &to);
}

size_t kv_batch_count(const struct kv_batch *b)
{
    return b->count;
}

size_t kv_batch_bytes(const struct kv_batch *b)
{
    return b->ops.len;
}

void kv_batch_reserve(struct kv_batch *b, size_t bytes)
{
    if (bytes < b->ops.max - b->ops.len)
        (void)buf_room(&b->ops, bytes);
}

struct str kv_batch_part(const struct kv_batch *b, size_t at, size_t len)
{
    CHECK(at <= b->ops.len && len <= b->ops.len - at);
    return str_n(b->ops.ptr + at, len);
}

size_t kv_batch_max(const struct kv *k)
{
    return k->batch_max ? k->batch_max : KV_BATCH_BYTES_MAX;
}

void kv_batch_append(struct kv_batch *to, const struct kv_batch *from)
{
    CHECK(to != from);
    if (from->ops.failed)
        to->ops.failed = true;
    if (from->ops.len && buf_add(&to->ops, from->ops.ptr, from->ops.len))
        to->count += from->count;
}

static bool read_str(struct rd *r, struct str *ret)
{
    uint64_t n;

    return rd_varint(r, &n) && n <= rd_left(r) && rd_bytes(r, (size_t)n, ret);
}

bool kv_batch_next(struct rd *r, struct kv_entry *ret)
{
    uint8_t head;

    if (!rd_u8(r, &head))
        return false;
    /* Only this file writes these bytes: anything odd is our own fault. */
    *ret = (struct kv_entry){ .op = (enum kv_op)(head >> 4), .cf = (enum kv_cf)(head & 15) };
    CHECK(ret->op <= KV_DEL_RANGE && ret->cf < KV_CFS && read_str(r, &ret->key));
    if (ret->op != KV_DEL)
        CHECK(read_str(r, &ret->value));
    return true;
}

/* ---- dispatch ---- */

void kv_close(struct kv *k)
{
    if (k)
        k->ops->close(k);
}

int kv_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    if (!buf_ok(&b->ops) || kv_batch_bytes(b) > kv_batch_max(k))
        return err_set(e, ERR_LIMIT, "a batch would pass %zu bytes; write it in parts",
                       kv_batch_max(k));
    return k->ops->write(k, b, sync, e);
}

bool kv_begins(const struct kv *k)
{
    return k->begins;
}

int kv_begin(struct kv *k, const struct kv_batch *b, uint64_t *ret_number, struct err *e)
{
    if (!buf_ok(&b->ops) || kv_batch_bytes(b) > kv_batch_max(k))
        return err_set(e, ERR_LIMIT, "a batch would pass %zu bytes; write it in parts",
                       kv_batch_max(k));
    return k->ops->begin(k, b, ret_number, e);
}

uint64_t kv_begun_done(struct kv *k)
{
    return k->ops->begun_done(k);
}

uint64_t kv_begun_touches(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    return k->begins ? k->ops->begun_touches(k, cf, from, to) : 0;
}

int kv_begun_wait(struct kv *k, uint64_t number, uint64_t wait_ms, struct err *e)
{
    return number && k->begins ? k->ops->begun_wait(k, number, wait_ms, e) : 0;
}

int kv_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key, struct buf *out,
           struct err *e)
{
    CHECK((unsigned)cf < KV_CFS);
    return k->ops->get(k, snap, cf, key, out, e);
}

struct kv_snap *kv_snap_new(struct kv *k)
{
    return k->ops->snap_new(k);
}

void kv_snap_free(struct kv *k, struct kv_snap *s)
{
    if (s)
        k->ops->snap_free(k, s);
}

void kv_stats(struct kv *k, struct kv_stats *ret)
{
    *ret = (struct kv_stats){ 0 };
    k->ops->stats(k, ret);
}

int kv_flush(struct kv *k, struct err *e)
{
    return k->ops->flush(k, e);
}

/* Dropped files are gone for good at once, so the log goes to the disk before: what made their rows
 * superfluous must not be lost in a power cut. The file drop comes first: a file may hold a
 * deletion that covers rows of another one, which only overlaps the range. The deletion written
 * behind it covers those again. */
int kv_drop_range(struct kv *k, enum kv_cf cf, struct str from, struct str to, struct err *e)
{
    struct buf last;
    int rc = 0;

    CHECK((unsigned)cf < KV_CFS && to.len && to.len <= KV_KEY_BYTES_MAX);
    if (str_cmp(from, to) >= 0)
        return 0;
    /* A key below `to` that no stored key below `to` is above: files end inclusively. */
    buf_init(&last, to.len + DROP_TAIL);
    CHECK(buf_add_str(&last, to));
    while (last.len && last.ptr[last.len - 1] == 0)
        last.len--;
    if (last.len) {
        last.ptr[last.len - 1] = (char)((uint8_t)last.ptr[last.len - 1] - 1);
        memset(buf_room(&last, DROP_TAIL), 0xff, DROP_TAIL);
        last.len += DROP_TAIL;
    }
    struct kv_batch *b = kv_batch_new();
    if (k->ops->drop_files)
        rc = kv_write(k, b, true, e);
    if (!rc && k->ops->drop_files && str_cmp(from, buf_str(&last)) < 0)
        rc = k->ops->drop_files(k, cf, from, buf_str(&last), e);
    buf_deinit(&last);
    if (!rc) {
        kv_batch_del_range(b, cf, from, to);
        rc = kv_write(k, b, false, e);
    }
    if (!rc && k->ops->flush_soon)
        rc = k->ops->flush_soon(k, cf, e);
    kv_batch_free(b);
    return rc;
}

/* ---- iterators ---- */

struct kv_iter *kv_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                            struct str from, struct str to)
{
    CHECK((unsigned)cf < KV_CFS);
    struct kv_iter *it = k->ops->iter_new(k, snap, cf, from, to);
    buf_init(&it->from, MAX(from.len, 1));
    CHECK(buf_add_str(&it->from, from));
    it->ops->seek(it, from);
    return it;
}

void kv_iter_free(struct kv_iter *it)
{
    if (!it)
        return;
    buf_deinit(&it->from);
    it->ops->free(it);
}

bool kv_iter_valid(const struct kv_iter *it)
{
    return it->valid;
}

struct str kv_iter_key(const struct kv_iter *it)
{
    CHECK(it->valid);
    return it->key;
}

struct str kv_iter_value(const struct kv_iter *it)
{
    CHECK(it->valid);
    return it->value;
}

void kv_iter_next(struct kv_iter *it)
{
    CHECK(it->valid);
    it->ops->next(it);
}

void kv_iter_seek(struct kv_iter *it, struct str key)
{
    struct str from = buf_str(&it->from);

    it->ops->seek(it, str_cmp(key, from) < 0 ? from : key);
}

int kv_iter_status(struct kv_iter *it, struct err *e)
{
    return it->ops->status(it, e);
}

void kv_cache_resize(struct kv *k, uint64_t bytes)
{
    if (k->ops->cache_resize)
        k->ops->cache_resize(k, bytes);
}

/* For an implementation without files: the bytes of keys and values themselves. */
static int bytes_of(struct kv *k, enum kv_cf cf, struct str from, struct str to, uint64_t *ret,
                    struct err *e)
{
    struct kv_iter *it = kv_iter_new(k, NULL, cf, from, to);

    *ret = 0;
    for (; kv_iter_valid(it); kv_iter_next(it))
        *ret += kv_iter_key(it).len + kv_iter_value(it).len;
    int rc = kv_iter_status(it, e);
    kv_iter_free(it);
    return rc;
}

int kv_sizes(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n, uint64_t *ret,
             struct err *e)
{
    int rc = 0;

    for (size_t i = 0; i < n; i++)
        CHECK(ranges[i].to.len);
    if (n && k->ops->sizes)
        return k->ops->sizes(k, cf, ranges, n, ret, e);
    for (size_t i = 0; i < n && !rc; i++)
        rc = bytes_of(k, cf, ranges[i].from, ranges[i].to, &ret[i], e);
    return rc;
}

int kv_far(struct kv *k, const struct kv_snap *snap, kv_far_fn each, void *cookie, struct err *e)
{
    return k->ops->far ? k->ops->far(k, snap, each, cookie, e) : 0;
}

int kv_disk(struct kv *k, struct kv_disk *ret, struct err *e)
{
    int rc = 0;

    if (k->ops->disk)
        return k->ops->disk(k, ret, e);
    *ret = (struct kv_disk){ 0 };
    for (int i = 0; i < KV_CFS && !rc; i++) {
        rc = bytes_of(k, (enum kv_cf)i, STR_NULL, STR_NULL, &ret->live_bytes[i], e);
        ret->tables_bytes += ret->live_bytes[i];
    }
    return rc;
}

bool kv_has_files(const struct kv *k)
{
    return k->ops->checkpoint != NULL;
}

int kv_checkpoint(struct kv *k, const char *dir, struct err *e)
{
    if (!k->ops->checkpoint)
        return err_set(e, ERR_UNIMPLEMENTED, "this database has no files");
    return k->ops->checkpoint(k, dir, e);
}

bool kv_compact(struct kv *k, enum kv_cf cf, struct str from, struct str to)
{
    CHECK((unsigned)cf < KV_CFS && to.len && to.len <= KV_KEY_BYTES_MAX);
    if (!k->ops->compact || str_cmp(from, to) >= 0)
        return true;
    return k->ops->compact(k, cf, from, to);
}
