/* SPDX-License-Identifier: Apache-2.0
 *
 * floors.h: below which slot the rows of a level are gone, per service and profile type; so which
 * level is the base, the truth, of a time. TREE.md section 3.
 *
 *   key     54 tenant scope ptype        value   8 x slot u32, by level; no row: all 0
 *
 *   at[0] >= at[1] >= .. >= at[7], and at[l] is a multiple of the node of the next level (at[7] of
 *   its own), so that a node never has its edge inside a coarser base node. at[0] is a multiple of
 *   the node of level 2, for members have no level 1.
 *
 *   key     5b tenant scope ptype        value   slot u32: nothing before it is answered; no row: 0
 *
 * Only the shard thread writes them. Floors only rise, and at[l] only over nodes of the next level
 * that are not dirty.
 */
#ifndef COMMON_STORE_STATE_FLOORS_H
#define COMMON_STORE_STATE_FLOORS_H

#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct store;

struct floors {
    uint32_t at[KEY_LEVELS];
    /* Nothing before this slot is answered: the end of total retention, which at[7] reaches only in
     * steps of the coarsest node. A multiple of the base node of members there. 0 unless loaded by
     * floors_load_read: rows are written, built and deleted by at[] alone. */
    uint32_t end;
};
#define FLOORS_ROW_LEN (4 * KEY_LEVELS)
#define FLOORS_GONE    KEY_LEVELS /* as a base: nothing is kept there */

/* m->series is not used. Any thread; snap NULL = now. */
NODISCARD int floors_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                          struct floors *ret, struct err *e);
/* For answers: the same, and ret->end. */
NODISCARD int floors_load_read(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                               struct floors *ret, struct err *e);
/* What the row means beside these floors. */
void floors_set_end(struct floors *f, uint32_t end);
/* The first slot that is answered. */
static inline uint32_t floors_lowest(const struct floors *f)
{
    return MAX(f->at[KEY_LEVELS - 1], f->end);
}
/* The row of `end`: what was written last, 0: never; and a new one. */
NODISCARD int floors_end_load(struct kv *kv, const struct kv_snap *snap, const struct member *m,
                              uint32_t *ret, struct err *e);
void floors_end_put(struct kv_batch *b, const struct member *m, uint32_t end);
NODISCARD int floors_read(struct str row, struct floors *ret, struct err *e);
/* Down to a sound value: each is rounded down to what the level may have, and not above the one
 * before. For who computes floors from ages. */
void floors_align(struct floors *f);
/* CHECKs that they are sound. The shard thread calls floors_forget when the batch is written. */
void floors_put(struct kv_batch *b, const struct member *m, const struct floors *f);

/* What the shard thread knows, from memory if it can. */
NODISCARD int floors_get(struct store *s, const struct member *m, struct floors *ret,
                         struct err *e);
void floors_forget(struct store *s, const struct member *m);
/* They are in a batch that was made: what comes behind it goes by them. */
void floors_know(struct store *s, const struct member *m, const struct floors *f);

/* The finest level kept at t, of groups or members; FLOORS_GONE: none. */
uint32_t floors_base(const struct floors *f, bool group, uint32_t t);
/* The level behind `level`, of groups or members: members have no level 1. */
static inline uint32_t level_above(bool group, uint32_t level)
{
    return level == 0 && !group ? 2 : level + 1;
}
static inline uint32_t level_below(bool group, uint32_t level)
{
    return level == 2 && !group ? 0 : level - 1;
}
static inline uint32_t node_of(uint32_t level, uint32_t t)
{
    return t - t % LEVELS[level].node;
}

#endif
