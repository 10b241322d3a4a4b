/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.h: checks that all replicas hold the same rows.
 *
 * 1. Every digest_every_ms the leader puts an entry of kind REPL_DIGEST into the log.
 * 2. Each replica sums up the database as of that entry, in the background.
 * 3. The leader asks for the sums.
 * 4. A replica that differs from a majority, to which the leader belongs, drops its database and
 *    gets another one (snapshot.h).
 *
 * Thread: the loop's, but where repl_disk.c says so.
 */
#ifndef COMMON_REPL_DIGEST_H
#define COMMON_REPL_DIGEST_H

#include "common/repl/repl_node.h"

struct digest_sums {
    uint64_t index; /* as of this entry; 0: none */
    uint64_t rows;
    uint64_t sums[KV_CFS]; /* over keys and values in order */
};

/* An entry REPL_DIGEST was just handed to the apply thread. */
void repl_digest_entry(struct repl_node *n, uint64_t index);
void repl_digest_tick(struct repl_node *n);
bool repl_digest_runs(const struct repl_node *n); /* a snapshot is read. Loop */
/* A replica received a database: the next digest does not wait for its time. No effect where
 * digests are off. */
void repl_digest_soon(struct repl_node *n);
/* Serves RPC_REPL_DIGEST; cookie: the hub. */
void repl_digest_serve(void *cookie, struct rpc_call *call, struct str payload);
void repl_digest_release(struct repl_node *n); /* as repl_snapshot_release */
void repl_digest_free(struct repl_node *n);

/* On the wire (proto/repl.proto). */
struct digest_ask {
    uint32_t shard;
    uint64_t term, index;
    bool repair; /* you differ from the majority: ask for another database */
};
void digest_ask_write(const struct digest_ask *a, struct buf *out);
NODISCARD int digest_ask_read(struct str bytes, struct digest_ask *ret, struct err *e);
void digest_sums_write(const struct digest_sums *s, struct buf *out);
NODISCARD int digest_sums_read(struct str bytes, struct digest_sums *ret, struct err *e);

#endif
