/* SPDX-License-Identifier: Apache-2.0
 *
 * purge.h: what the files of purging share (tomb.h tells what it is). Nobody else includes it but
 * tomb*.c.
 *
 *   purge.c          phases, steps, progress, the end of a tomb
 *   purge_span.c     whole ranges: (column family, level, bucket) with rows of a tenant or service
 *   purge_rows.c     row by row: some series, a range of time; marks on parents over an edge
 *   purge_groups.c   roll-ups of services that lost some series
 *   purge_index.c    postings and label pairs that nobody has, days of services
 */
#ifndef COMMON_STORE_PURGE_H
#define COMMON_STORE_PURGE_H

#include <roaring/roaring.h>

#include "common/store/tomb_impl.h"

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
    bool full;         /* the budget is used up: go on in the next step */
    bool wants_quiet;  /* this phase changes what is staged, too */
    uint32_t permille; /* of the phase that is done */
};
/* All of it in one range deletion. */
NODISCARD int purge_drop_span(struct purge_step *x, uint32_t scope, const struct purge_span *span,
                              struct err *e);
/* A phase goes on from t->cursor and sets it; *ret_done: it is over. */
typedef int (*purge_phase)(struct purge_step *x, bool *ret_done, struct err *e);

int purge_ranges(struct purge_step *x, bool *ret_done, struct err *e);
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
struct purge {
    roaring_bitmap_t *alive; /* ordinals that have labels, below `ordinals` */
    uint32_t ordinals;       /* of the tenant when that was read */
    bool alive_ready;
    uint32_t alive_at; /* read up to here */
    VEC(struct purge_days) days;
    struct buf row;
};
struct purge *purge_new(void);
void purge_free(struct purge *p); /* NULL is fine */

/* ---- for the checker ---- */

struct purging_scope {
    uint32_t tenant, scope;
};
/* Services with rows of deletes that are not purged: scope 0 is a whole tenant. */
struct purging {
    VEC(struct purging_scope) at;
};
NODISCARD int purging_load(struct purging *p, struct kv *kv, const struct kv_snap *snap,
                           struct err *e);
/* Scope 0: any of the tenant. */
bool purging_has(const struct purging *p, uint32_t tenant, uint32_t scope);

void purge_count(struct purge_step *x, uint64_t rows, uint64_t bytes);
/* A range whose files hold what was deleted. */
void purge_touch(struct purge_step *x, enum kv_cf cf, uint32_t lead, uint32_t bucket);

#endif
