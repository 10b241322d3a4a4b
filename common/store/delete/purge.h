/* SPDX-License-Identifier: Apache-2.0
 *
 * purge.h: declarations that the files of purging share. tomb.h says what purging is. Only the
 * files below and tomb*.c include this header.
 *
 *   purge.c          phases, steps, progress, the end of a tomb
 *   purge_step.c     the batch of a step, and its budget
 *   purge_span.c     whole ranges: (column family, level, bucket) with rows of a tenant or service
 *   purge_rows.c     single rows, of some series or a range of time; dirty marks on their parents
 *   purge_groups.c   roll-ups of services that lose some series: stages, and the fallback
 *   purge_of.c       the groups of a deleted series
 *   purge_floor.c    minutes of groups that cannot be corrected, since the members' leaves expired
 *   purge_fix.c      units of time in which deleted series have rows
 *   purge_ru.c       corrects the rows of groups in one unit
 *   purge_leaves.c   corrects the leaves in which gauges of a group had data; forgets the groups of
 *                    deleted series
 *   purge_index.c    postings and label pairs that no series has; days of services
 */
#ifndef COMMON_STORE_DELETE_PURGE_H
#define COMMON_STORE_DELETE_PURGE_H

#include <roaring/roaring.h>

#include "common/store/build/rollup_build.h"
#include "common/store/catalog/group.h"
#include "common/store/codec/timeline_row.h"
#include "common/store/codec/vecdiff.h"
#include "common/store/codec/vecsum.h"
#include "common/store/ledger/ledger_counts.h"
#include "common/store/mask/tomb_list.h"
#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"
#include "common/store/state/function_cost_calc.h"
#include "common/store/state/rollup_row.h"

/* ---- runs of keys: purge_span.c ---- */

/* Column families whose keys are: `head` bytes (a level), bucket u32, tenant u32, scope u32. */
struct purge_cf {
    enum kv_cf cf;
    size_t head;
};
extern const struct purge_cf PURGE_CF[];
#define PURGE_CFS 6

struct purge_span {
    enum kv_cf cf;
    size_t head;
    uint32_t lead; /* byte of the head */
    uint32_t bucket;
    bool end; /* nothing follows */
};
/* The first from *at on with rows of the tenant, or (scope > 0) service: 1; 0: none; -1: error. */
int purge_next_span(struct kv *kv, const struct kv_snap *snap, uint32_t tenant, uint32_t scope,
                    struct purge_span *at, struct err *e);
void purge_span_step(struct purge_span *at); /* behind it */
void purge_span_keys(const struct purge_span *at, uint32_t tenant, uint32_t scope,
                     struct key *ret_from, struct key *ret_to);

/* ---- one tomb at work: shard thread ---- */

struct purge_step { /* what a step does */
    struct store *s;
    struct tomb *t;
    struct kv_batch *b;
    size_t rows_left; /* looked at or deleted */
    uint64_t rows, bytes;
    struct ledger_outs outs;
    bool quiet;        /* nothing was staged and not committed when the step began to read */
    bool full;         /* the budget is used up: the next step continues */
    bool wants_quiet;  /* this phase changes what is staged, too */
    uint32_t permille; /* of the phase that is done */
};
/* All of it in one range deletion. */
NODISCARD int purge_drop_span(struct purge_step *x, uint32_t scope, const struct purge_span *span,
                              struct err *e);
/* Continues a phase at t->cursor and moves the cursor; *ret_done: the phase is finished. */
typedef int (*purge_phase)(struct purge_step *x, bool *ret_done, struct err *e);

int purge_ranges(struct purge_step *x, bool *ret_done, struct err *e);
/* Write ids of a tenant. */
NODISCARD int purge_wids(struct purge_step *x, struct err *e);
int purge_marks(struct purge_step *x, bool *ret_done, struct err *e);
int purge_rows(struct purge_step *x, bool *ret_done, struct err *e);
int purge_groups(struct purge_step *x, bool *ret_done, struct err *e);
int purge_tables(struct purge_step *x, bool *ret_done, struct err *e);
int purge_labels(struct purge_step *x, bool *ret_done, struct err *e);
int purge_postings(struct purge_step *x, bool *ret_done, struct err *e);
int purge_pairs(struct purge_step *x, bool *ret_done, struct err *e);
int purge_days(struct purge_step *x, bool *ret_done, struct err *e);

struct purge_days { /* of a service and type, as its series say */
    uint32_t scope;
    uint16_t ptype;
    struct days days;
};
struct fix;
struct purge {
    struct fix *fix;         /* NULL: not begun */
    roaring_bitmap_t *alive; /* ordinals that have labels, below `ordinals` */
    uint32_t ordinals;       /* of the tenant when that was read */
    bool alive_ready;
    uint32_t alive_at; /* read up to here */
    VEC(struct purge_days) days;
    struct buf row;
};
struct purge *purge_new(void);
void purge_close(struct tombs *t); /* frees t->purge; NULLs are fine */

