/* SPDX-License-Identifier: Apache-2.0
 *
 * apply.h: entries of the log into the database, each with a note of how far it is.
 *
 * The note is a row of meta, written in the very batch: a database that lost its newest batches in
 * a power cut says so itself, and the log has what it lacks.
 */
#ifndef COMMON_REPL_APPLY_H
#define COMMON_REPL_APPLY_H

#include "common/repl/log/entry.h"
#include "common/store/kv/kv.h"

/* Does what the entry says, without a sync. The bytes behind its data are used: one thread, once at
 * a time. Doing it again changes nothing. */
NODISCARD int apply_entry(struct kv *db, struct repl_entry *x, struct err *e);
#define APPLY_HALF UINT64_MAX /* index of a database that a snapshot filled by half */
/* Deletes all rows and notes APPLY_HALF, synced. */
NODISCARD int apply_empty(struct kv *db, struct err *e);
/* Notes that the database is as of this entry, synced. */
NODISCARD int apply_note(struct kv *db, uint64_t index, uint64_t term, struct err *e);
/* The database is of no log any more (a backup that was restored), synced. */
NODISCARD int apply_forget(struct kv *db, struct err *e);
/* While the database in dir is not open: do its write-ahead logs lack what was synced, or entries
 * between others (kv_chain.h)? ERR_CORRUPT: yes. Changes nothing. Any thread. */
NODISCARD int apply_check_files(const char *dir, struct err *e);
bool apply_is_note(int cf, struct str key);
/* Has it any row at all? */
NODISCARD int apply_any_row(struct kv *db, bool *ret, struct err *e);
/* The last entry in the database; 0 and 0: none. */
NODISCARD int apply_read(struct kv *db, uint64_t *ret_index, uint64_t *ret_term, struct err *e);
NODISCARD int apply_read_at(struct kv *db, const struct kv_snap *snap, uint64_t *ret_index,
                            uint64_t *ret_term, struct err *e);

#endif
