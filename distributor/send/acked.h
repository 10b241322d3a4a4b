/* SPDX-License-Identifier: Apache-2.0
 *
 * acked.h: what shards acked and were not asked about yet: entries of (shard, epoch, tenant), in
 * groups of one shard and epoch that fall due together. All it holds is within one bound of bytes;
 * what does not fit is refused as a whole entry, never as a part of one. Times are of a monotonic
 * clock. Thread: one.
 */
#ifndef DISTRIBUTOR_SEND_ACKED_H
#define DISTRIBUTOR_SEND_ACKED_H

#include "common/base/list.h"
#include "common/base/vec.h"
#include "distributor/send/ledger.h"

#define ACKED_GROUP_ENTRIES 256 /* one more, and a second group of the shard and epoch begins */
#define ACKED_GROUP_DOUBTS  8192
#define ACKED_ENTRY_DOUBTS  256
#define ACKED_PHASES        8 /* an epoch's shards fall due in so many heaps */

struct acked_entry {
    struct list link;       /* in its group */
    struct str key, tenant; /* tenant: within the key */
    struct acks sure;
    VEC(struct ledger_doubt) doubts;
    uint64_t unlisted; /* doubts that did not fit */
    unsigned bad;      /* answers that disagreed */
    struct acked_group *group;
    char bytes[];
};
struct acked_group {
    uint32_t shard, epoch;
    struct list entries; /* struct acked_entry */
    size_t len, doubts;
    uint64_t born_ms, due_ms;
    bool alone; /* a question about several shards got no answer: it is asked about by itself */
    char key[8];
};

struct acked_opts {
    uint64_t epoch_ms, settle_ms; /* settle: the longest life of a write after its epoch */
    size_t bytes_max;
    uint64_t seed;
};
struct acked;

struct acked *acked_new(const struct acked_opts *o);
void acked_free(struct acked *a); /* NULL is fine; groups that were taken were given back */

/* False: it is not audited, for want of room, or since the shard was asked about that time already.
 * If it is true of an entry once, it is true of it until it is dropped. */
bool acked_add(struct acked *a, const struct ledger_write *w, const struct acks *sums,
               uint64_t now_ms);
/* False: the entry does not list it. */
bool acked_doubt(struct acked *a, const struct ledger_write *w, const struct ledger_doubt *d,
                 uint64_t now_ms);

/* The next group that is due, which is the caller's until acked_later or acked_end; NULL: none. */
struct acked_group *acked_take(struct acked *a, uint64_t now_ms);
void acked_later(struct acked *a, struct acked_group *g, uint64_t due_ms);
void acked_drop(struct acked *a, struct acked_entry *x);
void acked_end(struct acked *a, struct acked_group *g); /* and the entries that it still has */

/* When the first group falls due; UINT64_MAX: there is no group. */
uint64_t acked_due_ms(const struct acked *a);
size_t acked_len(const struct acked *a); /* entries */
size_t acked_bytes(const struct acked *a);
/* Of new entries one in 2^n is taken now. */
unsigned acked_thinned(const struct acked *a);

#endif
