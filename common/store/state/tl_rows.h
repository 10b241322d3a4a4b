/* SPDX-License-Identifier: Apache-2.0
 *
 * tl_rows.h: changes to points of timelines and to presence, gathered for one batch: however many
 * points of a row change, it is read once and written once.
 *
 *   seal      tl_rows_sealed    per raw row, or per sum of a slot or leaf: levels 0 and 1, presence
 *   build     tl_rows_built     per vector row of level >= 2 it writes: the point is its head
 *             tl_rows_minutes   per member at the build of its node of level 2: level 1 from 0
 *   purge     tl_rows_taken     per point of a deleted member: out of its group's levels 0 and 1
 *   at the end tl_rows_put, before the batch is written
 *
 * `group` says that m->series is a group id. What a member and a group have:
 *
 *   level 0   both, where floors keep it: written at the seal
 *   level 1   group: at the seal. Member: at the build of level 2; below floor[0] by the seal
 *   level 2.. both: beside each vector row (or list of members) of that level, always its head
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_STATE_TL_ROWS_H
#define COMMON_STORE_STATE_TL_ROWS_H

#include "common/base/err.h"
#include "common/store/codec/keys.h"
#include "common/store/kv/kv.h"

struct tl_rows;
struct tl_rows *tl_rows_new(struct kv *kv);
void tl_rows_free(struct tl_rows *x); /* NULL is fine */

/* Data of a series or group. */
struct tl_rows_point {
    const struct member *m; /* borrowed for the call */
    bool group;             /* m->series is a group id */
    uint32_t level;         /* tl_rows_built only */
    uint32_t t;             /* slot; tl_rows_built: first slot of the node */
    uint64_t total, writes;
};
/* Data of slot p->t were sealed: adds them to levels 0 and 1 as far as these are kept
 * (t >= floor[l]), and marks the leaf if the type is a gauge. floor: of the service and type; two
 * levels are used. */
void tl_rows_sealed(struct tl_rows *x, const uint32_t floor[KEY_LEVELS],
                    const struct tl_rows_point *p);
/* Does the same without level 0, for members, whose level 0 the seal writes itself. */
void tl_rows_sealed_above(struct tl_rows *x, const uint32_t floor[KEY_LEVELS],
                          const struct tl_rows_point *p);
/* What a member had in slot t leaves the points of its group m that floors keep. If they do
 * not have it, tl_rows_put says ERR_CORRUPT. */
void tl_rows_taken(struct tl_rows *x, const struct member *m, const uint32_t floor[KEY_LEVELS],
                   uint32_t t, uint64_t total, uint64_t writes);
/* The vector row at p->level >= 2 and p->t has this total and number of writes now. */
void tl_rows_built(struct tl_rows *x, const struct tl_rows_point *p);
/* The row of a vector at level >= 2 and t is gone: so is its point. */
void tl_rows_gone(struct tl_rows *x, bool group, uint32_t level, const struct member *m,
                  uint32_t t);
/* Points of level 1 of a member in its node of level 2 at t are set from level 0, which is kept.
 * Reads: what earlier batches wrote. */
NODISCARD int tl_rows_minutes(struct tl_rows *x, const struct member *m, uint32_t t, struct err *e);
/* Marks the leaf of slot t of a gauge; nothing for other types. For data that is sealed already. */
void tl_rows_present(struct tl_rows *x, bool group, const struct member *m, uint32_t t);
/* Is called for each leaf of a gauge's series that becomes marked, when its row is put into a
 * batch. tl_rows_watch with fn NULL ends the calls. */
typedef void (*tl_rows_watch_fn)(void *cookie, const struct member *m, uint32_t t);
void tl_rows_watch(struct tl_rows *x, tl_rows_watch_fn fn, void *cookie);

/* Writes what was gathered into b and forgets it. `fresh`: no data at or behind this slot was ever
 * sealed (store.sealed_high), so rows of level 0 and 1 there need no reading; UINT32_MAX: unknown.
 */
NODISCARD int tl_rows_put(struct tl_rows *x, uint32_t fresh, struct kv_batch *b, struct err *e);
/* Forgets what was gathered. */
void tl_rows_reset(struct tl_rows *x);

#endif
