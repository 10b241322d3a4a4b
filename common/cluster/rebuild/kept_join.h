/* SPDX-License-Identifier: Apache-2.0
 *
 * kept_join.h: what several processes keep of one cluster becomes what the coordination service is
 * to hold after it lost its data (README.md, "etcd lost", has the argument).
 *
 * Of each shard the record with the highest term, of the map the highest version. Where every node
 * of the map has told what it keeps that is the last that anybody acted on, and is written as it
 * is. Where that is not certain a shard gets a new term: its leader asks a majority, as after any
 * change of leaders, and no term that somebody unheard may have led is used for a second time. A
 * record is always told with the term that was known (kept.h, seen): what the service has beyond
 * that is newer than ours, whatever number ours got.
 *
 * Thread: any.
 */
#ifndef COMMON_CLUSTER_REBUILD_KEPT_JOIN_H
#define COMMON_CLUSTER_REBUILD_KEPT_JOIN_H

#include "common/cluster/rebuild/kept.h"

/* So many terms are left out where somebody may have used some of them. */
#define KEPT_LEAP UINT64_C(1000000)

enum kept_why {
    KEPT_AS_IS,
    KEPT_MISSING,  /* nobody answered for a node, which may know, or lead, a later term */
    KEPT_PROMISED, /* a log has promised a later term than that of any record */
    KEPT_UNTOLD,   /* a member answered without saying what its log has promised */
    KEPT_DIFFERS,  /* kept_join_differs */
};
struct kept_join;

struct kept_join *kept_join_new(void);
void kept_join_free(struct kept_join *j); /* NULL is fine */
/* One answer; `from` names who gave it. ERR_CONFLICT, ERR_INPUT: it does not go with those before,
 * and nothing of it was taken. One that keeps no map tells nothing and counts as no answer. */
NODISCARD int kept_join_add(struct kept_join *j, const struct kept *k, const char *from,
                            struct err *e);
/* Nodes of the map, but for those that left, that did not answer: the n-th, by name; NULL past the
 * last. Also how many did. */
const char *kept_join_missing(const struct kept_join *j, size_t n);
bool kept_join_answered(const struct kept_join *j, const char *node);
size_t kept_join_answers(const struct kept_join *j);
/* Once, after the last answer: what the service should have at least. Borrowed. ERR_NOT_FOUND:
 * nobody keeps a map. */
NODISCARD int kept_join_end(struct kept_join *j, const struct kept **ret, struct err *e);
/* After the end, once: it lacks something of it, so it has lost data; new terms where one who may
 * know more did not speak. Until then nobody is to be disturbed. */
void kept_join_lost(struct kept_join *j);
enum kept_why kept_join_why(const struct kept_join *j, uint32_t shard);
/* After the end: the service has a record of that very term which says something else, or (shard
 * CLUSTER_SHARDS_MAX) a map of that version, `map_version`, or a later one that did not come from
 * it: ours gets a later one. */
NODISCARD int kept_join_differs(struct kept_join *j, uint32_t shard, uint64_t map_version,
                                struct err *e);

#endif
