/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb.h: real deletes: of a tenant, of services, of label sets, of a range of time of any of them.
 *
 * Definitions. A *tomb* is the record of a delete. A *mask* hides the sealed rows that a delete
 * matched, until they are purged. *Purging* removes these rows; *reclaiming* frees their bytes.
 *
 *   store_delete ──> entry n of the seal log: matching data that were acked before are deleted,
 *                    │                        later pushes are not affected
 *                    │   one batch, fsynced before the caller is answered:
 *                    │     deletes names, label sets and unsealed rows; masks all other rows
 *                    ▼
 *   store_purge  ──> bounded steps of the shard thread: rows, index, dictionaries; then the masks
 *                    ▼
 *   compaction of the touched ranges, on every copy (reclaim.h): frees the bytes
 *
 * An entry is made only while no staged batch is uncommitted (`quiet`). So memory and disk hold the
 * same, each push is either before or after the entry, and caches with deleted names are emptied as
 * a whole.
 *
 * There are four kinds of deletes. They differ in what must be remembered:
 *
 *   TENANT    The name row is deleted, so no reader finds the tenant. Its number is never used
 *             again; the next push gets a new one. There is no mask. The write ids are kept until
 *             the guard (see below) ends, and the delete is not done before that.
 *   SERVICES  The same for services, if only `service_name` is matched. Their series are still in
 *             the tenant's index, so a mask holds the service numbers: readers skip their series.
 *   SERIES    The label rows of the matched series are deleted, so no selector matches them. Each
 *             id is marked retired (series.h), permanently: the same labels get a new id, as after
 *             a hash collision. Roll-ups still contain the series: until they are corrected, reads
 *             use members.
 *   RANGE     The series continue to exist. A mask holds the series (or all), types and [from, to):
 *             reads leave out the sealed rows in it. The edges are widened to nodes of the base
 *             level there, at least to minutes (the finest node that members and roll-ups share),
 *             since sealed rows cannot be divided further. The answer has the real edges.
 *
 * Unsealed rows cover minutes. The batch of the entry deletes them itself. If they are too many for
 * one batch, they are deleted first, in parts; each part is a log entry without a tomb
 * (tomb_delete.c). Hence masks cover only sealed rows. An unsealed row is always newer than any
 * mask over it, and visible. The seal does not seal it while a RANGE mask covers it (masks_hold).
 * So all sealed rows under a mask are older than the mask, and purging need not compare ages.
 *
 * A push that repeats deleted data is no duplicate, but the rows of its write ids are kept for the
 * horizon. A row in `wid` says how long the seal log was when the push arrived, or which entry
 * folded it last. If a later entry deleted all of the push (tombs_forgot), the same push is refused
 * during the guard of that entry (store_opts.delete_guard_ms), since it may be a copy that was
 * under way (tomb_late_push.c). After the guard it is stored as new. For this, entries are
 * remembered as long as the horizon. A push that was deleted in part stays a duplicate: its other
 * part is stored.
 *
 * While a tomb is not purged, no node of its services is built, no row expires in them and no
 * floor moves (tombs_pending_on), since nodes would be built from deleted rows. Results of jobs
 * that a compactor was given before are refused, since it read the rows before entry n
 * (tombs_block_since).
 *
 * Purging searches for the rows to delete, so it can be restarted at any row. A step is one batch,
 * without fsync; if a power cut takes it back, it is done again. The batch after the last row
 * deletes the masks.
 *
 *   kind      rows                                    index
 *   TENANT    a range per (column family, level,      a range per meta table
 *             bucket) with rows of it
 *   SERVICES  the same, per service                   label rows, postings, pairs without series
 *   SERIES    row by row                              postings, pairs, days of the service
 *   RANGE     buckets inside, rest row by row;        days: in the entry's batch
 *             parents over an edge: marked and deleted, rebuilt from their children
 *
 * Roll-ups of a service that loses a part of its series are corrected, unit by unit, in the batches
 * that delete the rows of these series (purge_groups.c). The rows that say to which groups they
 * belong are kept until then.
 *
 *   60 tenant entry u64     version u8 = 1 | kind u8 | state u8 | created ms u64 | ended ms u64 |
 *                           from u32 | to u32 | services varint | series varint | raw rows varint |
 *                           3 x (length varint, text): id of the request, tenant, what |
 *                           n varint | n matchers: op u8, unanchored u8, name, value as texts
 *   61 tenant entry         version u8 = 1 | phase u8 | rows varint | bytes varint | done u32 |
 *                           of u32 | cursor: bytes of the phase
 *   62 tenant entry scope chunk u32
 *                           version u8 = 1 | kind u8 | from u32 | to u32 | n varint, n x u16 types
 *                           (0: all) | n varint, n x u64 series ascending (0: all)
 *   63 tenant entry cf u8 level u8 bucket u32    a range to compact; empty
 *
 *   mask of entry 9 over series 00..0a1 of service 2 of tenant 1, slots 12 to 24, all types:
 *   62 00000001 0000000000000009 00000002 00000000
 *       01 04 0000000c 00000018 00 01 00000000000000a1
 *
 * Finished tombs are kept for the list: the newest 256.
 */
