/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_bootstrap.h: the only copy of a shard gets a log, so that others can become copies of it.
 */
#ifndef COMMON_REPL_REPL_BOOTSTRAP_H
#define COMMON_REPL_REPL_BOOTSTRAP_H

#include "common/repl/log/rlog_fs.h"
#include "common/store/kv/kv.h"

/* Makes the present database entry 1 of a new log in `dir`: the log continues behind it, and other
 * replicas get it as a snapshot. Its node must be the only member of the shard's first record
 * (common/cluster/rebuild/adopt.h). Does nothing if the log has begun already. Fsynced when it
 * returns 0. ERR_CONFLICT: the database was a copy in the past, and its log is elsewhere. The
 * caller has both to itself. */
NODISCARD int repl_adopt(const struct rlog_fs *fs, const char *dir, struct kv *db, struct err *e);

#endif
