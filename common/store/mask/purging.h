/* SPDX-License-Identifier: Apache-2.0
 *
 * purging.h: which services hold rows that deletes have not purged yet. Builds, the checker and the
 * audit leave these services alone.
 */
#ifndef COMMON_STORE_MASK_PURGING_H
#define COMMON_STORE_MASK_PURGING_H

#include "common/base/vec.h"
#include "common/store/kv/kv.h"

struct purging_scope {
    uint32_t tenant, scope;
};
/* Services with rows of deletes that are not purged: scope 0 is a whole tenant, UINT32_MAX one of
 * which only write ids are left. */
struct purging {
    VEC(struct purging_scope) at;
};
NODISCARD int purging_load(struct purging *p, struct kv *kv, const struct kv_snap *snap,
                           struct err *e);
/* Scope 0: any of the tenant. */
bool purging_has(const struct purging *p, uint32_t tenant, uint32_t scope);

#endif
