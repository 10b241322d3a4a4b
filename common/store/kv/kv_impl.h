/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_impl.h: what the implementations of kv.h share: the table of functions each fills, the bytes
 * of a batch. Only they and kvs over other kvs include it (common/cold, common/repl).
 */
#ifndef COMMON_STORE_KV_KV_IMPL_H
#define COMMON_STORE_KV_KV_IMPL_H

#include "common/base/rd.h"
#include "common/store/kv/kv.h"

struct kv_ops {
    int (*write)(struct kv *k, const struct kv_batch *b, bool sync, struct err *e);
    int (*get)(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
               struct buf *out, struct err *e);
    struct kv_snap *(*snap_new)(struct kv *k);
    void (*snap_free)(struct kv *k, struct kv_snap *s);
    struct kv_iter *(*iter_new)(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                struct str from, struct str to);
    void (*stats)(struct kv *k, struct kv_stats *ret);
    void (*cache_resize)(struct kv *k, uint64_t bytes); /* NULL: has none */
    int (*sizes)(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                 uint64_t *ret, struct err *e); /* NULL: bytes of keys and values */
    int (*disk)(struct kv *k, struct kv_disk *ret, struct err *e); /* NULL: the same */
    int (*flush)(struct kv *k, struct err *e);
    bool (*compact)(struct kv *k, enum kv_cf cf, struct str from, struct str to);
    /* Optional: drops files that lie inside [from, last], both inclusive. */
    int (*drop_files)(struct kv *k, enum kv_cf cf, struct str from, struct str last, struct err *e);
    /* Optional: begins to write out what is in memory of cf. */
    int (*flush_soon)(struct kv *k, enum kv_cf cf, struct err *e);
    /* Optional: nothing lies elsewhere without. */
    int (*far)(struct kv *k, const struct kv_snap *snap, kv_far_fn each, void *cookie,
               struct err *e);
    int (*checkpoint)(struct kv *k, const char *dir, struct err *e); /* NULL: has no files */
    /* Optional, all or none: pipelined batches. */
    int (*begin)(struct kv *k, const struct kv_batch *b, uint64_t *ret_number, struct err *e);
    uint64_t (*begun_done)(struct kv *k);
    uint64_t (*begun_touches)(struct kv *k, enum kv_cf cf, struct str from, struct str to);
    int (*begun_wait)(struct kv *k, uint64_t number, uint64_t wait_ms, struct err *e);
    void (*close)(struct kv *k);
};
/* First member of each implementation's own struct. */
struct kv {
    const struct kv_ops *ops;
    size_t batch_max; /* bytes; 0: KV_BATCH_BYTES_MAX */
    bool begins;      /* has pipelined batches: kv_begin */
};

struct kv_iter_ops {
    void (*seek)(struct kv_iter *it, struct str key); /* key lies inside the bounds */
    void (*next)(struct kv_iter *it);
    int (*status)(struct kv_iter *it, struct err *e);
    void (*free)(struct kv_iter *it);
};
/* First member, too; every move sets valid, key and value. */
struct kv_iter {
    const struct kv_iter_ops *ops;
    struct buf from; /* owned copy of the lower bound */
    bool valid;
    struct str key, value; /* borrowed from the implementation */
};

enum kv_op { KV_PUT, KV_DEL, KV_DEL_RANGE };
/* A batch is its operations, one after the other, in order:
 *   u8 op << 4 | cf, varint key bytes, key, and but for KV_DEL: varint bytes, value or end key. */
struct kv_batch {
    struct buf ops;
    size_t count;
};
struct kv_entry {
    enum kv_op op;
    enum kv_cf cf;
    struct str key;
    struct str value; /* KV_DEL_RANGE: the end key */
};
/* Operations in order: start with rd_of(buf_str(&b->ops)); false at the end. */
bool kv_batch_next(struct rd *r, struct kv_entry *ret);
/* Returns an iterator that is exhausted, with this error as its status. */
struct kv_iter *kv_iter_failed(const struct err *why);

#endif
