/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_cold_impl.h: declarations shared by kv_cold.c and cold_iter.c; no other file includes it.
 */
#ifndef COMMON_COLD_KV_COLD_IMPL_H
#define COMMON_COLD_KV_COLD_IMPL_H

#include "common/cold/kv_cold.h"
#include "common/store/kv/kv_impl.h"
#include "common/sys/thread.h"

struct kv_cold {
    struct kv kv;
    struct kv_cold_opts o;
    struct mutex writing; /* of writers, over a change of the manifest and its rows; before lock */
    struct mutex lock;    /* guards the fields below; never held over a write */
    struct manifest *now;
    bool changing; /* a batch with another manifest is on its way into the inner kv, or failed */
    size_t index_bytes;
    uint64_t index_clock;
    VEC(struct cold_part *) loaded; /* parts whose index is in memory */
    struct {
        bool on, changed;
        enum kv_cf cf;
        struct str from, to; /* owned */
    } watch;
    _Atomic bool cold; /* is there any part, or a watch? else writes need no look */
};
struct cold_snap {
    struct kv_snap *inner;
    struct manifest *m;
};

/* Rows of the parts of one family, in order. */
struct cold_cursor {
    struct kv_cold *k;
    struct manifest *m; /* borrowed */
    enum kv_cf cf;
    struct str to;            /* borrowed; empty: no end */
    size_t part, block;       /* the row's */
    struct part_index *index; /* of part `part`; NULL: none held */
    struct buf bytes;         /* the block */
    struct part_row row;
    bool valid;
    struct err err;
};
void cold_cursor_init(struct cold_cursor *c, struct kv_cold *k, struct manifest *m, enum kv_cf cf,
                      struct str to);
void cold_cursor_deinit(struct cold_cursor *c);
void cold_cursor_seek(struct cold_cursor *c, struct str key); /* the first row >= key */
void cold_cursor_next(struct cold_cursor *c);

/* Takes `m` (a reference) and `inner`. */
struct kv_iter *cold_iter_new(struct kv_cold *k, struct kv_iter *inner, struct manifest *m,
                              enum kv_cf cf, struct str to);

/* The index of a part, in memory until it is given back. */
NODISCARD int cold_index_get(struct kv_cold *k, struct cold_part *p, struct part_index **ret,
                             struct err *e);
void cold_index_put(struct kv_cold *k, struct cold_part *p);
/* A block of a part. If the cached bytes are damaged they are fetched again, once. */
NODISCARD int cold_block_read(struct kv_cold *k, const struct cold_part *p,
                              const struct part_index *x, size_t block, struct buf *out,
                              struct err *e);

#endif
