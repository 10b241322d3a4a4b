/* SPDX-License-Identifier: Apache-2.0
 *
 * kv_rocks_chain: do the write-ahead logs of a database lack batches? For databases of versions
 * that did not sync the logs they found: after a power cut such a log may be empty, or end between
 * two records, and RocksDB replays the next one over the hole.
 *
 * The database is opened to be read, and no record of the logs is put into it: what the row says
 * then, it said in the table files. The logs the family needs must continue from there, one by
 * one. A log older than its last flush, which other families need, must end there.
 *
 * An error of that opening is left to the next opening, which is to write.
 *
 * What this cannot see: a hole in logs that only other families need, where none of the records
 * behind it is left; a hole that was flushed to table files. What stands behind a torn record is
 * not looked at: RocksDB itself compares its sequence numbers there.
 */
#include "common/store/kv/kv_chain.h"

#include <stdio.h>
#include <unistd.h>

#include "common/base/size.h"
#include "common/base/wr.h"
#include "common/store/kv/kv_rocks_impl.h"

#define ROW_BYTES_MAX 4096

static bool follows(uint64_t number, uint64_t before)
{
    return number == before || number == before + 1 || number == KV_CHAIN_ANY ||
           before == KV_CHAIN_ANY;
}

static int missing(struct err *e, uint64_t before, uint64_t number)
{
    return err_set(e, ERR_CORRUPT,
                   "rows are missing: in its write-ahead logs batch %" PRIu64
                   " is followed by batch %" PRIu64,
                   before, number);
}

static int check(const struct rocks_chain *c, uint64_t in_tables, struct err *e)
{
    size_t n = rocks_chain_len(c);
    uint64_t before = 0;
    bool any = false, behind = false; /* the last flush of the family */

    for (size_t i = 0; i < n; i++) {
        uint64_t number = rocks_chain_at(c, i);
        if (!behind && rocks_chain_behind(c, i)) {
            if (any && !follows(in_tables, before))
                return missing(e, before, in_tables);
            behind = any = true;
            before = in_tables;
        }
        if (any && !follows(number, before))
            return missing(e, before, number);
        any = true;
        before = number;
    }
    if (any && !behind && before != in_tables && before != KV_CHAIN_ANY)
        return missing(e, before, in_tables);
    return 0;
}

static int read_row(struct kv *kv, enum kv_cf cf, struct str key, uint64_t *ret, struct err *e)
{
    struct buf row;
    int rc;

    buf_init(&row, ROW_BYTES_MAX);
    rc = kv_get(kv, NULL, cf, key, &row, e);
    if (rc == ERR_NOT_FOUND) {
        *ret = 0;
        rc = 0;
    } else if (!rc && row.len < 8) {
        rc = err_set(e, ERR_CORRUPT, "the row that numbers the batches has %zu bytes", row.len);
    } else if (!rc) {
        *ret = get_u64be(row.ptr);
    }
    buf_deinit(&row);
    return rc;
}

static bool exists(const char *dir)
{
    char path[4096];

    return (size_t)snprintf(path, sizeof(path), "%s/CURRENT", dir) < sizeof(path) &&
           access(path, F_OK) == 0;
}

int kv_rocks_check_chain(const char *dir, enum kv_cf cf, struct str key, struct err *e)
{
    struct kv_opts o = {
        .dir = dir, .block_cache_bytes = 8 * MIB, .memtable_bytes = 4 * MIB, .read_only = true
    };
    struct rocks_chain *c;
    struct kv *kv = NULL;
    uint64_t in_tables = 0;
    int rc;

    bool counts;

    if (!exists(dir))
        return 0;
    rc = kv_rocks_check_list(dir, &counts, e);
    if (rc || counts)
        return rc;
    c = rocks_chain_new(kv_rocks_family(cf), key.ptr, key.len);
    /* A database that cannot be opened to be read may lack a family that opening it makes. */
    if (!kv_rocks_open_chain(&o, c, &kv, e)) {
        rc = read_row(kv, cf, key, &in_tables, e);
        if (!rc)
            rc = check(c, in_tables, e);
        kv_close(kv);
    }
    rocks_chain_free(c);
    return rc;
}
