/* SPDX-License-Identifier: Apache-2.0
 *
 * backup.h: a whole shard in the object store, as of one moment, and back again from there.
 *
 * A head is an object that names all others: the parts with the local rows (of every family), and
 * the parts of rows moved out before. Parts are named by their bytes, so parts that have not
 * changed since the previous head are named again, and not uploaded.
 *
 *   shard-00000007/head-<number, 16 hex>
 *     embertree head 1
 *     shard 7 of 32
 *     time <ms since 1970>
 *     here <family> <hash> <size> <rows>       rows that were in the database
 *     away <family> <hash> <size> <rows>       parts of the cold tier
 *     end <XXH3-64 of all lines above, 16 hex>
 *
 * Everything blocks on the object store.
 */
#ifndef COMMON_COLD_BACKUP_H
#define COMMON_COLD_BACKUP_H

#include "common/base/vec.h"
#include "common/cold/generation.h"
#include "common/cold/kv_cold.h"

#define BACKUP_HEAD_MAX (64 * MIB)

struct backup_part {
    bool away;
    enum kv_cf cf;
    struct hash128 hash;
    uint64_t size, rows;
};
struct backup_head {
    uint32_t shard, shards;
    int64_t wall_ms;
    VEC(struct backup_part) parts;
};
void backup_head_deinit(struct backup_head *h);
/* ERR_CORRUPT. */
NODISCARD int backup_head_read(struct str text, struct backup_head *ret, struct err *e);

void backup_head_name(uint32_t shard, uint64_t number, char *ret); /* OBJECT_NAME_MAX + 1 */
NODISCARD int backup_head_get(struct object_store *o, uint32_t shard, uint64_t number,
                              struct backup_head *ret, struct err *e);

struct backup_opts {
    struct kv *kv; /* of kv_cold_open; a snapshot of it is taken */
    struct object_store *o;
    uint32_t shards;
    int64_t wall_ms;
    uint64_t number; /* larger than the number of every earlier head: cold_generation_head */
    /* Of the shard, taken by this leader; and the newest head, whose parts may be named again. All
     * other parts are uploaded again: another leader may be deleting unnamed objects. NULL:
     * none. */
    const struct cold_generation *generation;
    const struct backup_head *before;
    /* Returns the text that backup_places.h stores; called after the snapshot was taken. NULL: no
     * text is stored. */
    int (*places)(void *cookie, struct buf *text, bool *ret_sure, struct err *e);
    void *cookie;
    const atomic_bool *stop; /* NULL, or: true ends it with ERR_CANCELED */
};
struct backup_done {
    uint64_t parts, bytes;       /* of the head */
    uint64_t uploaded, up_bytes; /* parts that did not exist yet */
};
/* Writes a head, when all it names is there and was read back. */
NODISCARD int backup_write(const struct backup_opts *o, struct backup_done *ret, struct err *e);
/* True if another backup is due. The newest is of newest_ms. */
static inline bool backup_due(int64_t newest_ms, int64_t now_ms, uint64_t interval_ms)
{
    /* A backup with a date in the future was dated by a wrong clock: its age is unknown. */
    return newest_ms > now_ms || (uint64_t)(now_ms - newest_ms) >= interval_ms;
}
/* The number of the newest head that can be read; ERR_NOT_FOUND: no head can. */
NODISCARD int backup_newest(struct object_store *o, uint32_t shard, uint64_t *ret_number,
                            struct backup_head *ret, struct err *e);
/* Shards that have heads, ascending, with the number of each one's newest. */
struct backup_shards {
    VEC(uint32_t) at;
    VEC(uint64_t) newest;
};
void backup_shards_deinit(struct backup_shards *s);
NODISCARD int backup_shards(struct object_store *o, struct backup_shards *ret, struct err *e);

/* Rows of the head into `to`, which is empty and not a kv_cold. Parts that were away stay away: the
 * rows say so. On error `to` holds a part of them: throw it away. */
NODISCARD int backup_restore(struct object_store *o, const struct backup_head *h, struct kv *to,
                             void (*progress)(void *cookie, uint64_t bytes), void *cookie,
                             struct err *e);

/* Only after a head of the same generation, the newest one (ERR_CONFLICT). Deletes heads but the
 * newest `keep`, with their places, and objects of the shard that neither those nor the manifest
 * names and that were not named at the last sweep either. `prove` is called when the objects have
 * been listed: it writes to the shard, which proves that no other had taken a generation by then,
 * and gives the manifest as it is after that write. */
struct backup_sweep_opts {
    struct object_store *o;
    uint32_t shard;
    uint64_t generation;
    size_t keep;
    int (*prove)(void *cookie, struct manifest **ret, struct err *e);
    void *cookie;
};
struct backup_sweep;
struct backup_sweep *backup_sweep_new(void);
void backup_sweep_free(struct backup_sweep *s); /* NULL is fine */
NODISCARD int backup_sweep(struct backup_sweep *s, const struct backup_sweep_opts *o,
                           uint64_t *ret_deleted, struct err *e);

#endif