/* ---- groups that lose members: purge_groups.c ---- */

enum fix_stage { FIX_FLOORS, FIX_LEAVES, FIX_NODES, FIX_PRESENCE, FIX_OF, FIX_STAGES };
struct fix_place { /* the cursor: one mask after the other; of each all stages */
    uint32_t mask;
    uint8_t stage, lead;
    uint32_t bucket;
    uint32_t ptype; /* <= 65,536 */
    uint32_t t;     /* stage OF: bucket and t are a series */
};
struct fix_row {    /* of a deleted series */
    uint32_t index; /* of the series in the mask */
    uint32_t t;
    struct str bytes; /* its vector, in the arena, if `what` needs it */
};
struct fix_item { /* a row belongs to a group */
    uint64_t gid;
    uint32_t row;
};
struct fix_of { /* the groups of a series */
    bool known;
    uint32_t first, len;
};
enum fix_what {
    FIX_SKIP,    /* no group has it */
    FIX_MINUTE,  /* rows of level 1, and 0 */
    FIX_BASE,    /* the row of a base level of 10 m and up */
    FIX_DROP,    /* a dirty node: will be built again */
    FIX_REBUILD, /* a clean one above base: again from its children */
};
struct fix {
    struct purge_step *x;
    const struct mask *m;
    struct group_service g; /* as committed, in this step */
    VEC(uint32_t) begins;   /* of rule i + 1 */
    uint32_t mask;          /* that these are of: */
    VEC(struct fix_of) of;  /* by series */
    VEC(struct group_of) groups;

    /* A run: rows of one (column family, level, bucket, type). */
    bool in_run;
    struct fix_place run;
    enum kv_cf cf;
    struct member part;
    struct floors floors;
    VEC(uint32_t) next; /* by series: slot of its next row, UINT32_MAX: none, 0: not looked up */

    /* A unit of it: a minute, a node, a day. */
    uint32_t t, width;
    enum fix_what what;
    VEC(struct fix_row) rows;
    VEC(struct fix_item) items;
    struct arena *arena;

    struct rollup_row_sum sum;
    struct vecsum less;
    struct vecdiff diff;
    VEC(uint64_t) ids;
    VEC(struct str) old;
    struct tl tl;
    struct buf all, taken, left, row, fn;
    struct vec_meta left_meta; /* of the vector in `left` */
    struct function_cost_calc *calc;
    struct rollup_rebuild *rebuild;
    struct fix_left *survivors; /* of a day, NULL: of none; purge_leaves.c */
    struct tl_rows *tl_rows;    /* the store's, for these */
};
void fix_free(struct fix *f); /* NULL is fine */

struct fix_gids { /* ids of groups of one series, at most one by each rule */
    size_t len;
    uint64_t at[GROUP_RULES_MAX];
};
/* Groups of series `index` of the mask by rules that hold in [from, to), base ones only. */
NODISCARD int fix_groups(struct fix *f, uint32_t index, uint32_t from, uint32_t to,
                         struct fix_gids *ret, struct err *e);
/* Slots [*ret_from, *ret_to) of rule i + 1. */
void fix_rule(const struct fix *f, size_t i, uint32_t *ret_from, uint32_t *ret_to);
/* The ordinal's id by a rule, 0: none. */
uint64_t fix_group_by(const struct group_of *of, size_t n, uint32_t rule);

/* Continues a stage at *p and moves *p; *ret_done: the stage is finished. ERR_CORRUPT: the roll-ups
 * cannot be corrected; the caller must not write the batch of this step. */
typedef int (*fix_fn)(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e);
int fix_floors(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e);
int fix_units(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e);
int fix_forget(struct fix *f, struct fix_place *p, bool *ret_done, struct err *e);
/* What f->rows of the unit are to groups leaves them. */
NODISCARD int fix_rollups(struct fix *f, struct err *e);
/* Leaves of those who are left, in the day; *ret_cut: read on in the next step. */
NODISCARD int fix_survivors(struct fix *f, bool *ret_cut, struct err *e);
NODISCARD int fix_presence(struct fix *f, struct err *e);
void fix_left_drop(struct fix *f);

/* ---- batches: purge_step.c ---- */

void purge_count(struct purge_step *x, uint64_t rows, uint64_t bytes);
/* ERR_LIMIT: the batch is too large to be written. */
NODISCARD int purge_fits(const struct purge_step *x, struct err *e);
/* Ends the step where its batch is large enough. */
void purge_look_full(struct purge_step *x);
/* The cursor of phases that go from mask to mask. */
size_t purge_mask_at(const struct tomb *t);
void purge_set_mask(struct tomb *t, size_t mask);
/* A range whose files hold what was deleted. */
void purge_touch(struct purge_step *x, enum kv_cf cf, uint32_t lead, uint32_t bucket);

#endif