#ifndef COMMON_STORE_MASK_TOMB_H
#define COMMON_STORE_MASK_TOMB_H

#include "common/base/vec.h"
#include "common/store/store.h"

#define TOMB_PENDING_MAX 64     /* per shard, of a tenant */
#define TOMB_TENANTS     4      /* of all: as if so many had as many as they may */
#define TOMB_KEPT        256    /* finished deletes in the list */
#define TOMB_SERIES_MAX  262144 /* of one delete that is not of whole services */
#define TOMB_ID_MAX      64
#define TOMB_WHAT_MAX    8192

enum tomb_kind { TOMB_TENANT = 1, TOMB_SERVICES = 2, TOMB_SERIES = 3, TOMB_RANGE = 4 };
enum tomb_state {
    TOMB_PURGING = 0, /* masked; rows are being deleted */
    TOMB_PURGED = 1,  /* no row is left; files still hold bytes of them */
    TOMB_DONE = 2,    /* no file holds bytes of them */
};

struct tomb_request {
    struct str tenant;
    struct str id;                   /* 1..TOMB_ID_MAX bytes; the same again has no second effect */
    struct str what;                 /* for the list: as the user said it */
    const struct selector *selector; /* compiled; NULL or no matchers: everything of the tenant */
    int64_t from_ms, to_ms;          /* 0, 0: any time */
    uint64_t raw_rows;               /* that earlier parts took */
};
struct tomb_result {
    uint64_t entry; /* of the seal log; 0: nothing matches, nothing was done; or a dry run */
    bool repeated;  /* done before, under the same id */
    bool more;      /* only some unsealed rows were deleted (raw_rows): call again to continue */
    enum tomb_kind kind;
    uint64_t services, series;
    uint64_t raw_rows;       /* unsealed, deleted at once */
    uint64_t bytes_estimate; /* in files, compressed */
    int64_t from_ms, to_ms;  /* real bounds; 0, 0: any time */
};
/* What store_delete would do. Any thread. ERR_INPUT, ERR_LIMIT, ERR_IO, ERR_CORRUPT. */
NODISCARD int store_delete_plan(struct store_view *v, const struct tomb_request *r,
                                struct tomb_result *ret, struct err *e);
/* Shard thread, quiet: every batch made is committed. When it returns 0 the delete is on disk and
 * every view got from now on is without the data; unless there is more. ERR_BUSY: too many tombs
 * wait to be purged, or are remembered. */
NODISCARD int store_delete(struct store *s, const struct tomb_request *r, struct tomb_result *ret,
                           struct err *e);

/* One bounded step of purging; *ret_more: call again after other work of the thread. If the step
 * needs quiet and a staged batch is uncommitted, it only sets *ret_more; then the caller must stage
 * nothing until store_wants_quiet is false again. Shard thread. */
NODISCARD int store_purge(struct store *s, size_t rows_max, bool *ret_more, struct err *e);
uint64_t store_purge_wait_ms(struct store *s);
bool store_wants_quiet(const struct store *s); /* shard thread */
bool store_quiet(const struct store *s);

/* Compacts one range of a delete that is purged; *ret_more: there may be another. Any thread but
 * the shard's, one at a time; takes as long as it takes. */
NODISCARD int store_reclaim(struct store *s, bool *ret_more, struct err *e);

struct tomb_info {
    uint64_t entry;
    enum tomb_kind kind;
    enum tomb_state state;
    struct str id, tenant, what;
    int64_t created_ms, ended_ms;
    int64_t from_ms, to_ms;
    uint64_t services, series, raw_rows;
    uint64_t rows, bytes; /* deleted so far: estimates where whole ranges went */
    uint32_t done, of;    /* steps of the whole, for a bar; of 0: not known yet */
    const char *phase;    /* what is being done, in words; "": nothing any more */
    bool ranges_left;     /* purged, and not all copies have said that no file has bytes of it */
};
struct tomb_list {
    VEC(struct tomb_info) at; /* newest first; texts in the arena */
};
/* Tombs of a tenant, by name; an empty name: of all. Any thread. */
NODISCARD int store_deletes(struct store_view *v, struct str tenant, struct arena *a,
                            struct tomb_list *ret, struct err *e);
void tomb_list_deinit(struct tomb_list *l);

struct tomb_stats {
    uint64_t pending, purged;      /* tombs with rows; without, but with bytes in files */
    uint64_t deletes, rows, bytes; /* since start */
    uint64_t rollups_restarted;    /* services whose roll-ups were started again */
};
void store_delete_stats(const struct store *s, struct tomb_stats *ret); /* shard thread */

#endif
