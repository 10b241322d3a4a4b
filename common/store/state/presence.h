/* SPDX-License-Identifier: Apache-2.0
 *
 * presence.h: in which leaves a gauge had data: what its sums are divided by. One row per series or
 * group and day, in CF tl under KEY_TL_PRESENCE; written at the seal, whatever level keeps the
 * values, and kept as long as the coarsest level.
 *
 *   row   version u8 = 1 | form u8 | body | crc32c u32le of all bytes before
 *
 *   form 0, runs   n varint, 1..4320 | n times: gap varint | length varint, >= 1
 *                  gap: leaves between the end of the run before and this one less 1 (runs never
 *                  touch); of the first run: its first leaf
 *   form 1, bits   1,080 bytes: bit i of byte j is leaf 8 j + i
 *
 *   The writer takes the shorter form, runs if equal. Leaves count from the first of the day.
 *
 *   leaves 2, 3, 4 and 10 of a day:   01 00 02 02 03 04 01 | xx xx xx xx      gap 4 = 10 - 5 - 1
 *   all leaves of a day:              01 00 01 00 c0 43 | xx xx xx xx         8,640 of them
 */
#ifndef COMMON_STORE_STATE_PRESENCE_H
#define COMMON_STORE_STATE_PRESENCE_H

#include <roaring/roaring.h>

#include "common/base/buf.h"
#include "common/base/err.h"
#include "common/store/state/timeline_row_scan.h"

#define PRESENCE_LEAVES (DAY_SLOTS / LEAF_SLOTS) /* of a row */
#define PRESENCE_WORDS  (PRESENCE_LEAVES / 64)
static_assert(PRESENCE_LEAVES % 64 == 0, "a day is whole words");

struct presence {
    uint64_t bits[PRESENCE_WORDS];
};
static inline bool presence_has(const struct presence *p, uint32_t leaf)
{
    return p->bits[leaf / 64] >> (leaf % 64) & 1;
}
static inline void presence_set(struct presence *p, uint32_t leaf)
{
    p->bits[leaf / 64] |= UINT64_C(1) << (leaf % 64);
}
/* Replaces *out; at least one leaf is there. */
void presence_encode(const struct presence *p, struct buf *out);
NODISCARD int presence_decode(struct str row, struct presence *ret, struct err *e);

/* fn for each run of leaves with sealed data of an id (index into c->ids) in [c->from, c->to), as
 * slots: whole leaves, if from and to are. Each id and each leaf once; in no order. fn, cookie and
 * level of c are not used; flags say whether ids are groups. */
typedef int (*presence_fn)(void *cookie, size_t i, uint32_t first, uint32_t end, struct err *e);
NODISCARD int presence_each(const struct timeline_row_scan *c, presence_fn fn, void *cookie,
                            struct err *e);
/* Adds the leaves (slot / LEAF_SLOTS) in which any of c->ids had sealed data. */
NODISCARD int presence_read(const struct timeline_row_scan *c, roaring_bitmap_t *leaves,
                            struct err *e);

#endif
