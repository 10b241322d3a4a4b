/* SPDX-License-Identifier: Apache-2.0
 *
 * mask.h: hides the data of deletes that are not purged yet from reads (tomb.h). A query loads the
 * masks once, from its snapshot; usually no mask exists, and loading costs one seek.
 *
 *   masks_dead        series of this service do not exist: skip them          (match.c does)
 *   masks_members     roll-ups of this service hold deleted data: read members
 *   masks_split       a scan of sealed rows, cut into parts that are not deleted
 *
 * Unsealed rows are never masked: the batch of the delete itself removes those that match.
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
