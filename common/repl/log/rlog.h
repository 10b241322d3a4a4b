/* SPDX-License-Identifier: Apache-2.0
 *
 * rlog.h: the durable log of one replica: entries first..last, the term promised, and the term of
 * the entry before the first.
 *
 * Appending an entry whose index is not above the last one replaces that entry and drops all behind
 * it, in one step that a power cut cannot tear apart: nothing on disk is overwritten, and the newer
 * record counts when the log is read again. Records for which rlog_sync returned 0 survive a power
 * cut; of later records a first part may survive.
 *
 * After an error of append, hard, reset or sync the log takes nothing more until it is opened
 * again: after a failed fsync it is not known whether the bytes are on disk.
 *
 * Thread: one at a time.
 */
#ifndef COMMON_REPL_LOG_RLOG_H
#define COMMON_REPL_LOG_RLOG_H

#include "common/repl/log/entry.h"
#include "common/repl/log/rlog_fs.h"

struct rlog;
struct rlog_opts {
    const struct rlog_fs *fs; /* borrowed */
    const char *dir;          /* copied; created if missing */
    uint64_t segment_bytes;   /* a new file at this size; 0: 64 MiB */
};
/* Opens or creates; what a crash tore off the end is cut. ERR_CORRUPT names the file and the place:
 * bytes that were once fsynced are not what they were; ERR_CONFIG: a newer version's. */
NODISCARD int rlog_open(const struct rlog_opts *o, struct rlog **ret, struct err *e);
void rlog_close(struct rlog *l); /* NULL is fine; does not sync */

struct rlog_state {
    uint64_t promised;              /* highest term promised, 0: none */
    uint64_t commit;                /* committed at least up to here, as far as was noted */
    uint64_t base_index, base_term; /* the entry before the first */
    uint64_t last_index, last_term; /* = base when there are no entries */
    uint64_t bytes;                 /* of all files */
    uint64_t appended;              /* bytes of entries since it was opened */
    bool sealed; /* all is fsynced, and a record behind it says so, or the log holds nothing */
};
struct rlog_state rlog_state(const struct rlog *l);
/* False: nothing was ever promised, appended or reset in it. */
bool rlog_begun(const struct rlog *l);
/* 0: not known, or no such entry. base_index has one. */
uint64_t rlog_term(const struct rlog *l, uint64_t index);
/* Calls run(from, term) for each run of entries with the same term, the base first. */
void rlog_terms(const struct rlog *l, void (*run)(void *cookie, uint64_t from, uint64_t term),
                void *cookie);

/* Indexes follow each other; the first is at most last_index + 1 and above base_index. */
NODISCARD int rlog_append(struct rlog *l, struct repl_entry *const *entries, size_t n,
                          struct err *e);
/* Stores the promise and the known commit index; neither ever falls. */
NODISCARD int rlog_hard(struct rlog *l, uint64_t promised, uint64_t commit, struct err *e);
/* Empties the log: it continues behind (index, term), as after a snapshot. */
NODISCARD int rlog_reset(struct rlog *l, uint64_t index, uint64_t term, struct err *e);
/* Returns when all records appended so far are on the medium. One sync for many appends. */
NODISCARD int rlog_sync(struct rlog *l, struct err *e);
/* Writes a hard record behind a group that is fsynced, to be fsynced itself (rlog_sync): from then
 * on damage in that group is found when the log is opened. Nothing where the log is sealed, holds
 * nothing yet, or has a group open. */
NODISCARD int rlog_seal(struct rlog *l, struct err *e);
/* Begins a new file for later records, so that the previous one can be dropped. */
NODISCARD int rlog_roll(struct rlog *l, struct err *e);
/* Drops whole files with no entry above `index`; base_index rises to at most `index`. Only entries
 * that are committed and synced may go. */
NODISCARD int rlog_drop(struct rlog *l, uint64_t index, struct err *e);

/* Entries from index `from` on: at least one, then until `bytes_max` is passed; at most `max`. */
struct rlog_range {
    uint64_t from;
    size_t max, bytes_max;
};
/* Reads the entries of a range to ret[0 .. *ret_len), which has room for r->max; each with a
 * reference for the caller. ERR_NOT_FOUND: `from` is not above base_index or above last_index;
 * ERR_CORRUPT, ERR_IO. */
NODISCARD int rlog_read(struct rlog *l, const struct rlog_range *r, struct repl_entry **ret,
                        size_t *ret_len, struct err *e);

#endif
