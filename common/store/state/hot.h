/* SPDX-License-Identifier: Apache-2.0
 *
 * hot.h: sums of the unsealed rows of busy groups, in memory, so that the last minutes of a service
 * of ten thousand pods cost what those of one pod cost.
 *
 * A sum belongs to a group, a profile type and a leaf of 10 s, and is the sum of exactly the
 * committed, unsealed rows of it. Rows come in by hot_add when their batch is committed and leave
 * by hot_fold when a seal folds them. Everything here may be dropped at any moment: then the rows
 * are scanned, the answer is the same.
 *
 * When may a reader use a sum? It has a snapshot and knows the state it shows: `applied` (seal
 * entries) and `seq` (batches), see view.c. The sum changes meanwhile:
 *   - A fold after the snapshot subtracts rows that the snapshot shows unsealed. Then the reader
 *     must scan (group.folded > applied).
 *   - Rows that were added after the snapshot are newer than it. They are unsealed, so they are not
 *     in the vectors that the reader reads. A live view includes them; a strict view scans (tests,
 *     held views).
 *
 * Thread: hot_add and hot_fold under the store's write lock, together with the publishing of the
 * snapshot that shows the same; hot_read on any thread. One lock inside.
 */
#ifndef COMMON_STORE_STATE_HOT_H
#define COMMON_STORE_STATE_HOT_H

#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/store/codec/keys.h"

struct hot;

struct hot_opts {
    size_t bytes_max;     /* over it the groups asked for least recently lose their sums */
    uint32_t members_min; /* a leaf has a sum if the group's leaf before had so many rows */
    uint32_t leaves_max;  /* of a group, the last ones; older rows are scanned; 0: 128 */
    uint32_t known_from;  /* slot: rows before it may be unsealed since before this process */
};
struct hot *hot_new(const struct hot_opts *o);
void hot_free(struct hot *h); /* NULL is fine */

/* Adds a committed row of batch `seq`; m->series is the group's id. If a sum would pass 64 bits,
 * its leaf has no sum any more, and readers scan its rows. */
void hot_add(struct hot *h, const struct member *m, uint32_t slot, struct str vector, uint64_t seq);
/* Entry n folded that row. */
void hot_fold(struct hot *h, const struct member *m, uint32_t slot, struct str vector, uint64_t n);
/* Rows of a service before this slot went other ways than by a fold (deletes): scanned from now
 * on. */
void hot_block(struct hot *h, uint32_t tenant, uint32_t scope, uint32_t known_from);
/* Frees all sums, and keeps none from now on: after a failed write it is unknown which rows are
 * stored. */
void hot_stop(struct hot *h);

/* What a leaf holds, borrowed during the call. */
struct hot_section {
    uint32_t epoch, last; /* the highest id */
    const uint32_t *ids;  /* in no order, each once */
    const uint64_t *values;
    size_t len;
};
struct hot_leaf {
    uint32_t t;                                     /* first slot */
    uint64_t rows;                                  /* > 0 */
    uint64_t total[LEAF_SLOTS], writes[LEAF_SLOTS]; /* by slot */
    const struct hot_section *sections;
    size_t len;
};
typedef int (*hot_fn)(void *cookie, size_t group, const struct hot_leaf *leaf, struct err *e);
struct hot_state { /* of a view */
    uint64_t applied, seq;
    bool live;
};
struct hot_range {
    uint32_t from, to;
};
typedef VEC(struct hot_range) hot_ranges;
struct hot_query {
    struct member m; /* service and type; series unused */
    const uint64_t *gids;
    size_t len;
    uint32_t from, to; /* slots, whole leaves */
    hot_fn fn;         /* called under the lock */
    void *cookie;
};
/* Gives the leaves of these groups whose sums may be used, and fills *scan with the ranges the
 * caller must scan instead, ascending: together they hold every unsealed row of those groups once.
 * A leaf that must be scanned for one of them is for all. */
NODISCARD int hot_read(struct hot *h, const struct hot_state *v, const struct hot_query *q,
                       hot_ranges *scan, struct err *e);

size_t hot_bytes(struct hot *h);
/* Another limit; what is over goes. */
void hot_resize(struct hot *h, size_t bytes_max);

#endif
