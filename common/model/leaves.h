/* SPDX-License-Identifier: Apache-2.0
 *
 * leaves.h: in which leaves of 10 s the points of a series have data, so that parts of it from
 * several shards can be united: a gauge's mean divides by leaves, and one in which two shards have
 * data counts once.
 *
 *   points          k = 0: 20 21    k = 3: 21 22    k = 4: 30 33 36
 *   counts          2               2               3
 *   one after the other    20 21 | 21 22 | 30 33 36
 *   runs: leaves from the last one, how many    (20, 2) (0, 2) (8, 1) (3, 1) (3, 1)
 *   items: a run, how many times                20 2 1   0 2 1   8 1 1   3 1 2
 *
 * Counts say where points begin; from the last leaf of a point it may go back to the first of the
 * next (a negative number, mod 2^32). What comes each 15 or 60 s is a few items a day, and so is
 * what comes all the time. Thread: one at a time.
 */
#ifndef COMMON_MODEL_LEAVES_H
#define COMMON_MODEL_LEAVES_H

#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/model/slot.h"

#define LEAF_NUMBER_MAX (UINT32_MAX / LEAF_SLOTS)
#define LEAVES_MAX      (UINT64_C(1) << 26) /* of one series: 21 years without a gap */

struct leaf_items { /* three numbers each; vec_free */
    uint32_t *ptr;
    size_t len, cap;
};

/* Writes leaves in the order of points, ascending inside each. */
struct leaf_writer {
    struct leaf_items *to;
    uint32_t last;       /* leaf of the runs in *to */
    uint32_t first, len; /* the run that may still grow */
};
void leaf_put(struct leaf_writer *w, uint32_t first, uint32_t len);
void leaf_put_end(struct leaf_writer *w);

/* Points of a series with their leaves; borrows. */
struct leaf_part {
    const uint32_t *point; /* ascending; NULL: 0, 1, .. */
    const uint32_t *count; /* leaves of each */
    size_t len;
    const uint32_t *items;
    size_t items_len; /* 0: counts alone are known */
};
/* ERR_CORRUPT: items that do not say as many leaves as the counts, each once in a point. Time grows
 * with items and points, whatever they say. */
NODISCARD int leaf_part_check(const struct leaf_part *p, struct err *e);

/* How many distinct leaves the parts have in each of the points (NULL: 0, 1, ..): in ret_count.
 * Where counts alone are known of a part, the larger one: its own, or that of all others. *out,
 * if not NULL, gets the united leaves' items, none if they are not known of all parts. Parts with
 * items have been checked or written here. */
void leaf_unite(const struct leaf_part *parts, size_t parts_len, const uint32_t *point, size_t len,
                uint32_t *ret_count, struct leaf_items *out);

#endif
