/* SPDX-License-Identifier: Apache-2.0
 *
 * store_impl.h: what one open shard is, for the folders of the store from state/ on. What most of
 * them need stands in narrower headers: commit.h (write, clock), view.h (snapshots), store_batch.h.
 */
#ifndef COMMON_STORE_STATE_STORE_IMPL_H
#define COMMON_STORE_STATE_STORE_IMPL_H

#include <stdatomic.h>

#include "common/base/list.h"
#include "common/store/catalog/names.h"
#include "common/store/catalog/series.h"
#include "common/store/codec/raw.h"
#include "common/store/codec/sum.h"
#include "common/store/dict/dict_cache.h"
#include "common/store/state/engine_clock.h"
#include "common/store/state/hot.h"
#include "common/store/state/part_cache.h"
#include "common/store/state/tl_rows.h"
#include "common/store/state/wid.h"
#include "common/store/store.h"
#include "common/sys/thread.h"

#define STORE_ROW_MAX  GIB /* of s->row, */
#define STORE_TEXT_MAX MIB /* and s->text */

#define STORE_WHYS 8

struct build_state;
struct exm_gate;
struct groups;
struct ledger;
struct store_gate;
struct store_pipe;
struct retain;
struct rollup;
struct shown;
struct stage;
struct tombs;
#define STORE_SHUT_READ_ONLY 1u /* it takes no writes */
#define STORE_SHUT_REOPENING 2u /* it was read-only, and says so until it is open again */

struct store {
    /* First, and never written again: readers look at it while the rest is made again. */
    struct store_gate *gate; /* owned */
    /* Any thread reads these, also while reopen.c makes the rest again: it never clears them as
     * plain memory. What stands between `gate` and `o` is not wiped. */
    _Atomic uint64_t committed; /* number of the last batch committed */
    _Atomic uint64_t applied;   /* seal entries */
    _Atomic uint64_t nodes_built[KEY_LEVELS], rows_built, marks, marks_due;
    _Atomic int64_t build_lag_ms, build_lag_coarse_ms;
    _Atomic uint64_t overflow; /* stacks */
    _Atomic uint64_t raw_rows, series_count, dict_nodes, saturated, names_bytes;
    _Atomic uint64_t stage_bytes, stage_wants; /* stage_scratch.h */
    _Atomic int64_t engine_ms, ahead_ms;
    /* store_share, store_shrink: 0 where nothing was said since it was opened. */
    _Atomic uint64_t share_dicts, share_names, share_hot, share_stage, shrunk_to;
    _Atomic bool held, paused;
    _Atomic uint8_t shut; /* STORE_SHUT_ bits: one word, so that no reader sees a moment between */
    _Atomic uint64_t exm_stored, exm_over, exm_old;
    /* Why it is read-only: the slot of the newest reason. A reader may keep the text of one for as
     * long as it takes until so many more came. */
    struct err whys[STORE_WHYS];
    _Atomic uint32_t why_at;

    struct store_opts o;
    /* Puts what stands beside each row of the clock (store_put_clock); set by open.c. */
    void (*on_clock)(struct store *s, int64_t engine_ms, struct kv_batch *b);
    struct kv *kv;            /* owned */
    unsigned format;          /* of the rows; an old one only if it is opened to be read */
    struct dict_cache *dicts; /* any thread */

    /* The shard thread's. */
    struct names *names;
    struct retain *retain; /* retain_state.h */
    struct series_cache *series;
    struct groups *groups;
    struct rollup *rollup;
    struct tombs *tombs;
    struct wids *wids;
    struct ledger *ledger;   /* owned */
    struct store_pipe *pipe; /* owned; pipe.h says who uses what of it */
    struct engine_clock clock;
    struct part_cache *parts;                   /* owned */
    struct tl_rows *tl_rows;                    /* owned; empty between batches */
    struct build_state *build;                  /* owned */
    int64_t build_look_ms;                      /* engine time: nothing is due before */
    uint64_t dirty_steps;                       /* that were no seal entries: dirty_entry */
    struct raw_counts raw;                      /* staged ones too */
    uint32_t raw_low;                           /* as the last batch or entry wrote it */
    uint32_t write_id_low, write_id_high_saved; /* the second: as the last batch wrote it */
    uint32_t sealed_high;                       /* highest bucket an entry touched + 1; 0 = none */
    struct key seal_from;    /* where the next entry begins; empty: at the lowest row */
    uint64_t late_after_ms;  /* monotonic: late rows are gathered until then */
    uint64_t empty_after_ms; /* a look for due rows found none */
    int64_t clock_written_ms;
    bool clock_jump_saved; /* CONTROL_STOOD says something */
    uint64_t staged;       /* number of the last batch made */
    size_t batch_bytes;    /* of the last one staged into */
    struct arena *arena;   /* of one request or one seal */
    struct dict_scratch scratch;
    struct sum sum;
    struct stage *stage;  /* owned; stage_scratch.h */
    struct exm_gate *exm; /* owned; exm_write.c */
    struct dict_cap dict_cap;
    struct buf row, text;
    VEC(uint64_t) hashes;

    /* What readers get: view.c. */
    struct hot *hot;
    struct shown *shown;   /* guarded by `show`; replaced under `write`, too */
    struct list shown_all; /* guarded by `show`: those that may have readers, oldest first */
    uint64_t shown_number; /* guarded by `show`: of the newest */
    struct mutex show;
    uint64_t published_seq, published_applied; /* guarded by `write`: of the next one */

    /* Batches and seal entries come from two threads; the kv takes one writer at a time. */
    struct mutex write;
    bool read_only_set; /* guarded by `write` */
};

#endif
