/* SPDX-License-Identifier: Apache-2.0
 *
 * ack_audit.h: do our acks hold? Adds up what shards acked, by epoch, and asks them later
 * (common/store/LEDGER.md, section 3). Thread: the loop's, but for ledger_epoch.
 */
#ifndef DISTRIBUTOR_SEND_ACK_AUDIT_H
#define DISTRIBUTOR_SEND_ACK_AUDIT_H

#include "common/store/ledger/acks.h"
#include "distributor/send/write_id.h"

struct distributor;
struct ledger_book;

/* With distributor.ledger_epoch 0 nothing is written, nor asked: NULL. */
struct ledger_book *ledger_book_new(struct distributor *d);
void ledger_book_free(struct ledger_book *b); /* before the route; NULL is fine */

/* What a write says of us: 0, 0 without a book. Any thread. */
uint64_t ledger_distributor(const struct ledger_book *b);
uint32_t ledger_epoch(const struct ledger_book *b);

struct ledger_write {
    uint32_t shard, epoch;
    struct str tenant;
};
/* The shard stored all of them for the first time, and said so. */
void ack_audit_add(struct ledger_book *b, const struct ledger_write *w, const struct acks *a);
/* It may have stored this one by an earlier attempt. `acked`: it said that it is there. */
void ledger_doubt(struct ledger_book *b, const struct ledger_write *w,
                  const uint8_t wid[WRITE_ID_BYTES], bool acked);

/* For tests: what the answer of a shard means. Doubtful ones: `known` says whether the shard knows
 * those. Sums are compared where few enough are in doubt. */
struct ledger_doubt {
    uint8_t wid[WRITE_ID_BYTES];
    bool acked, known;
};
struct ledger_verdict {
    uint64_t lost, doubled;
};
#define LEDGER_DOUBTS_SUMMED 12 /* subsets of so many are tried */
struct ledger_verdict ledger_judge(const struct acks *sure, const struct ledger_doubt *doubts,
                                   size_t n, bool more, const struct acks *said);

#endif
