/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_copy: the database as files, by RocksDB's checkpoint: hard links of the table files, a
 * copy of the manifest as long as it is now, and what stands in the write-ahead log. It takes as
 * long as making some hundred links, whatever the size; the bytes stay on the disk until both the
 * database and the folder let go of them.
 *
 * The write-ahead log comes along unflushed: a caller that wants little of it flushes before. A
 * log whose first record a power cut has torn makes RocksDB refuse the checkpoint, although the
 * database was opened without that record. After a flush RocksDB needs such logs no more, and
 * deletes them in the background.
 */
#include <unistd.h>

#include "common/store/kv/kv_rocks_impl.h"

#define TRIES  20 /* RocksDB deletes logs in the background */
#define TRY_US 20000

static int make(const struct kv_rocks *r, const char *dir, struct err *e)
{
    char *message = NULL;
    rocksdb_checkpoint_t *c = rocksdb_checkpoint_object_create(r->db, &message);

    if (!message)
        rocksdb_checkpoint_create(c, dir, UINT64_MAX, &message);
    rocksdb_checkpoint_object_destroy(c);
    return message ? kv_rocks_fail(e, message, "cannot link the files of the database") : 0;
}

int kv_rocks_checkpoint(struct kv *k, const char *dir, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    struct err flushing;

    if (r->failed)
        return err_set(e, r->failed,
                       "an earlier write failed; no writes until the database is opened again");
    if (!make(r, dir, e))
        return 0;
    if (e->code != ERR_CORRUPT || kv_flush(k, &flushing))
        return e->code;
    for (int i = 0; i < TRIES && e->code == ERR_CORRUPT; i++) {
        (void)usleep(TRY_US);
        if (!make(r, dir, e))
            return 0;
    }
    return e->code;
}
