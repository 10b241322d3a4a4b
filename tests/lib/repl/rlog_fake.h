/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog_fake.h: files in memory for the replication log, with a power cut that keeps any of the
 * sectors written since the last sync and any size between, names that are not durable before the
 * folder is synced, and writes and syncs that fail on request.
 */
#ifndef TESTS_LIB_REPL_RLOG_FAKE_H
#define TESTS_LIB_REPL_RLOG_FAKE_H

#include "common/repl/log/rlog_fs.h"

struct rlog_fake;
struct rlog_fake_faults {
    uint64_t fail_write_in; /* this many writes from now fails, half done: 1 = the next; 0: none */
    uint64_t fail_sync_in;  /* and syncs: what was written is durable, or never becomes so unless it
                               is written again: later syncs pass it over, as kernels do */
    int code;               /* 0: ERR_IO */
    uint64_t writes, syncs;
};
struct rlog_fake *rlog_fake_new(uint64_t seed);
void rlog_fake_free(struct rlog_fake *f); /* NULL is fine */
const struct rlog_fs *rlog_fake_fs(struct rlog_fake *f);
struct rlog_fake_faults *rlog_fake_faults(struct rlog_fake *f);
/* The log on it must be closed. */
void rlog_fake_power_cut(struct rlog_fake *f);
/* The same files once more, none of them open: for a node that restarts while its previous process,
 * which changes nothing any more, has not ended yet. */
struct rlog_fake *rlog_fake_fork(const struct rlog_fake *f, uint64_t seed);
/* All that is written becomes durable, as after a while. */
void rlog_fake_settle(struct rlog_fake *f);
uint64_t rlog_fake_bytes(const struct rlog_fake *f); /* in all files */
size_t rlog_fake_files(const struct rlog_fake *f);
/* Damages something old in a folder: a bit, or a sector that is all zeroes. `torn`: the log ends
 * there instead, as if what follows had never been written. Its path; NULL: nothing there is old.
 */
struct prng;
const char *rlog_fake_rot_old(struct rlog_fake *f, const char *dir, struct prng *p, bool torn);
/* Flips a bit of byte `at`, counted over all files in order of name. */
void rlog_fake_rot(struct rlog_fake *f, uint64_t at);

#endif
