/* SPDX-License-Identifier: Apache-2.0
 *
 * copy_files.h: the folders of copies on disk. Next to the database of a shard is a folder for
 * them:
 *
 *   out-ID-INDEX-TERM/   files of this database as of an entry, for other replicas (hard links)
 *   in/                  files of another database that arrive; COPYING lists the files that are
 *                        whole, COMPLETE says that all are
 *   old/                 the replaced database, until it is deleted
 *
 * Thread: any, one at a time per folder.
 */
#ifndef COMMON_REPL_COPY_FILES_H
#define COMMON_REPL_COPY_FILES_H

#include "common/repl/copy_msg.h"
#include "common/store/kv/kv.h"

#define COPY_JOURNAL    "COPYING"
#define COPY_COMPLETE   "COMPLETE"
#define COPY_PATH_BYTES 4096

/* Tests make system calls fail, and simulation has databases of its own. */
struct copy_faults {
    int (*fails)(void *cookie, const char *what, const char *path); /* an errno; 0: no error */
    void *cookie;
    /* Optional: a piece came in, and may have been damaged on its way. */
    void (*came)(void *cookie, struct buf *bytes);
    /* The database of a folder, to be read. NULL: RocksDB. */
    int (*open)(void *cookie, const char *dir, struct kv **ret, struct err *e);
};
/* err with the errno if the call `what` is to fail. */
NODISCARD int copy_fault(const struct copy_faults *f, const char *what, const char *path,
                         struct err *e);
/* a/b; ERR_CONFIG: longer than a path may be. */
NODISCARD int copy_path(char ret[COPY_PATH_BYTES], const char *a, const char *b, struct err *e);
NODISCARD int copy_sync_dir(const struct copy_faults *f, const char *dir, struct err *e);
/* Deletes the folder with its files; a missing folder is fine. */
NODISCARD int copy_remove(const struct copy_faults *f, const char *dir, struct err *e);

/* The files of a checkpoint, in order of their names, but for what the receiver does not need. */
NODISCARD int copy_scan(const char *dir, struct copy_list *ret, struct err *e);
/* At most COPY_PIECE_BYTES of a file of it. ERR_CORRUPT: it is shorter than the list says. */
NODISCARD int copy_read(const char *dir, const struct copy_file *f, uint64_t offset, size_t len,
                        struct buf *out, struct err *e);
/* ERR_NOT_FOUND; ret->name is given. */
NODISCARD int copy_look(const char *dir, struct copy_file *ret, struct err *e);

static inline size_t copy_pieces(uint64_t size)
{
    return (size_t)((size + COPY_PIECE_BYTES - 1) / COPY_PIECE_BYTES);
}
/* Sums; none is 0. A piece's knows where it belongs. */
uint64_t copy_piece_sum(struct str bytes, const char *name, uint64_t offset);
uint64_t copy_file_sum(const uint64_t *pieces, uint64_t size);
uint64_t copy_total(const uint64_t *files, size_t n);

/* Name of the folder of an outgoing copy. */
void copy_out_name(uint64_t id, uint64_t index, uint64_t term, char ret[64]);
bool copy_out_parse(const char *name, uint64_t *ret_id, uint64_t *ret_index, uint64_t *ret_term);

#endif
