/* SPDX-License-Identifier: Apache-2.0
 *
 * space.h: bytes of the files of a shard, by tenant, service, kind and level. The rows add up to
 * the sizes of the files exactly.
 *
 * RocksDB estimates how many bytes of its files a range of keys takes, and every key begins with
 * its owner. An estimate is exact to about one block per range, so small services are rounded.
 * Bytes that belong to no current key (deleted rows that compaction has not dropped, rounding) are
 * a row of their own, without an owner. Rows that are only in memtables are also in the write-ahead
 * log, which is a line of its own.
 *
 * Bytes in the cold tier are computed from what the shard knows of its parts, without a request to
 * the object store: each part is divided among its owners by the bytes of their rows before
 * compression. Parts without known owners (written by the previous version) count for the row
 * without an owner. Deleted rows count as long as their part exists.
 */
#ifndef COMMON_STORE_CHECK_SPACE_H
#define COMMON_STORE_CHECK_SPACE_H

#include <stdatomic.h>

#include "common/store/store.h"

/* Numbers travel (proto/space.proto): append only. */
#define SPACE_KINDS(X)                \
    X(SPACE_RAW, "unsealed")          \
    X(SPACE_MEMBERS, "vectors")       \
    X(SPACE_GROUPS, "roll-ups")       \
    X(SPACE_TIMELINES, "timelines")   \
    X(SPACE_FUNCTIONS, "functions")   \
    X(SPACE_DICTIONARY, "dictionary") \
    X(SPACE_INDEX, "index")           \
    X(SPACE_META, "names")            \
    X(SPACE_WIDS, "write ids")        \
    X(SPACE_EXEMPLARS, "exemplars")

#define SPACE_KIND_ID(id, name) id,
enum space_kind { SPACE_KINDS(SPACE_KIND_ID) SPACE_KINDS_LEN };
extern const char *const space_kind_names[SPACE_KINDS_LEN];
#define SPACE_NO_LEVEL UINT32_MAX

struct space_row {
    struct str tenant, service; /* empty: of all, or without an owner */
    enum space_kind kind;
    uint32_t level; /* or SPACE_NO_LEVEL */
    uint64_t bytes;
    uint64_t far_bytes; /* in the cold tier, not part of `bytes` */
};
/* Order of rows: by tenant, service, kind, level. */
int space_row_cmp(const void *a, const void *b);
/* Sorts rows of several reports and adds up those of the same owner. Returns how many are left. */
size_t space_rows_unite(struct space_row *rows, size_t len);

struct space {
    struct space_row *rows; /* in the arena; by tenant, service, kind, level */
    size_t len;
    uint64_t tables_bytes;   /* sum of the rows: table files in use */
    uint64_t obsolete_bytes; /* table files that readers still hold, or that wait to be removed */
    uint64_t log_bytes, other_bytes;
    uint64_t memtable_bytes; /* in memory, besides */
    uint64_t far_bytes;      /* in the cold tier: sum of the rows'; backups are not in it */
};
struct space_opts {
    size_t owners_max;         /* distinct (tenant, service, kind, level); ERR_LIMIT over it */
    const atomic_bool *cancel; /* may be NULL; polled */
    /* By tenant alone: rows have no service, no level, and a kind that means nothing. */
    bool tenants;
};
/* All of the shard; a few index look-ups for each bucket of each service, with `tenants` of each
 * tenant. Any thread. */
NODISCARD int store_space(struct store_view *v, const struct space_opts *o, struct arena *a,
                          struct space *ret, struct err *e);

#endif
