/* SPDX-License-Identifier: Apache-2.0
 *
 * cluster_dump_merge.h: merges the dumps of several processes into the state that the coordination
 * service is to hold after it lost its data (README.md, "etcd lost", has the argument).
 *
 * 1. Of each shard the record with the highest term counts, of the map the highest version. If
 *    every node of the map has sent its dump, no process has acted on a later record, so it is
 *    written unchanged.
 * 2. Where that is not certain a shard gets a new term: its leader asks a majority, as after any
 *    change of leaders, and no term that an unknown leader may have used is used a second time.
 * 3. A record keeps the term that was known (cluster_dump.h, seen): a record of the service beyond
 * that is
 *    newer than ours, whatever number ours got.
 *
 * Thread: any.
 */
#ifndef COMMON_CLUSTER_REBUILD_CLUSTER_DUMP_MERGE_H
#define COMMON_CLUSTER_REBUILD_CLUSTER_DUMP_MERGE_H

#include "common/cluster/rebuild/cluster_dump.h"

/* A new term is so much higher where terms may have been used that no answer names. */
#define KEPT_LEAP UINT64_C(1000000)

enum kept_why {
    KEPT_AS_IS,
    KEPT_MISSING,  /* a node did not answer, and it may know, or lead, a later term */
    KEPT_PROMISED, /* a log has promised a later term than that of any record */
    KEPT_UNTOLD,   /* a member answered without saying what its log has promised */
    KEPT_DIFFERS,  /* cluster_dump_merge_differs */
};
struct cluster_dump_join;

struct cluster_dump_join *cluster_dump_merge_new(void);
void cluster_dump_merge_free(struct cluster_dump_join *j); /* NULL is fine */
/* Merges one answer; `from` names the sender. ERR_CONFLICT, ERR_INPUT: it contradicts earlier
 * answers, and nothing of it was merged. An answer without a map counts as no answer. */
NODISCARD int cluster_dump_merge_add(struct cluster_dump_join *j, const struct cluster_dump *k,
                                     const char *from, struct err *e);
/* Nodes of the map, but for those that left, that did not answer: the n-th, by name; NULL past the
 * last. Also how many did. */
const char *cluster_dump_merge_missing(const struct cluster_dump_join *j, size_t n);
bool cluster_dump_merge_answered(const struct cluster_dump_join *j, const char *node);
size_t cluster_dump_merge_answers(const struct cluster_dump_join *j);
/* Once, after the last answer: the least that the service should hold. Borrowed. ERR_NOT_FOUND: no
 * answer had a map. */
NODISCARD int cluster_dump_merge_end(struct cluster_dump_join *j, const struct cluster_dump **ret,
                                     struct err *e);
/* After the end, once: the service lacks a part of the result, so it has lost data. Shards get new
 * terms where a node that may know more did not answer. Not called before that is certain, since a
 * new term interrupts a leader. */
void cluster_dump_merge_lost(struct cluster_dump_join *j);
enum kept_why cluster_dump_merge_why(const struct cluster_dump_join *j, uint32_t shard);
/* After the end: the service has a record of this same term with other content, or (shard
 * CLUSTER_SHARDS_MAX) a map of that version, `map_version`, or a later map that did not come from
 * ours. Gives our record or map a later number. */
NODISCARD int cluster_dump_merge_differs(struct cluster_dump_join *j, uint32_t shard,
                                         uint64_t map_version, struct err *e);

#endif
