/* SPDX-License-Identifier: Apache-2.0
 *
 * tomb.h: real deletes: of a tenant, of services, of label sets, of a range of time of any of them.
 *
 *   store_delete ──> entry n of the seal log: what was acked before and matches is gone,
 *                    │                        what comes later stays
 *                    │   one batch, fsynced before the caller hears of it:
 *                    │     names, label sets, unsealed rows of it deleted; masks for the rest
 *                    ▼
 *   store_purge  ──> bounded steps of the shard thread: rows, index, dictionaries; then the masks
 *                    ▼
 *   compaction of the touched ranges, on every copy (reclaim.h): now the bytes are gone, too
 *
 * Who makes an entry stands still: no batch is staged and not committed (`quiet`). So what is in
 * memory is what is on disk, "before" and "after" have one meaning, and every cache that names
 * something deleted is simply emptied.
 *
 * Four kinds, by what must be remembered:
 *
 *   TENANT    Its name row goes, so nobody finds it. Its number is never used again; the next push
 *             gets a new one. No mask. Its write ids stand until the guard is over: it is done no
 *             sooner.
 *   SERVICES  The same for services, `service_name` alone being matched. Their series still stand
 *             in the tenant's index, so a mask names their numbers: series of them do not exist.
 *   SERIES    The label rows of the matched series go, so no selector means them; each id is marked
 *             retired (series.h), which makes it a clash for ever: the same labels get a new id.
 *             Roll-ups still contain them: until they are corrected, reads use members.
 *   RANGE     The series live on. A mask names the series (or all), types and [from, to): reads cut
 *             their sealed part by it. Edges snap outward to nodes of the base level there, at
 *             least a minute (the finest node that members and roll-ups share), and the answer says
 *             so: finer things cannot be told apart at rest.
 *
 * Unsealed rows are deleted in the entry's own batch; they are minutes. Very many go before, in
 * parts, each an entry of the log that has no tomb (tomb_delete.c). Hence a mask speaks of
 * sealed rows alone, and a raw row is always newer than any mask over it: it is visible. The seal
 * leaves it raw while a RANGE mask covers it (masks_hold), so sealed rows under a mask are old, all
 * of them, and purging needs no comparison of ages.
 *
 * Write ids of deleted data are no duplicates, but their rows stay for the horizon. A row in `wid`
 * says how long the seal log was when the push arrived, or which entry folded it last; where an
 * entry after that deleted all of the push (tombs_forgot), the same push again is refused during
 * the guard of that entry (store_opts.delete_guard_ms): it may be a copy that was under way
 * (tomb_late_push.c). Later it is taken as new. Entries are remembered for that as long as the
 * horizon. A push that was deleted in part stays a duplicate: its other part is there.
 *
 * While a tomb is not purged, nobody builds, drops or moves floors of its services
 * (tombs_pending_on): nodes would be made of what is deleted. Work given out before (compactor) is
 * refused: it was read before entry n (tombs_block_since).
 *
 * Purging deletes what is there, so it can begin again at any row: a step is one batch, without
 * fsync; what a power cut takes back is done again. The masks go in the batch after the last row.
 *
 *   kind      rows                                    index
 *   TENANT    a range per (column family, level,      a range per meta table
 *             bucket) with rows of it
 *   SERVICES  the same, per service                   label rows, postings, pairs nobody has
 *   SERIES    row by row                              postings, pairs, days of the service
 *   RANGE     buckets inside, rest row by row;        days: in the entry's batch
 *             parents over an edge: marked and deleted, rebuilt from their children
 *
 * Roll-ups of a service that loses a part of its series are corrected, unit by unit, in the batches
 * that delete the rows of the deleted (purge_groups.c). Which groups those were in is kept
 * till then.
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
#define TOMB_KEPT        256    /* finished ones in the list */
#define TOMB_SERIES_MAX  262144 /* of one delete that is not of whole services */
#define TOMB_ID_MAX      64
#define TOMB_WHAT_MAX    8192

enum tomb_kind { TOMB_TENANT = 1, TOMB_SERVICES = 2, TOMB_SERIES = 3, TOMB_RANGE = 4 };
enum tomb_state {
    TOMB_PURGING = 0, /* masked; rows are being deleted */
    TOMB_PURGED = 1,  /* no row is left; files still hold bytes of them */
    TOMB_DONE = 2,    /* and those are gone */
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
    bool more;      /* only some unsealed rows went, raw_rows of them: the same again goes on */
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

/* One bounded step of purging; *ret_more: call again soon. Shard thread. Does nothing but say more
 * where it needs quiet and there is none: the caller then stages nothing until store_wants_quiet is
 * false again. */
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
    uint64_t anew;                 /* services whose roll-ups had to begin anew */
};
void store_delete_stats(const struct store *s, struct tomb_stats *ret); /* shard thread */

#endif
