/* SPDX-License-Identifier: Apache-2.0
 *
 * holder.h: which database may write and delete objects of a shard's number: one alone. A second
 * one (another cluster with the same cold.url, a copy restored from the first one's backups while
 * that one still runs) would sweep away what the first one names.
 *
 *   holder/00000007/<count, 8 hex>-<id, 32 hex>     the last in order of names holds
 *   meta 7c        version u8 = 1 | id of this database, 16 bytes
 *
 * The id lies in the shard's database, so it moves with its copies, whoever leads; a database that
 * was restored is another one. Reading needs no holder.
 */
#ifndef COMMON_COLD_HOLDER_H
#define COMMON_COLD_HOLDER_H

#include "common/object/object.h"
#include "common/store/kv.h"

#define COLD_HOLDER_LEN 32 /* hex digits */
struct cold_holder {
    char id[COLD_HOLDER_LEN + 1]; /* "": none yet */
};
void cold_holder_make(const uint8_t bytes[COLD_HOLDER_LEN / 2], struct cold_holder *ret);
/* ERR_CORRUPT. */
NODISCARD int cold_holder_read(struct kv *kv, struct cold_holder *ret, struct err *e);
void cold_holder_put(const struct cold_holder *h, struct kv_batch *b); /* the row, appended */
/* The database is another one from now on, synced. */
NODISCARD int cold_holder_forget(struct kv *kv, struct err *e);

/* Does this database hold the shard's objects? It becomes the holder where nobody is, or, with
 * `take_over`, in another one's place, if it never was. ERR_CONFLICT: another one does; nothing may
 * be written or deleted. Asks the object store, each time: another one may have taken over. */
NODISCARD int cold_holder_check(struct object_store *o, uint32_t shard, const struct cold_holder *h,
                                bool take_over, struct err *e);

#endif
