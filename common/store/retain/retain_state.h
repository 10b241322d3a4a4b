/* SPDX-License-Identifier: Apache-2.0
 *
 * retain_state.h: declarations that the files of retention share. Of other folders only purging
 * (delete/purge_floor.c) and opening of a store include it.
 */
#ifndef COMMON_STORE_RETAIN_RETAIN_STATE_H
#define COMMON_STORE_RETAIN_RETAIN_STATE_H

#include "common/store/retain/forecast.h"
#include "common/store/retain/retain.h"
#include "common/store/store.h"
#include "common/sys/thread.h"

/* Keys with the same first byte: rows of one kind and level, by bucket, service, type, series. */
struct retain_run {
    enum kv_cf cf;
    uint8_t first;
    uint32_t bucket; /* slots of one */
    uint32_t chunk;  /* slots of a row */
};
#define RETAIN_RUNS 8
/* The runs whose rows are deleted when the floor of a level rises. */
size_t retain_runs(uint32_t level, struct retain_run ret[RETAIN_RUNS]);
/* All rows of a service and type in a bucket of the run, as a prefix; or a whole key. */
#define RETAIN_PREFIX 15
void retain_prefix(struct key *k, const struct retain_run *run, uint32_t bucket,
                   const struct member *m);
void retain_key(struct key *k, const struct retain_run *run, uint32_t bucket,
                const struct member *m, uint32_t t);

enum retain_phase { RETAIN_IDLE, RETAIN_FLOORS, RETAIN_PURGE, RETAIN_FILES, RETAIN_EPOCHS };

struct retain {
    struct retain_policy *policy; /* referenced; NULL: all is kept */
    enum retain_phase phase;
    int64_t engine_ms; /* of this round */
    int64_t next_round_ms, next_epochs_ms;
    struct key cursor; /* meta key at which the phase continues; empty: at its start */

    uint32_t walk_low[KEY_LEVELS]; /* least floors found in this round so far */
    uint32_t low[KEY_LEVELS];      /* least floors of all; UINT32_MAX: not known */

    /* PURGE */
    bool purge; /* the phase may find rows: some were left below floors, or it has not run yet */
    bool in_part;
    struct member part;
    struct floors part_floors, part_purged;
    uint32_t part_level, part_run;
    uint64_t part_series; /* next one to look at */

    /* FILES */
    uint64_t view;  /* older views must have ended */
    bool view_wait; /* some have not */
    uint32_t files_at;
    uint32_t dropped[KEY_LEVELS][RETAIN_RUNS]; /* buckets below are gone */
    bool again[KEY_LEVELS][RETAIN_RUNS];       /* since the last round */

    uint32_t walk_first, first; /* first slot of a day with data: of this round; of the last one */
    struct retain_stats stats;
    struct mutex lock;
    struct retain_stats shown; /* guarded by `lock`, as what follows */
    bool forecast_known;
    struct forecast_in forecast;
};
struct retain *retain_new(void);
void retain_free(struct retain *r); /* NULL is fine */

/* The next (service, type) there is, in order of keys, and the first slot of its first day with
 * data; moves the cursor behind it. *ret_found false: that was all. */
NODISCARD int retain_next_part(struct store *s, struct member *m, uint32_t *ret_first_slot,
                               bool *ret_found, struct err *e);
/* Floors up to which rows were purged: 5c tenant scope ptype, a row as of floors. */
void retain_purged_key(struct key *k, const struct member *m);
/* The next steps of a phase; *ret_done: it has gone through all. */
NODISCARD int retain_floor_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e);
NODISCARD int retain_trim_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e);
/* How the floors of one service and type rise in one batch. All numbers are slots. */
struct floor_move {
    struct member m;    /* series unused */
    uint32_t first;     /* no data are older */
    struct floors cur;  /* before the batch */
    struct floors to;   /* after it: above `cur` by at most 64 buckets of each level */
    struct floors want; /* what retention wants, in later batches; zeros: no more than `to` */
};
/* Writes the batch that moves the floors and deletes the rows of all buckets that are wholly below
 * them. Rows of the bucket that a floor is inside are left to retain_trim_step. */
NODISCARD int retain_raise(struct store *s, const struct floor_move *x, struct err *e);
/* Measures the store at the end of a round, and adds the measurement to the history. */
NODISCARD int retain_forecast(struct store *s, struct err *e);
NODISCARD int retain_epoch_step(struct store *s, size_t rows_max, bool *ret_done, struct err *e);

#endif
