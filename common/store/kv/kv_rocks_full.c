/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_full: what keeps RocksDB alive on a full disk.
 *
 * A compaction that drops all it reads (ranges deleted, and the rows they cover) makes a table file
 * nonetheless, an empty one, and deletes it. If the disk has not even a block left for that, an
 * assertion of builds that have them ends the process: the failed file counts as an output, and its
 * smallest key, which it does not have, is asked for. Files of nothing but deleted ranges came from
 * deleting what was not there, at each start and each flush behind it. So:
 *
 * - a range with few keys is deleted key by key, one without any not at all. Compactions that drop
 *   all of such deletions make no file. Large deletions remain (a purge, a bucket of
 *   write ids), whose compactions usually have something to write;
 * - a compaction waits at its beginning as long as the disk is full. It would fail anyway, after
 *   writing what little is left. RocksDB asks for a compaction filter at that point, outside of
 *   its locks; it gets none. The wait has a bound: a manual compaction may wait for
 *   the compaction that waits, and a caller for that.
 *
 * Threads: kv_rocks_del_range is the writer's; the gate runs on RocksDB's threads.
 */
#include <sys/statvfs.h>
#include <unistd.h>

#include "common/store/kv/kv_rocks_impl.h"

#define POINTS_MAX    256
#define SKIP_MAX      4096 /* deleted keys passed on the way to so many that are there */
#define LOOK_BACK_MAX (64 * KIB)
#define ROOM_MIN      MIB
#define WAIT_US       50000
#define WAIT_TIMES    600 /* half a minute */

uint64_t kv_rocks_room(const char *dir)
{
    struct statvfs v;

    return statvfs(dir, &v) ? UINT64_MAX : (uint64_t)v.f_bavail * v.f_frsize;
}

bool kv_rocks_full(const struct kv_rocks *r)
{
    return kv_rocks_room(r->dir) < ROOM_MIN;
}

/* ---- deleting ranges ---- */

/* Does the batch up to here put anything into the range? Of a long one it is taken for granted. */
static bool puts_into(struct str ops, const struct kv_entry *range)
{
    struct rd rd = rd_of(ops);
    struct kv_entry op;

    if (ops.len > LOOK_BACK_MAX)
        return true;
    while (kv_batch_next(&rd, &op))
        if (op.op == KV_PUT && op.cf == range->cf && str_cmp(op.key, range->key) >= 0 &&
            str_cmp(op.key, range->value) < 0)
            return true;
    return false;
}

/* Keys of the range, each deleted by the batch if `del`; over POINTS_MAX if they are many. */
static size_t each_key(struct kv_rocks *r, rocksdb_iterator_t *it, const struct kv_entry *range,
                       bool del)
{
    size_t n = 0, len;

    for (rocksdb_iter_seek(it, range->key.ptr, range->key.len);
         rocksdb_iter_valid(it) && n <= POINTS_MAX; rocksdb_iter_next(it), n++) {
        const char *key = rocksdb_iter_key(it, &len);
        if (del)
            rocksdb_writebatch_delete_cf(r->batch, r->cf[range->cf], key, len);
    }
    return n;
}

/* False if they are many, or cannot be read: then the range is to be deleted as one. */
static bool delete_keys(struct kv_rocks *r, const struct kv_entry *range)
{
    rocksdb_readoptions_t *o = rocksdb_readoptions_create();
    char *message = NULL;

    rocksdb_readoptions_set_iterate_upper_bound(o, range->value.ptr, range->value.len);
    rocksdb_readoptions_set_max_skippable_internal_keys(o, SKIP_MAX);
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(r->db, o, r->cf[range->cf]);
    size_t n = each_key(r, it, range, false);
    rocksdb_iter_get_error(it, &message);
    bool few = !message && n <= POINTS_MAX;
    rocksdb_free(message);
    message = NULL;
    if (few && n) {
        few = each_key(r, it, range, true) == n;
        rocksdb_iter_get_error(it, &message);
        few = few && !message;
        rocksdb_free(message);
    }
    rocksdb_iter_destroy(it);
    rocksdb_readoptions_destroy(o);
    return few;
}

void kv_rocks_del_range(struct kv_rocks *r, struct str ops, const struct kv_entry *range)
{
    if (!puts_into(ops, range) && delete_keys(r, range))
        return;
    rocksdb_writebatch_delete_range_cf(r->batch, r->cf[range->cf], range->key.ptr, range->key.len,
                                       range->value.ptr, range->value.len);
}

/* ---- the gate of compactions ---- */

static rocksdb_compactionfilter_t *gate_pass(void *cookie, rocksdb_compactionfiltercontext_t *what)
{
    struct kv_rocks *r = cookie;

    (void)what;
    for (int i = 0; i < WAIT_TIMES && !atomic_load(&r->closing) && kv_rocks_full(r); i++)
        (void)usleep(WAIT_US);
    return NULL;
}

static void gate_free(void *cookie)
{
    (void)cookie;
}

static const char *gate_name(void *cookie)
{
    (void)cookie;
    return "embertree.room";
}

void kv_rocks_gate(struct kv_rocks *r, rocksdb_options_t *o)
{
    rocksdb_options_set_compaction_filter_factory(
        o, rocksdb_compactionfilterfactory_create(r, gate_free, gate_pass, gate_name));
}
