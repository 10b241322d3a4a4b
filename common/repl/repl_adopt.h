/* SPDX-License-Identifier: Apache-2.0
 *
 * repl_adopt.h: the only copy of a shard gets a log, so that others can become copies of it.
 */
#ifndef COMMON_REPL_REPL_ADOPT_H
#define COMMON_REPL_REPL_ADOPT_H

#include "common/repl/log/rlog_fs.h"
#include "common/store/kv/kv.h"

/* What the database holds now becomes entry 1 of a new log in `dir`: the log goes on behind it, and
 * others get it as a snapshot. Its node must be the only member of the shard's first record
 * (common/cluster/rebuild/adopt.h). Nothing happens where the log is begun already. Fsynced when
 * it returns 0. ERR_CONFLICT: the database was a copy before, its log is elsewhere. Nobody else
 * has either open. */
NODISCARD int repl_adopt(const struct rlog_fs *fs, const char *dir, struct kv *db, struct err *e);

#endif
