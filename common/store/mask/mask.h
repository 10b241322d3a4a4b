/* SPDX-License-Identifier: Apache-2.0
 *
 * mask.h: what deletes that are not purged yet hide from reads (tomb.h). Loaded once per query from
 * its snapshot; usually there are none, which costs one seek.
 *
 *   masks_dead        series of this service do not exist: skip them          (match.c does)
 *   masks_members     roll-ups of this service hold deleted data: read members
 *   masks_split       a scan of sealed rows, cut into parts that are not deleted
 *
 * Raw rows are never masked: the delete itself took those it meant.
 */
#ifndef COMMON_STORE_MASK_MASK_H
#define COMMON_STORE_MASK_MASK_H

#include "common/base/arena.h"
#include "common/base/err.h"
#include "common/base/vec.h"
#include "common/store/kv/kv.h"
#include "common/store/mask/tomb.h"

struct mask {
    uint64_t entry;
    uint32_t scope;
    enum tomb_kind kind;
    uint32_t from, to;
    const uint16_t *types;  /* ascending */
    size_t types_len;       /* 0: all */
    const uint64_t *series; /* ascending */
    size_t series_len;      /* 0: all */
};
struct masks {
    VEC(struct mask) at; /* by scope, entry; lists of one entry and scope may stand in several */
    struct arena *arena; /* owned; NULL: none */
};
/* Zero it before. masks_deinit in any case. snap NULL = now. */
NODISCARD int masks_load(struct masks *m, struct kv *kv, const struct kv_snap *snap,
                         uint32_t tenant, struct err *e);
void masks_deinit(struct masks *m);

bool masks_dead(const struct masks *m, uint32_t scope);
bool masks_members(const struct masks *m, uint32_t scope);
/* Is a sealed row of this series and slot deleted? */
bool masks_hide(const struct masks *m, uint32_t scope, uint16_t ptype, uint64_t series, uint32_t t);

/* A piece of a scan: these series in [from, to). */
struct mask_part {
    uint32_t from, to;
    const uint64_t *series; /* ascending; the caller's, or in the masks' arena */
    size_t len;
    const uint32_t *index; /* of each in the caller's list; NULL: the list is the caller's */
};
typedef VEC(struct mask_part) mask_parts;
/* Replaces *ret: disjoint parts that hold every (series, slot) of the input that is not hidden;
 * without masks the input itself. Edges are those of the input or of masks, which are edges of base
 * nodes. Parts are in order of time. ERR_LIMIT. */
NODISCARD int masks_split(struct masks *m, uint32_t scope, uint16_t ptype,
                          const struct mask_part *whole, mask_parts *ret, struct err *e);

#endif
