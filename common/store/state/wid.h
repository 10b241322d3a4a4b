/* SPDX-License-Identifier: Apache-2.0
 *
 * wid.h: write ids: which pushes are stored or staged already. Keys and values: keys.h.
 *
 * Thread: the shard's, but wid_row_* any.
 */
#ifndef COMMON_STORE_STATE_WID_H
#define COMMON_STORE_STATE_WID_H

#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct wid_row {
    uint32_t t;      /* first slot */
    uint32_t rows;   /* raw rows it came with */
    uint32_t folded; /* of them in sealed vectors */
    uint64_t entry;  /* last seal entry that folded one; none: the last there was at arrival */
    /* Not in the row: */
    uint32_t bucket; /* where wids_known found it */
    uint64_t print;  /* wids_add: fingerprint of the push, 0: not known */
};
#define WID_ROW_MAX 32
size_t wid_row_put(const struct wid_row *r, char out[WID_ROW_MAX]);
NODISCARD int wid_row_read(struct str row, struct wid_row *ret, struct err *e);

/* A write id, and when the push that carries it arrived. */
struct wid_arrival {
    uint32_t tenant;
    const uint8_t *wid; /* 16 bytes; borrowed */
    int64_t engine_ms;
};

struct wids;
/* filter_bytes: at most, for ids that need not be looked for (wid_filter.h). */
struct wids *wids_new(struct kv *kv, uint32_t horizon_ms, size_t filter_bytes);
void wids_free(struct wids *w);

/* *ret is true if the write id was stored within the horizon before a->engine_ms, or is in a batch
 * that is not committed yet. Then *ret_row is its row; its `entry` is UINT64_MAX if it is not
 * committed. */
NODISCARD int wids_known(struct wids *w, const struct wid_arrival *a, bool *ret,
                         struct wid_row *ret_row, struct err *e);
/* Puts the row into batch b, number `seq`; from now on wids_known finds the write id. Returns false
 * and puts nothing if the write id is in a batch that is not committed. */
NODISCARD bool wids_add(struct wids *w, const struct wid_arrival *a, const struct wid_row *row,
                        uint64_t seq, struct kv_batch *b);
/* After wids_known found `row`: ERR_CONFLICT if it came with another fingerprint than `print`. A
 * fingerprint that is not known (0) is equal to any. */
NODISCARD int wids_check_print(struct wids *w, uint32_t tenant, const uint8_t wid[16],
                               const struct wid_row *row, uint64_t print, struct err *e);
/* Fingerprints of buckets below this are not needed any more. */
void wids_drop_prints(uint32_t low, struct kv_batch *b);
/* ERR_CORRUPT. */
NODISCARD int wid_print_read(struct str row, uint64_t *ret, struct err *e);
/* Batches up to `committed` can be read back: stop remembering them here. */
void wids_committed(struct wids *w, uint64_t committed);
/* Buckets below this are behind the horizon. */
uint32_t wids_low(const struct wids *w, int64_t engine_ms);

#endif
