/* SPDX-License-Identifier: Apache-2.0
 *
 * holder.h: which database may write and delete objects of a shard's number: one alone. A second
 * one (another cluster with the same cold.url, a copy restored from the first one's backups while
 * that one still runs) would sweep away what the first one names.
 *
 *   holder/00000007/<count, 8 hex>-<id, 32 hex>     the last in order of names holds
 *   meta 7c        version u8 = 1 | id of this database, 16 bytes
 *   meta 7d        version u8 = 1 | in words, where it held the objects when it first did
 *
 * With 7d the database knows that there is a bucket with its claim. One without it (a volume that
 * is not mounted, another cold.url) is not that bucket: what went there would be missing once the
 * right one is back.
 *
 * The id lies in the shard's database, so it moves with its copies, whoever leads; a database that
 * was restored is another one. Reading needs no holder.
 */
#ifndef COMMON_COLD_HOLDER_H
#define COMMON_COLD_HOLDER_H

#include "common/cold/manifest.h"
#include "common/object/object.h"
#include "common/store/kv/kv.h"

#define COLD_HOLDER_LEN 32 /* hex digits */
struct cold_holder {
    char id[COLD_HOLDER_LEN + 1]; /* "": none yet */
};
void cold_holder_make(const uint8_t bytes[COLD_HOLDER_LEN / 2], struct cold_holder *ret);
/* ERR_CORRUPT. */
NODISCARD int cold_holder_read(struct kv *kv, struct cold_holder *ret, struct err *e);
void cold_holder_put(const struct cold_holder *h, struct kv_batch *b); /* the row, appended */
/* The database is another one from now on, and never held anything; synced. */
NODISCARD int cold_holder_forget(struct kv *kv, struct err *e);

#define COLD_CLAIM_WHERE 255
struct cold_claim { /* the row 7d */
    bool held;
    char where[COLD_CLAIM_WHERE + 1];
};
NODISCARD int cold_claim_read(struct kv *kv, struct cold_claim *ret, struct err *e);
void cold_claim_put(const char *where, struct kv_batch *b); /* the row, appended */

struct cold_holder_terms {
    const struct cold_claim *claim; /* of this database */
    const struct manifest *parts;   /* what it names: some of it must be there, if there is any */
    bool take_over;
};
/* Does this database hold the shard's objects? It becomes the holder where nobody is, or, with
 * `take_over`, in another one's place, if it never was and the parts that it names are there.
 * ERR_CONFLICT: another one does, or this is not the bucket it held; nothing may be written or
 * deleted. Asks the object store, each time: another one may have taken over, or lie there. */
NODISCARD int cold_holder_check(struct object_store *o, uint32_t shard, const struct cold_holder *h,
                                const struct cold_holder_terms *t, struct err *e);

#endif
