/* SPDX-License-Identifier: Apache-2.0
 *
 * ack_log.h: what shards acked and were not asked about yet: entries of (shard, epoch, tenant), in
 * groups of one shard and epoch that fall due together. All it holds is within one bound of bytes;
 * what does not fit is refused as a whole entry, never as a part of one. Times are of a monotonic
 * clock. Thread: one.
 */
#ifndef DISTRIBUTOR_SEND_ACK_LOG_H
#define DISTRIBUTOR_SEND_ACK_LOG_H

#include "common/base/list.h"
#include "common/base/vec.h"
#include "distributor/send/ack_audit.h"

#define ACK_LOG_GROUP_ENTRIES 256 /* one more, and a second group of the shard and epoch begins */
#define ACK_LOG_GROUP_DOUBTS  8192
#define ACK_LOG_ENTRY_DOUBTS  256
#define ACK_LOG_PHASES        8 /* an epoch's shards fall due in so many heaps */

struct ack_log_entry {
    struct list link;       /* in its group */
    struct str key, tenant; /* tenant: within the key */
    struct acks sure;
    VEC(struct ledger_doubt) doubts;
    uint64_t unlisted; /* doubts that did not fit */
    unsigned bad;      /* answers that disagreed */
    struct ack_log_group *group;
    char bytes[];
};
struct ack_log_group {
    uint32_t shard, epoch;
    struct list entries; /* struct ack_log_entry */
    size_t len, doubts;
    uint64_t born_ms, due_ms;
    bool alone; /* a question about several shards got no answer: it is asked about by itself */
    char key[8];
};

struct ack_log_opts {
    uint64_t epoch_ms, settle_ms; /* settle: the longest life of a write after its epoch */
    size_t bytes_max;
    uint64_t seed;
};
struct ack_log;

struct ack_log *ack_log_new(const struct ack_log_opts *o);
void ack_log_free(struct ack_log *a); /* NULL is fine; groups that were taken were given back */

/* False: it is not audited, for want of room, or since the shard was asked about that time already.
 * If it is true of an entry once, it is true of it until it is dropped. */
bool ack_log_add(struct ack_log *a, const struct ledger_write *w, const struct acks *sums,
                 uint64_t now_ms);
/* False: the entry does not list it. */
bool ack_log_doubt(struct ack_log *a, const struct ledger_write *w, const struct ledger_doubt *d,
                   uint64_t now_ms);

/* The next group that is due, which is the caller's until ack_log_later or ack_log_end; NULL:
 * none. */
struct ack_log_group *ack_log_take(struct ack_log *a, uint64_t now_ms);
void ack_log_later(struct ack_log *a, struct ack_log_group *g, uint64_t due_ms);
void ack_log_drop(struct ack_log *a, struct ack_log_entry *x);
void ack_log_end(struct ack_log *a,
                 struct ack_log_group *g); /* and the entries that it still has */

/* When the first group falls due; UINT64_MAX: there is no group. */
uint64_t ack_log_due_ms(const struct ack_log *a);
size_t ack_log_len(const struct ack_log *a); /* entries */
size_t ack_log_bytes(const struct ack_log *a);
/* Of new entries one in 2^n is taken now. */
unsigned ack_log_thinned(const struct ack_log *a);

#endif
