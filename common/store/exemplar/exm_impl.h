/* SPDX-License-Identifier: Apache-2.0
 *
 * exm_impl.h: a question about exemplars while it is answered; for exm_read.c (rows), exm_leaf.c
 * (leaves that stand for a push) and exm_list.c (which of them come into the answer).
 */
#ifndef COMMON_STORE_EXEMPLAR_EXM_IMPL_H
#define COMMON_STORE_EXEMPLAR_EXM_IMPL_H

#include "common/store/exemplar/exm.h"
#include "common/store/exemplar/exm_sum.h"
#include "common/store/query/match.h"

#define EXM_SITE_READS 10000 /* vectors of a list below a call site that are read */

struct exm_at { /* a series of the answer */
    uint32_t scope;
    uint32_t shown; /* index + 1 in a list, 0 = not in it */
    uint32_t group; /* of the list's */
    uint64_t id;
    uint64_t hash;         /* leafid_series, where leaves are asked for */
    roaring_bitmap_t *own; /* leaves of pushes with an id of their own; NULL: none */
};
/* What may come into a list. Meanwhile item.series is an index into exm_walk.at, and the id of a
 * leaf is not made yet. */
struct exm_cand {
    struct store_exm_item item; /* first: exm_list.c sorts by it */
    uint32_t slot;              /* of a leaf its first one */
    bool leaf;
    uint8_t wid[16];
};
struct exm_want { /* a leaf asked for by id */
    uint64_t hash;
    uint32_t slot;
    struct str id;
};

struct exm_walk {
    struct store_view *v;
    const struct store_exm_query *q;
    struct arena *arena;
    struct match match;
    struct match_type type;
    bool found;
    uint32_t first_day, last_day;
    VEC(struct exm_at) at; /* by scope, id */
    uint32_t from, to;
    VEC(uint32_t) buckets;
    struct kv_iter *it;
    struct map_str *profiles; /* tails of the rows of profiles; NULL: nothing can be there twice */
    uint64_t rows;

    /* Leaves. */
    VEC(struct exm_want) wants; /* by hash */
    struct map_u64 services;    /* scope -> index into service_hash */
    VEC(uint64_t) service_hash;
    uint32_t leaves_from; /* from where on they are kept, of all services read */
    uint32_t raw_low;

    /* What is done with a row: one of the two. */
    struct exm_sum *sum;
    struct store_exm_list *list;
    size_t limit;
    struct exm_sum below; /* of a list below a call site */
    struct buf row;       /* of that: the vector that an index row stands for */
    VEC(bool) seen;       /* by at */

    /* exm_list.c */
    VEC(struct exm_cand) cands;
    struct map_u64 cells;   /* group, point, bucket -> index into cands */
    struct map_str *groups; /* canonical labels -> number + 1 */
};

/* ---- exm_list.c ---- */

/* The group of a series; its canonical labels. */
NODISCARD int exm_group_of(struct exm_walk *w, struct str labels, uint32_t *ret, struct err *e);
/* One more; id of the item, if any, is copied when it is kept. */
NODISCARD int exm_list_take(struct exm_walk *w, const struct exm_cand *c, struct err *e);
/* Those below the call site, if there is one and the question is not by id; the order; labels. */
NODISCARD int exm_list_finish(struct exm_walk *w, struct err *e);
void exm_list_close(struct exm_walk *w);

/* ---- exm_leaf.c ---- */

/* The leaves that q->ids name. */
NODISCARD int exm_leaf_wants(struct exm_walk *w, struct err *e);
/* leafid_series of a series. */
NODISCARD int exm_leaf_hash(struct exm_walk *w, uint32_t scope, struct str labels, uint64_t *ret,
                            struct err *e);
/* A push with an id of its own is in these leaves. */
void exm_leaf_own(const struct exm_walk *w, struct exm_at *at, uint32_t t, uint32_t duration_ms);
/* Adds leaves of w->at[first, end), all of one service, to the list, without those that a push with
 * an id of its own covers (exm_leaf_own). */
NODISCARD int exm_leaf_list(struct exm_walk *w, size_t first, size_t end, struct err *e);
/* Those of w->wants into the sum or the list. */
NODISCARD int exm_leaf_ids(struct exm_walk *w, size_t first, size_t end, struct err *e);
/* What a leaf's series has in it below the call site. */
NODISCARD int exm_leaf_below(struct exm_walk *w, const struct exm_at *at, uint32_t slot,
                             uint64_t *ret, struct err *e);

/* ---- exm_read.c ---- */

/* Counts a row that was read: ERR_CANCELED, ERR_LIMIT. */
NODISCARD int exm_count_row(struct exm_walk *w, struct err *e);
/* The vector of what an index row stands for; valid until the next call. */
NODISCARD int exm_vector_of(struct exm_walk *w, const struct exm_ref *x, struct str *ret,
                            struct err *e);

#endif
