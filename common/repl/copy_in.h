/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_in.h: receives files of another replica's database, and puts them in the place of the local
 * one. Thread: any, one at a time; copy_install while nothing of the shard is open.
 */
#ifndef COMMON_REPL_COPY_IN_H
#define COMMON_REPL_COPY_IN_H

#include "common/repl/copy_files.h"

struct copy_in {
    const struct copy_faults *faults;
    char dir[COPY_PATH_BYTES]; /* base/in */
    char source[NODE_NAME_MAX + 1];
    uint64_t id;
    struct copy_list list;
    size_t *first;        /* of a file, in pieces; one more at the end */
    uint64_t *pieces;     /* sums of those that are here; 0: it is not */
    size_t *left;         /* of a file, pieces to come */
    uint64_t *sums;       /* of files that are here whole, synced and noted; 0: it is not */
    size_t files_left;    /* to come */
    uint64_t bytes, kept; /* that are here; of them, of an earlier try */
    size_t journal_bytes; /* of the journal, that are whole: the next note is written there */
};

/* Loads the files of an earlier try from base/in. ERR_NOT_FOUND: none is of use. */
NODISCARD int copy_in_load(const char *base, const struct copy_faults *faults, struct copy_in **ret,
                           struct err *e);
/* A copy that another replica offers. */
struct copy_offer {
    const char *source; /* name of its node; borrowed */
    uint64_t id;        /* of the copy, chosen by the source */
    struct copy_list list;
};
/* Begins or continues: files that are here whole, and equal, stay; all others are deleted. Takes
 * over offer->list, also on failure. */
NODISCARD int copy_in_begin(const char *base, const struct copy_faults *faults,
                            struct copy_offer *offer, struct copy_in **ret, struct err *e);
/* ERR_CORRUPT: not what was sent; nothing happened. A piece that arrived before is skipped. */
NODISCARD int copy_in_write(struct copy_in *in, size_t file, uint64_t offset, struct str bytes,
                            uint64_t sum, struct err *e);
uint64_t copy_in_total(const struct copy_in *in); /* all files are here */
/* Checks that the copy can be opened and is as of the right entry; it may then be installed.
 * anyway: even if the local database is as new. */
NODISCARD int copy_in_complete(struct copy_in *in, bool anyway, struct err *e);
void copy_in_free(struct copy_in *in); /* the files stay; NULL is fine */

/* Puts what is complete in base/in in the place of the database in db, and clears up what an
 * earlier try left, wherever it was interrupted. Before db is opened. Nothing to do: 0. */
NODISCARD int copy_install(const char *db, const char *base, const struct copy_faults *faults,
                           bool *ret_installed, struct err *e);

/* All copies of a shard, in and out. */
NODISCARD int copy_forget(const char *base, struct err *e);

#endif
