/* SPDX-License-Identifier: Apache-2.0
 *
 * shard_owner.h: which database may write and delete objects of a shard's number: one alone. A
 * second one (another cluster with the same cold.url, a copy restored from the first one's backups
 * while the first still runs) would sweep away objects that the first one names.
 *
 *   holder/00000007/<count, 8 hex>-<id, 32 hex>     the last in order of names holds
 *   meta 7c        version u8 = 1 | id of this database, 16 bytes
 *   meta 7d        version u8 = 1 | in words, where it held the objects when it first did
 *
 * With 7d the database knows that a bucket with its claim exists. A bucket without the claim (a
 * volume that is not mounted, another cold.url) is not that bucket: objects written to it would be
 * missing once the right bucket is back.
 *
 * The id is stored in the shard's database, so all copies of the shard have it, and it does not
 * change with the leader; a database that was restored has another id. Reading needs no holder.
 */
#ifndef COMMON_COLD_SHARD_OWNER_H
#define COMMON_COLD_SHARD_OWNER_H

#include "common/cold/manifest.h"
#include "common/object/object.h"
#include "common/store/kv/kv.h"

#define COLD_SHARD_OWNER_LEN 32 /* hex digits */
struct cold_shard_owner {
    char id[COLD_SHARD_OWNER_LEN + 1]; /* "": none yet */
};
void cold_shard_owner_make(const uint8_t bytes[COLD_SHARD_OWNER_LEN / 2],
                           struct cold_shard_owner *ret);
/* ERR_CORRUPT. */
NODISCARD int cold_shard_owner_read(struct kv *kv, struct cold_shard_owner *ret, struct err *e);
void cold_shard_owner_put(const struct cold_shard_owner *h,
                          struct kv_batch *b); /* the row, appended */
/* The database is another one from now on, and never held anything; synced. */
NODISCARD int cold_shard_owner_forget(struct kv *kv, struct err *e);

#define COLD_CLAIM_WHERE 255
struct cold_claim { /* the row 7d */
    bool held;
    char where[COLD_CLAIM_WHERE + 1];
};
NODISCARD int cold_claim_read(struct kv *kv, struct cold_claim *ret, struct err *e);
void cold_claim_put(const char *where, struct kv_batch *b); /* the row, appended */

struct cold_shard_owner_terms {
    const struct cold_claim *claim; /* of this database */
    const struct manifest *parts; /* the parts it names: at least one must exist, if it names any */
    bool take_over;
};
/* Makes sure that this database holds the shard's objects. It becomes the holder if no database is.
 * With `take_over` it also replaces another holder, if it never was the holder and the parts that
 * it names exist. ERR_CONFLICT: another database holds them, or this is not the bucket that it
 * held; nothing may be written or deleted. Asks the object store each time, since another database
 * may have taken over meanwhile. */
NODISCARD int cold_shard_owner_check(struct object_store *o, uint32_t shard,
                                     const struct cold_shard_owner *h,
                                     const struct cold_shard_owner_terms *t, struct err *e);

#endif
