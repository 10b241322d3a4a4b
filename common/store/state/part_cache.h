/* SPDX-License-Identifier: Apache-2.0
 *
 * part_cache.h: a cache by (service, profile type), which is a part of a seal. It holds the
 * floors and the marks that are known to be stored, so that the seal of each minute need not write
 * the same marks again. Its size is fixed; entries may be dropped at any time.
 *
 * Thread: the shard's.
 */
#ifndef COMMON_STORE_STATE_PART_CACHE_H
#define COMMON_STORE_STATE_PART_CACHE_H

#include "common/store/state/dirty.h"
#include "common/store/state/floors.h"

struct part_mark { /* stands on node t of its level, as below */
    bool known;
    uint32_t t;
    struct dirty_mark mark;
};
struct part {
    bool used;
    uint32_t tenant, scope;
    uint16_t ptype;
    bool floors_known;
    struct floors floors;
    struct part_mark marks[KEY_LEVELS]; /* the last one put, by level */
};
struct part_cache;
struct part_cache *part_cache_new(void);
void part_cache_free(struct part_cache *p); /* NULL is fine */
/* Never NULL; empty if it is not remembered. Valid until the next call. m->series is not used. */
struct part *part_cache_get(struct part_cache *p, const struct member *m);
/* After a batch that was not written: what was put into it does not stand. */
void part_cache_clear(struct part_cache *p);

#endif
