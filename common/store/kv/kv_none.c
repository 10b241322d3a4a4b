/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_none: stands in for a database that cannot be opened, so that no caller needs a special case.
 *
 * Every write and read fails with ERR_UNAVAILABLE and the reason; iterators are exhausted and carry
 * the same error; sizes are 0. Nothing is ever answered as if the database were empty: a caller
 * that ignored the error would otherwise take missing rows for deleted ones.
 *
 * Threads: any; nothing changes after kv_none_new.
 */
#include "common/store/kv/kv_none.h"

#include "common/base/mem.h"
#include "common/store/kv/kv_impl.h"

struct kv_none {
    struct kv kv;
    struct err why;
    char snap; /* its address is every snapshot */
};
struct none_iter {
    struct kv_iter it;
    struct err why;
};

static int unavailable(const struct kv_none *n, struct err *e)
{
    return err_set(e, ERR_UNAVAILABLE, "the database is closed: %s", n->why.text);
}

static struct kv_none *none_of(struct kv *k)
{
    return container_of(k, struct kv_none, kv);
}

static int none_write(struct kv *k, const struct kv_batch *b, bool sync, struct err *e)
{
    (void)b;
    (void)sync;
    return unavailable(none_of(k), e);
}

static int none_get(struct kv *k, const struct kv_snap *snap, enum kv_cf cf, struct str key,
                    struct buf *out, struct err *e)
{
    (void)snap;
    (void)cf;
    (void)key;
    (void)out;
    return unavailable(none_of(k), e);
}

static struct kv_snap *none_snap_new(struct kv *k)
{
    return (struct kv_snap *)(void *)&none_of(k)->snap;
}

static void none_snap_free(struct kv *k, struct kv_snap *s)
{
    CHECK((void *)s == &none_of(k)->snap);
}

/* ---- iterators: exhausted, with an error ---- */

static void iter_seek(struct kv_iter *it, struct str key)
{
    (void)key;
    it->valid = false;
}

static void iter_next(struct kv_iter *it)
{
    it->valid = false;
}

static int iter_status(struct kv_iter *it, struct err *e)
{
    *e = container_of(it, struct none_iter, it)->why;
    return e->code;
}

static void iter_free(struct kv_iter *it)
{
    xfree(container_of(it, struct none_iter, it));
}

static const struct kv_iter_ops iter_ops = {
    .seek = iter_seek,
    .next = iter_next,
    .status = iter_status,
    .free = iter_free,
};

struct kv_iter *kv_iter_failed(const struct err *why)
{
    struct none_iter *i = XNEW(struct none_iter);

    i->it.ops = &iter_ops;
    i->why = *why;
    return &i->it;
}

static struct kv_iter *none_iter_new(struct kv *k, const struct kv_snap *snap, enum kv_cf cf,
                                     struct str from, struct str to)
{
    struct err why;

    (void)snap;
    (void)cf;
    (void)from;
    (void)to;
    (void)unavailable(none_of(k), &why);
    return kv_iter_failed(&why);
}

/* ---- the rest ---- */

static void none_stats(struct kv *k, struct kv_stats *ret)
{
    (void)k;
    (void)ret; /* zeroed by the caller */
}

static int none_sizes(struct kv *k, enum kv_cf cf, const struct kv_range *ranges, size_t n,
                      uint64_t *ret, struct err *e)
{
    (void)cf;
    (void)ranges;
    (void)n;
    (void)ret;
    return unavailable(none_of(k), e);
}

static int none_disk(struct kv *k, struct kv_disk *ret, struct err *e)
{
    (void)ret;
    return unavailable(none_of(k), e);
}

static int none_flush(struct kv *k, struct err *e)
{
    return unavailable(none_of(k), e);
}

static void none_close(struct kv *k)
{
    xfree(none_of(k));
}

static const struct kv_ops none_ops = {
    .write = none_write,
    .get = none_get,
    .snap_new = none_snap_new,
    .snap_free = none_snap_free,
    .iter_new = none_iter_new,
    .stats = none_stats,
    .sizes = none_sizes,
    .disk = none_disk,
    .flush = none_flush,
    .close = none_close,
};

struct kv *kv_none_new(const struct err *why)
{
    struct kv_none *n = XNEW(struct kv_none);

    n->kv.ops = &none_ops;
    n->why = *why;
    return &n->kv;
}
