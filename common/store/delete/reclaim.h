/* SPDX-License-Identifier: Apache-2.0
 *
 * reclaim.h: frees the bytes of purged deletes in the files of one database.
 *
 * Deleted rows stay in table files until these are compacted, and in the write-ahead log until all
 * of it is in table files. Rows of table 63 (tomb.h) name the ranges that a purge touched. A range
 * is compacted once no reader has a snapshot that is older than the purge. Behind the last range
 * all memtables are flushed, so that the write-ahead log is cut.
 *
 *   alone       store_reclaim compacts a range, then deletes its row; a delete without such rows is
 *               done
 *   replicated  each copy compacts for itself (ingester/replicas/replicas_reclaim.c: reclaim_look,
 *               reclaim_one) and reports from which log entry on it has no such bytes. The leader's
 *               store is given the ranges that no copy has any more: store_reclaimed
 *
 *   cf, lead, bucket of a row      what is compacted
 *   fine, coarse, ru, tl, fn       level lead, bucket, tenant
 *   wid, exm                       bucket, tenant
 *   meta                           table lead, of the tenant; of tables by name: all of it
 *   raw                            everything: it is minutes
 *
 * Older builds do not know the last two rows of this list; they compact an empty range for them.
 */
#ifndef COMMON_STORE_DELETE_RECLAIM_H
#define COMMON_STORE_DELETE_RECLAIM_H

#include "common/base/vec.h"
#include "common/store/store.h"

/* ---- of a store; store_reclaim: tomb.h ---- */

/* True if no reader has a view that is older than the last purge. Any thread. */
bool store_reclaim_settled(struct store *s);

/* ---- of one copy among several ---- */

#define RECLAIM_KEY_LEN 19
struct reclaim_key { /* a row of table 63 */
    char b[RECLAIM_KEY_LEN];
    bool done; /* compacted here */
};
struct reclaim_list {
    struct reclaim_key *ptr; /* owned */
    size_t len;
};
struct reclaim {
    VEC(struct reclaim_key) at; /* ascending */
    bool flush;                 /* the write-ahead log still holds what was compacted */
};
void reclaim_deinit(struct reclaim *r); /* all zeros is an empty one */
/* What there is as of the snapshot; *ret_left of it is not compacted here, or not flushed. */
NODISCARD int reclaim_look(struct reclaim *r, struct kv *db, const struct kv_snap *snap,
                           size_t *ret_left, struct err *e);
/* The next of it. One at a time, any thread that does not write; takes as long as it takes.
 * *ret_more: there is another, and this one was done. */
NODISCARD int reclaim_one(struct reclaim *r, struct kv *db, bool *ret_more, struct err *e);

/* Shard thread. All copies that answer have nothing left of these ranges: deletes without others
 * are done. `all`: nor have those that do not answer; the rows go. */
NODISCARD int store_reclaimed(struct store *s, const struct reclaim_key *keys, size_t n, bool all,
                              struct err *e);

#endif
