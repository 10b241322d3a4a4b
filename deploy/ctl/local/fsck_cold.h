/* SPDX-License-Identifier: Apache-2.0
 *
 * fsck_cold.h: fsck and the cold tier: its options, and the parts of a shard in the object store.
 */
#ifndef DEPLOY_CTL_LOCAL_FSCK_COLD_H
#define DEPLOY_CTL_LOCAL_FSCK_COLD_H

#include "common/base/vec.h"
#include "common/cold/kv_cold.h"

struct fsck_cold;
/* `args` are the server's options of section cold: --cold.url and so on. ERR_CONFIG. */
NODISCARD int fsck_cold_new(const char *const *args, size_t n, struct fsck_cold **ret,
                            struct err *e);
void fsck_cold_free(struct fsck_cold *c); /* NULL is fine */
/* Rows in the cold tier are read through this cache. */
struct cold_cache *fsck_cold_cache(struct fsck_cold *c);

struct fsck_parts {
    uint64_t parts, bytes, wrong;
    /* A part that is gone or not what the shard says. */
    void (*found)(void *cookie, const char *text);
    void (*progress)(void *cookie, uint64_t bytes, uint64_t all);
    void *cookie;
};
/* Every part the shard names: it is there, has the size, and is the bytes it is named by. */
NODISCARD int fsck_cold_parts(struct fsck_cold *c, struct kv *kv, struct fsck_parts *f,
                              struct err *e);

#endif
