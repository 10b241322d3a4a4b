/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_copy: the database as files, by RocksDB's checkpoint: hard links of the table files, a
 * copy of the manifest as long as it is now, and what stands in the write-ahead log. It takes as
 * long as making some hundred links, whatever the size; the bytes stay on the disk until both the
 * database and the folder let go of them.
 *
 * The write-ahead log comes along unflushed: whoever wants little of it flushes before.
 */
#include "common/store/kv_rocks_impl.h"

int kv_rocks_checkpoint(struct kv *k, const char *dir, struct err *e)
{
    struct kv_rocks *r = kv_rocks_of(k);
    char *message = NULL;

    if (r->failed)
        return err_set(e, r->failed, "an earlier write failed; restart to go on");
    rocksdb_checkpoint_t *c = rocksdb_checkpoint_object_create(r->db, &message);
    if (!message)
        rocksdb_checkpoint_create(c, dir, UINT64_MAX, &message);
    rocksdb_checkpoint_object_destroy(c);
    return message ? kv_rocks_fail(e, message, "cannot link the files of the database") : 0;
}
